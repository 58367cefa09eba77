"""By what numbers a router really chooses.

Routers hand out their logits, but many choose by something else: sigmoid or softmax of them plus a correction per
expert, and some only within a few groups. Which of these it is shows in whom they pick.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

_SUFFICIENT = 0.98  # share of tokens explained; rounding may turn two neighbours round
_EVIDENCE = 256  # tokens


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    return 0.5 * np.tanh(0.5 * logits) + 0.5


def _softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _root_softplus(logits: np.ndarray) -> np.ndarray:
    return np.sqrt(np.logaddexp(0.0, logits))


_FORMS: tuple[Callable[[np.ndarray], np.ndarray], ...] = (_sigmoid, _softmax, _root_softplus)


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Turns a router's logits into what its top-k was taken from, larger is better.

    form None: the logits themselves. correction: float32 ``[experts]`` added. capped: scores alone do not say who is
    picked (groups, or a table, come into it), so they are to go through ``capped``.
    """

    experts: int
    form: Callable[[np.ndarray], np.ndarray] | None = None
    correction: np.ndarray | None = None
    capped: bool = False

    def scores(self, logits: np.ndarray) -> np.ndarray:
        """``logits [tokens, experts or more]``: float32 ``[tokens, experts]``."""
        scores = (logits if self.form is None else self.form(logits))[:, : self.experts]
        if self.correction is not None:
            scores = scores + self.correction
        return scores.astype(np.float32, copy=False)


class RankingSearch:
    """The ranking of one router, as its first picks show it.

    corrections: vectors ``[experts]`` that the router has at hand. A short prompt may be explained by chance, so the
    search goes on until ``settled``; every pass that contradicts begins it anew with all that was seen.
    """

    def __init__(self, experts: int, corrections: Sequence[np.ndarray]) -> None:
        self.experts = experts
        self._candidates = [Ranking(experts)]
        self._candidates += [Ranking(experts, form, vector) for vector in corrections for form in (None, *_FORMS)]
        self.best = self._candidates[0]
        self.settled = False
        self._tokens = 0
        self._explained = np.zeros(len(self._candidates))  # tokens

    def learn(self, logits: np.ndarray, picks: np.ndarray) -> None:
        """``logits [tokens, experts or more]``, ``picks [tokens, k]`` of one pass."""
        self._explained += [_explained(candidate.scores(logits), picks) for candidate in self._candidates]
        self._tokens += len(picks)
        number = int(self._explained.argmax())  # the simplest of equals
        best = self._candidates[number]
        if self._explained[number] < _SUFFICIENT * self._tokens:
            best = replace(best, capped=True)
        self.best = best
        self.settled = self._tokens >= _EVIDENCE


def capped(scores: np.ndarray, picks: np.ndarray) -> np.ndarray:
    """``scores [tokens, experts]`` with all but ``picks [tokens, k]`` at most level with the last one picked; as they
    are where no expert was picked."""
    of_picked = np.take_along_axis(scores, _real(picks, scores), axis=1)
    result = np.minimum(scores, of_picked.min(axis=1, keepdims=True))
    np.put_along_axis(result, _real(picks, scores), of_picked, axis=1)
    return np.where(_none(picks, scores), scores, result)


def _explained(scores: np.ndarray, picks: np.ndarray) -> int:
    """Tokens of which no passed-over expert scored above a picked one."""
    none, picks = _none(picks, scores)[:, 0], _real(picks, scores)
    worst_picked = np.take_along_axis(scores, picks, axis=1).min(axis=1)
    others = scores.copy()
    np.put_along_axis(others, picks, -np.inf, axis=1)
    return int(np.count_nonzero(none | (others.max(axis=1) <= worst_picked + 1e-6)))


def _real(picks: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Places past the last expert, which mean nobody, repeat a real pick."""
    first = np.minimum(picks.min(axis=1, keepdims=True), scores.shape[1] - 1)
    return np.where(picks < scores.shape[1], picks, first)


def _none(picks: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """bool ``[tokens, 1]``: all picks lie past the last expert."""
    none: np.ndarray = picks.min(axis=1, keepdims=True) >= scores.shape[1]
    return none
