"""From a router's scores to chances: how often is an expert with that margin really chosen?"""

from __future__ import annotations

import numpy as np

_RATE = 0.5  # first step of the gradient descent, falling with the root of the steps taken
_STEEPEST = 50.0


class Margins:
    """A logistic curve over an expert's margin to the k-th place, learnt online (Platt 1999).

    margin = (score - middle of k-th and next score) / spread of the scores; chance = sigmoid(a margin + b).
    One a and b for each of ``distances``.
    """

    def __init__(self, top_k: int, distances: int) -> None:
        self.top_k = top_k
        self.curve = np.tile(np.array([4.0, 0.0]), (distances, 1))  # [distances, (a, b)]
        self._steps = np.zeros(distances)

    def margins(self, scores: np.ndarray) -> np.ndarray:
        """float32, the shape of ``scores [..., experts]``."""
        experts = scores.shape[-1]
        if self.top_k >= experts:
            return np.ones_like(scores, np.float32)
        ordered = np.partition(scores, (experts - self.top_k - 1, experts - self.top_k), axis=-1)
        edge = ordered[..., experts - self.top_k - 1 : experts - self.top_k + 1].mean(axis=-1, keepdims=True)
        spread = scores.std(axis=-1, keepdims=True) + 1e-9
        return ((scores - edge) / spread).astype(np.float32, copy=False)

    def chances(self, margins: np.ndarray, place: int) -> np.ndarray:
        """Chances for margins of distance number ``place`` (0: one layer ahead)."""
        a, b = self.curve[place]
        return (1.0 / (1.0 + np.exp(np.clip(-a * margins - b, -30, 30)))).astype(np.float32, copy=False)

    def observe(self, margins: np.ndarray, place: int, ids: np.ndarray | list[int]) -> None:
        """Experts ``ids`` were chosen where ``margins [experts]`` had been seen: one step down the log loss."""
        error = self.chances(margins, place)
        error[ids] -= 1.0
        self._steps[place] += 1
        step = _RATE / self._steps[place] ** 0.5 * len(margins) / max(1, self.top_k)
        a, b = self.curve[place] - step * np.array([float((error * margins).mean()), float(error.mean())])
        self.curve[place] = min(max(a, 0.1), _STEEPEST), min(max(b, -5.0), 5.0)
