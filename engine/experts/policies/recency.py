"""Least recently used."""

from __future__ import annotations

import numpy as np

from engine.experts.policies.base import Policy
from engine.experts.records import Phase


class LeastRecentlyUsed(Policy):
    """Priority = time of the last use by decode, counted in layers served.

    Below one token's cycle (layers * top_k slots) it evicts just what comes next and hits nothing. A prompt wants
    nearly every expert, layer by layer: were its uses counted, they would overwrite what decode used last.
    """

    name = "lru"
    STATE = ("priority", "_clock")

    def __init__(self, layers: int, experts: int) -> None:
        super().__init__(layers, experts)
        self._clock = 0
        self._decoding = True  # in this pass

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        self._decoding = phase == "decode"

    def used(self, layer: int, experts: np.ndarray, counts: np.ndarray) -> None:
        if self._decoding:
            self._clock += 1
            self.priority[layer, experts] = self._clock
