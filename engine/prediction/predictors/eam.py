"""Prediction by resemblance: which past requests' activation matrices look like this pass so far?

MoE-Infinity (arXiv 2401.14361, sections 4 and 5). Expert numbers mean nothing across layers; what carries over is which
requests used the same experts in the layers already seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.prediction.collection import DEFAULT_CAPACITY, Collection, Match
from engine.prediction.matrices import RequestMatrices
from engine.prediction.predictors.base import Silent, following
from engine.prediction.shape import PHASES, Phase, Shape, State

MATCHES = 8
HORIZON = 4  # layers read out of a match; farther ones are left to the request's own counts
PRIOR_TOKENS = 4.0  # what the collection's mean weighs against the request's own tokens, while no layer has routed


class Eam(Silent):
    """The collection, prefill and decode apart, and the match that runs with every pass.

    ``matching=False`` only records requests: another predictor predicts, the collection still grows.
    """

    name = "eam"

    def __init__(
        self, shape: Shape, capacity: int = DEFAULT_CAPACITY, matches: int = MATCHES, matching: bool = True
    ) -> None:
        super().__init__(shape)
        self.collections: dict[Phase, Collection] = {
            phase: Collection(shape.layers, shape.experts, capacity) for phase in PHASES
        }
        self.matrices = RequestMatrices(shape)
        self.matches = matches
        self._matching = matching
        self._match = {phase: Match(self.collections[phase]) for phase in PHASES} if matching else {}
        self._means: dict[Phase, np.ndarray] = {}
        self._ahead: np.ndarray | None = None  # what the match foresees after its layer
        self._rows: np.ndarray | None = None  # what stands in for it in this pass
        self._nothing = np.zeros((0, shape.experts), np.float32)

    def begin_request(self) -> None:
        self.matrices.begin_request()

    def end_request(self) -> None:
        for phase in PHASES:
            if self.matrices.tokens[phase]:
                self.collections[phase].add(self.matrices.request[phase])
        self._means.clear()
        self.matrices.begin_request()

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        self.matrices.begin_pass(phase, tokens)
        self._ahead = self._rows = None
        if self._matching:
            self._match[phase].begin()

    def routed(self, layer: int, ids: Sequence[int], counts: np.ndarray | None = None) -> None:
        self.matrices.routed(layer, list(ids), counts)
        if not self._matching or self.resting:
            return
        self._ahead = None
        match = self._match[self.matrices.phase]
        if counts is None:
            match.seen(layer, ids)
        else:
            match.seen_counts(layer, ids, counts)

    def end_pass(self) -> None:
        self.matrices.end_pass()

    def ahead(self, layer: int, count: int) -> np.ndarray | None:
        if not self._matching or self.resting:
            return None
        known = self._matched() if layer >= 0 else self._nothing
        if layer >= 0 and layer != self._match[self.matrices.phase].layer:
            known = self._nothing
        if len(known) >= count:
            return known[:count]
        rest = self._stand_in(layer + len(known), count - len(known))
        return rest if rest is None or not len(known) else np.concatenate((known, rest))

    def _matched(self) -> np.ndarray:
        """Chances of the next layers by the best matches, float32 ``[up to HORIZON, experts]``; once per layer."""
        if self._ahead is None:
            phase = self.matrices.phase
            match, collection = self._match[phase], self.collections[phase]
            self._ahead = self._nothing
            if match.layer >= 0 and len(collection) and not match.stale:
                first = match.layer + 1
                shares = collection.shares(*match.best(self.matches), first, min(first + HORIZON, self.shape.layers))
                self._ahead = self._per_token(shares)
        return self._ahead

    def _stand_in(self, layer: int, count: int) -> np.ndarray | None:
        """The request's own rows, leaning on the collection's mean while it has few tokens."""
        if self._rows is None:  # once a pass
            phase = self.matrices.phase
            own = self.matrices.request[phase]
            if phase == "decode" and not own.any():
                own = self.matrices.request["prefill"]
            rows = own + self.mean(phase) * (PRIOR_TOKENS * self.shape.top_k)
            self._rows = self._per_token(rows / np.maximum(rows.sum(axis=1, keepdims=True), 1e-12))
        return following(self._rows, layer, count) if self._rows.any() else None

    def _per_token(self, share: np.ndarray) -> np.ndarray:
        """Shares of a layer's choices as chances per token."""
        chances = np.multiply(share, self.shape.top_k, dtype=np.float32)
        return np.minimum(chances, 1.0, out=chances)

    def mean(self, phase: Phase) -> np.ndarray:
        """The collection's mean share, float32 ``[layers, experts]``; what a cache can be warmed with."""
        if phase not in self._means:
            self._means[phase] = self.collections[phase].mean()
        return self._means[phase]

    def state(self) -> State:
        return {f"{self.name}/{phase}": self.collections[phase].counts.copy() for phase in PHASES}

    def restore(self, state: State) -> None:
        for phase in PHASES:
            saved = state.get(f"{self.name}/{phase}")
            if saved is not None:
                self.collections[phase].restore(saved)
        self._means.clear()


def likely_first(shape: Shape, state: State) -> np.ndarray:
    """Whom to fetch before the first word: keys ``layer * experts + expert`` of a saved collection, most used in decode
    first. Experts never used are left out; empty without a history."""
    eam = Eam(shape, capacity=10_000, matching=False)
    eam.restore(state)
    share = eam.mean("decode")
    if not share.any():
        share = eam.mean("prefill")
    order = np.argsort(-share, axis=None, kind="stable")
    return order[share.reshape(-1)[order] > 0]
