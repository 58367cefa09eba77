"""Arena, cache and transfer of one loaded model, put together: what the hook asks for a layer's experts."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch

from engine.errors import Cancelled
from engine.experts.arena import Arena
from engine.experts.cache import ExpertCache, Lease
from engine.experts.device import Arrival, Device
from engine.experts.layout import ExpertLayout
from engine.experts.observer import Observer
from engine.experts.policies import make_policy
from engine.experts.store import Store
from engine.experts.transfer import Transfer

# expert, slot, and the bytes read with, on CUDA, what to wait for
_Arriving: TypeAlias = tuple[int, int, Future[tuple[int, Arrival | None]]]


@dataclass(frozen=True, slots=True)
class _Room:
    """The layers that share a layout: their arena and who sits in it."""

    arena: Arena
    cache: ExpertCache


class ExpertRuntime:
    """Serves experts to the layers of one model. Only the engine thread calls it.

    layouts: one for each layer; equal layouts share an arena. slots: for each distinct layout, how many.
    """

    def __init__(
        self,
        layouts: Sequence[ExpertLayout],
        slots: dict[ExpertLayout, int],
        experts: int,
        top_k: int,
        policy: str,
        store: Store,
        device: Device,
    ) -> None:
        layers = len(layouts)
        self.observer = Observer(layers, experts, top_k)
        self._device = device
        self._transfer = Transfer(store, device)
        rooms = {
            layout: _Room(
                Arena(layout, count, device), ExpertCache(count, layers, experts, make_policy(policy, layers, experts))
            )
            for layout, count in slots.items()
        }
        self._rooms = list(rooms.values())
        for room in self._rooms:
            self.observer.add_follower(room.cache.policy)
        self._room_of = [rooms[layout] for layout in layouts]
        self._stop_wanted: Callable[[], bool] = lambda: False

    def stop_when(self, wanted: Callable[[], bool]) -> None:
        """Ask ``wanted`` before every layer; when it says yes, the pass ends with Cancelled."""
        self._stop_wanted = wanted

    def warm(self, keys: np.ndarray, stopped: Callable[[], bool] = lambda: False) -> int:
        """Fill empty slots with ``keys`` (``layer * experts + expert``, most wanted first) as far as they go.

        How many were fetched; not a use, so no count moves. Raises Cancelled when ``stopped``, ModelError when a read
        fails.
        """
        experts = self.observer.shape[1]
        coming: list[tuple[_Room, int, int, Future[tuple[int, Arrival | None]]]] = []
        for room in self._rooms:
            here = np.array([self._room_of[layer] is room for layer in (keys // experts).tolist()], dtype=bool)
            ours = keys[here][: room.cache.slots]
            room.cache.fill(ours)
            for slot, key in enumerate(ours.tolist()):
                layer, expert = divmod(key, experts)
                coming.append((room, layer, expert, self._transfer.demand(room.arena, layer, expert, slot)))
        landed = 0
        try:
            for _, _, _, future in coming:
                if stopped():
                    raise Cancelled("Loading was stopped.")
                _, arrival = future.result()
                if arrival is not None:
                    arrival.wait()
                landed += 1
        finally:
            for room, layer, expert, future in coming[landed:]:
                _give_up(room, layer, expert, future)
        return landed

    def serve(
        self, layer: int, experts: np.ndarray, counts: np.ndarray
    ) -> Generator[tuple[Sequence[int], Sequence[dict[str, torch.Tensor]]]]:
        """Yield ``(expert ids, their parameters)`` until every wanted expert had its turn: who is here comes first.

        experts: int64 ``[n]``, distinct, ascending; counts: tokens that chose each. The parameters are valid until the
        next step of the iteration. Raises Cancelled between layers when a stop is wanted, ModelError when a read fails.
        """
        if self._stop_wanted():
            raise Cancelled("Stopped.")
        room = self._room_of[layer]
        missed = np.zeros(len(experts), dtype=bool)
        for lease in room.cache.waves(layer, experts, counts):
            missed[np.searchsorted(experts, lease.experts[lease.missing])] = True
            try:
                yield from self._serve_lease(room, lease)
            finally:
                room.cache.release(lease)
                self._device.reading_done(room.arena.blobs, lease.slots.tolist())
        self.observer.used(layer, experts, counts, missed)

    def _serve_lease(
        self, room: _Room, lease: Lease
    ) -> Generator[tuple[Sequence[int], Sequence[dict[str, torch.Tensor]]]]:
        views = room.arena.views
        if not lease.missing.any():
            yield lease.experts.tolist(), [views[slot] for slot in lease.slots.tolist()]
            return
        arriving: list[_Arriving] = []
        for expert, slot in zip(
            lease.experts[lease.missing].tolist(), lease.slots[lease.missing].tolist(), strict=True
        ):
            arriving.append((expert, slot, self._transfer.demand(room.arena, lease.layer, expert, slot)))
        landed = 0
        try:
            here = ~lease.missing
            if here.any():
                yield lease.experts[here].tolist(), [views[slot] for slot in lease.slots[here].tolist()]
            while landed < len(arriving):
                ready = self._landed(arriving[landed:])
                landed += len(ready)
                yield [expert for expert, _, _ in ready], [views[slot] for _, slot, _ in ready]
        finally:
            for expert, _, future in arriving[landed:]:  # a read failed or the pass was stopped
                _give_up(room, lease.layer, expert, future)

    def _landed(self, arriving: Sequence[_Arriving]) -> Sequence[_Arriving]:
        """Wait for the first, and take with it whoever has come by then. Raises ModelError when a read failed."""
        began = time.perf_counter()
        ready = 1
        arriving[0][2].result()
        while ready < len(arriving) and arriving[ready][2].done():
            ready += 1
        fetched = 0
        for _, _, future in arriving[:ready]:
            nbytes, arrival = future.result()
            fetched += nbytes
            if arrival is not None:
                arrival.wait()
        self.observer.fetched(fetched, time.perf_counter() - began)
        return arriving[:ready]

    # ------------------------------------------------------------------------------------------ looking in

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

    def resident_mask(self) -> np.ndarray:
        """bool ``[layers, experts]``."""
        return np.logical_or.reduce([room.cache.resident_mask() for room in self._rooms])

    def by_eviction_order(self) -> np.ndarray:
        """Residents as ``layer * experts + expert``, next to leave first (arena by arena)."""
        return np.concatenate([room.cache.by_eviction_order() for room in self._rooms])

    def arenas(self) -> list[tuple[int, list[int]]]:
        """Slots of each arena and the layers it serves."""
        return [
            (room.cache.slots, [layer for layer, other in enumerate(self._room_of) if other is room])
            for room in self._rooms
        ]

    def policy_state(self) -> np.ndarray:
        """What the policies remember, float64 ``[n]`` (arena by arena): with the residents, enough to go on alike."""
        return np.concatenate([room.cache.policy.state() for room in self._rooms])

    def close(self) -> None:
        """End the I/O threads and give the arenas back."""
        self._transfer.close()
        self._rooms.clear()
        self._room_of.clear()


def _give_up(room: _Room, layer: int, expert: int, future: Future[tuple[int, Arrival | None]]) -> None:
    """A fetch nobody waits for any more: its slot holds nothing that can be trusted."""
    if not future.cancel() and future.exception() is None:
        _, arrival = future.result()
        if arrival is not None:
            arrival.wait()  # it holds a host buffer until then
    room.cache.forget(layer, expert)
