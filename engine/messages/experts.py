"""The experts, watched: counters, the state of each, and whether fetching ahead pays."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Literal

import numpy as np


@dataclass(frozen=True, slots=True)
class CacheCounters:
    """Expert uses since the model was loaded. One use = one (layer, expert) wanted by one forward pass."""

    prefill_hits: int = 0
    prefill_misses: int = 0
    decode_hits: int = 0
    decode_misses: int = 0
    evictions: int = 0
    fetched_bytes: int = 0
    stall_seconds: float = 0.0  # compute waited for experts
    hook_calls: int = 0  # times the experts hook ran (one per layer and pass)
    # Fetched ahead. Each such fetch ends as one of three; a use that found it still under way is a hit, and late.
    prefetch_used: int = 0  # there when it was wanted
    prefetch_late: int = 0  # under way when it was wanted; compute waited for the rest
    prefetch_wasted: int = 0  # evicted before anybody wanted it
    prefetch_bytes: int = 0  # of all three, part of fetched_bytes
    prefetch_wasted_bytes: int = 0
    computed_on_host: int = 0  # misses that the processor computed where they waited; nothing was fetched for them

    @property
    def decode_hit_rate(self) -> float | None:
        """Share of decode uses that were hits, 0..1; None before the first."""
        uses = self.decode_hits + self.decode_misses
        return self.decode_hits / uses if uses else None

    def minus(self, earlier: CacheCounters) -> CacheCounters:
        """What happened since ``earlier``."""
        return CacheCounters(*(getattr(self, name) - getattr(earlier, name) for name in self.__slots__))


class Cell(IntFlag):
    """What one cell of the heatmap says about one expert, now."""

    RESIDENT = 1  # in a slot on the device
    ROUTED = 2  # chosen in the latest forward pass
    HIT = 4  # chosen and was resident
    MISS = 8  # chosen and had to be fetched
    PREDICTED = 16  # expected next: among the top-k of the latest guess about its layer
    PREFETCHED = 32  # chosen, and there in time because it was fetched ahead; HIT is set as well
    LATE = 64  # chosen while its early fetch was still under way; HIT is set as well
    WASTED = 128  # fetched ahead and thrown out during the latest pass without having been used


class Fetched(IntEnum):
    """How an expert came into its slot the last time, since the model was loaded."""

    NEVER = 0  # not fetched for any answer; the warm-up may have brought it
    DEMAND = 1  # computing waited for all of it
    IN_TIME = 2  # ahead of demand
    LATE = 3  # ahead of demand, and still under way when it was wanted
    WASTED = 4  # ahead of demand, and evicted unused


@dataclass(frozen=True, slots=True, eq=False)
class ExpertSnapshot:
    """Every expert at once. Arrays are ``[layers, experts]`` and read-only."""

    cells: np.ndarray  # uint8, bits of Cell; about the latest forward pass
    answer: np.ndarray  # uint32, uses in the present (or last) answer
    chat: np.ndarray  # uint32, uses since the KV cache was last empty
    total: np.ndarray  # uint32, uses since the model was loaded
    phase: Literal["prefill", "decode", "idle"]
    token: int  # tokens of the answer so far
    fetched: np.ndarray | None = None  # uint8, Fetched; None: nobody kept count


@dataclass(frozen=True, slots=True)
class PrefetchState:
    """Does fetching ahead pay? Costs are seconds per token, with it and without it, of the latest measurement."""

    on: bool
    verdict: str  # one sentence for the user
    cost_with: float | None = None  # None before the first one
    cost_without: float | None = None
    accuracy: tuple[float | None, ...] = ()  # share of a layer's experts foreseen, by distance in layers from 1


@dataclass(frozen=True, slots=True)
class CacheSnapshot:
    """Figures for the cache panel. Window: the last 64 decode tokens."""

    counters: CacheCounters
    window_hit_rate: float | None  # 0..1
    window_bytes_per_token: float | None
    window_stall_per_token: float | None  # seconds
    tokens_per_second: float | None  # decode, window
    slots: int
    resident: int  # slots in use
    prefetch: PrefetchState | None = None
