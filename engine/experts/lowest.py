"""Who of many leaves first: as much of a sort as an eviction needs."""

from __future__ import annotations

import numpy as np

FEW = 6  # up to so many, looking for the lowest again and again is faster than parting them all


def lowest(values: np.ndarray, count: int) -> np.ndarray:
    """Where the ``count`` lowest values are, among equals the first ones: who, not in which order.

    values: float64 ``[n]``, none of them plus infinity. count: 1 to n. Returns int64 ``[count]``.
    """
    rest = values.copy()
    if count <= FEW:
        found = np.empty(count, dtype=np.int64)
        for number in range(count):
            found[number] = one = rest.argmin()
            rest[one] = np.inf
        return found
    rest.partition(count - 1)
    highest = rest[count - 1]
    found = (values <= highest).nonzero()[0]
    if len(found) > count:
        below = values[found] < highest
        equal = found[~below]
        found = np.concatenate([found[below], equal[: count - int(np.count_nonzero(below))]])
    return found
