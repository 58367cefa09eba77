"""Several predictors in one: a convex blend whose weights follow who was right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.prediction.gate import HORIZON
from engine.prediction.predictors import Predictor, Sample, Silent, Wants, checked
from engine.prediction.shape import Phase, Shape, State

_RATE = 0.5
_EVERY = 4  # tokens: weights need not learn from each
_FLOOR = 0.002  # a member that is wrong now may be right later
_WORTH_ASKING = 0.05  # weight
_FAR = 8  # distances from here on share their weights


class Blend(Silent):
    """chance = sum_i w_i chance_i over the members that have an opinion, the weights of each distance on the simplex.

    Weights follow the gradient of the log loss multiplicatively: exponentiated gradient (Kivinen & Warmuth 1997).
    """

    name = "blend"

    def __init__(self, shape: Shape, members: Sequence[Predictor]) -> None:
        super().__init__(shape)
        self.members = tuple(members)
        self.weights = np.full((_FAR, len(self.members)), 1.0 / len(self.members))  # [distance, member]
        self._buffer = np.zeros((len(self.members), shape.experts), np.float32)
        self._current: dict[tuple[int, tuple[int, ...]], np.ndarray] = {}  # see _shared_out
        self._guesses: dict[int, list[tuple[int, np.ndarray, tuple[int, ...]]]] = {}
        self._tokens = 0

    @property
    def wants(self) -> Wants:  # type: ignore[override]
        """All that the members want; another router's opinion only while it carries weight, for it costs a product."""
        wants = Wants.NOTHING
        for number, member in enumerate(self.members):
            if member.wants != Wants.LOOK or self.weights[:HORIZON, number].max() > _WORTH_ASKING:
                wants |= member.wants
        return wants

    def begin_request(self) -> None:
        for member in self.members:
            member.begin_request()

    def end_request(self) -> None:
        for member in self.members:
            member.end_request()

    def token(self, hidden: np.ndarray, embedding: np.ndarray) -> None:
        for member in self.members:
            member.token(hidden, embedding)

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        self._guesses.clear()
        self._tokens += 1
        for member in self.members:
            member.begin_pass(phase, tokens)

    def router(self, layer: int, inputs: np.ndarray, scores: np.ndarray) -> None:
        for member in self.members:
            member.router(layer, inputs, scores)

    def look(self, layer: int, distance: int, scores: np.ndarray) -> None:
        for member in self.members:
            member.look(layer, distance, scores)

    def routed(self, layer: int, ids: Sequence[int], counts: np.ndarray | None = None) -> None:
        guesses = self._guesses.pop(layer, ())
        if counts is None:
            for place, chances, who in guesses:
                self._follow(place, chances, who, list(ids))
            if guesses:
                self._current.clear()
        for member in self.members:
            member.routed(layer, ids, counts)

    def end_pass(self) -> None:
        for member in self.members:
            member.end_pass()

    def predict(self, layer: int, distance: int) -> np.ndarray | None:
        place, target = min(distance, _FAR) - 1, layer + distance
        spoke: list[int] = []
        chances = self._buffer
        for number, member in enumerate(self.members):
            chance = member.predict(layer, distance)
            if chance is not None:
                chances[len(spoke)] = chance
                spoke.append(number)
        if not spoke:
            return None
        who = tuple(spoke)
        chances = chances[: len(who)]
        if self._tokens % _EVERY == 0 and target < self.shape.layers:
            self._guesses.setdefault(target, []).append((place, chances.copy(), who))
        return self._shared_out(place, who) @ chances

    def _shared_out(self, place: int, who: tuple[int, ...]) -> np.ndarray:
        """The weights of those who have an opinion, float32, summing to 1."""
        known = self._current.get((place, who))
        if known is None:
            weights = self.weights[place, list(who)]
            known = self._current[place, who] = (weights / weights.sum()).astype(np.float32)
        return known

    def _follow(self, place: int, chances: np.ndarray, who: tuple[int, ...], ids: list[int]) -> None:
        """One step: members that gave the chosen experts more, and the others less, gain."""
        weights = self._shared_out(place, who).astype(np.float64)
        blended = weights @ chances
        blended = np.minimum(np.maximum(blended, 0.01, out=blended), 0.99, out=blended)
        slope = 1.0 / (1.0 - blended)
        slope[ids] = -1.0 / blended[ids]
        gradient = chances @ slope
        gradient -= gradient @ weights
        gradient *= _RATE / (2 * self.shape.top_k)
        weights = weights * np.exp(-np.minimum(np.maximum(gradient, -2.0), 2.0))
        weights = np.maximum(weights / weights.sum(), _FLOOR)
        members = list(who)
        held = self.weights[place, members].sum()  # silent members keep theirs
        self.weights[place, members] = weights * (held / weights.sum())

    def study(self, sample: Sample) -> None:
        for member in self.members:
            member.study(sample)

    def learn(self, seconds: float) -> bool:
        more = [member.learn(seconds / len(self.members)) for member in self.members]  # every one gets its turn
        return any(more)

    def state(self) -> State:
        state: State = {}
        for number, member in enumerate(self.members):
            state.update(member.state())
            state[f"{self.name}/{member.name}"] = self.weights[:, number].copy()
        return state

    def restore(self, state: State) -> None:
        """The weights. Members are restored one by one by whoever makes them: one misfit must not cost the others."""
        for number, member in enumerate(self.members):
            saved = state.get(f"{self.name}/{member.name}")
            if saved is not None:
                self.weights[:, number] = np.maximum(checked(saved, (_FAR,)), _FLOOR)
        self.weights /= self.weights.sum(axis=1, keepdims=True)
        self._current.clear()
