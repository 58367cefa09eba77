"""Every contender in turn, round after round (A B C, A B C, ...), so that a slow minute is everybody's.

Those that fit into memory together stay loaded; the others are loaded anew for each of their turns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from engine.bench.contender import Contender, PathInfo, Sample, Unavailable
from engine.bench.prompts import WARM_UP_ANSWER
from engine.errors import GreenroomError, explain

log = logging.getLogger("greenroom.bench")


@dataclass(frozen=True, slots=True)
class Work:
    """tokens: decode steps of each answer. prompts: one for each round. warm_up: decode steps for who learns before its
    first turn counts; warm_up_prompts are used in turn, for answers of context - prompt - 1 tokens at most."""

    tokens: int
    prompts: Sequence[list[int]]
    warm_up: int
    warm_up_prompts: Sequence[list[int]]
    context: int


@dataclass
class Outcome:
    samples: dict[str, list[Sample]] = field(default_factory=dict)  # by path key
    left_out: dict[str, str] = field(default_factory=dict)  # path key -> why
    reloaded: list[str] = field(default_factory=list)  # contenders that were loaded anew for every round


def choose_kept(contenders: Sequence[Contender], room: int) -> tuple[list[Contender], list[Contender], list[Contender]]:
    """(stay loaded, take turns, do not fit at all) when together they may hold ``room`` bytes.

    The largest of those that take turns must always find room beside those that stay; the order of ``contenders`` is
    who stays first.
    """
    fitting = [one for one in contenders if one.need <= room]
    too_big = [one for one in contenders if one.need > room]
    if sum(one.need for one in fitting) <= room:
        return fitting, [], too_big
    kept: list[Contender] = []
    for one in fitting:
        others = [other.need for other in fitting if other is not one and other not in kept]
        if sum(other.need for other in kept) + one.need + max(others, default=0) <= room:
            kept.append(one)
    return kept, [one for one in fitting if one not in kept], too_big


def run_rounds(
    contenders: Sequence[Contender],
    work: Work,
    room: int,
    report: Callable[[str], None],
    disk: Callable[[], float] | None = None,
) -> Outcome:
    """Measure everybody, closing all at the end. A peer that cannot take part is left out with the reason.

    disk: asked before and after each answer that reads from the disk only, since a disk changes its pace as well.
    """
    _, in_turn, too_big = choose_kept(contenders, room)
    outcome = Outcome(reloaded=[one.name for one in in_turn])
    for one in too_big:
        _leave_out(one, f"it needs {one.need / 1e9:.1f} GB and {room / 1e9:.1f} GB can be had", outcome)
    racing = [one for one in contenders if one not in too_big]
    loaded: set[str] = set()
    try:
        for number, prompt in enumerate(work.prompts, 1):
            for one in list(racing):
                try:
                    if one.name not in loaded:
                        one.open()
                        loaded.add(one.name)
                        _warm_up(one, work, report)
                    for path in one.paths:
                        report(f"round {number} of {len(work.prompts)}: {path.key}")
                        sample = _run(one, path, prompt, work.tokens, disk)
                        outcome.samples.setdefault(path.key, []).append(sample)
                except (Unavailable, GreenroomError, MemoryError, RuntimeError, ValueError, OSError) as error:
                    log.info("%s left out", one.name, exc_info=True)
                    racing.remove(one)
                    loaded.discard(one.name)
                    one.close()
                    _leave_out(one, _reason(error), outcome)
                    continue
                if one in in_turn:
                    one.close()
                    loaded.discard(one.name)
    finally:
        for one in contenders:
            one.close()
    return outcome


def _run(one: Contender, path: PathInfo, prompt: list[int], tokens: int, disk: Callable[[], float] | None) -> Sample:
    if disk is None or not path.held:
        return one.run(path, prompt, tokens)
    before = disk()
    sample = one.run(path, prompt, tokens)
    return replace(sample, disk_rate=(before + disk()) / 2)


def _warm_up(one: Contender, work: Work, report: Callable[[str], None]) -> None:
    """Off the record: memory gets touched, libraries choose their kernels, what learns has something to learn from."""
    for path in one.paths:
        left, turn = one.warm_up(work.warm_up), 0
        while left > 0:
            report(f"{path.key}: warming up")
            prompt = work.warm_up_prompts[turn % len(work.warm_up_prompts)]
            steps = min(left, WARM_UP_ANSWER, work.context - len(prompt) - 1)
            one.run(path, list(prompt), steps)
            left, turn = left - steps, turn + 1
        one.warmed_up()


def _reason(error: Exception) -> str:
    if isinstance(error, Unavailable | GreenroomError | MemoryError):
        return str(error) if isinstance(error, Unavailable) else explain(error)
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason given")
    return f"it failed: {first[:200]} ({type(error).__name__})"


def _leave_out(one: Contender, reason: str, outcome: Outcome) -> None:
    for path in one.paths:
        outcome.samples.pop(path.key, None)
        outcome.left_out[path.key] = reason
