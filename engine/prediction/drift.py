"""What a learnt map keeps getting wrong in this conversation.

A map for all conversations cannot know the subject of this one, but the subject shows in its errors: their running
means, added to what it foresees, were worth 1 to 2 points of accuracy on the demo's routing, at the price of three
additions a token.
"""

from __future__ import annotations

import numpy as np

_RATES = (0.05, 0.4)  # per token: the subject, and the sentence
TRUST = (0.45, 0.35)


class Drift:
    """Running means of errors of any shape; ``correction`` is to be added to the next token's foreseen scores.

    trust: share of each mean that is added; a map that sees the last token has less to learn from the quick one.
    """

    def __init__(self, shape: tuple[int, ...], trust: tuple[float, float] = TRUST) -> None:
        self._trust = trust
        self.correction = np.zeros(shape, np.float32)
        self._means = [np.zeros(shape, np.float32) for _ in _RATES]
        self._tokens = 0

    def begin(self) -> None:
        """Another conversation."""
        self._tokens = 0
        self.correction[:] = 0
        for mean in self._means:
            mean[:] = 0

    def add(self, error: np.ndarray) -> None:
        """error: what came true minus what was foreseen, uncorrected."""
        self._tokens += 1
        self.correction[:] = 0
        for mean, rate, trust in zip(self._means, _RATES, self._trust, strict=True):
            mean += (error - mean) * np.float32(max(rate, 1 / (self._tokens + 2)))
            self.correction += mean * np.float32(trust)
