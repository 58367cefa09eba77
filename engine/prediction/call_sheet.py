"""The call sheet: who will be called for the whole coming token, known before its first layer runs.

Once a token is sampled, a linear map takes the last token's final hidden state, the sampled token's embedding and the
last token's router scores to the router scores of every layer. It gives the transfer a whole token of lead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from engine.prediction.gate import padded
from engine.prediction.learner import BUDGET, Learner, affordable_rank
from engine.prediction.predictors import Sample, Wants
from engine.prediction.ridge import Basis, Ridge
from engine.prediction.shape import Phase, Shape, State


class CallSheet(Learner):
    """One ridge regression for all layers at once. Answers any distance, since it knows the whole token."""

    name = "call-sheet"
    wants = Wants.ROUTER | Wants.TOKEN

    def __init__(self, shape: Shape, rank: int | None = None, budget: int = BUDGET) -> None:
        outputs = shape.layers * shape.experts
        widths = (shape.hidden, shape.hidden, outputs)
        self._blocks = [Basis(width, affordable_rank(width, outputs, 3, rank, budget)) for width in widths]
        self._ends = np.cumsum(widths)[:-1]
        first = max(basis.rows_needed for basis in self._blocks)
        super().__init__(shape, 1, sum(widths), outputs, first)
        self.map = Ridge(sum(basis.rank for basis in self._blocks), outputs)
        self._scores = np.zeros((shape.layers, shape.experts), np.float32)  # of the pass under way
        self._heard = np.zeros(shape.layers, bool)
        self._features = np.zeros(sum(widths), np.float32)
        self._follows = False  # the pass under way is of one token, and the scores before it are known
        self._announced = False  # token() came for it

    @property
    def learnt(self) -> int:
        return self.map.rows

    @property
    def _based(self) -> bool:
        return all(basis.found for basis in self._blocks)

    def begin_request(self) -> None:
        self._heard[:] = False

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        super().begin_pass(phase, tokens)
        self._follows = tokens == 1 and bool(self._heard.all())
        self._announced = False
        self._heard[:] = False

    def token(self, hidden: np.ndarray, embedding: np.ndarray) -> None:
        if not self._follows:
            return
        size = self.shape.hidden
        self._features[:size] = hidden
        self._features[size : 2 * size] = embedding
        self._features[2 * size :] = self._scores.reshape(-1)
        self._announced = math.isfinite(float(self._features @ self._features))
        if self._announced and self._based:
            foreseen = self.map.predict(self._narrowed(self._features))
            if foreseen is not None:
                self._margins[0] = self._curve.margins(foreseen.reshape(self._scores.shape))
                self._chances[0] = self._curve.chances(self._margins[0], 0)
                self._valid[0] = True

    def router(self, layer: int, inputs: np.ndarray, scores: np.ndarray) -> None:
        self._scores[layer] = padded(scores, self.shape.experts)
        self._heard[layer] = True

    def end_pass(self) -> None:
        if self._announced and self._heard.all():
            self._observe(self._features, self._scores.reshape(-1))
        self._announced = False

    def predict(self, layer: int, distance: int) -> np.ndarray | None:
        target = layer + distance
        if target >= self.shape.layers or not self._valid[0, target]:
            return None
        return self._chances[0, target]

    def study(self, sample: Sample) -> None:
        if sample.hidden is None or sample.embeddings is None:
            return
        scores = padded(sample.scores, self.shape.experts).reshape(len(sample.scores), -1)
        features = np.concatenate((sample.hidden[:-1], sample.embeddings[1:], scores[:-1]), axis=1)
        for x, y in zip(features, scores[1:], strict=True):
            self._observe(x, y)

    def _narrowed(self, features: np.ndarray) -> np.ndarray:
        parts = np.split(features, self._ends, axis=-1)
        return np.concatenate([basis.apply(part) for basis, part in zip(self._blocks, parts, strict=True)], axis=-1)

    def _fold(self, x: np.ndarray, y: np.ndarray) -> Iterator[None]:
        for basis, part in zip(self._blocks, np.split(x, self._ends, axis=1), strict=True):
            if not basis.found:
                basis.find(part)
                yield
        self.map.fold(self._narrowed(x), y)
        yield

    def _solve(self) -> Iterator[None]:
        self.map.solve()
        yield

    def state(self) -> State:
        state = super().state()
        for number, basis in enumerate(self._blocks):
            state.update(basis.state(f"{self.name}/block{number}"))
        return {**state, **self.map.state(self.name)} if self.learnt else state

    def restore(self, state: State) -> None:
        super().restore(state)
        if all(basis.restore(f"{self.name}/block{number}", state) for number, basis in enumerate(self._blocks)):
            self.map.restore(self.name, state)
