"""The run that wrote a log, done again: same settings, same cache, and a comparison with what the log says of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.errors import GreenroomError, SessionError
from engine.experts.cache import ExpertCache, Lease
from engine.experts.policies import make_policy
from engine.experts.records import Deed, Note
from engine.experts.stages import stage_of
from engine.replay.trace import Gap, Loaded, Request, Rest, Step, Trace
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
        elif isinstance(one, Gap) or (isinstance(one, Rest) and run is not None and not run.settles(one)):
            run = None
            live.reason = live.reason or "a line of the log is damaged"
        elif isinstance(one, Step):
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
    elif run.meets(step):
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
        self._shape, self._top_k = shape, loaded.top_k
        self._caches: list[ExpertCache] = []
        served: dict[tuple[int, ...], list[ExpertCache]] = {}
        if loaded.state is None and len(loaded.resident):
            raise SessionError("the log does not say what the policy had seen")
        for slots, layers in loaded.arenas:
            cache = ExpertCache(slots, *shape, make_policy(loaded.policy, *shape))
            self._caches.append(cache)
            served.setdefault(layers, []).append(cache)
        self._caches_of: list[list[ExpertCache]] = [[] for _ in range(loaded.layers)]
        for layers, caches in served.items():
            for layer in layers:
                self._caches_of[layer] = caches
        self._owners = [
            stage_of(layer, loaded.experts, max(1, len(caches))) for layer, caches in enumerate(self._caches_of)
        ]
        for cache in self._caches:
            cache.fill(np.array([key for key in loaded.resident.tolist() if self._home(key) is cache], dtype=np.int64))
        if loaded.state is not None:
            self._restore(loaded.state)
        self._early: set[int] = set()

    def _restore(self, packed: str) -> None:
        sizes = [cache.policy.state().size for cache in self._caches]
        state = unpack_state(packed, sum(sizes))
        for cache, size in zip(self._caches, sizes, strict=True):
            cache.policy.restore(state[:size])
            state = state[size:]

    def begin_request(self) -> None:
        for key in self._early:
            self._home(key).let_go(key)
        self._early.clear()
        for cache in self._caches:
            cache.begin_request()
            cache.policy.begin_request()

    def meets(self, step: Step) -> bool:
        """Run the pass; whether it missed whom the log says, and could do what the log says was done."""
        try:
            return np.array_equal(self.missed(step), step.missed)
        except (ValueError, IndexError, RuntimeError):
            return False

    def settles(self, rest: Rest) -> bool:
        """An answer's end; whether what the log says was done then could be done."""
        try:
            self._do(_notes(rest.ahead))
        except (ValueError, IndexError, RuntimeError):
            return False
        return True

    def missed(self, step: Step) -> np.ndarray:
        """bool ``[layers, experts]``: who had to be fetched. ValueError when the log's deeds cannot be done here."""
        for cache in self._caches:
            cache.policy.begin_pass(step.phase, step.tokens)
            cache.begin_pass(step.phase)
        deeds = _notes(step.ahead)
        self._do([note for note in deeds if note.layer < 0])
        streaming = [step.phase == "prefill" and cache.streams(self._top_k, step.tokens) for cache in self._caches]
        missed = np.zeros(self._shape, dtype=bool)
        wanted = {layer: (experts, counts) for layer, experts, counts in step.wanted}
        for layer in sorted(wanted.keys() | {note.layer for note in deeds if 0 <= note.layer < self._shape[0]}):
            here = [note for note in deeds if note.layer == layer]
            self._do([note for note in here if note.deed is not Deed.BRING])
            if layer in wanted:
                outside = None if step.on_host is None else step.on_host[layer]
                self._lease(layer, *wanted[layer], streaming, missed[layer], outside)
            self._do([note for note in here if note.deed is Deed.BRING])
        self._do([note for note in deeds if note.layer >= self._shape[0]])
        return missed

    def _lease(
        self,
        layer: int,
        experts: np.ndarray,
        counts: np.ndarray,
        streaming: list[bool],
        missed: np.ndarray,
        on_host: np.ndarray | None,
    ) -> None:
        """on_host: bool ``[experts]``, who was computed without a slot."""
        owners = self._owners[layer][experts]
        for number, cache in enumerate(self._caches_of[layer]):
            ours = owners == number
            streams = streaming[self._caches.index(cache)]
            wanted, leased = experts[ours], list[Lease]()
            outside = None if on_host is None else on_host[wanted]
            if outside is not None:
                missed[wanted[outside]] = cache.absent(wanted[outside] + layer * self._shape[1])
            for lease in cache.waves(layer, wanted, counts[ours], streams, outside):
                missed[lease.experts[lease.missing]] = True
                leased.append(lease)
                while cache.must_wait(len(leased), streams):
                    cache.release(leased.pop(0))
            for lease in leased:
                cache.release(lease)

    def _do(self, deeds: list[Note]) -> None:
        for note in deeds:
            if note.deed is Deed.RESIZE:
                if note.leaving > self._shape[0] * self._shape[1]:
                    raise ValueError("the log gives an arena more slots than there are experts")
                self._caches[note.key].resize(note.leaving)
                continue
            cache = self._home(note.key)
            if note.deed is Deed.BRING:
                cache.bring(note.key, note.leaving)
                self._early.add(note.key)
            elif note.deed is Deed.TAKE_BACK:
                cache.take_back(note.key, note.leaving)
            elif note.deed is Deed.DROP:
                cache.forget(*divmod(note.key, self._shape[1]))
            elif note.deed is Deed.LET_GO:
                cache.let_go(note.key)

    def _home(self, key: int) -> ExpertCache:
        layer, expert = divmod(key, self._shape[1])
        return self._caches_of[layer][self._owners[layer][expert]]


def _notes(ahead: np.ndarray) -> list[Note]:
    """ValueError when one is no deed that we know."""
    return [Note(layer, Deed(deed), key, leaving) for layer, deed, key, leaving in ahead.tolist()]
