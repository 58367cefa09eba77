"""Fetching ahead: whom to bring before anybody asks, who leaves for them, and what became of it.

At the boundary before each layer's experts are computed, the guesses about later layers become fetches, most likely and
nearest first, within what the link can carry beside the demands. An early expert keeps its slot until its layer had its
turn; then it was used, or it may leave like others. Nobody leaves for an expert less likely to be used than himself.

Every decision is noted (``Note``), in order, so that a replay of the log can take the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from engine.experts.records import Deed, Note
from engine.experts.rooms import Room
from engine.experts.transfer import Fetch, LinkUse

LEAST_CHANCE = 0.3  # of being used, below which nothing is fetched ahead
LEAD = 2.0  # layers' worth of reading that may be ordered at once
MEMORY = 0.9  # of how often an expert was used, per token
SMOOTH = 0.3  # of the newest pass in what is known of the link


class Guess(Protocol):
    """As ``engine.prediction.prompter.Guess``."""

    @property
    def layer(self) -> int: ...
    @property
    def chances(self) -> np.ndarray: ...
    @property
    def worth(self) -> float: ...


@dataclass(slots=True)
class _Link:
    """What a pass left of one link. Bytes per second; bytes that could be fetched ahead in one pass."""

    seen: LinkUse = field(default_factory=LinkUse)
    rate: float = 0.0
    allowance: float = 0.0
    spent: float = 0.0


class Prefetcher:
    """Early fetches of one model. Only the engine thread calls it.

    rooms: for each layer, those its experts live in, and for each expert the number of its room there.
    """

    def __init__(self, rooms: Sequence[Sequence[Room]], owners: Sequence[np.ndarray], experts: int, top_k: int) -> None:
        self.layers, self._experts, self._top_k = len(rooms), experts, top_k
        self._rooms, self._owners = rooms, owners
        self._out: list[dict[int, tuple[Room, Fetch]]] = [{} for _ in rooms]  # by layer meant: brought, not let go
        self._behind = 0  # layers before this one have nothing out, but for reads under way
        self._outstanding = 0
        self._rate = np.zeros((self.layers, experts), np.float32)  # share of late tokens that used the expert
        self.predicted = np.zeros((self.layers, experts), dtype=bool)  # the pass's latest guess about each layer
        self._expected = np.zeros((self.layers, experts), dtype=bool)  # the same, of layers still to come
        self._links: dict[int, _Link] = {}
        self._layer_seconds = 0.0
        self._nbytes = np.zeros(self.layers * experts, np.int64)  # read for the latest early fetch of each key
        self.notes: list[Note] = []

    def begin_request(self) -> None:
        """Whoever is still out is let go; what a pass that broke off noted is of no use any more."""
        self.notes = []
        self.settle()

    def begin_pass(self) -> None:
        self.predicted[:] = False
        self._expected[:] = False
        for link in self._links.values():
            link.spent = 0.0

    def settle(self) -> None:
        """Between passes: take back what has not begun, wait for what has, and let everybody go."""
        for layer in range(self.layers):
            for key, (room, fetch) in self._out[layer].items():
                room.transfer.cancel(fetch)
                fetch.wait()
                self._note(-1, key, self._close(key, room, fetch))
            self._out[layer].clear()
        self._behind = self._outstanding = 0

    def before(self, layer: int) -> None:
        """``layer`` is about to be leased: who was meant for the layers before it may leave, and a fetch for it that
        came to nothing does not count as being there. The number of layers: the pass is over."""
        for behind in range(self._behind, layer):
            if self._out[behind]:
                self._pass_by(layer, behind)
        while self._behind < layer and not self._out[self._behind]:
            self._behind += 1
        if layer < self.layers and self._out[layer]:
            for key, (room, fetch) in list(self._out[layer].items()):
                if fetch.over and not fetch.arrived:
                    self._note(layer, key, self._close(key, room, fetch))
                    del self._out[layer][key]
        if layer == self.layers:
            self._behind = 0

    def claim(self, layer: int, key: int) -> Fetch | None:
        """The early fetch of an expert that is wanted now; it is the caller's from here on. None: there was none."""
        out = self._out[layer].pop(key, None)
        if out is None:
            return None
        self._outstanding -= 1
        room, fetch = out
        room.transfer.hurry(fetch)
        return fetch

    @property
    def busy(self) -> bool:
        """Whether anybody at all is out."""
        return self._outstanding > 0

    def anybody_for(self, layer: int) -> bool:
        """Whether somebody fetched ahead for ``layer`` has a slot."""
        return bool(self._out[layer])

    def resized(self, arena: int, slots: int) -> None:
        """For the log."""
        self.notes.append(Note(-1, Deed.RESIZE, arena, slots))

    def read_for(self, keys: Sequence[int]) -> int:
        """Bytes that were read when these were last fetched ahead in vain."""
        return int(self._nbytes[list(keys)].sum())

    def used(self, layer: int, ids: np.ndarray) -> None:
        """The layer has its turn, and ``ids`` are used."""
        rate = self._rate[layer]
        rate *= MEMORY
        rate[ids] += 1 - MEMORY
        self._expected[layer] = False

    def order(self, layer: int, guesses: Sequence[Guess]) -> None:
        """Fetch ahead what is expected after ``layer``, as far as it pays and the link has time."""
        wanted: list[tuple[float, float, int, Room]] = []
        for guess in guesses:
            self._want(guess, wanted)
        if not wanted:
            return
        wanted.sort(key=lambda one: -one[0])
        protected = self._expected.reshape(-1)
        rate = self._rate.reshape(-1)
        for room in {id(one[3]): one[3] for one in wanted}.values():
            ours = [one for one in wanted if one[3] is room][: self._affordable(room, layer)]
            for (worth, chance, key, _), leaving in zip(
                ours, room.cache.room_for(len(ours), protected).tolist(), strict=False
            ):
                if leaving >= 0 and rate[leaving] > chance:
                    break
                slot = room.cache.bring(key, leaving)
                target, expert = divmod(key, self._experts)
                try:
                    self._out[target][key] = room, room.transfer.ahead(room.arena, target, expert, slot, worth)
                except BaseException:
                    room.cache.forget(target, expert)  # nobody will bring it, and nobody may hit it
                    raise
                self._outstanding += 1
                self._link(room).spent += room.arena.layout.nbytes
                self.notes.append(Note(layer, Deed.BRING, key, leaving))

    def end_pass(self, seconds: float) -> list[Note]:
        """The pass is over: let everybody go. What was noted since the last one.

        seconds: what a decode token took, to learn what the link has time for; 0 for any other pass.
        """
        self.before(self.layers)
        notes, self.notes = self.notes, []
        if seconds:
            self._layer_seconds += (SMOOTH if self._layer_seconds else 1.0) * (
                seconds / self.layers - self._layer_seconds
            )
        for room in {id(room): room for rooms in self._rooms for room in rooms}.values():
            link, use = self._link(room), room.transfer.use()
            demand = use.demand_seconds - link.seen.demand_seconds
            busy = use.busy_seconds - link.seen.busy_seconds
            count = use.demand_bytes + use.early_bytes - link.seen.demand_bytes - link.seen.early_bytes
            link.seen = use
            if not seconds:
                continue
            if busy > 0 and count:
                link.rate += (SMOOTH if link.rate else 1.0) * (count / busy - link.rate)
            idle = link.rate * max(0.0, seconds - demand)
            link.allowance += (SMOOTH if link.allowance else 1.0) * (idle - link.allowance)
        return notes

    # ----------------------------------------------------------------------------------------------- inside

    def _want(self, guess: Guess, wanted: list[tuple[float, float, int, Room]]) -> None:
        layer, chances = guess.layer, guess.chances
        named = np.argpartition(chances, -self._top_k)[-self._top_k :] if self._top_k < len(chances) else None
        predicted = self.predicted[layer]
        predicted[:] = False
        predicted[named if named is not None else slice(None)] = True
        self._expected[layer] = predicted
        likely = np.flatnonzero(predicted & (chances > LEAST_CHANCE))
        if not len(likely):
            return
        rooms, owners = self._rooms[layer], self._owners[layer]
        first = layer * self._experts
        for number, room in enumerate(rooms):
            here = likely if len(rooms) == 1 else likely[owners[likely] == number]
            absent = here[room.cache.absent(here + first)]
            for expert, chance in zip(absent.tolist(), chances[absent].tolist(), strict=True):
                wanted.append((chance * guess.worth, chance, first + expert, room))

    def _affordable(self, room: Room, layer: int) -> int:
        """How many more fetches this link should be given now."""
        nbytes, link = room.arena.layout.nbytes, self._link(room)
        held = sum(len(out) for out in self._out)
        seats = room.cache.slots - self._top_k - held  # a dispatch must always find slots that may leave
        at_once = max(room.transfer.readers + 1, int(LEAD * self._layer_seconds * link.rate / nbytes))
        left = link.allowance * (layer + 2) / self.layers - link.spent
        in_time = max(room.transfer.readers, int(left / nbytes)) if link.allowance else at_once
        return max(0, min(seats, at_once - self._outstanding, in_time))

    def _link(self, room: Room) -> _Link:
        return self._links.setdefault(id(room), _Link())

    def _pass_by(self, layer: int, behind: int) -> None:
        """Layer ``behind`` had its turn: what was meant for it and not used is let go once nobody writes to it."""
        for key, (room, fetch) in list(self._out[behind].items()):
            if not fetch.over and not room.transfer.cancel(fetch):
                continue  # being read: asked again at the next boundary
            self._note(layer, key, self._close(key, room, fetch))
            del self._out[behind][key]

    def _close(self, key: int, room: Room, fetch: Fetch) -> Deed:
        self._outstanding -= 1
        if fetch.arrived:
            self._nbytes[key] = fetch.nbytes
            fetch.result()  # whoever is hit here later finds the copy ordered before the compute
            room.cache.let_go(key)
            return Deed.LET_GO
        room.cache.forget(*divmod(key, self._experts))
        return Deed.DROP

    def _note(self, layer: int, key: int, deed: Deed) -> None:
        self.notes.append(Note(layer, deed, key))
