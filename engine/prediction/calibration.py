"""From foreseen scores to chances: how often is an expert with that margin really chosen?"""

from __future__ import annotations

import numpy as np

_MEMORY = 0.999  # of the curvature, per token: about the last thousand decide
_STEEPEST = 50.0


def thresholds(scores: np.ndarray, top_k: int) -> np.ndarray:
    """Middle between the k-th best and the next of ``scores [..., experts]``: ``[..., 1]``; above it are the chosen."""
    last = scores.shape[-1] - top_k
    if last <= 0:
        return scores.min(axis=-1, keepdims=True) - 1.0
    ordered = np.partition(scores, (last - 1, last), axis=-1)
    return 0.5 * (ordered[..., last - 1 : last] + ordered[..., last : last + 1])


def margins(scores: np.ndarray, top_k: int) -> np.ndarray:
    """(score - threshold) / spread of the scores, float32 of the shape of ``scores [..., experts]``."""
    distance = scores - thresholds(scores, top_k)
    centred = scores - np.add.reduce(scores, axis=-1, keepdims=True) / scores.shape[-1]
    spread = np.sqrt(np.einsum("...e,...e->...", centred, centred) / scores.shape[-1])
    distance /= spread[..., None] + 1e-9
    return distance.astype(np.float32, copy=False)


class Curve:
    """chance = sigmoid(a margin + b), one a and b for each of ``distances`` (Platt 1999), by online Newton steps."""

    def __init__(self, distances: int) -> None:
        self.ab = np.tile(np.array([4.0, 0.0]), (distances, 1))  # [distances, (a, b)]
        self._curvature = [(4.0, 0.0, 4.0)] * distances  # second derivatives of the log loss: aa, ab, bb

    def chances(self, margins: np.ndarray, place: int) -> np.ndarray:
        """Chances for margins of distance number ``place`` (0: one layer ahead)."""
        a, b = self.ab[place].tolist()
        return sigmoid(margins * np.float32(a) + np.float32(b))

    def chances_ahead(self, margins: np.ndarray) -> np.ndarray:
        """Chances for ``margins [n, experts]`` of distances 1 to n."""
        ab = self.ab[: len(margins)].astype(np.float32)
        return sigmoid(margins * ab[:, :1] + ab[:, 1:])

    def observe(self, margins: np.ndarray, place: int, chosen: np.ndarray) -> None:
        """One token: ``chosen`` (bool) where ``margins`` had been foreseen, both ``[layers, experts]``. One step down
        the log loss."""
        chances = self.chances(margins, place)
        steep = chances - chances * chances
        steeper = steep * margins
        chances -= chosen  # the error from here on
        slope_a, slope_b = float(np.vdot(chances, margins)), float(chances.sum())
        aa, ab, bb = (_MEMORY * value for value in self._curvature[place])
        aa, ab, bb = aa + float(np.vdot(steeper, margins)), ab + float(steeper.sum()), bb + float(steep.sum())
        self._curvature[place] = aa, ab, bb
        determinant = aa * bb - ab * ab + 1e-6
        a, b = self.ab[place].tolist()
        a -= (bb * slope_a - ab * slope_b) / determinant
        b -= (aa * slope_b - ab * slope_a) / determinant
        self.ab[place] = min(max(a, 0.1), _STEEPEST), min(max(b, -5.0), 5.0)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)) as (1 + tanh(x / 2)) / 2, which no x overflows; in place."""
    x *= 0.5
    np.tanh(x, out=x)
    x += 1.0
    x *= 0.5
    return x
