"""Who leaves when a slot is needed. A policy sees uses and gives every resident expert a score; the lowest leaves.

Arrays, not objects: one token asks hundreds of times. Nothing here knows tensors, slots or time, so a replay of a log
runs the very same code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from engine.errors import OptionError


class Policy(Protocol):
    """What the cache asks of a policy. ``experts`` are ids within ``layer``."""

    name: str

    def used(self, layer: int, experts: np.ndarray) -> None:
        """These experts (int64, distinct) were just wanted by one forward pass of ``layer``."""

    def scores(self, layers: np.ndarray, experts: np.ndarray) -> np.ndarray:
        """One score for each resident expert, given as parallel int64 arrays; the lowest leaves first."""


class LeastRecentlyUsed:
    """The expert that was wanted longest ago leaves."""

    name = "lru"

    def __init__(self, layers: int, experts: int) -> None:
        self._clock = 0
        self._last_use = np.zeros((layers, experts))

    def used(self, layer: int, experts: np.ndarray) -> None:
        self._clock += 1
        self._last_use[layer, experts] = self._clock

    def scores(self, layers: np.ndarray, experts: np.ndarray) -> np.ndarray:
        return self._last_use[layers, experts]


class LeastFrequentlyUsed:
    """The expert wanted least often since the model was loaded leaves; among equals, the one wanted longest ago."""

    name = "lfu"

    def __init__(self, layers: int, experts: int) -> None:
        self._recency = LeastRecentlyUsed(layers, experts)
        self._uses = np.zeros((layers, experts))

    def used(self, layer: int, experts: np.ndarray) -> None:
        self._recency.used(layer, experts)
        self._uses[layer, experts] += 1

    def scores(self, layers: np.ndarray, experts: np.ndarray) -> np.ndarray:
        # a last use is below 2**40 for centuries of tokens; scaled under 1 it only breaks ties
        return self._uses[layers, experts] + self._recency.scores(layers, experts) * 2.0**-40


POLICIES: dict[str, Callable[[int, int], Policy]] = {
    LeastRecentlyUsed.name: LeastRecentlyUsed,
    LeastFrequentlyUsed.name: LeastFrequentlyUsed,
}


def make_policy(name: str, layers: int, experts: int) -> Policy:
    """The policy called ``name`` for a model of that shape. Raises OptionError listing the names there are."""
    try:
        return POLICIES[name](layers, experts)
    except KeyError:
        raise OptionError(f"There is no policy {name!r}; choose one of {', '.join(sorted(POLICIES))}.") from None
