"""Least-Stale."""

from __future__ import annotations

import numpy as np

from engine.experts.policies.base import Policy
from engine.experts.records import Phase


class LeastStale(Policy):
    """Who was not called when its layer had its turn is stale and leaves first; who is still to come stays.

    After Least-Stale in "SpecMD: A Comprehensive Study On Speculative Expert Prefetching" (Hoang, Jaiswal, Samragh,
    Cho; arXiv 2602.03921, 2026): eviction by forward pass and layer position instead of by recency. In this order:

    1. *stale*: of a layer this pass has served, and not wanted by it, or never used; first in, first out;
    2. *current*: used by this pass, so not wanted again before the next; first in, first out;
    3. *upcoming*: of layers this pass has yet to serve; the farthest ahead first.

    Each class is a band of priorities 2^40 apart, far above the clock that orders within.

    Only decode's uses count. A prompt wants nearly every expert, layer by layer: its uses would overwrite the order in
    which decode used them. The slots that it needs come from the farthest layers, whose experts it brings last, so
    each layer has as many slots after it as before.
    """

    name = "least-stale"
    STATE = ("priority", "_last_use", "_clock")

    _BAND = 2.0**40

    def __init__(self, layers: int, experts: int) -> None:
        super().__init__(layers, experts)
        self._last_use = np.zeros((layers, experts))
        self._clock = 0
        self._decoding = True  # in this pass
        self._upcoming = self._BAND * (1 + np.arange(layers, 0, -1.0))[:, np.newaxis]

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        self._decoding = phase == "decode"
        np.multiply(self._last_use > 0, self._upcoming, out=self.priority)
        self.priority += self._last_use

    def used(self, layer: int, experts: np.ndarray, counts: np.ndarray) -> None:
        if not self._decoding:
            return
        self._clock += 1
        last_use = self._last_use[layer]
        last_use[experts] = self._clock
        priority = self.priority[layer]
        priority[:] = last_use
        priority[experts] += self._BAND
