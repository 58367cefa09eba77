"""Who sits where: (layer, expert) -> slot. Ids and counts only, no tensor, so that the replay runs the same class.

A lease pins the slots of one dispatch until it is released; a pinned expert is never evicted. A dispatch that wants
more experts than there are slots takes several leases one after the other (waves), so it never deadlocks.

A prompt that wants more experts than there are slots *streams*: its misses pass through a few slots, a ring, two waves
of half a ring each in turn, and whoever decode lives on stays where it is.

An expert may be *brought* before anybody wants it. It keeps its slot until it was used or is let go, and is counted as
used, be it after it was let go, or wasted.

An expert's *key* is ``layer * experts + expert``. Which experts leave depends on keys and priorities alone, never on
slot numbers: a cache filled anew with the same experts goes on in the same way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from engine.experts.lowest import lowest
from engine.experts.policies import Policy
from engine.experts.records import Phase

RING = 16  # slots that a streaming prompt passes through, at most


class Lease(NamedTuple):
    """Slots pinned for some experts of one layer. ``missing`` says which must still be filled."""

    layer: int
    experts: np.ndarray  # int64 [n], ascending hits first, then ascending misses
    slots: np.ndarray  # int64 [n]
    missing: np.ndarray  # bool [n]


class ExpertCache:
    """A set of slots for the experts of ``layers`` layers. Single-threaded: only the engine thread calls it."""

    _NOBODY = np.zeros(0, dtype=np.int64)

    def __init__(self, slots: int, layers: int, experts: int, policy: Policy) -> None:
        if slots < 1:
            raise ValueError("a cache needs at least one slot")
        self.slots = slots
        self.policy = policy
        self.evictions = 0
        self.experts = self._experts = experts
        self._layers = layers
        self._slot_of = np.full(layers * experts, -1, dtype=np.int64)  # by key; -1: in no slot
        self._key_in = np.full(slots, -1, dtype=np.int64)
        self._pins = np.zeros(slots, dtype=np.int64)
        self._may_leave = np.zeros(layers * experts + 1, dtype=bool)  # by key, in a slot nobody reads; the last: no key
        self._candidates = self._may_leave[:-1]
        self._priority = policy.priority.reshape(-1)  # by key; the policy writes into it
        self._held = 0  # slots with an expert
        self._ring: deque[int] = deque()  # keys that streamed in with this prompt, oldest first
        self._early = np.zeros(layers * experts, dtype=bool)  # by key: brought, and not used yet
        self._brought = 0  # how many of them
        self.wasted: list[int] = []  # keys that were brought and left unused; whoever counts empties it
        self.found: list[int] = []  # keys that were brought, let go, and used after all; emptied likewise
        self.for_good = False  # there will never be fewer slots than now

    @property
    def resident(self) -> int:
        """Slots that hold an expert."""
        return self._held

    def resident_mask(self) -> np.ndarray:
        """bool ``[layers, experts]``: who is in a slot."""
        return (self._slot_of >= 0).reshape(self._layers, self._experts)

    def absent(self, keys: np.ndarray) -> np.ndarray:
        """bool ``[n]``: which of ``keys`` are in no slot."""
        return self._slot_of.take(keys) < 0

    def streams(self, top_k: int, tokens: int) -> bool:
        """Whether a prompt of ``tokens`` tokens is expected to want more experts than there are slots."""
        expected = self._layers * self._experts * (1 - (1 - min(1.0, top_k / self._experts)) ** tokens)
        return tokens > 1 and expected > self.slots

    def begin_request(self) -> None:
        """What streamed in before is a resident like others from here on."""
        self._ring.clear()

    def begin_pass(self, phase: Phase) -> None:
        """A prompt's passes share one ring: each with a ring of its own, a long prompt would empty the cache."""
        if phase == "decode":
            self._ring.clear()

    def waves(
        self,
        layer: int,
        wanted: np.ndarray,
        counts: np.ndarray | None = None,
        streaming: bool = False,
        outside: np.ndarray | None = None,
    ) -> Iterator[Lease]:
        """Lease the experts of one dispatch, as many at a time as fit; release each lease before taking the next.

        wanted: int64 ``[n]``, distinct and ascending. counts: how many tokens chose each (default: one). Hits come in
        the first lease, so nothing this dispatch needs is evicted for it while a slot can be had otherwise.
        streaming: misses take empty slots and then the ring; ``must_wait`` says when a lease may stay open meanwhile.
        outside: bool ``[n]``, who is computed without a slot; the policy hears of their use, too.
        """
        if not len(wanted):
            return
        self.policy.used(layer, wanted, np.ones(len(wanted)) if counts is None else counts)
        if outside is not None:
            wanted = wanted[~outside]
            if not len(wanted):
                return
        keys = wanted + layer * self._experts
        missing = self._slot_of.take(keys) < 0
        absent = int(np.count_nonzero(missing))
        if absent:
            keys = np.concatenate([keys[~missing], keys[missing]])
        if streaming and absent > self.slots - self._held:
            yield from self._stream(layer, keys[:-absent], keys[-absent:])
            return
        most = self.slots
        if self._brought and len(keys) > most - self._brought:
            held_back = self._held - int(np.count_nonzero(self._candidates))  # brought, and not this dispatch's own
            most = max(1, most - held_back + int(np.count_nonzero(~self._may_leave[keys[: len(keys) - absent]])))
        for start in range(0, len(keys), most):
            yield self._lease(layer, keys[start : start + most])

    def here(self, layer: int, wanted: np.ndarray) -> list[int] | None:
        """The slots of a dispatch that misses nobody, used and let go at once; None, and nothing done, where somebody
        is missing. For whoever computes before the next call here."""
        keys = wanted + layer * self._experts
        slots: list[int] = self._slot_of.take(keys).tolist()
        if -1 in slots:
            return None
        self._used(layer, wanted, None)
        if self._brought:
            self._find(keys)
        return slots

    def _used(self, layer: int, wanted: np.ndarray, counts: np.ndarray | None) -> None:
        """Tell the policy, unless there is a slot for everybody for good: then nobody will ever leave."""
        if not self.for_good or self.slots < len(self._slot_of):
            self.policy.used(layer, wanted, np.ones(len(wanted)) if counts is None else counts)

    def must_wait(self, open_leases: int, streaming: bool) -> bool:
        """Whether one of a dispatch's open leases has to be released before its next one is taken."""
        if open_leases < 1 or not streaming:
            return open_leases > 0
        return open_leases > 1 or self._spare < self._wave

    @property
    def _spare(self) -> int:
        """Slots that could be had now."""
        return self.slots - self._held + int(np.count_nonzero(self._candidates))

    @property
    def _wave(self) -> int:
        return max(1, self._ring_size() // 2)

    def _stream(self, layer: int, hits: np.ndarray, absent: np.ndarray) -> Iterator[Lease]:
        if len(hits):
            yield self._lease(layer, hits)
        start = 0
        while start < len(absent):
            keys = absent[start : start + max(1, min(self._wave, self._spare))]
            start += len(keys)
            self._may_leave[keys] = False
            slots = self._take(keys, streaming=True)
            self._pins[slots] += 1
            self._ring.extend(keys.tolist())
            yield Lease(layer, keys - layer * self._experts, slots, np.ones(len(keys), dtype=bool))

    def _ring_size(self) -> int:
        return min(RING, max(1, self.slots // 4) + 1)

    def touch(self, layer: int, wanted: np.ndarray, counts: np.ndarray | None = None, streaming: bool = False) -> int:
        """A dispatch that nobody computes: as ``waves`` with each lease released at once, in half the time. How many
        were missing."""
        if streaming or len(wanted) > self.slots:
            return sum(self._come_and_go(lease) for lease in self.waves(layer, wanted, counts, streaming))
        if not len(wanted):
            return 0
        self._used(layer, wanted, counts)
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
            if self._early[key]:
                self._early[key] = False
                self._brought -= 1

    # ---------------------------------------------------------------------------------- before they are wanted

    def room_for(self, count: int, protected: np.ndarray) -> np.ndarray:
        """Keys of at most ``count`` experts that could leave for others to be brought, next to leave first; -1 stands
        for a slot that is empty. protected: bool by key ``[layers * experts]``, who may not leave."""
        empty = len(self._free_slots(count)) if self._held < self.slots else 0
        candidates = (self._candidates & ~protected).nonzero()[0] if empty < count else self._NOBODY
        count = min(count - empty, len(candidates))
        if count:
            priorities = self._priority.take(candidates)
            candidates = candidates[lowest(priorities, count)]
            candidates = candidates[np.argsort(self._priority.take(candidates), kind="stable")]
        return np.concatenate([np.full(empty, -1), candidates[:count]])

    def bring(self, key: int, leaving: int) -> int:
        """Give ``key``, which is in no slot, the slot of ``leaving`` (-1: an empty one), before it is wanted; the slot.

        It stays until it was used or ``let_go``. ValueError when it is there already, or ``leaving`` may not leave.
        """
        if self._slot_of[key] >= 0 or (leaving >= 0 and not self._may_leave[leaving]):
            raise ValueError(f"expert {key} cannot take the slot of {leaving}")
        slots = self._free_slots(1) if leaving < 0 else self._leave(np.array([leaving]))
        if not len(slots):
            raise ValueError("no slot is empty")
        slot = int(slots[0])
        self._sit(key, slot, early=True)
        return slot

    def take_back(self, key: int, left: int) -> None:
        """``key`` was brought, and nothing was written to its slot: ``left``, who had left for it, is there again.

        Where ``left`` got another slot meanwhile, this one is empty. ValueError: ``key`` has none, or nobody left.
        """
        slot = int(self._slot_of[key])
        if slot < 0 or left < 0:
            raise ValueError(f"expert {key} has no slot to give back to {left}")
        self.forget(*divmod(key, self._experts))
        if self._slot_of[left] < 0:
            if early := left in self.wasted:
                self.wasted.remove(left)
            self._sit(left, slot, early)
            self._may_leave[left] = True
            self.evictions -= 1

    def _sit(self, key: int, slot: int, early: bool) -> None:
        self._slot_of[key], self._key_in[slot] = slot, key
        self._held += 1
        self._early[key] = early
        self._brought += early

    def let_go(self, key: int) -> None:
        """What was brought may leave like others from here on."""
        if self._slot_of[key] >= 0 and not self._pins[self._slot_of[key]]:
            self._may_leave[key] = True

    def resize(self, slots: int) -> list[tuple[int, int]]:
        """Have ``slots`` slots from now on, at least one; nobody may be using or filling any.

        With fewer, the lowest priorities leave, and of those who stay whoever sits beyond the end moves to a lower
        slot: (from, to), to be copied before the memory goes.
        """
        if slots < 1 or self._pins.any():
            raise ValueError(f"{self.slots} slots cannot become {slots} now")
        if slots > self.slots:
            more = slots - self.slots
            self._key_in = np.concatenate([self._key_in, np.full(more, -1, dtype=np.int64)])
            self._pins = np.concatenate([self._pins, np.zeros(more, dtype=np.int64)])
            self.slots = slots
            return []
        if self._held > slots:
            self._evict(self._held - slots)
        beyond = np.flatnonzero(self._key_in[slots:] >= 0) + slots
        places = np.flatnonzero(self._key_in[:slots] < 0)[: len(beyond)]
        keys = self._key_in[beyond]
        self._slot_of[keys] = places
        self._key_in[places] = keys
        self._key_in, self._pins, self.slots = self._key_in[:slots].copy(), self._pins[:slots].copy(), slots
        return list(zip(beyond.tolist(), places.tolist(), strict=True))

    def sort(self) -> np.ndarray:
        """Put the experts of a full cache into slots in the order of their keys; int64 ``[slots]``: where each slot's
        expert was. Nobody may be using or filling any. ValueError when a slot is empty."""
        if self._held < self.slots or self._pins.any():
            raise ValueError("only a full cache that nobody uses can be sorted")
        before = np.argsort(self._key_in)
        self._key_in = self._key_in[before]
        self._slot_of[self._key_in] = np.arange(self.slots)
        return before

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
        if self._brought:
            self._find(keys)
        self._may_leave[keys] = False
        if hits < len(keys):
            missing[hits:] = True
            slots[hits:] = self._take(keys[hits:])
        self._pins[slots] += 1
        return Lease(layer, keys - layer * self._experts, slots, missing)

    def _find(self, keys: np.ndarray) -> None:
        """These are used now: whoever of them was brought has served its end."""
        early = self._early[keys]
        self._brought -= int(np.count_nonzero(early))
        self.found += keys[early & self._may_leave[keys]].tolist()  # who was not let go is claimed by who brought it
        self._early[keys] = False

    def _take(self, keys: np.ndarray, streaming: bool = False) -> np.ndarray:
        """Slots for experts that have none, entered in the table."""
        count = len(keys)
        evict = self._evict_streaming if streaming and not self.policy.knows_the_future else self._evict
        if self._held == self.slots:
            slots = evict(count)
        else:
            slots = self._free_slots(count)
            if len(slots) < count:
                slots = np.concatenate([slots, evict(count - len(slots))])
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
        return self._leave(candidates[lowest(self._priority.take(candidates), count)])

    def _evict_streaming(self, count: int) -> np.ndarray:
        """The ring turns: its oldest leave, and others only while it is not whole yet or still in use."""
        leaving: list[int] = []
        while self._ring and len(leaving) < count and len(self._ring) + count > self._ring_size():
            key = self._ring[0]
            if not self._may_leave[key]:  # pinned: then so are the younger ones. Or gone already
                if self._slot_of[key] >= 0:
                    break
            elif self._slot_of[key] >= 0:
                leaving.append(key)
            self._ring.popleft()
        slots = self._leave(np.array(leaving, dtype=np.int64))
        return slots if len(slots) == count else np.concatenate([slots, self._evict(count - len(slots))])

    def _leave(self, leaving: np.ndarray) -> np.ndarray:
        """These keys leave; the slots they had."""
        slots = self._slot_of.take(leaving)
        self._slot_of[leaving] = -1
        self._key_in[slots] = -1
        self._may_leave[leaving] = False
        self.evictions += len(leaving)
        self._held -= len(leaving)
        if self._brought:
            unused = leaving[self._early[leaving]]
            if len(unused):
                self.wasted += unused.tolist()
                self._early[unused] = False
                self._brought -= len(unused)
        return slots
