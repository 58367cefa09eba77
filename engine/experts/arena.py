"""Slots on the device, made once and read in place."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from engine.errors import MemoryPlanError
from engine.experts.device import Device
from engine.experts.layout import ExpertLayout, Parameters
from engine.experts.resident import cycles

SEGMENTS = 16  # pieces an arena is allocated in; memory goes back to the system a piece at a time


class Arena:
    """``slots`` blobs of one layout. ``views[slot][name]``: the parameter in that slot, in the module's layout.
    ``piece``: slots of one allocation.

    The memory comes in up to SEGMENTS allocations, so that part of it can be given back while the rest is in use; a
    slot's address never changes. Where the system has less than ``slots`` need, what it gives is taken, be it one slot;
    MemoryPlanError when it has not even that.
    """

    def __init__(self, layout: ExpertLayout, slots: int, device: Device, together: int = 1) -> None:
        """together: so many slots from the start, and from every multiple on, lie in one piece (``stack``)."""
        self.layout = layout
        self._device = device
        self.piece = -(-slots // min(SEGMENTS, slots) // together) * together
        self._segments: list[torch.Tensor] = []  # uint8 [slots here, layout.nbytes]
        self._place: list[tuple[int, int]] = []  # of each slot: segment, row
        self.views: list[Parameters] = []
        try:
            self.resize(slots)
        except MemoryPlanError:
            if not self._place:
                self._allocate(1)

    @property
    def slots(self) -> int:
        return len(self._place)

    @property
    def nbytes(self) -> int:
        return sum(segment.nbytes for segment in self._segments)

    def blob(self, slot: int) -> torch.Tensor:
        """uint8 ``[layout.nbytes]``."""
        segment, row = self._place[slot]
        return self._segments[segment][row]

    def stack(self, first: int, count: int) -> torch.Tensor:
        """uint8 ``[count, layout.nbytes]``: slots that lie in one piece."""
        segment, row = self._place[first]
        assert self._place[first + count - 1] == (segment, row + count - 1)
        return self._segments[segment][row : row + count]

    def rearrange(self, source: np.ndarray) -> None:
        """Every slot takes what slot ``source[slot]`` (int64 ``[slots]``, each once) has now."""
        for cycle in cycles(source):
            first = self.blob(cycle[0]).clone()
            for place, other in itertools.pairwise(cycle):
                self.blob(place).copy_(self.blob(other))
            self.blob(cycle[-1]).copy_(first)

    def fitting(self, slots: int) -> int:
        """The largest number of slots, not above ``slots``, that whole pieces make; one piece at least."""
        return max(1, slots // self.piece) * self.piece

    def resize(self, slots: int) -> None:
        """Give whole pieces back to the system from the end, or allocate more, until there are ``slots``. What goes may
        not be read or written any more. Raises MemoryPlanError when there is no memory for more."""
        while len(self._place) > slots:
            first = len(self._place) - len(self._segments[-1])
            del self.views[first:], self._place[first:]
            self._segments.pop()
        while len(self._place) < slots:
            self._allocate(min(self.piece, slots - len(self._place)))

    def _allocate(self, count: int) -> None:
        with torch.inference_mode(False):  # inside a pass, too: readers write outside of it
            segment = self._device.allocate(count * self.layout.nbytes).view(count, self.layout.nbytes)
            self._segments.append(segment)
            self._place += [(len(self._segments) - 1, row) for row in range(count)]
            self.views += [self.layout.views(segment[row]) for row in range(count)]
