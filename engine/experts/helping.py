"""Whether the processor may help with experts that are missing on a card: measured at load, room by room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import torch

from engine.experts.layout import Parameters
from engine.experts.on_miss import Calibration, Helper, calibrate
from engine.experts.rooms import Room

CALIBRATED = 12  # experts: more than a processor keeps in its cache, when they are large enough to matter
PATIENCE = 10.0  # seconds for the first memory to be pinned; what is fetched from it is measured as it will be

Compute: TypeAlias = Callable[[int, Parameters, torch.Tensor], torch.Tensor]


def let_processor_help(
    rooms_of: Sequence[Sequence[Room]], owners: Sequence[np.ndarray], compute: Compute, hidden: int
) -> list[str]:
    """Give every room a helper where that pays. What the user should know of it, in sentences.

    rooms_of: of each layer; owners: int64 ``[experts]`` for each layer, the number of each expert's room there.
    compute: a layer's number, one expert's parameters in RAM, rows ``[n, hidden]`` -> ``[n, hidden]``. Before the first
    expert is fetched, since slots are overwritten.
    """
    measured: dict[int, Calibration] = {}
    helpers: list[tuple[Room, Helper]] = []
    for layer, rooms in enumerate(rooms_of):
        for number, room in enumerate(rooms):
            if id(room) in measured:
                continue
            tier = room.transfer.tier
            if tier is None:
                return ["Missing experts are fetched: for the processor to help, some must wait in RAM beside a card."]
            ours = np.flatnonzero(owners[layer] == number).tolist()
            try:
                measured[id(room)] = costs = _measure(room, layer, ours, partial(compute, layer), hidden)
            except RuntimeError as error:
                return [f"Missing experts are fetched: the processor cannot compute those of this model ({error})."]
            if costs.pays:
                helpers.append((room, Helper(costs, tier)))
    for room, helper in helpers:  # only now: it is said of all of them or of none
        room.helper = helper
    helped = [costs for costs in measured.values() if costs.pays]
    return [(helped or list(measured.values()))[0].describe()]


def _measure(
    room: Room,
    layer: int,
    experts: Sequence[int],
    compute: Callable[[Parameters, torch.Tensor], torch.Tensor],
    hidden: int,
) -> Calibration:
    tier = room.transfer.tier
    assert tier is not None
    tier.wait_until_pinned(PATIENCE)
    lent: dict[int, torch.Tensor] = {}
    try:
        for expert in experts[: min(CALIBRATED, room.arena.slots)]:
            memory = tier.lend(layer, expert)
            if memory is not None:
                lent[expert] = memory
        if not lent:
            raise RuntimeError("too little RAM")
        slots = [room.arena.blob(slot) for slot in range(len(lent))]
        return calibrate(room.arena.layout, list(lent.values()), slots, compute, hidden)
    finally:
        for expert in lent:
            tier.give_back(layer, expert)
