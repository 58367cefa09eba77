"""Least frequently used, plain and aged."""

from __future__ import annotations

import numpy as np

from engine.experts.policies.base import Policy
from engine.experts.records import Phase

CLOCK_UNIT = 2.0**-40  # the clock stays below 2**40 for centuries of tokens; scaled under 1 it only breaks ties


class LeastFrequentlyUsed(Policy):
    """Priority = number of passes that wanted the expert since the model was loaded; among equals, the last use.

    A prompt counts once, however many tokens it has: it may not drown what decode counted one by one.
    """

    name = "lfu"
    STATE = ("priority", "_uses", "_clock")

    def __init__(self, layers: int, experts: int) -> None:
        super().__init__(layers, experts)
        self._uses = np.zeros((layers, experts))
        self._clock = 0

    def used(self, layer: int, experts: np.ndarray, counts: np.ndarray) -> None:
        self._clock += 1
        uses = self._uses[layer, experts] + 1
        self._uses[layer, experts] = uses
        self.priority[layer, experts] = uses + self._clock * CLOCK_UNIT


class AgedFrequency(Policy):
    """Priority = uses, each worth half as much after HALF_LIFE more tokens: sum over uses of 2^(-age / HALF_LIFE).

    Computed the other way round: instead of all old uses shrinking at every token, the worth of a new one grows; the
    order is the same. A prompt's pass of T tokens counts as min(T, PROMPT_WORTH) tokens with its average routing: it
    tells what the answer will be about, and may not drown what decode counted.
    """

    name = "lfu-aged"
    STATE = ("priority", "_worth", "_each")
    HALF_LIFE = 32.0  # decode tokens
    PROMPT_WORTH = 8.0  # tokens

    _LARGE = 2.0**400

    def __init__(self, layers: int, experts: int) -> None:
        super().__init__(layers, experts)
        self._worth = 1.0  # of one use now
        self._each = 1.0  # of one choice by a token of this pass

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        counted = 1.0 if phase == "decode" else min(float(tokens), self.PROMPT_WORTH)
        self._worth *= 2.0 ** (counted / self.HALF_LIFE)
        if self._worth > self._LARGE:  # a power of two: nothing is rounded
            self.priority /= self._LARGE
            self._worth /= self._LARGE
        self._each = self._worth * counted / tokens

    def used(self, layer: int, experts: np.ndarray, counts: np.ndarray) -> None:
        self.priority[layer, experts] += self._each * counts
