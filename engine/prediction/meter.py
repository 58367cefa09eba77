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

    def __init__(self, top_k: int, distances: int) -> None:
        self.distances = distances
        self._top_k = top_k
        self._named: list[dict[int, set[int]]] = [{} for _ in range(distances)]  # layer -> experts named
        self._sums = [[0, 0, 0, 0] for _ in range(distances)]  # wanted, proposed, right, silent

    def begin_pass(self) -> None:
        for named in self._named:
            named.clear()

    def predicted(self, layer: int, distance: int, chances: np.ndarray | None) -> None:
        """Note a guess about ``layer`` (the one guessed at), made ``distance`` layers before. Chance 0 is not named."""
        if distance > self.distances or chances is None:
            return
        best = largest(chances, self._top_k)
        self._named[distance - 1][layer] = set(best[chances[best] > 0].tolist())

    def routed(self, layer: int, ids: Sequence[int]) -> None:
        """Count what came true: ``ids`` of one token."""
        wanted = len(ids)
        for guesses, sums in zip(self._named, self._sums, strict=True):
            named = guesses.get(layer)
            if named is None:
                sums[3] += wanted
                continue
            sums[0] += wanted
            sums[1] += len(named)
            sums[2] += len(named.intersection(ids))

    def accuracy(self, distance: int) -> Accuracy:
        return Accuracy(*self._sums[distance - 1])

    def reset(self) -> None:
        self._sums = [[0, 0, 0, 0] for _ in range(self.distances)]
