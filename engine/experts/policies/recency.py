"""Least recently used."""

from __future__ import annotations

import numpy as np

from engine.experts.policies.base import Policy


class LeastRecentlyUsed(Policy):
    """Priority = time of the last use, counted in layers served.

    Below one token's cycle (layers * top_k slots) it throws out just what comes next and hits nothing. A long prompt
    wants every expert, and leaves the last layers' behind.
    """

    name = "lru"
    STATE = ("priority", "_clock")

    def __init__(self, layers: int, experts: int) -> None:
        super().__init__(layers, experts)
        self._clock = 0

    def used(self, layer: int, experts: np.ndarray, counts: np.ndarray) -> None:
        self._clock += 1
        self.priority[layer, experts] = self._clock
