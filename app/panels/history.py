"""What the panels draw over time: a few numbers kept whether anybody looks or not.

The panels themselves hear of nothing while they are hidden; this is why a panel that is opened has a past to show. It
costs a few microseconds for each snapshot, ten a second at most, and never more than some kilobytes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.messages import CacheCounters, CacheSnapshot, Finished, MemorySnapshot, PrefillProgress, Started

POINTS = 240  # of a line: 24 s of decoding at ten a second, and more where that is slower
MEMORY_SECONDS = 300.0
SHORTEST_PREFILL = 0.25  # seconds; events come by the tick, and over less than some ticks they tell no speed


@dataclass(slots=True, weakref_slot=True)
class History:
    """Lines of the model that is loaded. None in a line is a gap: another answer began."""

    clock: Callable[[], float] = time.monotonic
    hits: deque[float | None] = field(default_factory=lambda: deque(maxlen=POINTS))  # share of the last 64 tokens
    decode: deque[float | None] = field(default_factory=lambda: deque(maxlen=POINTS))  # tokens per second
    memory: deque[tuple[float, MemorySnapshot]] = field(default_factory=deque)  # by the clock, seconds
    prefill_rate: float | None = None  # tokens per second, of the prompt being read or read last
    _counters: CacheCounters = field(default_factory=CacheCounters)
    _began: float = 0.0

    def forget(self) -> None:
        """Another model, or none. Memory goes on: it is the machine's."""
        self.hits.clear()
        self.decode.clear()
        self.prefill_rate = None
        self._counters = CacheCounters()

    def add_cache(self, snapshot: CacheSnapshot) -> None:
        """A point for each snapshot before which tokens were decoded."""
        passed = snapshot.counters.minus(self._counters)
        self._counters = snapshot.counters
        if passed.decode_hits + passed.decode_misses:
            self.hits.append(snapshot.window_hit_rate)
            self.decode.append(snapshot.tokens_per_second)

    def add_memory(self, snapshot: MemorySnapshot) -> None:
        now = self.clock()
        self.memory.append((now, snapshot))
        # one older than the span stays: it says how things stood when the span began
        while len(self.memory) > 1 and self.memory[1][0] < now - MEMORY_SECONDS:
            self.memory.popleft()

    def started(self, event: Started) -> None:
        self._began = self.clock()
        for line in (self.hits, self.decode):
            if line and line[-1] is not None:
                line.append(None)

    def prefilled(self, event: PrefillProgress) -> None:
        seconds = self.clock() - self._began
        if event.done_tokens and seconds >= SHORTEST_PREFILL:
            self.prefill_rate = event.done_tokens / seconds

    def finished(self, event: Finished) -> None:
        """The engine has measured it itself; that is what the log and the table say."""
        self.prefill_rate = event.timings.prefill_rate or self.prefill_rate
