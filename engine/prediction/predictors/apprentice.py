"""The plain look-ahead at first, the fitted one as soon as it is the better of the two on this model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.prediction.predictors.base import Sample, Silent, Wants
from engine.prediction.predictors.gate import Gate
from engine.prediction.predictors.gate_fitted import GateFitted
from engine.prediction.shape import Phase, Shape, State

ENOUGH = 64  # tokens compared before the apprentice may take over
MEMORY = 0.98  # of the lead, per token


class Apprentice(Silent):
    """``gate`` needs to learn nothing and asks later routers, a product each; ``gate-fitted`` has to learn first, then
    foresees more for less. Both are asked until the second has named more of the next layers' experts than the first,
    over the latest tokens; from then on only the second, and no later router is asked any more.
    """

    name = "apprentice"
    needs_hidden = True

    def __init__(self, shape: Shape) -> None:
        self.gate, self.fitted = Gate(shape), GateFitted(shape)
        super().__init__(shape)
        self.grown = False  # the fitted one predicts alone
        self._lead = 0.0  # of the fitted one, in shares of a layer's experts, per token
        self._compared = 0
        self._named: dict[int, tuple[set[int], set[int]]] = {}  # layer -> by gate, by fitted
        self._right = [0, 0]
        self._wanted = 0

    @property
    def resting(self) -> bool:
        return self._resting

    @resting.setter
    def resting(self, resting: bool) -> None:
        self._resting = self.gate.resting = self.fitted.resting = resting

    @property
    def wants(self) -> Wants:  # type: ignore[override]
        return Wants.ROUTER if self.grown else Wants.ROUTER | Wants.LOOK

    def begin_request(self) -> None:
        self.gate.begin_request()
        self.fitted.begin_request()

    def end_request(self) -> None:
        self.gate.end_request()
        self.fitted.end_request()

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        self._named.clear()
        self._right, self._wanted = [0, 0], 0
        self.gate.begin_pass(phase, tokens)
        self.fitted.begin_pass(phase, tokens)

    def router(self, layer: int, inputs: np.ndarray, scores: np.ndarray) -> None:
        self.fitted.router(layer, inputs, scores)

    def look(self, layer: int, distance: int, scores: np.ndarray) -> None:
        if not self.grown:
            self.gate.look(layer, distance, scores)

    def routed(self, layer: int, ids: Sequence[int], counts: np.ndarray | None = None) -> None:
        named = self._named.pop(layer, None)
        if named is not None and counts is None:
            self._wanted += len(ids)
            for place, one in enumerate(named):
                self._right[place] += len(one.intersection(ids))
        self.gate.routed(layer, ids, counts)
        self.fitted.routed(layer, ids, counts)

    def end_pass(self) -> None:
        self.gate.end_pass()
        self.fitted.end_pass()
        if self._wanted:
            gain = (self._right[1] - self._right[0]) / self._wanted
            self._lead += (1 - MEMORY) * (gain - self._lead)
            self._compared += 1
            self.grown = self._compared >= ENOUGH and self._lead > 0

    def ahead(self, layer: int, count: int) -> np.ndarray | None:
        learnt = self.fitted.ahead(layer, count)
        if self.grown:
            return learnt
        plain = self.gate.ahead(layer, count)
        if learnt is None or plain is None:
            return learnt if plain is None else plain
        self._named[layer + 1] = self._best(plain[0]), self._best(learnt[0])
        return learnt if self._compared >= ENOUGH // 4 and self._lead > 0 else plain

    def _best(self, chances: np.ndarray) -> set[int]:
        top_k = self.shape.top_k
        return set(chances.argpartition(-top_k)[-top_k:].tolist()) if top_k < len(chances) else set(range(len(chances)))

    def study(self, sample: Sample) -> None:
        self.fitted.study(sample)

    def learn(self, seconds: float) -> bool:
        return self.fitted.learn(seconds)

    def state(self) -> State:
        grown = {f"{self.name}/grown": np.array([self.grown, self._compared, self._lead], np.float64)}
        return {**self.gate.state(), **self.fitted.state(), **grown}

    def restore(self, state: State) -> None:
        self.gate.restore(state)
        self.fitted.restore(state)
        saved = state.get(f"{self.name}/grown")
        if saved is not None and saved.shape == (3,) and np.isfinite(saved).all():
            self.grown, self._compared, self._lead = bool(saved[0]), int(saved[1]), float(saved[2])
