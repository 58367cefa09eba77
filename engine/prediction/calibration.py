"""From a router's scores to chances: how often is an expert with that margin really chosen?"""

from __future__ import annotations

import numpy as np

_MEMORY = 0.999  # of the curvature, per step: about the last thousand guesses decide
_STEEPEST = 50.0


class Margins:
    """A logistic curve over an expert's margin to the k-th place (Platt 1999), learnt by online Newton steps.

    margin = (score - middle of k-th and next score) / spread of the scores; chance = sigmoid(a margin + b).
    One a and b for each of ``distances``.
    """

    def __init__(self, top_k: int, distances: int) -> None:
        self.top_k = top_k
        self.curve = np.tile(np.array([4.0, 0.0]), (distances, 1))  # [distances, (a, b)]
        self._curvature = [(4.0, 0.0, 4.0)] * distances  # second derivatives of the log loss: aa, ab, bb

    def margins(self, scores: np.ndarray) -> np.ndarray:
        """float32, the shape of ``scores [..., experts]``."""
        scores = scores.astype(np.float32, copy=False)
        experts = scores.shape[-1]
        if self.top_k >= experts:
            return np.ones_like(scores)
        last = experts - self.top_k
        ordered = np.partition(scores, (last - 1, last), axis=-1)
        margins = scores - 0.5 * (ordered[..., last - 1 : last] + ordered[..., last : last + 1])
        centred = scores - np.add.reduce(scores, axis=-1, keepdims=True) / experts
        spread = np.sqrt(np.einsum("...e,...e->...", centred, centred) / experts)
        margins /= spread[..., None] + 1e-9
        return margins

    def chances(self, margins: np.ndarray, place: int) -> np.ndarray:
        """Chances for margins of distance number ``place`` (0: one layer ahead)."""
        a, b = self.curve[place].tolist()
        return _sigmoid(margins * np.float32(a) + np.float32(b))

    def chances_ahead(self, margins: np.ndarray) -> np.ndarray:
        """Chances for ``margins [n, experts]`` of distances 1 to n."""
        curve = self.curve[: len(margins)].astype(np.float32)
        return _sigmoid(margins * curve[:, :1] + curve[:, 1:])

    def observe(self, margins: np.ndarray, place: int, ids: np.ndarray | list[int]) -> None:
        """Experts ``ids`` were chosen where ``margins [experts]`` had been seen: one step down the log loss."""
        chances = self.chances(margins, place)
        steep = chances - chances * chances
        steeper = steep * margins
        chances[ids] -= 1.0  # the error from here on
        slope_a, slope_b = float(chances @ margins), float(chances.sum())
        aa, ab, bb = (_MEMORY * value for value in self._curvature[place])
        aa, ab, bb = aa + float(steeper @ margins), ab + float(steeper.sum()), bb + float(steep.sum())
        self._curvature[place] = aa, ab, bb
        determinant = aa * bb - ab * ab + 1e-6
        a, b = self.curve[place].tolist()
        a -= (bb * slope_a - ab * slope_b) / determinant
        b -= (aa * slope_b - ab * slope_a) / determinant
        self.curve[place] = min(max(a, 0.1), _STEEPEST), min(max(b, -5.0), 5.0)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)) as (1 + tanh(x / 2)) / 2, which no x overflows; in place."""
    x *= 0.5
    np.tanh(x, out=x)
    x += 1.0
    x *= 0.5
    return x
