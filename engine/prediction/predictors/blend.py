"""Several predictors in one: a convex blend whose weights follow who was right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.prediction.predictors.base import Predictor, Sample, Silent, Wants, checked
from engine.prediction.predictors.gate import HORIZON
from engine.prediction.shape import Phase, Shape, State

_RATE = 4.0  # per token, of the layers' mean gradient
_EVERY = 4  # tokens: weights need not learn from each
_FLOOR = 0.002  # a member that is wrong now may be right later
_WORTH_ASKING = 0.05  # weight


class Blend(Silent):
    """chance = sum_i w_i chance_i over the members that have an opinion, the weights of each distance on the simplex.

    Weights follow the gradient of the log loss multiplicatively: exponentiated gradient (Kivinen & Warmuth 1997).
    """

    name = "blend"
    MEMBERS = ("popularity", "previous-token", "eam", "gate", "gate-fitted", "call-sheet")

    def __init__(self, shape: Shape, members: Sequence[Predictor]) -> None:
        self.members = tuple(members)
        super().__init__(shape)
        self.weights = np.full((HORIZON, len(self.members)), 1.0 / len(self.members))  # farther: the last
        self._said = np.zeros((shape.layers, HORIZON, len(self.members), shape.experts), np.float32)
        self._reach = np.zeros((shape.layers, len(self.members)), np.int64)  # distances each member had an opinion on
        self._worthy = self._worth_asking()
        self._current: dict[tuple[int, ...], np.ndarray] = {}  # see _shared_out
        self._chosen = np.zeros((shape.layers, shape.experts), bool)
        self._following = False
        self._tokens = 0

    @property
    def resting(self) -> bool:
        return self._resting

    @resting.setter
    def resting(self, resting: bool) -> None:
        self._resting = resting
        for member in self.members:
            member.resting = resting

    @property
    def wants(self) -> Wants:  # type: ignore[override]
        """All that the members want; another router's opinion only while it carries weight, for it costs a product."""
        wants = Wants.NOTHING
        for number, member in enumerate(self.members):
            if member.wants != Wants.LOOK or self._worthy[number]:
                wants |= member.wants
        return wants

    def _worth_asking(self) -> list[bool]:
        """Members with some weight; the others are asked only now and then, to see whether that should change."""
        return (self.weights.max(axis=0) > _WORTH_ASKING).tolist()

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
        self._tokens += 1
        self._following = tokens == 1 and self._tokens % _EVERY == 0 and not self.resting
        if self._following:
            self._reach[:] = 0
            self._chosen[:] = False
        for member in self.members:
            member.begin_pass(phase, tokens)

    def router(self, layer: int, inputs: np.ndarray, scores: np.ndarray) -> None:
        for member in self.members:
            member.router(layer, inputs, scores)

    def look(self, layer: int, distance: int, scores: np.ndarray) -> None:
        for member in self.members:
            member.look(layer, distance, scores)

    def routed(self, layer: int, ids: Sequence[int], counts: np.ndarray | None = None) -> None:
        if self._following:
            self._chosen[layer, ids] = True
        for member in self.members:
            member.routed(layer, ids, counts)

    def end_pass(self) -> None:
        if self._following:
            for place in range(HORIZON):
                self._follow(place)
            self._current.clear()
            self._worthy = self._worth_asking()
        for member in self.members:
            member.end_pass()

    def ahead(self, layer: int, count: int) -> np.ndarray | None:
        if count <= HORIZON and layer >= 0:
            said = self._said[layer, :count]
        else:
            said = np.zeros((count, *self._said.shape[2:]), np.float32)
        reach = self._ask(layer, count, said, everybody=self._following)
        if not (self._following or any(reach)):  # then the word of those who carry little weight
            reach = self._ask(layer, count, said, everybody=True)
        if self._following and layer >= 0:
            self._reach[layer] = reach
        farthest = max(reach)
        return (self._shared_out((count, *reach)) @ said)[:farthest, 0] if farthest else None

    def _ask(self, layer: int, count: int, said: np.ndarray, everybody: bool) -> list[int]:
        """Write the members' chances to ``said [count, members, experts]``; to which distance each has an opinion."""
        reach = []
        for number, member in enumerate(self.members):
            chances = member.ahead(layer, count) if everybody or self._worthy[number] else None
            known = 0 if chances is None else len(chances)
            if chances is not None:
                said[:known, number] = chances
            reach.append(known)
        return reach

    def _shared_out(self, key: tuple[int, ...]) -> np.ndarray:
        """``key``: how many distances are wanted, then to which one each member has an opinion. The weights of those
        who have one, float32 ``[distances, 1, members]``, summing to 1 (or to 0, when it is nobody)."""
        known = self._current.get(key)
        if known is None:
            count, reach = key[0], np.array(key[1:])
            weights = self.weights[np.minimum(np.arange(count), HORIZON - 1)] * (reach > np.arange(count)[:, None])
            weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-12)
            known = self._current[key] = weights.astype(np.float32)[:, None]
        return known

    def _follow(self, place: int) -> None:
        """One step for a distance: members that gave the chosen experts more, and the others less, gain."""
        spoke = self._reach > place  # [layers, members]
        asked = np.flatnonzero(spoke.any(axis=1))
        asked = asked[asked + place + 1 < self.shape.layers]
        if not len(asked):
            return
        who = spoke[asked].all(axis=0)  # silent members keep their weight
        if who.sum() < 2:
            return
        said, chosen = self._said[asked, place][:, who], self._chosen[asked + place + 1]
        weights = self.weights[place, who]
        held = weights.sum()
        weights = weights / held
        blended = np.clip(np.einsum("m,lme->le", weights, said), 0.01, 0.99)
        slope = np.where(chosen, -1.0 / blended, 1.0 / (1.0 - blended))
        gradient = np.einsum("le,lme->m", slope, said) / (len(asked) * 2 * self.shape.top_k)
        gradient -= gradient @ weights
        weights = weights * np.exp(-np.clip(_RATE * gradient, -1.0, 1.0))
        weights = np.maximum(weights / weights.sum(), _FLOOR)
        self.weights[place, who] = weights * (held / weights.sum())

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
                self.weights[:, number] = np.maximum(checked(saved, (HORIZON,)), _FLOOR)
        self.weights /= self.weights.sum(axis=1, keepdims=True)
        self._worthy = self._worth_asking()
        self._current.clear()
