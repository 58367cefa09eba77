"""The bound: what nobody can beat who must fetch what is wanted, and does not know the future."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.experts.policies import Policy
from engine.replay.trace import Step

NEVER = np.inf


class Belady(Policy):
    """Evicts the expert whose next use by decode lies farthest ahead (Belady, "A study of replacement algorithms for a
    virtual-storage computer", IBM Systems Journal 5(2), 1966).

    Next uses by *decode*: so its decode misses are the fewest possible under the same rules (fetched on demand only,
    everything wanted gets a slot, the same waves); prompts pass through as cheaply for decode as they can.
    """

    name = "belady"
    knows_the_future = True
    STATE = ()

    def __init__(self, layers: int, experts: int, steps: Sequence[Step]) -> None:
        super().__init__(layers, experts)
        self._call = 0
        self._next_uses: list[np.ndarray] = []  # of what each call wants, after that call
        upcoming = np.full((layers, experts), NEVER)
        call = sum(len(step.wanted) for step in steps)
        for step in reversed(steps):
            for layer, wanted, _ in reversed(step.wanted):
                call -= 1
                self._next_uses.append(upcoming[layer, wanted])
                if step.phase == "decode":
                    upcoming[layer, wanted] = call
        self._next_uses.reverse()

    def used(self, layer: int, experts: np.ndarray, counts: np.ndarray) -> None:
        self.priority[layer, experts] = -self._next_uses[self._call]
        self._call += 1
