"""How often each guess was right: the figure that decides whether a predictor is worth listening to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.prediction.collection import largest


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Sums over decode passes of one predictor at one layer distance. A slot is one (token, layer, choice)."""

    wanted: int  # slots that the routers filled, in layers with an opinion
    proposed: int  # experts named, at most top_k a layer
    right: int  # of them, chosen
    silent: int = 0  # slots in layers without an opinion

    @property
    def share(self) -> float | None:
        """Share of slots foreseen where there was an opinion, 0..1; None before the first."""
        return self.right / self.wanted if self.wanted else None

    @property
    def precision(self) -> float | None:
        return self.right / self.proposed if self.proposed else None

    @property
    def recall(self) -> float | None:
        """Share of all slots foreseen; silence counts as missed."""
        everything = self.wanted + self.silent
        return self.right / everything if everything else None


class AccuracyMeter:
    """For one predictor: remembers the ``top_k`` most likely experts of each guess until the layer has routed."""

    def __init__(self, layers: int, experts: int, top_k: int, distances: int) -> None:
        self.distances = distances
        self._top_k = top_k
        self._named = np.zeros((distances, layers, experts), bool)
        self._guessed = np.zeros((distances, layers), bool)
        self._sums = np.zeros((distances, 4), np.int64)  # wanted, proposed, right, silent

    def begin_pass(self) -> None:
        self._guessed[:] = False

    def predicted(self, layer: int, distance: int, chances: np.ndarray | None) -> None:
        """Note a guess about ``layer`` (the one guessed at), made ``distance`` layers before. Chance 0 is not named."""
        if distance > self.distances or chances is None:
            return
        named = self._named[distance - 1, layer]
        named.fill(False)
        best = largest(chances, self._top_k)
        named[best[chances[best] > 0]] = True
        self._guessed[distance - 1, layer] = True

    def routed(self, layer: int, ids: Sequence[int]) -> None:
        """Count what came true: ``ids`` of one token. A layer ``d`` layers or more from the start could be guessed."""
        guessed = self._guessed[:, layer]
        named = self._named[:, layer]
        right = named[:, ids].sum(axis=1)
        self._sums[:, 0] += guessed * len(ids)
        self._sums[:, 1] += guessed * named.sum(axis=1)
        self._sums[:, 2] += guessed * right
        self._sums[:, 3] += ~guessed * len(ids)

    def accuracy(self, distance: int) -> Accuracy:
        return Accuracy(*self._sums[distance - 1].tolist())

    def reset(self) -> None:
        self._sums[:] = 0
