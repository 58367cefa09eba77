"""Fitted look-ahead: per layer and distance, a linear map from a router's input to a later router's scores."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from engine.prediction.gate import HORIZON, padded
from engine.prediction.learner import BUDGET, Learner, affordable_rank
from engine.prediction.predictors import Sample, Wants
from engine.prediction.ridge import Basis, Ridge
from engine.prediction.shape import Phase, Shape, State


class GateFitted(Learner):
    """One ridge regression per layer: router input (its leading directions, where wide) -> scores 1..horizon ahead."""

    name = "gate-fitted"
    wants = Wants.ROUTER

    def __init__(self, shape: Shape, horizon: int = HORIZON, rank: int | None = None, budget: int = BUDGET) -> None:
        horizon = max(1, min(horizon, shape.layers - 1))
        rank = affordable_rank(shape.hidden, horizon * shape.experts, max(1, shape.layers - 1), rank, budget)
        self._basis = Basis(shape.hidden, rank)
        super().__init__(shape, horizon, shape.layers * shape.hidden, shape.layers * shape.experts)
        self.maps = [
            Ridge(self._basis.rank, min(horizon, shape.layers - 1 - layer) * shape.experts)
            for layer in range(shape.layers - 1)
        ]
        self._places = np.arange(horizon)
        self._inputs = np.zeros((shape.layers, shape.hidden), np.float32)
        self._scores = np.zeros((shape.layers, shape.experts), np.float32)
        self._heard = np.zeros(shape.layers, bool)

    @property
    def learnt(self) -> int:
        return self.maps[0].rows if self.maps else 0

    @property
    def _based(self) -> bool:
        return self._basis.found

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        super().begin_pass(phase, tokens)
        self._heard[:] = False

    def router(self, layer: int, inputs: np.ndarray, scores: np.ndarray) -> None:
        shape = self.shape
        row = self._inputs[layer]
        row[:] = inputs
        if not math.isfinite(float(row @ row)):
            return  # the token is not learnt from
        self._scores[layer] = padded(scores, shape.experts)
        self._heard[layer] = True
        if layer < len(self.maps) and self._basis.found:
            foreseen = self.maps[layer].predict(self._basis.apply(row))
            if foreseen is not None:
                margins = self._curve.margins(foreseen.reshape(-1, shape.experts))
                places = self._places[: len(margins)]
                targets = places + (layer + 1)
                self._margins[places, targets] = margins
                self._chances[places, targets] = self._curve.chances_ahead(margins)
                self._valid[places, targets] = True

    def end_pass(self) -> None:
        if self._heard.all():
            self._observe(self._inputs.reshape(-1), self._scores.reshape(-1))

    def study(self, sample: Sample) -> None:
        for inputs, scores in zip(sample.inputs, sample.scores, strict=True):
            self._observe(inputs.reshape(-1), padded(scores, self.shape.experts).reshape(-1))

    def _fold(self, x: np.ndarray, y: np.ndarray) -> Iterator[None]:
        shape = self.shape
        inputs = x.reshape(len(x), shape.layers, shape.hidden)
        scores = y.reshape(len(y), shape.layers, shape.experts)
        if not self._basis.found:
            size = np.linalg.norm(inputs, axis=2, keepdims=True) + 1e-9  # no layer shall speak louder than another
            self._basis.find((inputs / size).reshape(-1, shape.hidden))
            yield
        for layer, ridge in enumerate(self.maps):
            ahead = scores[:, layer + 1 : layer + 1 + self._distances]
            ridge.fold(self._basis.apply(inputs[:, layer]), ahead.reshape(len(ahead), -1))
            yield

    def _solve(self) -> Iterator[None]:
        for ridge in self.maps:
            ridge.solve()
            yield

    def state(self) -> State:
        state = {**super().state(), **self._basis.state(self.name)}
        for layer, ridge in enumerate(self.maps if self.learnt else []):
            state.update(ridge.state(f"{self.name}/{layer}"))
        return state

    def restore(self, state: State) -> None:
        super().restore(state)
        if self._basis.restore(self.name, state):
            for layer, ridge in enumerate(self.maps):
                ridge.restore(f"{self.name}/{layer}", state)
