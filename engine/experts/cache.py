"""Who sits where: (layer, expert) -> slot. Ids and counts only, no tensor, so that the replay runs the same class.

A lease pins the slots of one dispatch until it is released; a pinned expert is never evicted. A dispatch that wants
more experts than there are slots takes several leases one after the other (waves), so it never deadlocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from engine.experts.policies import Policy


@dataclass(frozen=True, slots=True)
class Lease:
    """Slots pinned for some experts of one layer. ``missing`` says which must still be filled."""

    layer: int
    experts: np.ndarray  # int64 [n], ascending hits first, then ascending misses
    slots: np.ndarray  # int64 [n]
    missing: np.ndarray  # bool [n]


class ExpertCache:
    """A fixed set of slots for the experts of ``layers`` layers. Single-threaded: only the engine thread calls it."""

    def __init__(self, slots: int, layers: int, experts: int, policy: Policy) -> None:
        if slots < 1:
            raise ValueError("a cache needs at least one slot")
        self.slots = slots
        self.policy = policy
        self.evictions = 0
        self._slot_of = np.full((layers, experts), -1, dtype=np.int64)
        self._layer_in = np.full(slots, -1, dtype=np.int64)
        self._expert_in = np.full(slots, -1, dtype=np.int64)
        self._pins = np.zeros(slots, dtype=np.int64)
        self._held = 0  # slots with an expert

    @property
    def resident(self) -> int:
        """Slots that hold an expert."""
        return self._held

    def resident_mask(self) -> np.ndarray:
        """bool ``[layers, experts]``: who is in a slot."""
        return self._slot_of >= 0

    def waves(self, layer: int, wanted: np.ndarray) -> Iterator[Lease]:
        """Lease the experts of one dispatch, as many at a time as fit; release each lease before taking the next.

        wanted: int64 ``[n]``, distinct and ascending. Hits come in the first lease, so nothing this dispatch needs is
        evicted for it while a slot can be had otherwise.
        """
        self.policy.used(layer, wanted)
        present = self._slot_of[layer, wanted] >= 0
        order = np.concatenate([wanted[present], wanted[~present]])
        if len(order) <= self.slots:
            yield self._lease(layer, order)
            return
        for start in range(0, len(order), self.slots):
            yield self._lease(layer, order[start : start + self.slots])

    def release(self, lease: Lease) -> None:
        """The dispatch no longer reads these slots."""
        self._pins[lease.slots] -= 1

    def forget(self, layer: int, expert: int) -> None:
        """The slot does not hold what it should (a read failed): nobody may hit it."""
        slot = self._slot_of[layer, expert]
        if slot >= 0:
            self._slot_of[layer, expert] = -1
            self._layer_in[slot] = self._expert_in[slot] = -1
            self._held -= 1

    def by_eviction_order(self) -> np.ndarray:
        """Resident experts, next to leave first, as int64 ``layer * experts + expert``."""
        held = np.flatnonzero(self._layer_in >= 0)
        scores = self.policy.scores(self._layer_in[held], self._expert_in[held])
        order = held[np.argsort(scores, kind="stable")]
        return self._layer_in[order] * self._slot_of.shape[1] + self._expert_in[order]

    def _lease(self, layer: int, experts: np.ndarray) -> Lease:
        slots = self._slot_of[layer, experts]
        missing = slots < 0
        self._pins[slots[~missing]] += 1
        if missing.any():
            slots[missing] = self._take(layer, experts[missing])
        return Lease(layer, experts, slots, missing)

    def _take(self, layer: int, experts: np.ndarray) -> np.ndarray:
        """Slots for ``experts``, pinned and entered in the table."""
        count = len(experts)
        free = self._free_slots(count)
        if len(free) < count:
            free = np.concatenate([free, self._evict(count - len(free))])
        self._slot_of[layer, experts] = free
        self._layer_in[free] = layer
        self._expert_in[free] = experts
        self._pins[free] += 1
        self._held += count
        return free

    def _free_slots(self, count: int) -> np.ndarray:
        """Empty slots nobody reads, lowest first, at most ``count``; one that was forgotten counts like a new one."""
        if self._held == self.slots:
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero((self._layer_in < 0) & (self._pins == 0))[:count]

    def _evict(self, count: int) -> np.ndarray:
        candidates = np.flatnonzero((self._pins == 0) & (self._layer_in >= 0))
        if len(candidates) < count:
            raise RuntimeError(f"{count} slots wanted and only {len(candidates)} are not pinned")
        layers, experts = self._layer_in[candidates], self._expert_in[candidates]
        order = np.argsort(self.policy.scores(layers, experts), kind="stable")[:count]
        leaving = candidates[order]
        self._slot_of[self._layer_in[leaving], self._expert_in[leaving]] = -1
        self._layer_in[leaving] = self._expert_in[leaving] = -1
        self.evictions += count
        self._held -= count
        return leaving
