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
    """For one predictor: keeps a pass's guesses and what came true, and compares them when the pass has ended. Of each
    guess the ``top_k`` most likely experts count; chance 0 names nobody."""

    def __init__(self, layers: int, experts: int, top_k: int, distances: int) -> None:
        self.distances = distances
        self._k = min(top_k, experts)
        self._chances = np.zeros((layers, distances, experts), np.float32)  # [layer guessed at, distance - 1]
        self._guessed = np.zeros((layers, distances), bool)
        self._chosen = np.zeros((layers, experts), bool)
        self._wanted = np.zeros(layers, np.int64)
        self._places = np.arange(distances)
        self._sums = np.zeros((4, distances), np.int64)  # wanted, proposed, right, silent

    def begin_pass(self) -> None:
        self._guessed[:] = False
        self._chosen[:] = False
        self._wanted[:] = 0

    def predicted(self, layer: int, chances: np.ndarray) -> None:
        """Note guesses made after ``layer``: ``chances [n, experts]`` of the layers that follow."""
        places = self._places[: len(chances)]
        targets = places + (layer + 1)
        self._chances[targets, places] = chances[: self.distances]
        self._guessed[targets, places] = True

    def routed(self, layer: int, ids: Sequence[int]) -> None:
        """What came true: ``ids`` of one token."""
        self._chosen[layer, ids] = True
        self._wanted[layer] = len(ids)

    def end_pass(self) -> None:
        """Count, in layers that routed."""
        wanted = self._wanted[:, None]
        guessed = self._guessed & (wanted > 0)
        self._sums[0] += (wanted * guessed).sum(axis=0)
        self._sums[3] += (wanted * ~guessed).sum(axis=0)
        if guessed.any():
            targets, places = guessed.nonzero()
            chances = self._chances[targets, places]
            cut = chances.shape[1] - self._k
            named = (
                chances.argpartition(cut, axis=1)[:, cut:] if cut else np.tile(np.arange(self._k), (len(chances), 1))
            )
            likely = np.take_along_axis(chances, named, axis=1) > 0
            right = likely & self._chosen[targets[:, None], named]
            self._sums[1] += np.bincount(places, likely.sum(axis=1), self.distances).astype(np.int64)
            self._sums[2] += np.bincount(places, right.sum(axis=1), self.distances).astype(np.int64)

    def accuracy(self, distance: int) -> Accuracy:
        return Accuracy(*self._sums[:, distance - 1].tolist())

    def reset(self) -> None:
        self._sums[:] = 0
