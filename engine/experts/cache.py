"""Who sits where: (layer, expert) -> slot. Ids and counts only, no tensor, so that the replay runs the same class.

A lease pins the slots of one dispatch until it is released; a pinned expert is never evicted. A dispatch that wants
more experts than there are slots takes several leases one after the other (waves), so it never deadlocks.

An expert's *key* is ``layer * experts + expert``. Which experts leave depends on keys and priorities alone, never on
slot numbers: a cache filled anew with the same experts goes on in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from engine.experts.policies import Policy

FEW = 6  # up to so many, looking for the lowest again and again is faster than parting them all


class Lease(NamedTuple):
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
        self._layers, self._experts = layers, experts
        self._slot_of = np.full(layers * experts, -1, dtype=np.int64)  # by key; -1: in no slot
        self._key_in = np.full(slots, -1, dtype=np.int64)
        self._pins = np.zeros(slots, dtype=np.int64)
        self._may_leave = np.zeros(layers * experts + 1, dtype=bool)  # by key, in a slot nobody reads; the last: no key
        self._candidates = self._may_leave[:-1]
        self._priority = policy.priority.reshape(-1)  # by key; the policy writes into it
        self._held = 0  # slots with an expert

    @property
    def resident(self) -> int:
        """Slots that hold an expert."""
        return self._held

    def resident_mask(self) -> np.ndarray:
        """bool ``[layers, experts]``: who is in a slot."""
        return (self._slot_of >= 0).reshape(self._layers, self._experts)

    def waves(self, layer: int, wanted: np.ndarray, counts: np.ndarray | None = None) -> Iterator[Lease]:
        """Lease the experts of one dispatch, as many at a time as fit; release each lease before taking the next.

        wanted: int64 ``[n]``, distinct and ascending. counts: how many tokens chose each (default: one). Hits come in
        the first lease, so nothing this dispatch needs is evicted for it while a slot can be had otherwise.
        """
        if not len(wanted):
            return
        self.policy.used(layer, wanted, np.ones(len(wanted)) if counts is None else counts)
        keys = wanted + layer * self._experts
        missing = self._slot_of.take(keys) < 0
        if np.count_nonzero(missing):
            keys = np.concatenate([keys[~missing], keys[missing]])
        for start in range(0, len(keys), self.slots):
            yield self._lease(layer, keys[start : start + self.slots])

    def touch(self, layer: int, wanted: np.ndarray, counts: np.ndarray | None = None) -> int:
        """A dispatch that nobody computes: as ``waves`` with each lease released at once, in half the time. How many
        were missing."""
        if len(wanted) > self.slots:
            return sum(self._come_and_go(lease) for lease in self.waves(layer, wanted, counts))
        if not len(wanted):
            return 0
        self.policy.used(layer, wanted, np.ones(len(wanted)) if counts is None else counts)
        keys = wanted + layer * self._experts
        absent = keys[self._slot_of.take(keys) < 0]
        if len(absent):
            self._may_leave[keys] = False
            self._take(absent)
            self._may_leave[keys] = True
        return len(absent)

    def _come_and_go(self, lease: Lease) -> int:
        self.release(lease)
        return int(np.count_nonzero(lease.missing))

    def release(self, lease: Lease) -> None:
        """The dispatch no longer reads these slots."""
        slots = lease.slots
        pins = self._pins.take(slots) - 1
        self._pins[slots] = pins
        if np.count_nonzero(pins):
            slots = slots[pins == 0]
        self._may_leave[self._key_in.take(slots)] = True  # of a forgotten one: the last, which nobody asks

    def forget(self, layer: int, expert: int) -> None:
        """The slot does not hold what it should (a read failed): nobody may hit it."""
        key = layer * self._experts + expert
        slot = self._slot_of[key]
        if slot >= 0:
            self._may_leave[key] = False
            self._slot_of[key] = self._key_in[slot] = -1
            self._held -= 1

    def fill(self, keys: np.ndarray) -> None:
        """Put these experts into the slots of an empty cache, as a log says they were. ValueError when they cannot."""
        keys = np.asarray(keys, dtype=np.int64)
        count = len(keys)
        fit = count <= self.slots and len(np.unique(keys)) == count and not (keys >= len(self._slot_of)).any()
        if self._held or not fit:
            raise ValueError(f"{count} experts do not fit into {self.slots} slots, of which {self._held} are taken")
        self._key_in[:count] = keys
        self._slot_of[keys] = np.arange(count)
        self._may_leave[keys] = True
        self._held = count

    def by_eviction_order(self) -> np.ndarray:
        """Keys of the resident experts, next to leave first."""
        keys = np.flatnonzero(self._slot_of >= 0)
        return keys[np.argsort(self._priority[keys], kind="stable")]

    def _lease(self, layer: int, keys: np.ndarray) -> Lease:
        """keys: who is in a slot comes first."""
        slots = self._slot_of.take(keys)
        hits = int(np.count_nonzero(slots >= 0))
        missing = np.zeros(len(keys), dtype=bool)
        self._may_leave[keys] = False
        if hits < len(keys):
            missing[hits:] = True
            slots[hits:] = self._take(keys[hits:])
        self._pins[slots] += 1
        return Lease(layer, keys - layer * self._experts, slots, missing)

    def _take(self, keys: np.ndarray) -> np.ndarray:
        """Slots for experts that have none, entered in the table."""
        count = len(keys)
        if self._held == self.slots:
            slots = self._evict(count)
        else:
            slots = self._free_slots(count)
            if len(slots) < count:
                slots = np.concatenate([slots, self._evict(count - len(slots))])
        self._slot_of[keys] = slots
        self._key_in[slots] = keys
        self._held += count
        return slots

    def _free_slots(self, count: int) -> np.ndarray:
        """Empty slots nobody reads, lowest first, at most ``count``; one that was forgotten counts like a new one."""
        return np.flatnonzero((self._key_in < 0) & (self._pins == 0))[:count]

    def _evict(self, count: int) -> np.ndarray:
        candidates = self._candidates.nonzero()[0]
        if len(candidates) < count:
            raise RuntimeError(f"{count} slots wanted and only {len(candidates)} are not pinned")
        leaving = candidates[lowest(self._priority.take(candidates), count)]
        slots = self._slot_of.take(leaving)
        self._slot_of[leaving] = -1
        self._key_in[slots] = -1
        self._may_leave[leaving] = False
        self.evictions += count
        self._held -= count
        return slots


def lowest(values: np.ndarray, count: int) -> np.ndarray:
    """Where the ``count`` lowest values are, among equals the first ones: who, not in which order."""
    rest = values.copy()
    if count <= FEW:
        found = np.empty(count, dtype=np.int64)
        for number in range(count):
            found[number] = one = rest.argmin()
            rest[one] = np.inf
        return found
    rest.partition(count - 1)
    highest = rest[count - 1]
    found = (values <= highest).nonzero()[0]
    if len(found) > count:
        below = values[found] < highest
        equal = found[~below]
        found = np.concatenate([found[below], equal[: count - int(np.count_nonzero(below))]])
    return found
