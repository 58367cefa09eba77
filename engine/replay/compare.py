"""The same passes with other policies and budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engine.errors import OptionError
from engine.experts.cache import ExpertCache
from engine.experts.policies import POLICIES, Policy, make_policy
from engine.hardware.plan import parse_experts
from engine.replay.belady import Belady
from engine.replay.trace import Loaded, Request, Step, Trace

TELL_EVERY = 16  # passes between two words about how far a replay is


@dataclass(frozen=True, slots=True)
class Budget:
    """How many experts may stay: as it was asked for, and in slots."""

    text: str
    slots: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one policy makes of one budget. Counts are uses: (layer, expert) wanted by one pass."""

    policy: str
    budget: Budget
    decode_hits: int
    decode_misses: int
    prefill_hits: int
    prefill_misses: int
    decode_tokens: int
    slot_bytes: int

    @property
    def decode_hit_rate(self) -> float | None:
        uses = self.decode_hits + self.decode_misses
        return self.decode_hits / uses if uses else None

    @property
    def bytes_per_token(self) -> float | None:
        """Bytes fetched for each decode token."""
        return self.decode_misses * self.slot_bytes / self.decode_tokens if self.decode_tokens else None


def parse_policies(text: str) -> list[str]:
    """ "all", or names with commas between. Raises OptionError."""
    names = list(POLICIES) if text.strip() == "all" else [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        make_policy(name, 1, 1)
    if not names:
        raise OptionError(f"Name policies to replay: all, or some of {', '.join(POLICIES)}.")
    return list(dict.fromkeys(names))


def parse_budgets(text: str, model: Loaded) -> list[Budget]:
    """ "25%,64 slots,1GB" in slots of that model. Raises OptionError."""
    budgets = []
    for part in (part.strip() for part in text.split(",") if part.strip()):
        slots = parse_experts(part, model.layers * model.experts, max(1, model.slot_bytes))
        if slots is None:
            raise OptionError("A replay has no memory to look at: give the experts a share, a size or slots.")
        budgets.append(Budget(part, slots))
    if not budgets:
        raise OptionError('Give the experts budgets to replay, such as "25%,50%".')
    return budgets


def compare(trace: Trace, policies: Sequence[str], budgets: Sequence[Budget]) -> list[Outcome]:
    """Every policy with every budget, then Belady's bound for each.

    Each begins with an empty cache that lives on through all the logs, as if one program had answered them all.
    """
    return [outcome for run in runs(trace, policies, budgets) for outcome in run]


def runs(
    trace: Trace,
    policies: Sequence[str],
    budgets: Sequence[Budget],
    moved: Callable[[str, float], None] = lambda policy, share: None,
) -> Iterator[list[Outcome]]:
    """``compare``, one policy after the other, Belady last; each list has every budget.

    moved: told now and then which policy is at work, and the share of its passes that are done, 0..1.
    """
    shape = trace.model.layers, trace.model.experts
    for name in policies:
        yield _run(trace, make_policy(name, *shape), budgets, moved)
    moved(Belady.name, 0.0)  # looking into the future takes a while, too
    yield _run(trace, Belady(*shape, trace.steps), budgets, moved)


class _Shared(Policy):
    """Another policy's priorities, in a further cache: they do not depend on who is resident."""

    STATE = ()

    def __init__(self, policy: Policy) -> None:
        self.name = policy.name  # type: ignore[misc]
        self.knows_the_future = policy.knows_the_future  # type: ignore[misc]
        self.priority = policy.priority

    def used(self, layer: int, experts: np.ndarray, counts: np.ndarray) -> None:
        """Its owner was told."""


def _run(trace: Trace, policy: Policy, budgets: Sequence[Budget], moved: Callable[[str, float], None]) -> list[Outcome]:
    shape = trace.model.layers, trace.model.experts
    caches = [ExpertCache(budget.slots, *shape, _Shared(policy)) for budget in budgets]
    uses = {"prefill": 0, "decode": 0}
    misses = {"prefill": [0] * len(caches), "decode": [0] * len(caches)}
    for passed, one in enumerate(trace.happenings):
        if passed % TELL_EVERY == 0:
            moved(policy.name, passed / len(trace.happenings))
        if isinstance(one, Request):
            policy.begin_request()
            for cache in caches:
                cache.begin_request()
        elif isinstance(one, Step):
            policy.begin_pass(one.phase, one.tokens)
            streaming = [one.phase == "prefill" and cache.streams(trace.model.top_k, one.tokens) for cache in caches]
            for cache in caches:
                cache.begin_pass(one.phase)
            missed = misses[one.phase]
            for layer, experts, counts in one.wanted:
                policy.used(layer, experts, counts)
                uses[one.phase] += len(experts)
                for number, cache in enumerate(caches):
                    missed[number] += cache.touch(layer, experts, counts, streaming[number])
    return [
        Outcome(
            policy.name,
            budget,
            uses["decode"] - misses["decode"][number],
            misses["decode"][number],
            uses["prefill"] - misses["prefill"][number],
            misses["prefill"][number],
            trace.tokens("decode"),
            trace.model.slot_bytes,
        )
        for number, budget in enumerate(budgets)
    ]
