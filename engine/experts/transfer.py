"""Brings experts into their slots on threads of its own, while compute goes on with what is there.

Two queues: what somebody waits for, first come first served, and what is fetched ahead, most wanted first. A reader
takes the second only while the first is empty, and one reader is always left for demands. Counts what the link did, so
that fetching ahead can be kept within what the link can carry; a copy to a card counts until it is over.

Small experts that the system's file cache holds are read by whoever demands them: that takes less time than waking a
reader and then waiting for each other at Python's lock (the demo with half of its experts decodes
at 0.78 of its speed with all of them, against 0.58; one thread, a busy machine). Where such reads keep
waiting, because the file is not in the cache, the readers take over for a while. What a read computes does not count,
since memory may be slow, and a single long wait counts little: it was Python's lock, which the window held.

With experts in RAM beside a card (``HostTier``) the card copies straight out of that memory, lent until the copy is
over; what is not there lands in a buffer of the reader's own first.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

import torch

from engine.experts.arena import Arena
from engine.experts.device import LANDINGS, Arrival, Device
from engine.experts.host_tier import HostTier
from engine.experts.store import Store
from engine.hardware.numa import stay_near

log = logging.getLogger("greenroom.experts")

SLOW = 200e-6  # seconds that a small expert is waited for: it came from the disk, where several reads at once gain
READERS_TURN = 256  # fetches that the readers do then, before it is tried again
READERS = 3  # reads in flight: of large experts, one is copied into place while two come off the disk


class State(Enum):
    WAITING = auto()
    RUNNING = auto()
    DONE = auto()
    CANCELLED = auto()


class Fetch:
    """One expert on its way into a slot. Made by ``Transfer``; the engine thread asks, a reader answers."""

    __slots__ = ("_error", "_over", "arena", "arrival", "early", "expert", "layer", "nbytes", "slot", "state")

    def __init__(self, arena: Arena, layer: int, expert: int, slot: int, early: bool) -> None:
        self.arena, self.layer, self.expert, self.slot, self.early = arena, layer, expert, slot, early
        self.state = State.WAITING
        self.nbytes = 0
        self.arrival: Arrival | None = None
        self._error: BaseException | None = None
        self._over = threading.Lock()
        self._over.acquire()

    @property
    def over(self) -> bool:
        """True when there is nothing to wait for on the host's side."""
        return self.state is State.DONE or self.state is State.CANCELLED

    def result(self) -> int:
        """Wait until it is read, and let the compute that follows wait for the copy. Bytes read; raises what the
        reader met."""
        self.wait()
        if self._error is not None:
            raise self._error
        if self.state is State.CANCELLED:
            raise RuntimeError(f"the fetch of expert {self.expert} of layer {self.layer} was taken back")
        if self.arrival is not None:
            self.arrival.wait()
        return self.nbytes

    def wait(self) -> None:
        """Wait until nothing is written to the slot by the host any more."""
        if not self.over:
            self._over.acquire()
            self._over.release()

    @property
    def arrived(self) -> bool:
        """True when the slot holds the expert, as far as the host is concerned."""
        return self.state is State.DONE and self._error is None

    def close(self, state: State, error: BaseException | None = None) -> None:
        """For ``Transfer`` only."""
        self._error = error
        self.state = state
        self._over.release()


@dataclass(frozen=True, slots=True)
class LinkUse:
    """What the link did since it was opened. Bytes as they are stored, and seconds in which at least one fetch of that
    kind was being read or copied. filled_bytes: of the slots they filled, more where a wider number format is computed
    in."""

    demand_bytes: int = 0
    demand_seconds: float = 0.0
    early_bytes: int = 0
    busy_seconds: float = 0.0
    filled_bytes: int = 0

    @property
    def rate(self) -> float | None:
        """Bytes per second while anything was read."""
        return (self.demand_bytes + self.early_bytes) / self.busy_seconds if self.busy_seconds > 0 else None


@dataclass(frozen=True, slots=True)
class _Copy:
    """A copy under way. lent: it reads memory of the host tier."""

    fetch: Fetch
    arrival: Arrival
    lent: bool


