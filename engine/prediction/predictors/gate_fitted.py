"""Fitted look-ahead: per layer and distance, a linear map from a router's input to a later router's scores."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import as_strided

from engine.prediction.calibration import sigmoid, thresholds
from engine.prediction.drift import Drift
from engine.prediction.learner import BUDGET, Learner, affordable_rank
from engine.prediction.predictors.base import Sample, Wants
from engine.prediction.predictors.gate import CALIBRATE_EVERY, HORIZON, padded
from engine.prediction.ridge import Basis, Ridge
from engine.prediction.shape import Phase, Shape, State


class GateFitted(Learner):
    """One ridge regression per layer: router input (its leading directions, where wide) -> scores 1..horizon ahead,
    and what the conversation adds to it."""

    name = "gate-fitted"
    needs_hidden = True
    wants = Wants.ROUTER

    def __init__(self, shape: Shape, horizon: int = HORIZON, rank: int | None = None, budget: int = BUDGET) -> None:
        horizon = max(1, min(horizon, shape.layers - 1))
        rank = affordable_rank(shape.hidden, horizon * shape.experts, max(1, shape.layers - 1), rank, budget)
        self._basis = Basis(shape.hidden, rank)
        super().__init__(shape, horizon, shape.layers * shape.hidden)
        layers, experts = shape.layers, shape.experts
        self.horizon = horizon
        self.maps = [Ridge(self._basis.rank, min(horizon, layers - 1 - layer) * experts) for layer in range(layers - 1)]
        self._inputs = np.zeros((layers, shape.hidden), np.float32)
        self._drift = Drift((layers, horizon, experts))
        self._foreseen = np.zeros((layers, horizon, experts), np.float32)  # [layer seen from, distance - 1], raw
        self._chances = np.zeros_like(self._foreseen)
        self._reach = [0] * layers  # how many distances are foreseen from a layer in this pass
        self._true = np.zeros((layers + horizon, experts), np.float32)  # what came true, zeros past the last layer
        step, number = self._true.strides
        self._came = as_strided(self._true[1:], (layers, horizon, experts), (step, step, number), writeable=False)
        targets = np.arange(layers)[:, None] + np.arange(1, horizon + 1)
        self._targets = np.minimum(targets, layers - 1)  # [layer seen from, distance - 1]
        self._tokens = 0
        self._gain = self._offset = np.zeros(0, np.float32)
        self._scale()

    @property
    def learnt(self) -> int:
        return self.maps[0].rows if self.maps else 0

    @property
    def _based(self) -> bool:
        return self._basis.found

    def begin_request(self) -> None:
        self._drift.begin()

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        super().begin_pass(phase, tokens)
        self._reach = [0] * self.shape.layers

    def router(self, layer: int, inputs: np.ndarray, scores: np.ndarray) -> None:
        super().router(layer, inputs, scores)
        row = self._inputs[layer]
        row[:] = inputs
        if self.resting or layer == len(self.maps) or not math.isfinite(float(row @ row)):
            return
        foreseen = self.maps[layer].predict(self._basis.apply(row)) if self._basis.found else None
        if foreseen is not None:
            foreseen = foreseen.reshape(-1, self.shape.experts)
            reach = self._reach[layer] = len(foreseen)
            self._foreseen[layer, :reach] = foreseen
            foreseen += self._drift.correction[layer, :reach]
            foreseen *= self._gain[layer, :reach]
            foreseen += self._offset[:reach]
            self._chances[layer, :reach] = sigmoid(foreseen)

    def end_pass(self) -> None:
        if not self._heard.all() or not math.isfinite(float(np.vdot(self._inputs, self._inputs))):
            return
        scores = padded(self._scores, self.shape.experts)
        self._observe(self._inputs.reshape(-1), scores)
        if self.maps and all(self._reach[:-1]):
            self._true[: self.shape.layers] = scores - thresholds(scores, self.shape.top_k)
            self._tokens += 1
            if self._tokens % CALIBRATE_EVERY == 0:
                self._calibrate()
            self._drift.add(self._came - self._foreseen)

    def _calibrate(self) -> None:
        corrected = self._foreseen + self._drift.correction
        corrected /= self._spread[self._targets][..., None]
        for place in range(self.horizon):
            seen_from = slice(0, self.shape.layers - 1 - place)
            self._curve.observe(corrected[seen_from, place], place, self._came[seen_from, place] > 0)
        self._scale()

    def _scale(self) -> None:
        """From distances to the threshold to the logarithm of the odds."""
        curve = self._curve.ab.astype(np.float32)
        self._gain = (curve[:, 0] / self._spread[self._targets])[..., None]  # [layers, horizon, 1]
        self._offset = curve[:, 1:]

    def ahead(self, layer: int, count: int) -> np.ndarray | None:
        reach = min(self._reach[layer], count) if layer >= 0 else 0
        return self._chances[layer, :reach] if reach else None

    def study(self, sample: Sample) -> None:
        for inputs, scores in zip(sample.inputs, padded(sample.scores, self.shape.experts), strict=True):
            self._observe(inputs.reshape(-1), scores)

    def _fold(self, x: np.ndarray, scores: np.ndarray) -> Iterator[None]:
        inputs = x.reshape(len(x), self.shape.layers, self.shape.hidden)
        if not self._basis.found:
            size = np.linalg.norm(inputs, axis=2, keepdims=True) + 1e-9  # no layer shall speak louder than another
            self._basis.find((inputs / size).reshape(-1, self.shape.hidden))
            yield
        for layer, ridge in enumerate(self.maps):
            ahead = scores[:, layer + 1 : layer + 1 + self.horizon]
            ridge.fold(self._basis.apply(inputs[:, layer]), ahead.reshape(len(ahead), -1))
            yield

    def _solve(self) -> Iterator[None]:
        for ridge in self.maps:
            yield from ridge.solve()

    def state(self) -> State:
        state = {**super().state(), **self._basis.state(self.name)}
        for layer, ridge in enumerate(self.maps if self.learnt else []):
            state.update(ridge.state(f"{self.name}/{layer}"))
        return state

    def restore(self, state: State) -> None:
        super().restore(state)
        self._scale()
        if self._basis.restore(self.name, state):
            for layer, ridge in enumerate(self.maps):
                ridge.restore(f"{self.name}/{layer}", state)
