"""Experts in RAM between the disk and a card: who was fetched once is fetched again at the link's rate.

The tier is inclusive in how it works: an expert sent to the card stays here as well, and one that leaves the card is
not copied back, so that nothing but fetches travels on the link. In what it holds it leans to the other side, because
a copy of what the card has is of no use until the card lets it go: of the copies only a share stays, those that the
card will let go first (``follow``). Replayed on logged chats with room for a quarter of the experts on the card and
for another in RAM, 179 of 306 fetches per token went on to the disk; 306 when who was fetched longest ago leaves, 271
by the card's priorities alone, and 162 if both were one memory. Shares of 5 to 25% differ little.

The card copies straight out of this memory (``lend`` .. ``give_back``): there is no second copy on the host. Memory is
pinned in the background, chunk by chunk; until then, and where pinning fails, it serves all the same, only slower.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
import torch

from engine.experts.card import Pinner
from engine.experts.layout import ALIGNMENT, ExpertLayout
from engine.experts.store import Store
from engine.hardware.numa import stay_near

log = logging.getLogger("greenroom.experts")

CHUNK = 256_000_000  # bytes pinned at a time: a pin that fails costs one chunk, and one that works holds nobody up long
PAGE = 4096  # what is pinned are pages: no two chunks may share one
COPIES = 0.1  # share of the tier for copies of what the card holds, those that it will let go first


class _Shelf:
    """The places for experts of one layout. Whoever calls holds the tier's lock."""

    def __init__(self, layout: ExpertLayout, places: int) -> None:
        self.nbytes = layout.nbytes
        self.chunks: list[torch.Tensor] = []
        per_chunk = max(1, CHUNK // layout.nbytes)
        for start in range(0, places, per_chunk):
            chunk = _pages(min(per_chunk, places - start) * layout.nbytes)
            if chunk is None:
                break  # the system has no more: what there is serves
            self.chunks.append(chunk)
        sizes = [chunk.nbytes // layout.nbytes for chunk in self.chunks]
        self._memory = [
            chunk[place * layout.nbytes : (place + 1) * layout.nbytes]
            for chunk, size in zip(self.chunks, sizes, strict=True)
            for place in range(size)
        ]
        count = len(self._memory)
        self.place_of: dict[tuple[int, int], int] = {}
        self.layer = np.full(count, -1, dtype=np.int64)  # -1: nobody there
        self.expert = np.zeros(count, dtype=np.int64)
        self.loans = np.zeros(count, dtype=np.int64)
        self.filled = np.zeros(count, dtype=bool)
        self.fetched = np.zeros(count, dtype=np.int64)  # the tier's clock when it was last asked for
        self._empty = list(range(count - 1, -1, -1))  # lowest last: the first chunk is pinned first
        self.priority: np.ndarray | None = None
        self.on_device: Callable[[], np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self._memory)

    def memory(self, place: int) -> torch.Tensor:
        return self._memory[place]

    def enter(self, layer: int, expert: int, place: int) -> None:
        self.place_of[layer, expert] = place
        self.layer[place], self.expert[place] = layer, expert
        self.filled[place] = False

    def leave(self, place: int) -> None:
        del self.place_of[int(self.layer[place]), int(self.expert[place])]
        self.layer[place] = -1

    def empty_place(self) -> int | None:
        return self._empty.pop() if self._empty else None

    def forget(self, place: int) -> None:
        """What was read into it cannot be trusted."""
        self.leave(place)
        self._empty.append(place)


class HostTier:
    """A store above another one: experts kept in RAM under a byte budget. Called from several threads at once."""

    def __init__(
        self,
        store: Store,
        layouts: Sequence[ExpertLayout],
        nbytes: int,
        pinner: Pinner | None = None,
        *,
        cpus: frozenset[int] = frozenset(),
        tell: Callable[[str], None] = log.warning,
    ) -> None:
        """layouts: one for each layer. nbytes: the budget, shared out by how much each layout's layers weigh.

        pinner: pins the memory, on a thread of its own that stays on ``cpus`` (those near the card); None: it stays
        pageable. tell: gets a sentence when the system gives only a part of the memory, and (on that thread) when only
        a part is pinned.
        """
        self._store = store
        self._changed = threading.Condition()
        self._clock = 0
        weights = {layout: sum(other.nbytes for other in layouts if other == layout) for layout in layouts}
        total = sum(weights.values())
        places = {layout: nbytes * weight // total // layout.nbytes for layout, weight in weights.items()}
        shelves = {layout: _Shelf(layout, count) for layout, count in places.items()}
        self._shelves = [shelves[layout] for layout in layouts]
        self._shelf_of = shelves
        self._chunks = [chunk for shelf in shelves.values() for chunk in shelf.chunks]
        self._pinned: list[torch.Tensor] = []
        self._tell = tell
        self._closing = threading.Event()
        self._begun = threading.Event()  # the first chunk is pinned, or none will be
        self._pinner = pinner
        self._thread: threading.Thread | None = None
        self.places = sum(len(shelf) for shelf in shelves.values())
        self.nbytes = sum(chunk.nbytes for chunk in self._chunks)
        self.hits = 0
        self.misses = 0
        if self.places < sum(places.values()):
            given = f"{self.nbytes / 1e9:.1f} of {nbytes / 1e9:.1f} GB"
            tell(f"RAM gave only {given} for experts; more of them wait on disk.")
        if pinner is not None and self._chunks:
            self._thread = threading.Thread(
                target=self._pin_all, args=(pinner, cpus), name="greenroom-pin", daemon=True
            )
            self._thread.start()

    def follow(self, layout: ExpertLayout, priority: np.ndarray, on_device: Callable[[], np.ndarray]) -> None:
        """Let the device's cache of that layout say who stays: without it, who was asked for longest ago leaves.

        priority: float64 ``[layers, experts]``, lowest leaves first; kept and read at every eviction, while its owner
        goes on writing. on_device: bool ``[layers, experts]``, who has a slot there; called on the reader's thread.
        """
        with self._changed:
            shelf = self._shelf_of[layout]
            shelf.priority, shelf.on_device = priority, on_device

    # ------------------------------------------------------------------------------------------------ the store

    def read(self, layer: int, expert: int, blob: torch.Tensor) -> int:
        """Fill ``blob``, from here or from below; the bytes that took. Raises ModelError."""
        memory = self.lend(layer, expert)
        if memory is None:
            return self._store.read(layer, expert, blob)
        try:
            blob.copy_(memory)
        finally:
            self.give_back(layer, expert)
        return blob.nbytes

    def describe(self) -> str:
        """How much of it there is, and what is below, for the user."""
        pinned = ""
        if self._thread is not None:
            pinned = ", being pinned" if self._thread.is_alive() else f", {self.pinned_bytes / 1e9:.1f} GB of it pinned"
        return f"{self.nbytes / 1e9:.1f} GB of experts kept in RAM{pinned}; below, {self._store.describe()}"

    @property
    def quick(self) -> bool:
        """Never: what is there is lent, what is not comes from the disk."""
        return False

    def close(self) -> None:
        """End pinning, unpin, and close the store below. Nobody may hold a loan any more."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        for chunk in self._pinned:
            assert self._pinner is not None
            with suppress(RuntimeError):  # a card that gave up: the files below are closed all the same
                self._pinner.unpin(chunk)
        self._pinned.clear()
        self._chunks.clear()
        self._shelves.clear()
        self._shelf_of.clear()
        self._store.close()

    # ------------------------------------------------------------------------------------------------ lending

    def lend(self, layer: int, expert: int) -> torch.Tensor | None:
        """The expert's memory, uint8 ``[layout.nbytes]``, read from below first when it is not here.

        It stays as it is until ``give_back``, to be called when the copy out of it is over, once for each loan. None:
        every place is lent; read past the tier. Raises ModelError.
        """
        shelf = self._shelves[layer]
        with self._changed:
            place = self._find(shelf, layer, expert)
            if place is not None:
                self.hits += 1
                return shelf.memory(place)
            place = self._take(shelf)
            if place is None:
                return None
            self.misses += 1
            shelf.enter(layer, expert, place)
            self._lent(shelf, place)
        memory = shelf.memory(place)
        try:
            self._store.read(layer, expert, memory)
        except BaseException:
            with self._changed:
                shelf.loans[place] -= 1
                shelf.forget(place)
                self._changed.notify_all()
            raise
        with self._changed:
            shelf.filled[place] = True
            self._changed.notify_all()
        return memory

    def lend_here(self, layer: int, expert: int) -> torch.Tensor | None:
        """As ``lend``, but None at once when it is not here, or still being read."""
        shelf = self._shelves[layer]
        with self._changed:
            place = shelf.place_of.get((layer, expert))
            if place is None or not shelf.filled[place]:
                return None
            self._lent(shelf, place)
            self.hits += 1
            return shelf.memory(place)

    def give_back(self, layer: int, expert: int) -> None:
        """The copy out of a loan is over. ValueError for what is not lent."""
        shelf = self._shelves[layer]
        with self._changed:
            place = shelf.place_of.get((layer, expert))
            if place is None or shelf.loans[place] < 1:
                raise ValueError(f"expert {expert} of layer {layer} is not lent")
            shelf.loans[place] -= 1

    def holds(self, layer: int, expert: int) -> bool:
        """Would a fetch be served from here?"""
        with self._changed:
            return (layer, expert) in self._shelves[layer].place_of

    def wait_until_pinned(self, seconds: float) -> None:
        """Until the first of it is pinned, or no more will be: what is fetched first is measured as it will be."""
        if self._thread is not None:
            self._begun.wait(seconds)

    @property
    def pinned_bytes(self) -> int:
        """How much of the tier a card can read by itself, so far."""
        with self._changed:
            return sum(chunk.nbytes for chunk in self._pinned)

    def _find(self, shelf: _Shelf, layer: int, expert: int) -> int | None:
        """Lend what is here; what another thread is reading just now is waited for, and None when that fails."""
        while (place := shelf.place_of.get((layer, expert))) is not None:
            if shelf.filled[place]:
                self._lent(shelf, place)
                return place
            self._changed.wait()
        return None

    def _lent(self, shelf: _Shelf, place: int) -> None:
        self._clock += 1
        shelf.loans[place] += 1
        shelf.fetched[place] = self._clock

    def _take(self, shelf: _Shelf) -> int | None:
        """A place for a newcomer; None when all are lent."""
        place = shelf.empty_place()
        if place is None and (place := self._leaving(shelf)) is not None:
            shelf.leave(place)
        return place

    def _leaving(self, shelf: _Shelf) -> int | None:
        """Who leaves: the copy that the card will keep longest, while there are more copies than their share; else who
        will be wanted last of those that are only here."""
        free = np.flatnonzero(shelf.loans == 0)
        if not len(free):
            return None
        if shelf.priority is None or shelf.on_device is None:
            return int(free[shelf.fetched[free].argmin()])
        layers, experts = shelf.layer[free], shelf.expert[free]
        priority = shelf.priority[layers, experts]
        copies = shelf.on_device()[layers, experts]
        if np.count_nonzero(copies) > COPIES * len(shelf) or copies.all():
            return int(free[np.where(copies, priority, -np.inf).argmax()])
        return int(free[np.where(copies, np.inf, priority).argmin()])

    # ------------------------------------------------------------------------------------------------ pinning

    def _pin_all(self, pinner: Pinner, cpus: frozenset[int]) -> None:
        """On a thread of its own: memory that it touches first lies near the card."""
        stay_near(cpus)
        done = 0
        for chunk in self._chunks:
            if self._closing.is_set():
                return
            if not _pin(pinner, chunk):
                self._tell(
                    f"The system pins only {done / 1e9:.1f} of {self.nbytes / 1e9:.1f} GB of RAM for the graphics "
                    "card; experts in the rest take longer to fetch."
                )
                self._begun.set()
                return  # who was refused once is refused again, and each try takes time
            with self._changed:
                self._pinned.append(chunk)
            self._begun.set()
            done += chunk.nbytes


def _pin(pinner: Pinner, chunk: torch.Tensor) -> bool:
    try:
        return pinner.pin(chunk)
    except Exception as error:  # a driver's own kinds; the memory serves unpinned
        log.info("pinning failed: %s", error)
        return False


def _pages(nbytes: int) -> torch.Tensor | None:
    """uint8 ``[nbytes]`` from the start of a page, in pages of its own; None when the system has no more."""
    whole = -(-nbytes // PAGE) * PAGE
    try:
        raw = torch.empty(whole + PAGE, dtype=torch.uint8)
    except RuntimeError:
        return None
    start = -raw.data_ptr() % max(PAGE, ALIGNMENT)
    return raw[start : start + nbytes]