class Transfer:
    """The link between a store and one device: its readers and their two queues."""

    def __init__(
        self,
        store: Store,
        device: Device,
        readers: int = READERS,
        name: str = "greenroom-io",
        cpus: frozenset[int] = frozenset(),
    ) -> None:
        """cpus: processors the readers stay on, those near the device; empty: wherever the system puts them."""
        self._store = store
        self.tier = store if isinstance(store, HostTier) else None
        self.device = device
        self._cpus = cpus
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[bool] = queue.SimpleQueue()  # one for each job; False: go home
        self._demands: deque[Fetch] = deque()
        self._ahead: list[tuple[float, int, Fetch]] = []  # heap: most wanted first
        self._numbers = itertools.count()
        self._most_ahead = max(1, readers - 1)  # reads ahead of demand that may run at once
        self._running = {True: 0, False: 0}  # by "early": being read
        self._open = {True: 0, False: 0}  # being read or copied
        self._since = {True: 0.0, False: 0.0}
        self._busy = {True: 0.0, False: 0.0}
        self._any_since = self._any_busy = 0.0
        self._bytes = {True: 0, False: 0}
        self._filled = 0
        self.readers = readers
        self._name = name
        self._threads: list[threading.Thread] = []  # started by the first fetch
        self._quick = store.quick and self.tier is None and not device.on_card
        self._waited = 0.0  # seconds, on average, in a read by whoever demanded it, one wait counting 2 * SLOW at most
        self._readers_turn = 0

    def demand(self, arena: Arena, layer: int, experts: Sequence[int], slots: Sequence[int]) -> list[Fetch]:
        """Fetch experts that are wanted now, each into its slot; those of a quick store are there when this returns."""
        fetches = [Fetch(arena, layer, expert, slot, False) for expert, slot in zip(experts, slots, strict=True)]
        if self._quick and self._readers_turn <= 0:
            self._read_here(fetches)
            return fetches
        self._readers_turn -= len(fetches)
        self._start()
        self._demands.extend(fetches)
        for _ in fetches:
            self._calls.put(True)
        return fetches

    def ahead(self, arena: Arena, layer: int, expert: int, slot: int, worth: float) -> Fetch:
        """Fetch an expert that nobody wants yet, when nothing else waits; larger ``worth`` first."""
        self._start()
        fetch = Fetch(arena, layer, expert, slot, True)
        with self._lock:
            heapq.heappush(self._ahead, (-worth, next(self._numbers), fetch))
        self._calls.put(True)
        return fetch

    def hurry(self, fetch: Fetch) -> None:
        """An early fetch is wanted now: it waits among the demands from here on."""
        if fetch.state is State.WAITING:
            self._demands.append(fetch)
            self._calls.put(True)

    def cancel(self, fetch: Fetch) -> bool:
        """Take back a fetch that no reader has begun; False when it is under way or over."""
        with self._lock:
            if fetch.state is not State.WAITING:
                return False
            fetch.close(State.CANCELLED)
            return True

    def use(self) -> LinkUse:
        """What the link did so far; what is under way counts up to now."""
        with self._lock:
            now = time.perf_counter()
            demand = self._busy[False] + (now - self._since[False] if self._open[False] else 0.0)
            busy = self._any_busy + (now - self._any_since if self._open[True] or self._open[False] else 0.0)
            return LinkUse(self._bytes[False], demand, self._bytes[True], busy, self._filled)

    def close(self) -> None:
        """Wait for the reads and copies under way, cancel the rest, and close the store."""
        with self._lock:
            waiting = [fetch for _, _, fetch in self._ahead] + list(self._demands)
            self._ahead.clear()
            self._demands.clear()
            for fetch in waiting:
                if fetch.state is State.WAITING:
                    fetch.close(State.CANCELLED)
        for _ in self._threads:
            self._calls.put(False)
        for thread in self._threads:
            thread.join()
        self._store.close()

    # ------------------------------------------------------------------------------------------ the readers

    def _start(self) -> None:
        """Raises RuntimeError when the system starts no thread at all; one reader does."""
        if self._threads:
            return
        for number in range(self.readers):
            thread = threading.Thread(target=self._read_on, name=f"{self._name}-{number}", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                if not self._threads:
                    raise
                log.warning("the system starts no more than %d readers", number)
                break
            self._threads.append(thread)

    def _read_on(self) -> None:
        stay_near(self._cpus)
        copies: deque[_Copy] = deque()  # of this reader, oldest first
        while self._calls.get():
            while (fetch := self._next()) is not None:
                if fetch.early:  # a long read ahead would hide that the demands before it are over
                    while any(not copy.fetch.early for copy in copies):
                        self._copied(copies.popleft())
                self._read(fetch, copies)
                while len(copies) > LANDINGS - 1:
                    self._copied(copies.popleft())
            while copies:
                self._copied(copies.popleft())

    def _read_here(self, fetches: Sequence[Fetch]) -> None:
        """Read on the caller's own thread."""
        began, computed = time.perf_counter(), time.thread_time()
        for fetch in fetches:
            with self._lock:
                self._begin(fetch)
            self._read(fetch, deque())
        waited = time.perf_counter() - began - (time.thread_time() - computed)
        self._waited += 0.1 * (min(max(0.0, waited / len(fetches)), 2 * SLOW) - self._waited)
        if self._waited > SLOW:
            self._waited, self._readers_turn = 0.0, READERS_TURN

    def _next(self) -> Fetch | None:
        """The next fetch, begun; None when there is none for this reader now."""
        with self._lock:
            while self._demands:
                fetch = self._demands.popleft()
                if fetch.state is State.WAITING:
                    return self._begin(fetch)
            while self._ahead and self._running[True] < self._most_ahead:
                fetch = heapq.heappop(self._ahead)[2]
                if fetch.state is State.WAITING:
                    return self._begin(fetch)
            return None

    def _begin(self, fetch: Fetch) -> Fetch:
        fetch.state = State.RUNNING
        now = time.perf_counter()
        if not self._open[True] and not self._open[False]:
            self._any_since = now
        if not self._open[fetch.early]:
            self._since[fetch.early] = now
        self._open[fetch.early] += 1
        self._running[fetch.early] += 1
        return fetch

    def _read(self, fetch: Fetch, copies: deque[_Copy]) -> None:
        error: BaseException | None = None
        source: torch.Tensor | None = None
        lent = False
        try:
            if self.tier is not None:
                source = self.tier.lend(fetch.layer, fetch.expert)
                lent = source is not None
            if source is None:
                source = self.device.landing(fetch.arena, fetch.slot)
                fetch.nbytes = self._store.read(fetch.layer, fetch.expert, source)
            else:
                fetch.nbytes = source.nbytes
            fetch.arrival = self.device.deliver(source, fetch.arena, fetch.slot)
        except BaseException as met:  # told to whoever waits, whatever it is
            error = met
        copy = None if fetch.arrival is None else _Copy(fetch, fetch.arrival, lent)
        if lent and copy is None:
            self._give_back(fetch)
        with self._lock:
            self._running[fetch.early] -= 1
            if copy is None:
                self._end(fetch)
            self._bytes[fetch.early] += fetch.nbytes
            self._filled += fetch.arena.layout.nbytes if error is None else 0
            fetch.close(State.DONE, error)
        if copy is not None:
            copies.append(copy)

    def _copied(self, copy: _Copy) -> None:
        """Wait until a copy is over."""
        try:
            copy.arrival.synchronize()
        except Exception as error:  # the card gave up: whoever computes there meets that too
            log.error("a copy to the card failed: %s", error)
        if copy.lent:
            self._give_back(copy.fetch)
        with self._lock:
            self._end(copy.fetch)

    def _give_back(self, fetch: Fetch) -> None:
        assert self.tier is not None
        self.tier.give_back(fetch.layer, fetch.expert)

    def _end(self, fetch: Fetch) -> None:
        """Neither read nor copied any more. Whoever calls holds the lock."""
        now = time.perf_counter()
        self._open[fetch.early] -= 1
        if not self._open[fetch.early]:
            self._busy[fetch.early] += now - self._since[fetch.early]
        if not self._open[True] and not self._open[False]:
            self._any_busy += now - self._any_since
