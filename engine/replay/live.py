"""The run that wrote a log, done again: same settings, same cache, and a comparison with what the log says of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.errors import GreenroomError, SessionError
from engine.experts.cache import ExpertCache
from engine.experts.policies import make_policy
from engine.replay.trace import Gap, Loaded, Request, Step, Trace
from engine.sessions.packing import unpack_state


@dataclass(slots=True)
class LiveReplay:
    """Uses of experts as logged, and how the replay compares, pass by pass."""

    settings: list[str]  # "lru, 480 slots"; each once
    decode_hits: int = 0  # as logged
    decode_misses: int = 0
    passes: int = 0
    equal: int = 0  # passes with the same hits and misses, each one
    differing: int = 0
    unknown: int = 0  # passes that cannot be replayed: the log does not say what the cache or the policy held
    reason: str = ""  # of the first that is not equal

    @property
    def exact(self) -> bool:
        """Every hit and miss was met again."""
        return self.equal == self.passes

    @property
    def decode_hit_rate(self) -> float | None:
        uses = self.decode_hits + self.decode_misses
        return self.decode_hits / uses if uses else None


def replay_live(trace: Trace) -> LiveReplay:
    """Run every pass through caches set up as each model record says, and compare the misses with the logged ones."""
    live = LiveReplay([])
    run: _Run | None = None
    for one in trace.happenings:
        if isinstance(one, Loaded):
            setting = f"{one.policy}, {one.slots} slots"
            if setting not in live.settings:
                live.settings.append(setting)
            run = _start(one, live)
        elif isinstance(one, Request):
            if run is not None:
                run.begin_request()
        elif isinstance(one, Gap):
            run = None
            live.reason = live.reason or "a pass record is damaged"
        else:
            _compare(one, run, live)
    return live


def _compare(step: Step, run: _Run | None, live: LiveReplay) -> None:
    live.passes += 1
    if step.phase == "decode":
        misses = int(np.count_nonzero(step.missed))
        live.decode_misses += misses
        live.decode_hits += sum(len(experts) for _, experts, _ in step.wanted) - misses
    if run is None:
        live.unknown += 1
    elif np.array_equal(run.missed(step), step.missed):
        live.equal += 1
    else:
        live.differing += 1
        live.reason = live.reason or f"pass {live.passes} met other misses"


def _start(loaded: Loaded, live: LiveReplay) -> _Run | None:
    try:
        return _Run(loaded)
    except (GreenroomError, ValueError, IndexError) as error:
        live.reason = live.reason or str(error)
        return None


class _Run:
    """The caches of one loaded model."""

    def __init__(self, loaded: Loaded) -> None:
        """Raises GreenroomError, ValueError or IndexError when the record does not say enough, or fits nothing."""
        shape = (loaded.layers, loaded.experts)
        self._shape = shape
        self._cache_of: list[ExpertCache | None] = [None] * loaded.layers
        self._caches: list[ExpertCache] = []
        if loaded.state is None and len(loaded.resident):
            raise SessionError("the log does not say what the policy had seen")
        for slots, layers in loaded.arenas:
            cache = ExpertCache(slots, *shape, make_policy(loaded.policy, *shape))
            cache.fill(loaded.resident[np.isin(loaded.resident // loaded.experts, layers)])
            self._caches.append(cache)
            for layer in layers:
                self._cache_of[layer] = cache
        if loaded.state is not None:
            self._restore(loaded.state)

    def _restore(self, packed: str) -> None:
        sizes = [cache.policy.state().size for cache in self._caches]
        state = unpack_state(packed, sum(sizes))
        for cache, size in zip(self._caches, sizes, strict=True):
            cache.policy.restore(state[:size])
            state = state[size:]

    def begin_request(self) -> None:
        for cache in self._caches:
            cache.policy.begin_request()

    def missed(self, step: Step) -> np.ndarray:
        """bool ``[layers, experts]``: who had to be fetched."""
        for cache in self._caches:
            cache.policy.begin_pass(step.phase, step.tokens)
        missed = np.zeros(self._shape, dtype=bool)
        for layer, experts, counts in step.wanted:
            cache_here = self._cache_of[layer]
            if cache_here is None:
                continue
            for lease in cache_here.waves(layer, experts, counts):
                missed[layer, lease.experts[lease.missing]] = True
                cache_here.release(lease)
        return missed
