"""How often each guess was right: the figure that decides whether a predictor is worth listening to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


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
        self._k = min(top_k, experts)
        self._nobody = experts
        self._named = np.zeros((layers, distances, self._k), np.int64)  # [layer guessed at, distance - 1]
        self._guessed = np.zeros((layers, distances), bool)
        self._chosen = np.zeros(experts + 1, bool)
        self._sums = np.zeros((4, distances), np.int64)  # wanted, proposed, right, silent

    def begin_pass(self) -> None:
        self._guessed[:] = False

    def predicted(self, layer: int, chances: np.ndarray) -> None:
        """Note guesses made after ``layer``: ``chances [n, experts]`` of those that follow. Chance 0 is not named."""
        count = min(len(chances), self.distances)
        if self._k < self._nobody:
            best = chances[:count].argpartition(self._nobody - self._k, axis=1)[:, self._nobody - self._k :]
        else:
            best = np.tile(np.arange(self._k), (count, 1))
        best[np.take_along_axis(chances[:count], best, axis=1) <= 0] = self._nobody
        places = np.arange(count)
        self._named[layer + 1 + places, places] = best
        self._guessed[layer + 1 + places, places] = True

    def routed(self, layer: int, ids: Sequence[int]) -> None:
        """Count what came true: ``ids`` of one token."""
        wanted, guessed, sums = len(ids), self._guessed[layer], self._sums
        sums[0] += wanted * guessed
        sums[3] += wanted * ~guessed
        if guessed.any():
            named = self._named[layer]
            self._chosen[ids] = True
            sums[1] += guessed * np.add.reduce(named < self._nobody, axis=1)
            sums[2] += guessed * np.add.reduce(self._chosen[named], axis=1)
            self._chosen[:] = False

    def accuracy(self, distance: int) -> Accuracy:
        return Accuracy(*self._sums[:, distance - 1].tolist())

    def reset(self) -> None:
        self._sums[:] = 0
