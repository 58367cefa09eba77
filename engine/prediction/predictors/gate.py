"""Look-ahead as it comes: the next layer's own router, asked about this layer's state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.prediction.calibration import Curve, margins
from engine.prediction.predictors.base import Silent, Wants, checked
from engine.prediction.shape import Phase, Shape, State

HORIZON = 3  # layers ahead
CALIBRATE_EVERY = 4  # tokens


class Gate(Silent):
    """Right about a layer as far as the layers between change little of the state. Learns how far to trust scores."""

    name = "gate"
    needs_hidden = True
    wants = Wants.LOOK

    def __init__(self, shape: Shape, horizon: int = HORIZON) -> None:
        super().__init__(shape)
        self._curve = Curve(horizon)
        self._horizon = horizon
        self._scores = np.zeros((shape.layers, horizon, shape.experts), np.float32)  # [layer looked from, distance - 1]
        self._margins = np.zeros_like(self._scores)
        self._reach = [0] * shape.layers  # distances 1 to here are known
        self._known = [0] * shape.layers  # and of so many the margins
        self._chosen = np.zeros((shape.layers, shape.experts), bool)
        self._tokens = 0
        self._calibrating = False

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        self._reach = [0] * self.shape.layers
        self._known = [0] * self.shape.layers
        self._tokens += 1
        self._calibrating = tokens == 1 and self._tokens % CALIBRATE_EVERY == 0 and not self.resting
        if self._calibrating:
            self._chosen[:] = False

    def look(self, layer: int, distance: int, scores: np.ndarray) -> None:
        if self.resting or layer + distance >= self.shape.layers or distance != self._reach[layer] + 1:
            return
        if distance <= self._horizon:
            self._scores[layer, distance - 1] = padded(scores, self.shape.experts)
            self._reach[layer] = distance

    def routed(self, layer: int, ids: Sequence[int], counts: np.ndarray | None = None) -> None:
        if self._calibrating:
            self._chosen[layer, ids] = True

    def end_pass(self) -> None:
        if not self._calibrating:
            return
        reach, routed = np.array(self._known), np.logical_or.reduce(self._chosen, axis=1)
        for place in range(self._horizon):
            layers = np.flatnonzero(reach > place)
            layers = layers[routed[layers + place + 1]]
            if len(layers):
                self._curve.observe(self._margins[layers, place], place, self._chosen[layers + place + 1])

    def ahead(self, layer: int, count: int) -> np.ndarray | None:
        reach = min(self._reach[layer], count) if layer >= 0 else 0
        if not reach:
            return None
        self._margins[layer, :reach] = known = margins(self._scores[layer, :reach], self.shape.top_k)
        self._known[layer] = reach
        return self._curve.chances_ahead(known)

    def state(self) -> State:
        return {f"{self.name}/curve": self._curve.ab.copy()}

    def restore(self, state: State) -> None:
        saved = state.get(f"{self.name}/curve")
        if saved is not None:
            self._curve.ab[:] = checked(saved, self._curve.ab.shape)


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
