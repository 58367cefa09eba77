"""A room: the experts that share an arena on one device, their cache, and the link that brings them. A dispatch: one
layer's wanted experts in one room, served as they come.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from engine.experts.arena import Arena
from engine.experts.cache import ExpertCache, Lease
from engine.experts.device import Device
from engine.experts.layout import ExpertLayout, Parameters
from engine.experts.on_miss import Helper
from engine.experts.policies import make_policy
from engine.experts.records import Account
from engine.experts.resident import Resident
from engine.experts.transfer import Fetch, Transfer

Served: TypeAlias = tuple[Sequence[int], Sequence[Parameters]]  # expert ids, their parameters
Claim: TypeAlias = Callable[[int, int], Fetch | None]  # layer, key -> the early fetch of it, when there was one


@dataclass(slots=True, eq=False)
class Room:
    """Equal layouts on one device share a room.

    full: slots while the KV cache is empty. helper: computes some of what decode misses; None: all is fetched.
    streaming: this pass is a prompt that wants more experts than there are slots, see ``ExpertCache.waves``.
    """

    arena: Arena
    cache: ExpertCache
    transfer: Transfer
    device: Device
    full: int
    helper: Helper | None = None
    streaming: bool = False

    @property
    def may_give(self) -> bool:
        """Whether it can give memory of a card back, and still has some."""
        return self.device.on_card and self.arena.slots > self.arena.piece


def make_room(
    layout: ExpertLayout,
    slots: int,
    shape: tuple[int, int],
    policy: str,
    transfer: Transfer,
    whole_layers: bool,
) -> Room:
    """An empty room with so many slots, fewer where the device has no memory for them. Raises MemoryPlanError when it
    has none for one.

    shape: layers and experts of the model. whole_layers: each layer's experts have their slots in one piece of memory.
    What waits in RAM under the room follows its cache.
    """
    device, (layers, experts) = transfer.device, shape
    arena = Arena(layout, slots, device, experts if whole_layers else 1)
    cache = ExpertCache(arena.slots, layers, experts, make_policy(policy, layers, experts))
    if transfer.tier is not None:
        transfer.tier.follow(layout, cache.policy.priority, cache.resident_mask)
    return Room(arena, cache, transfer, device, arena.slots)


def line_up(rooms: Sequence[Room], experts: int) -> Resident:
    """Sort everybody, so that an id is a place. rooms: each layer's, full; nobody may be using or filling a slot."""
    first: dict[int, int] = {}  # of each room, the place of the next layer's experts
    stacks = []
    for room in rooms:
        if id(room) not in first:
            first[id(room)] = 0
            room.device.synchronize()
            room.arena.rearrange(room.cache.sort())
            room.device.synchronize()
        stacks.append(room.arena.stack(first[id(room)], experts))
        first[id(room)] += experts
    return Resident(stacks, [room.arena.layout for room in rooms])


def bytes_held(rooms: Sequence[Room]) -> dict[str, int]:
    """Bytes of experts by where they are ("cpu", "cuda:0"): arenas, and beside a card those that wait in RAM."""
    held: dict[str, int] = {}
    for room in rooms:
        where = str(room.device.torch_device)
        held[where] = held.get(where, 0) + room.arena.nbytes
    for tier in {id(tier): tier for room in rooms if (tier := room.transfer.tier) is not None}.values():
        held["cpu"] = held.get("cpu", 0) + tier.nbytes
    return held


class _Wave:
    """A lease: who of it is here, in which slots, and who is still on the way."""

    __slots__ = ("arriving", "here", "lease", "slots")

    def __init__(self, lease: Lease, here: list[int], slots: list[int], arriving: list[Fetch]) -> None:
        self.lease, self.here, self.slots, self.arriving = lease, here, slots, arriving


