"""The call sheet: who will be called for the whole coming token, known before its first layer runs.

Once a token is sampled, a linear map takes the last token's final hidden state, the sampled token's embedding and the
last token's router scores to the router scores of every layer. It gives the transfer a whole token of lead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from engine.prediction.calibration import sigmoid, thresholds
from engine.prediction.drift import Drift
from engine.prediction.learner import BUDGET, Learner, affordable_rank
from engine.prediction.predictors.base import Sample, Wants
from engine.prediction.predictors.gate import CALIBRATE_EVERY, padded
from engine.prediction.ridge import Basis, Ridge
from engine.prediction.shape import Phase, Shape, State

_CAUTION = (0.8, 0.08, 0.8, 0.8)  # see Ridge; an embedding says which token comes, so it deserves a hearing
_TRUST = (0.6, 0.1)  # see Drift
_BENT = 768  # rectified mixtures of the embedding: tokens are no points on a line (0.4 points of accuracy on the demo)


class CallSheet(Learner):
    """One ridge regression for all layers at once, and what the conversation adds to it. Answers any distance, since
    it knows the whole token."""

    name = "call-sheet"
    needs_hidden = True
    wants = Wants.ROUTER | Wants.TOKEN

    def __init__(self, shape: Shape, rank: int | None = None, budget: int = BUDGET) -> None:
        outputs = shape.layers * shape.experts
        widths = (shape.hidden, shape.hidden, outputs)
        self._blocks = [Basis(width, affordable_rank(width, outputs, 3, rank, budget)) for width in widths]
        self._ends = np.cumsum(widths)[:-1]
        super().__init__(shape, 1, sum(widths), max(basis.rows_needed for basis in self._blocks))
        ranks = [basis.rank for basis in self._blocks]
        bent = affordable_rank(_BENT, outputs, 3, min(_BENT, 2 * ranks[1]), budget)
        mixtures = np.random.default_rng(0).standard_normal((ranks[1], bent))
        self._mixtures = (mixtures / math.sqrt(max(1, ranks[1]))).astype(np.float32)
        self.map = Ridge(sum(ranks) + bent, outputs, np.repeat(_CAUTION, (*ranks, bent)))
        self._features = np.zeros(sum(widths), np.float32)
        self._drift = Drift((shape.layers, shape.experts), _TRUST)
        self._foreseen = np.zeros((shape.layers, shape.experts), np.float32)
        self._chances = np.zeros_like(self._foreseen)
        self._valid = False  # the two above are about the pass under way
        self._follows = False  # the pass under way is of one token, and the scores before it are known
        self._announced = False  # token() came for it
        self._tokens = 0

    @property
    def learnt(self) -> int:
        return self.map.rows

    @property
    def _based(self) -> bool:
        return all(basis.found for basis in self._blocks)

    def begin_request(self) -> None:
        self._heard[:] = False
        self._drift.begin()

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        self._follows = tokens == 1 and bool(self._heard.all())
        self._announced = self._valid = False
        super().begin_pass(phase, tokens)

    def token(self, hidden: np.ndarray, embedding: np.ndarray) -> None:
        if not self._follows:
            return
        size = self.shape.hidden
        self._features[:size] = hidden
        self._features[size : 2 * size] = embedding
        self._features[2 * size :] = padded(self._scores, self.shape.experts).reshape(-1)
        self._announced = math.isfinite(float(self._features @ self._features))
        if self._announced and self._based and not self.resting:
            foreseen = self.map.predict(self._narrowed(self._features))
            if foreseen is not None:
                self._foreseen = foreseen.reshape(self._scores.shape)
                a, b = self._curve.ab[0].astype(np.float32)
                self._chances = sigmoid((self._foreseen + self._drift.correction) * (a / self._spread)[:, None] + b)
                self._valid = True

    def end_pass(self) -> None:
        if not self._announced or not self._heard.all():
            return
        scores = padded(self._scores, self.shape.experts)
        self._observe(self._features, scores)
        if self._valid:
            true = scores - thresholds(scores, self.shape.top_k)
            self._tokens += 1
            if self._tokens % CALIBRATE_EVERY == 0:
                corrected = self._foreseen + self._drift.correction
                self._curve.observe(corrected / self._spread[:, None], 0, true > 0)
            self._drift.add(true - self._foreseen)

    def ahead(self, layer: int, count: int) -> np.ndarray | None:
        return self._chances[layer + 1 : layer + 1 + count] if self._valid and layer + 1 < self.shape.layers else None

    def study(self, sample: Sample) -> None:
        if sample.hidden is None or sample.embeddings is None:
            return
        scores = padded(sample.scores, self.shape.experts)
        before = scores[:-1].reshape(len(scores) - 1, -1)
        features = np.concatenate((sample.hidden[:-1], sample.embeddings[1:], before), axis=1)
        for x, y in zip(features, scores[1:], strict=True):
            self._observe(x, y)

    def _narrowed(self, features: np.ndarray) -> np.ndarray:
        """``[..., width]`` as the map's features."""
        blocks = zip(self._blocks, np.split(features, self._ends, axis=-1), strict=True)
        parts = [basis.apply(part) for basis, part in blocks]
        bent = parts[1] @ self._mixtures
        return np.concatenate((*parts, np.maximum(bent, 0.0, out=bent)), axis=-1)

    def _fold(self, x: np.ndarray, scores: np.ndarray) -> Iterator[None]:
        for basis, part in zip(self._blocks, np.split(x, self._ends, axis=1), strict=True):
            if not basis.found:
                basis.find(part)
                yield
        self.map.fold(self._narrowed(x), scores.reshape(len(scores), -1))
        yield

    def _solve(self) -> Iterator[None]:
        yield from self.map.solve()

    def state(self) -> State:
        state = super().state()
        for number, basis in enumerate(self._blocks):
            state.update(basis.state(f"{self.name}/block{number}"))
        return {**state, **self.map.state(self.name)} if self.learnt else state

    def restore(self, state: State) -> None:
        super().restore(state)
        if all(basis.restore(f"{self.name}/block{number}", state) for number, basis in enumerate(self._blocks)):
            self.map.restore(self.name, state)
