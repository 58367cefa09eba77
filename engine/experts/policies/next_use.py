"""Next use: who is needed again the latest leaves."""

from __future__ import annotations

import numpy as np

from engine.experts.observer import Phase
from engine.experts.policies.base import Policy


class NextUse(Policy):
    """Evicts the expert whose next use is expected last, counted in layers to be served.

    An expert of layer l', seen from layer l, has its next chance after d = (l' - l) mod L layer steps (L when equal),
    and one more every L steps; with a chance p at each, it is wanted again after

        d + L (1 - p) / p        layer steps on average.

    From the step s when layer l' was last served, that is s + L / p whatever the present layer is; so a priority
    changes only when its own layer is served.

    p blends how often the expert was used of late, for three ideas of "late": exponentially decayed shares r_j with
    mean ages LIFETIMES, as p = 1 / (1 + exp(-sum_j w_j logit r_j - b)). The weights of each layer start as an average
    (w = 1/3, b = 0) and follow the logarithmic loss of every token, by gradient steps: what a layer's routing lives
    on, the subject or the last words, differs between layers and models.

    A prompt moves the shares like min(tokens, PROMPT_WORTH) tokens with its average routing, and teaches no weights:
    it may neither swamp what decode found out nor be ignored.
    """

    name = "next-use"
    STATE = ("priority", "_shares", "_weights", "_step")
    LIFETIMES = (2.0, 16.0, 128.0)  # tokens
    PROMPT_WORTH = 8.0  # tokens
    LEARNING_RATE = 0.02
    FLOOR = 0.01  # of a share inside the logit: what was never seen may come
    FIRST_SHARE = 0.25  # before anything was seen

    def __init__(self, layers: int, experts: int) -> None:
        super().__init__(layers, experts)
        ages = len(self.LIFETIMES)
        self._gain = 1 / np.array(self.LIFETIMES)[:, np.newaxis]
        self._keep = 1 - self._gain
        self._prompt: tuple[np.ndarray, np.ndarray] | None = None  # keep and gain of this prefill pass
        self._step = 0
        self._shares = np.full((layers, ages, experts), self.FIRST_SHARE)
        self._weights = np.full((layers, ages + 1), 1 / ages)
        self._weights[:, ages] = 0
        self._features = np.ones((layers, ages + 1, experts))  # logits of the shares; ones for b
        self._odds = np.ones((layers, experts))  # (1 - p) / p
        self._expect_all()

    def restore(self, state: np.ndarray) -> None:
        super().restore(state)
        self._expect_all()

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        if phase == "decode":
            self._prompt = None
        else:
            keep = self._keep ** min(float(tokens), self.PROMPT_WORTH)
            self._prompt = keep, (1 - keep) / tokens

    def used(self, layer: int, experts: np.ndarray, counts: np.ndarray) -> None:
        self._step += 1
        shares = self._shares[layer]
        if self._prompt is None:
            self._learn(layer, experts)
            shares *= self._keep
            shares[:, experts] += self._gain
        else:
            keep, gain = self._prompt
            shares *= keep
            shares[:, experts] += gain * counts
        odds, priority = self._expect(layer), self.priority[layer]
        np.multiply(odds, -self.layers, out=priority)
        priority -= self._step + self.layers

    def _learn(self, layer: int, experts: np.ndarray) -> None:
        """One step of the layer's weights towards what this token wanted, from what was expected before it."""
        error = -1 / (1 + self._odds[layer])
        error[experts] += 1
        self._weights[layer] += self.LEARNING_RATE / self.experts * (self._features[layer] @ error)

    def _expect(self, layer: int) -> np.ndarray:
        """The layer's odds, from its shares and weights."""
        features, odds = self._features[layer], self._odds[layer]
        logits = features[:-1]
        np.subtract(1 + self.FLOOR, self._shares[layer], out=logits)
        np.divide(self._shares[layer] + self.FLOOR, logits, out=logits)
        np.log(logits, out=logits)
        np.exp(-(self._weights[layer] @ features), out=odds)
        return odds

    def _expect_all(self) -> None:
        for layer in range(self.layers):
            self._expect(layer)
