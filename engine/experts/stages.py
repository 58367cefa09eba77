"""Several devices: whose expert is whose, and how the slots are shared out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.experts.layout import ExpertLayout

HASH = 2654435769  # 2^32 divided by the golden ratio


def stage_of(layer: int, experts: int, stages: int) -> np.ndarray:
    """int64 ``[experts]``: the device that each expert of ``layer`` belongs to, by Fibonacci hashing of its key (Knuth,
    The Art of Computer Programming 3, section 6.4), so that every layer's load is spread over all of them."""
    keys = (np.arange(experts, dtype=np.uint64) + np.uint64(layer * experts)) * np.uint64(HASH)
    return ((keys % np.uint64(2**32)) * np.uint64(stages) >> np.uint64(32)).astype(np.int64)


def shares(
    slots: int, layouts: Sequence[ExpertLayout], layout: ExpertLayout, owners: Sequence[np.ndarray], stages: int
) -> list[int]:
    """``slots`` shared out among the devices as their experts of this layout are; at least one each."""
    counts = np.zeros(stages)
    for own, other in zip(owners, layouts, strict=True):
        if other == layout:
            counts += np.bincount(own, minlength=stages)
    ends = np.rint(np.cumsum(counts) / counts.sum() * slots).astype(int)
    return [max(1, int(share)) for share in np.diff(ends, prepend=0)]
