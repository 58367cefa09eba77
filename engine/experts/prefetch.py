"""Fetching ahead: whom to bring before anybody asks, who leaves for them, and what became of it.

At the boundary before each layer's experts are computed, the guesses about later layers become fetches, most likely and
nearest first, within what the link can carry beside the demands. After the last layer comes the next token's first: a
guess about it is fetched while the language head computes and the token is sampled. An early expert keeps its slot
until its layer had its turn; then it was used, or it may leave like others. Nobody leaves for an expert less likely to
be used than himself.

Every decision is noted (``Note``), in order, so that a replay of the log can take the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from engine.experts.records import Deed, Note
from engine.experts.rooms import Room
from engine.experts.transfer import Fetch, LinkUse, State

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


class _Early(NamedTuple):
    """An early fetch.

    leaving: whose slot it took, -1 for an empty one. turn: the one of its layer that it is meant for, counted in layers
    over all passes.
    """

    room: Room
    fetch: Fetch
    leaving: int
    turn: int


class _Wish(NamedTuple):
    """Who is to be fetched for which turn. chance: of being used then."""

    worth: float
    chance: float
    room: Room
    layer: int
    expert: int
    turn: int


@dataclass(slots=True)
class _Link:
    """What a pass left of one link. Bytes of slots filled per second; those that could be filled ahead in one pass."""

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
        self._out: list[dict[int, _Early]] = [{} for _ in rooms]  # by layer meant: brought, not let go
        self._first = 0  # turn of this pass's first layer
        self._behind = 0  # turns before this one have nothing out
        self._outstanding = 0
        self._rate = np.zeros((self.layers, experts), np.float32)  # share of late tokens that used the expert
        self.predicted = np.zeros((self.layers, experts), dtype=bool)  # the pass's latest guess about each layer
        self._next = np.zeros((self.layers, experts), dtype=bool)  # its guess about the next pass
        self._expected = np.zeros((self.layers, experts), dtype=bool)  # the latest guess, of layers still to come
        self._links: dict[int, _Link] = {}
        self._layer_seconds = 0.0
        self._nbytes = np.zeros(self.layers * experts, np.int64)  # read for the latest early fetch of each key
        self.notes: list[Note] = []

    def begin_request(self) -> None:
        """Whoever is still out is let go; what a pass that broke off noted is of no use any more."""
        self.notes = []
        self.settle()

    def end_request(self) -> list[Note]:
        """No token follows: nobody is out any more. What was noted."""
        self.settle()
        notes, self.notes = self.notes, []
        return notes

    def begin_pass(self) -> None:
        self.predicted[:] = self._expected[:] = self._next
        self._next[:] = False
        for link in self._links.values():
            link.spent = 0.0

    def settle(self) -> None:
        """Between passes: take back what has not begun, wait for what has, and let everybody go."""
        for out in self._out:  # all of them first: a reader that is waited for would begin the next
            for early in out.values():
                early.room.transfer.cancel(early.fetch)
        for out in self._out:
            for key, early in out.items():
                early.fetch.wait()
                self._close(-1, key, early)
            out.clear()
        self._next[:] = False
        self._behind, self._outstanding = self._first, 0

    def before(self, layer: int) -> None:
        """``layer`` is about to be leased: who was meant for the layers before it may leave, and a fetch for it that
        came to nothing does not count as being there. The number of layers: the pass is over."""
        now = self._first + layer
        reading = now  # the first turn of which somebody is still being read
        for turn in range(self._behind, now):
            out = self._out[turn % self.layers]
            if out and self._pass_by(layer, turn, out):
                reading = min(reading, turn)
        self._behind = reading
        if layer < self.layers and self._out[layer]:
            for key, early in list(self._out[layer].items()):
                if early.fetch.over and not early.fetch.arrived:
                    self._close(layer, key, early)
                    del self._out[layer][key]

    def claim(self, layer: int, key: int) -> Fetch | None:
        """The early fetch of an expert that is wanted now; it is the caller's from here on. None: there was none."""
        out = self._out[layer].pop(key, None)
        if out is None:
            return None
        self._outstanding -= 1
        out.room.transfer.hurry(out.fetch)
        return out.fetch

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
        """Fetch ahead what is expected after ``layer``, as far as it pays and the link has time.

        Nobody whom this pass still expects leaves for anybody; for the next one's, nobody whom that one expects.
        """
        now: list[_Wish] = []
        later: list[_Wish] = []
        for guess in guesses:
            if guess.layer > layer:
                now += self._wishes(guess, self._first, self.predicted)
                self._expected[guess.layer] = self.predicted[guess.layer]
            else:
                later += self._wishes(guess, self._first + self.layers, self._next)
        if now:
            self._bring(layer, now, self._expected)
        if later:
            self._bring(layer, later, self._expected | self._next)

    def end_pass(self, seconds: float) -> list[Note]:
        """The pass is over: let everybody go who was meant for it. What was noted since the last one.

        seconds: what a decode token took, to learn what the link has time for; 0 for any other pass.
        """
        self.before(self.layers)
        self._first += self.layers
        notes, self.notes = self.notes, []
        if seconds:
            self._layer_seconds += (SMOOTH if self._layer_seconds else 1.0) * (
                seconds / self.layers - self._layer_seconds
            )
        for room in {id(room): room for rooms in self._rooms for room in rooms}.values():
            link, use = self._link(room), room.transfer.use()
            demand = use.demand_seconds - link.seen.demand_seconds
            busy = use.busy_seconds - link.seen.busy_seconds
            count = use.filled_bytes - link.seen.filled_bytes
            link.seen = use
            if not seconds:
                continue
            if busy > 0 and count:
                link.rate += (SMOOTH if link.rate else 1.0) * (count / busy - link.rate)
            idle = link.rate * max(0.0, seconds - demand)
            link.allowance += (SMOOTH if link.allowance else 1.0) * (idle - link.allowance)
        return notes

    # ----------------------------------------------------------------------------------------------- inside

    def _wishes(self, guess: Guess, first: int, predicted: np.ndarray) -> list[_Wish]:
        """Whom the guess names and nobody has. first: turn of its pass's first layer; ``predicted [layers, experts]``
        of that pass is set."""
        layer, chances = guess.layer, guess.chances
        named = np.argpartition(chances, -self._top_k)[-self._top_k :] if self._top_k < len(chances) else None
        row = predicted[layer]
        row[:] = False
        row[named if named is not None else slice(None)] = True
        likely = np.flatnonzero(row & (chances > LEAST_CHANCE))
        wishes: list[_Wish] = []
        if not len(likely):
            return wishes
        rooms, owners = self._rooms[layer], self._owners[layer]
        for number, room in enumerate(rooms):
            here = likely if len(rooms) == 1 else likely[owners[likely] == number]
            absent = here[room.cache.absent(here + layer * self._experts)]
            for expert, chance in zip(absent.tolist(), chances[absent].tolist(), strict=True):
                wishes.append(_Wish(chance * guess.worth, chance, room, layer, expert, first + layer))
        return wishes

    def _bring(self, layer: int, wishes: list[_Wish], protected: np.ndarray) -> None:
        """After ``layer``, as many of them as each link should be given now; of ``protected [layers, experts]``, nobody
        leaves."""
        wishes.sort(key=lambda wish: -wish.worth)
        rate = self._rate.reshape(-1)
        for room in {id(wish.room): wish.room for wish in wishes}.values():
            ours = [wish for wish in wishes if wish.room is room][: self._affordable(room, layer)]
            seats = room.cache.room_for(len(ours), protected.reshape(-1)).tolist()
            for wish, leaving in zip(ours, seats, strict=False):
                if leaving >= 0 and rate[leaving] > wish.chance:
                    break
                key = wish.layer * self._experts + wish.expert
                slot = room.cache.bring(key, leaving)
                try:
                    fetch = room.transfer.ahead(room.arena, wish.layer, wish.expert, slot, wish.worth)
                except BaseException:
                    room.cache.forget(wish.layer, wish.expert)  # nobody will bring it, and nobody may hit it
                    raise
                self._out[wish.layer][key] = _Early(room, fetch, leaving, wish.turn)
                self._outstanding += 1
                self._link(room).spent += room.arena.layout.nbytes
                self.notes.append(Note(layer, Deed.BRING, key, leaving))

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

    def _pass_by(self, layer: int, turn: int, out: dict[int, _Early]) -> bool:
        """A layer had this turn: what was meant for it and not used is let go once nobody writes to it. Whether
        somebody is still being read: asked again at the next boundary."""
        reading = False
        for key, early in list(out.items()):
            if early.turn > turn:
                continue
            if not early.fetch.over and not early.room.transfer.cancel(early.fetch):
                reading = True
                continue
            self._close(layer, key, early)
            del out[key]
        return reading

    def _close(self, layer: int, key: int, early: _Early) -> None:
        """Nobody writes to its slot any more, and before ``layer`` it ends unused."""
        self._outstanding -= 1
        cache = early.room.cache
        if early.fetch.arrived:
            self._nbytes[key] = early.fetch.nbytes
            early.fetch.result()  # whoever is hit here later finds the copy ordered before the compute
            cache.let_go(key)
            self.notes.append(Note(layer, Deed.LET_GO, key))
        elif early.fetch.state is State.CANCELLED and early.leaving >= 0:
            cache.take_back(key, early.leaving)
            self.notes.append(Note(layer, Deed.TAKE_BACK, key, early.leaving))
        else:
            cache.forget(*divmod(key, self._experts))
            self.notes.append(Note(layer, Deed.DROP, key))
