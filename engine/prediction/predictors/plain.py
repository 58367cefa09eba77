"""The plain ones: by number, by use, and by what the last token did."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.prediction.predictors.base import Silent, checked, following
from engine.prediction.shape import PHASES, Phase, Shape, State


class NextIndex(Silent):
    """The sequential baseline: experts in the order of their numbers, as if the next layer's lay next on a tape."""

    name = "next-index"

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        falling = np.arange(shape.experts, 0, -1, dtype=np.float32)
        chances = np.minimum(falling * (shape.top_k / falling.sum()), 1.0)
        self._chances = np.tile(chances, (shape.layers, 1))
        self._chances.flags.writeable = False

    def ahead(self, layer: int, count: int) -> np.ndarray | None:
        return self._chances[:count]


class Popularity(Silent):
    """How often each expert was chosen per token, prefill and decode apart; while one has no counts, the other's."""

    name = "popularity"

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.counts: dict[Phase, np.ndarray] = {
            phase: np.zeros((shape.layers, shape.experts), np.float64) for phase in PHASES
        }
        self._phase: Phase = "prefill"
        self._chances = np.zeros((shape.layers, shape.experts), np.float32)  # of the present phase
        self._stale = True  # what was counted since is not in them

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        self._phase = phase
        self._stale = True

    def routed(self, layer: int, ids: Sequence[int], counts: np.ndarray | None = None) -> None:
        self.counts[self._phase][layer, ids] += 1 if counts is None else counts

    def ahead(self, layer: int, count: int) -> np.ndarray | None:
        if self._stale:  # once a pass: one token more or less changes little
            self._stale = False
            self._chances = self._per_token()
        return following(self._chances, layer, count) if self._chances.any() else None

    def _per_token(self) -> np.ndarray:
        counts = self.counts[self._phase].copy()
        for phase in PHASES:
            unknown = ~counts.any(axis=1)
            counts[unknown] = self.counts[phase][unknown]
        totals = np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
        return np.minimum(counts * (self.shape.top_k / totals), 1.0).astype(np.float32)

    def state(self) -> State:
        return {f"{self.name}/{phase}": self.counts[phase].copy() for phase in PHASES}

    def restore(self, state: State) -> None:
        for phase in PHASES:
            saved = state.get(f"{self.name}/{phase}")
            if saved is not None:
                self.counts[phase][:] = checked(saved, self.counts[phase].shape)
        self._stale = True


class PreviousToken(Silent):
    """Whoever the last token used in that layer; after a prefill, the share of its tokens that chose the expert."""

    name = "previous-token"

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self._last = np.zeros((shape.layers, shape.experts), np.float32)
        self._known = 0  # layers, from the first, whose last choice is known
        self._tokens = 1

    def begin_request(self) -> None:
        self._known = 0

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        self._tokens = max(1, tokens)

    def routed(self, layer: int, ids: Sequence[int], counts: np.ndarray | None = None) -> None:
        row = self._last[layer]
        row.fill(0)
        row[ids] = 1.0 if counts is None else counts / self._tokens
        if layer == self._known:
            self._known += 1

    def ahead(self, layer: int, count: int) -> np.ndarray | None:
        if self._known == self.shape.layers:
            return following(self._last, layer, count)
        return self._last[layer + 1 : min(layer + 1 + count, self._known)] if layer + 1 < self._known else None
