"""Before the first word: experts into empty slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.errors import Cancelled
from engine.experts.rooms import Room, give_up
from engine.experts.transfer import Fetch


def fill_empty(
    rooms: Sequence[Room],
    keys: np.ndarray,
    experts: int,
    room_of: Callable[[int], Room],
    stopped: Callable[[], bool],
) -> int:
    """Fetch ``keys`` (``layer * experts + expert``, most wanted first) as far as the rooms' slots go; how many came.

    Raises Cancelled when ``stopped``, ModelError when a read fails, RuntimeError when the system starts no reader;
    slots whose expert did not come are empty again.
    """
    coming: list[tuple[Room, Fetch]] = []
    landed = 0
    try:
        for room in rooms:
            ours = keys[np.array([room_of(key) is room for key in keys.tolist()], dtype=bool)][: room.cache.slots]
            room.cache.fill(ours)
            coming += _demanded(room, ours.tolist(), experts)
        for _, fetch in coming:
            if stopped():
                raise Cancelled("Loading was stopped.")
            fetch.result()
            landed += 1
    finally:
        for room, fetch in coming[landed:]:
            give_up(room, fetch)
    return landed


def _demanded(room: Room, keys: Sequence[int], experts: int) -> list[tuple[Room, Fetch]]:
    """The fetches of who has the slots from the first one on; of nobody when one cannot be had."""
    coming: list[tuple[Room, Fetch]] = []
    try:
        for slot, key in enumerate(keys):
            layer, expert = divmod(key, experts)
            coming += [(room, fetch) for fetch in room.transfer.demand(room.arena, layer, [expert], [slot])]
    except BaseException:
        for _, fetch in coming:
            give_up(room, fetch)
        for key in keys[len(coming) :]:  # nobody will bring them
            room.cache.forget(*divmod(key, experts))
        raise
    return coming
