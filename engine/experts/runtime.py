"""Arenas, caches and transfers of one loaded model, put together: what the hook asks for a layer's experts."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress

import numpy as np

from engine.errors import Cancelled, MemoryPlanError
from engine.experts.device import Device
from engine.experts.foresight import Foresight
from engine.experts.helping import Compute, let_processor_help
from engine.experts.layout import ExpertLayout, Parameters
from engine.experts.news import News
from engine.experts.observer import Observer
from engine.experts.prefetch import Prefetcher
from engine.experts.records import PassRecord, Phase, Settled
from engine.experts.resident import Resident
from engine.experts.rooms import Dispatch, Room, Served, bytes_held, line_up, make_room
from engine.experts.stages import shares, stage_of
from engine.experts.store import Store
from engine.experts.transfer import Transfer
from engine.experts.warming import fill_empty


class ExpertRuntime:
    """Serves experts to the layers of one model. Only the engine thread calls it.

    layouts: one for each layer; equal layouts on one device share an arena. slots: for each distinct layout, how many
    over all devices. stages: each a device and the store its link reads from; with several, an expert's number says
    which it belongs to.
    """

    def __init__(
        self,
        layouts: Sequence[ExpertLayout],
        slots: dict[ExpertLayout, int],
        experts: int,
        top_k: int,
        policy: str,
        stages: Sequence[tuple[Device, Store]],
    ) -> None:
        layers = len(layouts)
        self.observer = Observer(layers, experts, top_k)
        self._experts = experts
        self._transfers = [
            Transfer(store, device, name=f"greenroom-io-{n}", cpus=device.cpus)
            for n, (device, store) in enumerate(stages)
        ]
        self.reads = stages[0][1].describe()
        self._owners = [stage_of(layer, experts, len(stages)) for layer in range(layers)]
        for device, _ in stages:
            device.prepare(max(layout.nbytes for layout in layouts))
        self._all_fit = (
            len(stages) == 1
            and stages[0][0].on_card
            and all(count == experts * sum(other == layout for other in layouts) for layout, count in slots.items())
        )
        rooms: dict[tuple[ExpertLayout, int], Room] = {}
        for layout, count in slots.items():
            for stage, share in enumerate(shares(count, layouts, layout, self._owners, len(stages))):
                transfer = self._transfers[stage]
                rooms[layout, stage] = make_room(layout, share, (layers, experts), policy, transfer, self._all_fit)
        self._rooms = list(rooms.values())
        self.notes: list[str] = []
        self.news = News(self.notes, *(device.notes for device, _ in stages))
        planned = sum(slots.values())
        if self.slots < planned:
            self.notes.append(
                f"There is memory for {self.slots:,} expert slots, not for the {planned:,} that were planned; other "
                "programs have the rest."
            )
        self._rooms_of = [[rooms[layout, stage] for stage in range(len(stages))] for layout in layouts]
        for room in self._rooms:
            self.observer.add_follower(room.cache.policy)
        self._ahead = Prefetcher(self._rooms_of, self._owners, experts, top_k)
        self._foresight: Foresight | None = None
        self._learning = False  # from this pass, what the link has time for
        self._share_at: Callable[[int], float] = lambda context: 1.0
        self._stop_wanted: Callable[[], bool] = lambda: False
        self._everybody: Resident | None = None  # kept while nobody leaves
        self.resident_pass: Resident | None = None  # in this pass the card picks the experts by itself
        self._began = 0.0
        self._one_each = np.ones(experts, np.uint32)

    def share_with_kv(self, slots_at: Callable[[int], int]) -> None:
        """``slots_at(context)``: slots that may be held while the KV cache holds ``context`` tokens; at 0, all."""
        most = slots_at(0)
        self._share_at = lambda context: slots_at(context) / most
        for room in self._rooms:  # a card's may be asked for room whenever its memory runs out
            room.cache.for_good = slots_at(sys.maxsize) >= most and not room.device.on_card

    def foresee(self, foresight: Foresight | None) -> None:
        """Fetch ahead as ``foresight`` says from now on."""
        self._foresight = foresight
        if foresight is not None:
            foresight.bind(self._ahead.order)

    def compute_on_miss(self, compute: Compute, hidden: int) -> list[str]:
        """As ``let_processor_help``."""
        return let_processor_help(self._rooms_of, self._owners, compute, hidden)

    def stop_when(self, wanted: Callable[[], bool]) -> None:
        """Ask ``wanted`` before every layer; when it says yes, the pass ends with Cancelled."""
        self._stop_wanted = wanted

    # ------------------------------------------------------------------------------------------- one pass

    def begin_answer(self, new_chat: bool) -> None:
        """An answer begins: nothing is under way any more, so that a log can say what is where."""
        self._ahead.begin_request()
        for room in self._rooms:
            room.cache.begin_request()
        self.observer.begin_answer(new_chat)

    def end_answer(self) -> Settled | None:
        """The answer is over: what was fetched for a token that does not come is taken back, or waited for where it has
        begun, and counts now. None when there was nothing."""
        notes = self._ahead.end_request()
        nbytes = self.observer.read_ahead(self._early_bytes)
        return Settled(tuple(notes), nbytes) if notes or nbytes else None

    def begin_pass(self, phase: Phase, tokens: int, context: int = 0) -> None:
        """A forward pass over ``tokens`` tokens begins, after which the KV cache will hold ``context``."""
        self._learning = phase == "decode" and tokens == 1
        if self._everybody is not None:
            self._everybody.forget()
        self.observer.begin_pass(phase, tokens)
        self._ahead.begin_pass()
        self._make_way(self._share_at(context))
        for room in self._rooms:
            room.cache.begin_pass(phase)
            room.streaming = phase == "prefill" and room.cache.streams(self.observer.top_k, tokens)
        if phase == "prefill":
            self._ahead.before(0)
        self._began = time.perf_counter()
        resident = self._all_resident() if phase == "decode" and tokens == 1 and self._all_fit else None
        self.resident_pass = resident if resident is not None and resident.race.by_card else None
        if self._foresight is not None:
            complete = self.resident == self.observer.shape[0] * self._experts
            self._foresight.begin_pass(phase, tokens, complete, unheard=resident is not None)

    def end_pass(self, seconds: float) -> PassRecord:
        """It took so long, or was stopped (0 seconds)."""
        if self._everybody is not None:
            self._end_resident(seconds)
        notes = self._ahead.end_pass(seconds if self._learning else 0.0)
        foresight = self._foresight.end_pass(seconds) if self._foresight is not None else 0.0
        wasted: list[int] = []
        found: list[int] = []
        for room in self._rooms:
            wasted += room.cache.wasted
            found += room.cache.found
            room.cache.wasted, room.cache.found = [], []
        self.observer.ahead(notes, found, wasted, self._ahead.read_for(wasted), self._early_bytes, foresight)
        return self.observer.end_pass(seconds)

    def serve(self, layer: int, experts: np.ndarray, counts: np.ndarray) -> Generator[Served]:
        """Yield ``(expert ids, their parameters)`` until every wanted expert had its turn: who is here comes first.

        experts: int64 ``[n]``, distinct, ascending; counts: tokens that chose each. The parameters are valid until the
        next step of the iteration. Raises Cancelled between layers when a stop is wanted, ModelError when a read fails.
        """
        self.may_go_on()
        yield from self._serve(layer, experts, counts)

    def may_go_on(self) -> None:
        """Raises Cancelled when a stop is wanted."""
        if self._stop_wanted():
            raise Cancelled("Stopped.")

    def at_once(self, layer: int, experts: np.ndarray) -> list[Parameters] | None:
        """The parameters of ``experts`` (int64, distinct, ascending) for one token, when all are here and nobody is
        fetched ahead: no lease and no wait. They count as used; None when it takes ``serve``. Raises Cancelled."""
        foresight, rooms = self._foresight, self._rooms_of[layer]
        if len(rooms) > 1 or self._ahead.busy or (foresight is not None and foresight.asking):
            return None
        if rooms[0].device.on_card:  # what reads a slot later must be marked: else it may be refilled before
            return None
        self.may_go_on()
        slots = rooms[0].cache.here(layer, experts)
        if slots is None:
            return None
        if foresight is not None:
            foresight.routed(layer, experts, self._one_each[: len(experts)])
        self.observer.used(layer, experts, self._one_each[: len(experts)], ())
        views = rooms[0].arena.views
        return [views[slot] for slot in slots]

    def _serve(self, layer: int, experts: np.ndarray, counts: np.ndarray) -> Generator[Served]:
        foresight = self._foresight
        if foresight is not None:
            self._ahead.before(layer)
        dispatches: list[Dispatch] = []
        try:
            self._open(layer, experts, counts, dispatches)
            if foresight is not None:
                guesses = foresight.routed(layer, experts, counts)
                self._ahead.used(layer, experts)
                self._ahead.order(layer, guesses)
            for dispatch in dispatches:
                yield from dispatch
        finally:
            for dispatch in dispatches:
                dispatch.close()
        self.observer.used(layer, experts, counts, [dispatch.account for dispatch in dispatches])

    def _all_resident(self) -> Resident | None:
        """Everybody, when nobody is missing: sorted, so that an id is a place."""
        if self._everybody is None and all(room.cache.resident == room.cache.slots for room in self._rooms):
            if self.resident < self.observer.shape[0] * self._experts:
                return None
            self._ahead.settle()
            self._everybody = line_up([room for (room,) in self._rooms_of], self._experts)
        return self._everybody

    def _end_resident(self, seconds: float) -> None:
        """Tell everybody now who was used, as if the host had known all along."""
        everybody, picked = self._everybody, self.resident_pass
        assert everybody is not None
        self.resident_pass = None
        told = everybody.routed() if picked is not None else []
        for layer, ids in told:
            known = [expert for expert in ids if expert < self._experts]
            experts, counts = np.unique(np.array(known, dtype=np.int64), return_counts=True)
            if len(experts) < len(ids):  # nobody, or one twice: the usual way sums these up otherwise
                self._all_fit, self._everybody = False, None
            self.observer.routed(layer, known)
            for _ in self._serve(layer, experts, counts.astype(np.uint32)):
                pass
        if self._learning and seconds and not everybody.race.over:
            self._rooms[0].device.synchronize()
            everybody.race.took(time.perf_counter() - self._began)

    def _make_way(self, share: float) -> None:
        """Bring the arenas to ``share`` of what they began with, a piece at a time: what KV needs is given back before
        it grows, and taken again when there is room for another piece and a half, so that a length that goes up and
        down by a little moves nothing."""
        for number, room in enumerate(self._rooms):
            arena, full = room.arena, room.full
            wanted = full if share >= 1 else max(1, int(share * full))
            if wanted >= arena.slots and wanted < min(full, arena.slots + arena.piece * 3 // 2):
                continue
            target = full if wanted == full else arena.fitting(wanted)
            if target == arena.slots:
                continue
            self._ahead.settle()
            room.device.synchronize()
            if target > arena.slots:
                try:
                    arena.resize(target)
                except MemoryPlanError:  # somebody else has the memory now: we go on with what there is
                    room.full = target = arena.slots
            self._resize(number, target)

    @property
    def has_room_to_give(self) -> bool:
        """Whether ``give_room`` would give any."""
        return any(room.may_give for room in self._rooms)

    def give_room(self) -> None:
        """Memory ran out in a pass: every arena on a card gives a piece back, for as long as the model is loaded."""
        for number, room in enumerate(self._rooms):
            arena = room.arena
            if not room.may_give:
                continue
            self._ahead.settle()
            room.device.synchronize()
            room.full = arena.slots - arena.piece
            self._resize(number, room.full)
            room.cache.begin_request()  # a log says anew who is where, and cannot say who streamed in
        for room in self._rooms:
            room.device.release_unused()
        self._ahead.notes = []  # whoever logs says anew who is where

    def _resize(self, number: int, slots: int) -> None:
        """Cache and arena come to ``slots``; nothing is under way, and there is memory for them."""
        room = self._rooms[number]
        self._everybody = self.resident_pass = None
        for start, end in room.cache.resize(slots):
            room.arena.blob(end).copy_(room.arena.blob(start))
        room.device.synchronize()
        room.arena.resize(slots)
        self._ahead.resized(number, slots)

    def _open(self, layer: int, experts: np.ndarray, counts: np.ndarray, dispatches: list[Dispatch]) -> None:
        """One dispatch for each device that has some of them, every one's demands on their way."""
        if not len(experts):
            return
        rooms = self._rooms_of[layer]
        claim = self._ahead.claim if self._ahead.anybody_for(layer) else None
        if len(rooms) == 1:
            dispatches.append(Dispatch(rooms[0], layer, experts, counts, claim, self._learning))
            return
        owner = self._owners[layer][experts]
        for number, room in enumerate(rooms):
            ours = owner == number
            if ours.any():
                dispatches.append(Dispatch(room, layer, experts[ours], counts[ours], claim, self._learning))

    # ------------------------------------------------------------------------------------- before and between

    def warm(self, keys: np.ndarray, stopped: Callable[[], bool] = lambda: False) -> int:
        """Fill empty slots with ``keys`` (``layer * experts + expert``, most wanted first) as far as they go.

        How many were fetched; not a use, so no count moves. Raises Cancelled when ``stopped``, ModelError when a read
        fails.
        """
        return fill_empty(self._rooms, keys, self._experts, self._room_of, stopped)

    def close(self) -> None:
        """End the I/O threads and give the arenas back."""
        with suppress(RuntimeError):  # a card that gave up: readers and files go all the same
            self._ahead.settle()
        for transfer in self._transfers:
            transfer.close()
        self._transfers.clear()
        for room in self._rooms:  # the slots go below: nothing may be on its way there or read there any more
            with suppress(RuntimeError):  # a card that gave up does nothing any more
                room.device.synchronize()
        if self._foresight is not None:
            self._foresight.close()
            self._foresight = None
        self._everybody = self.resident_pass = None
        self._rooms.clear()
        self._rooms_of.clear()

    # ------------------------------------------------------------------------------------------ looking in

    def layout_of(self, layer: int) -> ExpertLayout:
        """How an expert of ``layer`` lies in its slot."""
        return self._rooms_of[layer][0].arena.layout

    @property
    def everyone(self) -> np.ndarray:
        """Keys of all experts where one card has a slot for each; none elsewhere. Worth having before the first word:
        once they are there, the card waits for nobody."""
        return np.arange(self.slots if self._all_fit else 0)

    @property
    def link_seconds(self) -> float:
        """In which something was read or copied, since the model was loaded; over all links."""
        return sum(transfer.use().busy_seconds for transfer in self._transfers)

    @property
    def _early_bytes(self) -> int:
        return sum(transfer.use().early_bytes for transfer in self._transfers)

    @property
    def evictions(self) -> int:
        return sum(room.cache.evictions for room in self._rooms)

    @property
    def slots(self) -> int:
        return sum(room.cache.slots for room in self._rooms)

    @property
    def resident(self) -> int:
        return sum(room.cache.resident for room in self._rooms)

    @property
    def arena_bytes(self) -> int:
        return sum(room.arena.nbytes for room in self._rooms)

    def held(self) -> dict[str, int]:
        """Bytes of experts by where they are ("cpu", "cuda:0"): arenas, and beside a card those that wait in RAM."""
        return bytes_held(self._rooms)

    @property
    def predicted(self) -> np.ndarray:
        """bool ``[layers, experts]``: expected by the latest guess about each layer; the runtime goes on writing."""
        return self._ahead.predicted

    def resident_mask(self) -> np.ndarray:
        """bool ``[layers, experts]``."""
        return np.logical_or.reduce([room.cache.resident_mask() for room in self._rooms])

    def by_eviction_order(self) -> np.ndarray:
        """Residents as ``layer * experts + expert``, next to leave first (arena by arena)."""
        return np.concatenate([room.cache.by_eviction_order() for room in self._rooms])

    def arenas(self) -> list[tuple[int, list[int]]]:
        """Slots of each arena and the layers it serves; arenas of one layout on several devices follow each other."""
        return [
            (room.cache.slots, [layer for layer, rooms in enumerate(self._rooms_of) if room in rooms])
            for room in self._rooms
        ]

    def policy_state(self) -> np.ndarray:
        """What the policies remember, float64 ``[n]`` (arena by arena): with the residents, enough to go on alike."""
        return np.concatenate([room.cache.policy.state() for room in self._rooms])

    def _room_of(self, key: int) -> Room:
        layer, expert = divmod(key, self._experts)
        return self._rooms_of[layer][self._owners[layer][expert]]
