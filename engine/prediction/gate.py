"""Look-ahead as it comes: the next layer's own router, asked about this layer's state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.prediction.calibration import Margins
from engine.prediction.predictors import Silent, Wants, checked
from engine.prediction.shape import Phase, Shape, State

HORIZON = 3  # layers ahead
_CALIBRATE_EVERY = 4  # tokens


class Scored(Silent):
    """Keeps foreseen scores as margins, turns them into chances, and learns the curve from what came true."""

    def __init__(self, shape: Shape, distances: int) -> None:
        super().__init__(shape)
        self._curve = Margins(shape.top_k, distances)
        self._distances = distances
        self._margins = np.zeros((distances, shape.layers, shape.experts), np.float32)  # [distance - 1, layer meant]
        self._chances = np.zeros_like(self._margins)
        self._valid = np.zeros((distances, shape.layers), bool)
        self._tokens = 0

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        self._valid[:] = False
        self._tokens += 1

    def routed(self, layer: int, ids: Sequence[int], counts: np.ndarray | None = None) -> None:
        if counts is not None or self._tokens % _CALIBRATE_EVERY:
            return
        for place in np.flatnonzero(self._valid[:, layer]).tolist():
            self._curve.observe(self._margins[place, layer], place, list(ids))

    def predict(self, layer: int, distance: int) -> np.ndarray | None:
        target, place = layer + distance, distance - 1
        if target >= self.shape.layers or place >= self._distances or not self._valid[place, target]:
            return None
        return self._chances[place, target]

    def _foresee(self, layer: int, distance: int, scores: np.ndarray) -> None:
        place, target = distance - 1, layer + distance
        margins = self._curve.margins(padded(scores, self.shape.experts))
        self._margins[place, target] = margins
        self._chances[place, target] = self._curve.chances(margins, place)
        self._valid[place, target] = True

    def state(self) -> State:
        return {f"{self.name}/curve": self._curve.curve.copy()}

    def restore(self, state: State) -> None:
        saved = state.get(f"{self.name}/curve")
        if saved is not None:
            self._curve.curve[:] = checked(saved, self._curve.curve.shape)


class Gate(Scored):
    """Look-ahead as it comes: right about a layer as far as a layer changes little of the state."""

    name = "gate"
    wants = Wants.LOOK

    def __init__(self, shape: Shape, horizon: int = HORIZON) -> None:
        super().__init__(shape, horizon)

    def look(self, layer: int, distance: int, scores: np.ndarray) -> None:
        if layer + distance < self.shape.layers and distance <= self._distances:
            self._foresee(layer, distance, scores)


def padded(scores: np.ndarray, experts: int) -> np.ndarray:
    """``[..., n]`` as ``[..., experts]``: experts that a layer lacks, or whom the router ruled out with an infinite
    score, score below all others."""
    lacking = experts - scores.shape[-1]
    finite = np.isfinite(scores)
    if not lacking and finite.all():
        return scores
    known = np.where(finite, scores, np.nan)
    worst = np.nanmin(known, axis=-1, keepdims=True) - np.nanstd(known, axis=-1, keepdims=True)
    scores = np.where(finite, scores, worst)
    return np.concatenate((scores, np.repeat(worst, lacking, axis=-1)), axis=-1)