class Dispatch:
    """The first wave's demands are on their way when this is made. Iterate, then ``close``, whatever happens."""

    def __init__(
        self,
        room: Room,
        layer: int,
        wanted: np.ndarray,
        counts: np.ndarray,
        claim: Claim | None,
        helped: bool = False,
    ) -> None:
        """wanted: int64 ``[n]``, distinct, ascending, at least one. claim: None when nobody was fetched ahead. helped:
        the room's helper may compute some of those missing."""
        self.account = Account()
        self._lent = room.helper.lend(room.cache, layer, wanted, counts) if helped and room.helper else {}
        outside = None
        if self._lent:
            self.account.missed += self._lent
            self.account.on_host += self._lent
            outside = np.isin(wanted, list(self._lent))
        self._room, self._layer, self._claim = room, layer, claim
        self._streaming = room.streaming
        self._leases = room.cache.waves(layer, wanted, counts, room.streaming, outside)
        self._open: deque[_Wave] = deque()
        try:
            self._open_next()
        except BaseException:
            self.close()  # nobody has this dispatch yet
            raise

    def __iter__(self) -> Iterator[Served]:
        """Who is here comes first. The parameters are valid until the next step."""
        views = self._room.arena.views
        if self._lent:  # the link is at work meanwhile
            layout = self._room.arena.layout
            yield list(self._lent), [layout.views(memory) for memory in self._lent.values()]
            self._give_back()
        while self._open:
            while not self._room.cache.must_wait(len(self._open), self._streaming) and self._open_next():
                pass
            wave = self._open[0]
            if wave.here:
                yield wave.here, [views[slot] for slot in wave.slots]
            while wave.arriving:
                ready = self._landed(wave)
                yield [fetch.expert for fetch in ready], [views[fetch.slot] for fetch in ready]
            self._release(self._open.popleft())
            if not self._open:
                self._open_next()

    def close(self) -> None:
        """Give up what nobody waits for any more: a read failed, or the pass was stopped."""
        self._give_back()
        while self._open:
            wave = self._open.popleft()
            for fetch in wave.arriving:
                give_up(self._room, fetch)
            self._release(wave)

    def _give_back(self) -> None:
        if self._lent:
            assert self._room.helper is not None
            self._room.helper.give_back(self._layer, self._lent)
            self._lent = {}

    def _open_next(self) -> bool:
        lease = next(self._leases, None)
        if lease is None:
            return False
        misses = int(np.count_nonzero(lease.missing))
        hits = len(lease.missing) - misses
        experts, slots = lease.experts.tolist(), lease.slots.tolist()  # hits first
        wave = _Wave(lease, experts[:hits], slots[:hits], [])
        self._open.append(wave)  # first of all: whatever fails below, ``close`` ends the lease
        if self._claim is not None:
            self._claimed(wave)
        if misses:
            self.account.missed += experts[hits:]
            began = time.perf_counter()
            try:
                wave.arriving += self._room.transfer.demand(self._room.arena, self._layer, experts[hits:], slots[hits:])
            except BaseException:
                for expert in experts[hits:]:  # nobody will bring them
                    self._room.cache.forget(self._layer, expert)
                raise
            self.account.stall_seconds += time.perf_counter() - began
        return True

    def _claimed(self, wave: _Wave) -> None:
        """Early fetches of who is here: those still on the way arrive like the missing."""
        assert self._claim is not None
        first = self._layer * self._room.cache.experts
        for expert in wave.here:
            fetch = self._claim(self._layer, first + expert)
            if fetch is None:
                continue
            if fetch.arrived:
                self.account.early.append(expert)
                fetch.result()
            else:
                self.account.late.append(expert)
                wave.arriving.append(fetch)
        if wave.arriving:
            late = {fetch.expert for fetch in wave.arriving}
            wave.slots = [slot for expert, slot in zip(wave.here, wave.slots, strict=True) if expert not in late]
            wave.here = [expert for expert in wave.here if expert not in late]

    def _landed(self, wave: _Wave) -> list[Fetch]:
        """Whoever has come; while nobody has, wait for the first. Raises ModelError when a read failed."""
        began = time.perf_counter()
        arriving = wave.arriving
        ready = [fetch for fetch in arriving if fetch.over]
        if not ready:
            arriving[0].wait()
            ready = [fetch for fetch in arriving if fetch.over]
        nbytes = 0
        for fetch in ready:
            fetched = fetch.result()
            nbytes += 0 if fetch.early else fetched
        wave.arriving = [fetch for fetch in arriving if fetch not in ready] if len(ready) < len(arriving) else []
        self.account.nbytes += nbytes
        self.account.stall_seconds += time.perf_counter() - began
        return ready

    def _release(self, wave: _Wave) -> None:
        self._room.cache.release(wave.lease)
        self._room.device.reading_done(self._room.arena, wave.lease.slots)


def give_up(room: Room, fetch: Fetch) -> None:
    """A fetch nobody waits for any more: its slot holds nothing that can be trusted."""
    if not room.transfer.cancel(fetch):
        fetch.wait()
        if fetch.arrived:
            fetch.result()
    room.cache.forget(fetch.layer, fetch.expert)
