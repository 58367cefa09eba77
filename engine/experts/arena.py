"""Slots on the device: one allocation per expert layout, made once, read in place."""

from __future__ import annotations

import torch

from engine.experts.device import Device
from engine.experts.layout import ExpertLayout


class Arena:
    """``slots`` blobs of one layout, back to back in one allocation.

    blobs: uint8 ``[slots, layout.nbytes]``. views[slot][name]: the parameter in that slot, in the module's layout.
    """

    def __init__(self, layout: ExpertLayout, slots: int, device: Device) -> None:
        self.layout = layout
        self.blobs = device.allocate(slots * layout.nbytes).view(slots, layout.nbytes)
        self.views: list[dict[str, torch.Tensor]] = [layout.views(self.blobs[slot]) for slot in range(slots)]

    @property
    def nbytes(self) -> int:
        return self.blobs.nbytes
