"""Fitted look-ahead: per layer and distance, a linear map from a router's input to a later router's scores.

The last layer looks into the next token, before anybody knows which one that will be: the link would stand idle through
the language head, the sampling and the first layer's attention otherwise.
"""

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
    and what the conversation adds to it. From the last layer on, ahead are the next token's first layers."""

    name = "gate-fitted"
    needs_hidden = True
    wants = Wants.ROUTER

    def __init__(self, shape: Shape, horizon: int = HORIZON, rank: int | None = None, budget: int = BUDGET) -> None:
        horizon = max(1, min(horizon, shape.layers - 1))
        rank = affordable_rank(shape.hidden, horizon * shape.experts, shape.layers, rank, budget)
        self._basis = Basis(shape.hidden, rank)
        super().__init__(shape, 2 * horizon, shape.layers * shape.hidden, next_layers=horizon)
        layers, experts = shape.layers, shape.experts
        self.horizon = horizon
        reach = [min(horizon, layers - 1 - layer) for layer in range(layers - 1)] + [horizon]
        self.maps = [Ridge(self._basis.rank, distances * experts) for distances in reach]
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
        self._targets[-1] = np.arange(horizon) % layers
        self._tokens = 0
        self._last_inputs = np.zeros_like(self._inputs)  # of the last token, like all the "last"
        self._last_scores = np.zeros((layers, experts), np.float32)
        self._last_foreseen = np.zeros((horizon, experts), np.float32)  # by its last layer
        self._last_reach = 0
        self._last_known = False  # all of it was heard
        self._follows = False  # the pass under way is of the token right after it
        self._gain = self._offset = np.zeros(0, np.float32)
        self._scale()

    @property
    def learnt(self) -> int:
        return self.maps[0].rows

    @property
    def _based(self) -> bool:
        return self._basis.found

    def begin_request(self) -> None:
        self._drift.begin()
        self._last_known = False

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        super().begin_pass(phase, tokens)
        self._follows, self._last_known = self._last_known and tokens == 1, False
        self._last_reach = self._reach[-1] if self._follows else 0
        self._last_foreseen[:] = self._foreseen[-1]
        self._reach = [0] * self.shape.layers

    def router(self, layer: int, inputs: np.ndarray, scores: np.ndarray) -> None:
        super().router(layer, inputs, scores)
        row = self._inputs[layer]
        row[:] = inputs
        if self.resting or not math.isfinite(float(row @ row)):
            return
        foreseen = self.maps[layer].predict(self._basis.apply(row)) if self._basis.found else None
        if foreseen is not None:
            foreseen = foreseen.reshape(-1, self.shape.experts)
            reach = self._reach[layer] = len(foreseen)
            self._foreseen[layer, :reach] = foreseen
            foreseen += self._drift.correction[layer, :reach]
            foreseen *= self._gain[layer, :reach]
            foreseen += self._offset[layer, :reach]
            self._chances[layer, :reach] = sigmoid(foreseen)

    def end_pass(self) -> None:
        if not self._heard.all() or not math.isfinite(float(np.vdot(self._inputs, self._inputs))):
            return
        scores = padded(self._scores, self.shape.experts)
        if self._follows:
            self._observe(self._last_inputs.reshape(-1), self._with_next(self._last_scores, scores))
        if all(self._reach):
            self._compare(scores - thresholds(scores, self.shape.top_k))
        self._last_known = True
        self._last_scores[:] = scores
        self._inputs, self._last_inputs = self._last_inputs, self._inputs

    def _with_next(self, scores: np.ndarray, following: np.ndarray) -> np.ndarray:
        """A token's scores ``[layers, experts]`` and, after them, those of the next one's first layers."""
        return np.concatenate((scores, following.take(range(self.horizon), axis=0, mode="wrap")))

    def _compare(self, true: np.ndarray) -> None:
        """``true [layers, experts]`` came, as distances to the threshold."""
        self._true[: self.shape.layers] = true
        error = self._came - self._foreseen
        error[-1] = true[self._targets[-1]] - self._last_foreseen if self._last_reach else 0.0
        self._tokens += 1
        if self._tokens % CALIBRATE_EVERY == 0:
            self._calibrate(true)
        self._drift.add(error)

    def _calibrate(self, true: np.ndarray) -> None:
        corrected = self._foreseen + self._drift.correction
        corrected[-1] = self._last_foreseen + self._drift.correction[-1]
        corrected /= self._spread[self._targets][..., None]
        for place in range(self.horizon):
            seen_from = slice(0, self.shape.layers - 1 - place)
            self._curve.observe(corrected[seen_from, place], place, self._came[seen_from, place] > 0)
            if self._last_reach:
                chosen = true[self._targets[-1, place]] > 0
                self._curve.observe(corrected[-1:, place], self.horizon + place, chosen[None])
        self._scale()

    def _scale(self) -> None:
        """From distances to the threshold to the logarithm of the odds: gain and offset, ``[layers, horizon, 1]``."""
        curve = self._curve.ab.astype(np.float32)
        places = np.tile(np.arange(self.horizon), (self.shape.layers, 1))
        places[-1] += self.horizon
        self._gain = (curve[places, 0] / self._spread[self._targets])[..., None]
        self._offset = curve[places, 1][..., None]

    def ahead(self, layer: int, count: int) -> np.ndarray | None:
        reach = min(self._reach[layer], count) if layer >= 0 else 0
        return self._chances[layer, :reach] if reach else None

    def study(self, sample: Sample) -> None:
        scores = padded(sample.scores, self.shape.experts)
        for inputs, here, following in zip(sample.inputs, scores, scores[1:], strict=False):
            self._observe(inputs.reshape(-1), self._with_next(here, following))

    def _fold(self, x: np.ndarray, scores: np.ndarray) -> Iterator[None]:
        inputs = x.reshape(len(x), self.shape.layers, self.shape.hidden)
        if not self._basis.found:
            size = np.linalg.norm(inputs, axis=2, keepdims=True) + 1e-9  # every layer weighs the same
            self._basis.find((inputs / size).reshape(-1, self.shape.hidden))
            yield
        for layer, ridge in enumerate(self.maps):
            ahead = scores[:, layer + 1 : layer + 1 + ridge.outputs // self.shape.experts]
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
