"""What the panels are told: sampled from counters, never queued per layer."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from engine.experts.foresight import Foresight
from engine.experts.records import PassRecord
from engine.loading import LoadedModel
from engine.messages import CacheSnapshot, ExpertSnapshot, Fetched, MemoryPart

WINDOW = 64  # decode tokens
INTERVAL = 0.1  # seconds between snapshots while something runs


# hit rate 0..1, bytes per token, stall seconds per token, tokens per second
_Figures: TypeAlias = tuple[float | None, float | None, float | None, float | None]


@dataclass(frozen=True, slots=True)
class _Sample:
    hits: int
    misses: int
    fetched_bytes: int
    stall_seconds: float
    at: float  # seconds, when the token was done


class Telemetry:
    """Keeps the window over the last decode tokens, and says when the next snapshot is due."""

    def __init__(self, loaded: LoadedModel, foresight: Foresight) -> None:
        self._loaded = loaded
        self._runtime = loaded.runtime
        self._foresight = foresight
        self._window: deque[_Sample] = deque(maxlen=WINDOW)
        self._next = 0.0
        self._figures: _Figures = (None, None, None, None)
        self._fetched = np.zeros(loaded.runtime.observer.shape, np.uint8)

    def note(self, record: PassRecord) -> None:
        """Keep how each expert came that this pass fetched."""
        fetched = self._fetched
        fetched[record.missed & ~record.on_host] = Fetched.DEMAND
        fetched[record.early] = Fetched.IN_TIME
        fetched[record.late] = Fetched.LATE
        if record.wasted:
            fetched.reshape(-1)[list(record.wasted)] = Fetched.WASTED

    def add(self, record: PassRecord) -> None:
        """Count a decode pass; others change nothing here."""
        if record.phase == "decode" and record.tokens == 1:
            self._window.append(
                _Sample(record.hits, record.misses, record.fetched_bytes, record.stall_seconds, time.perf_counter())
            )

    def pause(self) -> None:
        """An answer ended: the time until the next does not count as decoding. The last figures stay until then."""
        self._figures = self._windowed()
        self._window.clear()

    def due(self) -> bool:
        """True at most once in INTERVAL."""
        now = time.perf_counter()
        if now < self._next:
            return False
        self._next = now + INTERVAL
        return True

    def experts(self, phase: Literal["prefill", "decode", "idle"], token: int) -> ExpertSnapshot:
        observer = self._runtime.observer
        arrays = (
            observer.cells(self._runtime.resident_mask(), self._runtime.predicted),
            observer.answer.copy(),
            observer.chat.copy(),
            observer.total.copy(),
        )
        fetched = self._fetched.copy()
        for array in (*arrays, fetched):
            array.flags.writeable = False
        return ExpertSnapshot(*arrays, phase, token, fetched)

    def held(self, kv_bytes: int, kept_bytes: int) -> dict[str, list[MemoryPart]]:
        """What the model holds of each memory, by device ("cpu", "cuda:0"); RAM beside a card keeps waiting experts.

        kv_bytes: of the running conversation. kept_bytes: of other chats, in RAM."""
        first = str(self._loaded.device)
        held = {first: [MemoryPart("dense", self._loaded.info.dense_bytes)]}
        for where, nbytes in self._runtime.held().items():
            held.setdefault(where, []).append(MemoryPart("experts", nbytes))
        held[first].append(MemoryPart("kv", kv_bytes + (kept_bytes if first == "cpu" else 0)))
        if kept_bytes and first != "cpu":
            held.setdefault("cpu", []).append(MemoryPart("kv", kept_bytes))
        return held

    def cache(self) -> CacheSnapshot:
        hit_rate, bytes_per_token, stall_per_token, tokens_per_second = self._windowed()
        return CacheSnapshot(
            counters=self._runtime.observer.counters(self._runtime.evictions),
            window_hit_rate=hit_rate,
            window_bytes_per_token=bytes_per_token,
            window_stall_per_token=stall_per_token,
            tokens_per_second=tokens_per_second,
            slots=self._runtime.slots,
            resident=self._runtime.resident,
            prefetch=self._foresight.state(),
        )

    def _windowed(self) -> _Figures:
        """Over the window; what was last known while it is empty."""
        window = self._window
        tokens = len(window)
        if not tokens:
            return self._figures
        uses = sum(sample.hits + sample.misses for sample in window)
        elapsed = window[-1].at - window[0].at
        return (
            sum(sample.hits for sample in window) / uses if uses else None,
            sum(sample.fetched_bytes for sample in window) / tokens,
            sum(sample.stall_seconds for sample in window) / tokens,
            (tokens - 1) / elapsed if elapsed > 0 else self._figures[3],
        )
