"""Next use: who is needed again the latest leaves."""

from __future__ import annotations

import numpy as np

from engine.experts.policies.base import Policy
from engine.experts.policies.token_memory import TokenMemory
from engine.experts.records import Phase


class NextUse(Policy):
    """Evicts the expert whose next use is expected last, counted in layers to be served.

    An expert of layer l', seen from layer l, has its next chance after d = (l' - l) mod L layer steps (L when equal),
    and one more every L steps. With chances p1 at the first, p2 at the second and p at each later one, it is wanted
    again after

        d + L (1 - p1) (1 + (1 - p2) / p)        layer steps on average.

    From the step s when layer l' was last served, that is s + L + L (1 - p1) (...), whatever the present layer is.

    p blends how often the expert was used of late, for three ideas of "late": exponentially decayed shares r_j with
    mean ages LIFETIMES, as p = sigmoid(mean_j logit r_j). p1 asks the ``TokenMemory`` too, m being the chance of use
    after the past tokens that routed like the present one: p1 = sigmoid(sum_j w_j logit r_j + v logit m + b). The
    weights of each layer (first w = 1/3, v = 1, b = 0) follow the logarithmic loss of every token, by gradient steps:
    what a layer's routing lives on, the subject or the last words, differs between layers and models. p2 is halfway
    between p and what the memory says of the token after the next.

    The memory is asked every ASK_EVERY layers and after the last one: what is known of a token grows with every
    layer, and an eviction cannot wait for its end. Between, a layer just served goes by what was said last.

    A prompt's pass moves the shares like min(tokens, PROMPT_WORTH) tokens with its average routing, and teaches neither
    weights nor memory: it may neither swamp what decode found out nor be ignored.
    """

    name = "next-use"
    STATE = ("priority", "_shares", "_weights", "_features", "_absence", "_recurrence", "_served", "_step", "_calls")
    LIFETIMES = (2.0, 16.0, 128.0)  # tokens
    PROMPT_WORTH = 8.0  # tokens
    LEARNING_RATE = 0.06
    FLOOR = 0.01  # of a share inside the logit: what was never seen may come
    FIRST_SHARE = 0.25  # before anything was seen
    PRIOR_WORTH = 0.1  # past tokens just like the present one; in the memory's mean, so much is p's
    ASK_EVERY = 3  # layers

    def __init__(self, layers: int, experts: int) -> None:
        super().__init__(layers, experts)
        ages = len(self.LIFETIMES)
        self._gain = 1 / np.array(self.LIFETIMES)[:, np.newaxis]
        self._keep = 1 - self._gain
        self._prompt: tuple[np.ndarray, np.ndarray] | None = None  # keep and gain of this prefill pass
        self._memory = TokenMemory(layers, experts)
        self._step = 0  # layers served
        self._calls = 0  # of them, by this pass
        self._served = np.zeros((layers, 1))  # step at which each layer was, last
        self._shares = np.full((layers, ages, experts), self.FIRST_SHARE)
        self._weights = np.full((layers, ages + 2), 1 / ages)
        self._weights[:, ages:] = 1, 0
        # logits of the shares and of the memory's m; ones for b
        self._features = np.ones((layers, ages + 2, experts))
        self._features[:, : ages + 1] = _logit(self.FIRST_SHARE, self.FLOOR)
        self._recurrence = np.full((layers, experts), self.FIRST_SHARE)  # p
        self._absence = np.full((layers, experts), 1 - self.FIRST_SHARE)  # 1 - p1

    def state(self) -> np.ndarray:
        return np.concatenate([super().state(), self._memory.state()])

    def restore(self, state: np.ndarray) -> None:
        remembered = self._memory.state().size
        if state.size != super().state().size + remembered:
            raise ValueError(f"a state of {state.size} numbers is not one of {self.name}")
        super().restore(state[:-remembered])
        self._memory.restore(state[-remembered:])

    def begin_request(self) -> None:
        self._memory.break_off()

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        self._calls = 0
        if phase == "decode":
            self._prompt = None
            self._memory.begin_token()
        else:
            self._memory.break_off()
            keep = self._keep ** min(float(tokens), self.PROMPT_WORTH)
            self._prompt = keep, (1 - keep) / tokens

    def used(self, layer: int, experts: np.ndarray, counts: np.ndarray) -> None:
        self._step += 1
        self._calls += 1
        self._served[layer] = self._step
        shares = self._shares[layer]
        if self._prompt is None:
            self._learn(layer, experts)
            shares *= self._keep
            shares[:, experts] += self._gain
            self._memory.tell(layer, experts)
        else:
            keep, gain = self._prompt
            shares *= keep
            shares[:, experts] += gain * counts
            np.minimum(shares, 1.0, out=shares)  # a router may name one expert twice for a token
        self._look_back(layer)
        if self._prompt is None and (self._calls % self.ASK_EVERY == 0 or self._memory.complete):
            self._ask(layer + 1)
        else:
            self._expect(slice(layer, layer + 1), None)

    def _learn(self, layer: int, experts: np.ndarray) -> None:
        """One step of the layer's weights towards what this token wanted, from what was expected before it."""
        error = self._absence[layer] - 1
        error[experts] += 1
        self._weights[layer] += self.LEARNING_RATE / self.experts * (self._features[layer] @ error)

    def _look_back(self, layer: int) -> None:
        """The layer's p, from its shares; what the memory would say is p until it is asked."""
        features = self._features[layer]
        ages = len(self.LIFETIMES)
        logits = features[:ages]
        logits[:] = _logit(self._shares[layer], self.FLOOR)
        np.add.reduce(logits, out=features[ages])
        features[ages] /= ages
        self._recurrence[layer] = 1 / (1 + np.exp(-features[ages]))

    def _ask(self, layers: int) -> None:
        """What the memory says of the first ``layers`` layers, the ones that this token has been through."""
        if self._memory.complete:
            layers = self.layers
        after = self._memory.chances(layers, self._recurrence, self.PRIOR_WORTH)
        if after is not None:
            self._features[:layers, len(self.LIFETIMES)] = _logit(after[0], self.FLOOR)
        self._expect(slice(0, layers), None if after is None else after[1])

    def _expect(self, layers: slice, second: np.ndarray | None) -> None:
        """Priorities of these layers. second: what the memory says of the token after the next."""
        recurrence = self._recurrence[layers]
        score = (self._weights[layers, np.newaxis] @ self._features[layers])[:, 0]
        absence = 1 / (1 + np.exp(score))
        self._absence[layers] = absence
        later = 1 - recurrence if second is None else 1 - 0.5 * (recurrence + second)
        wait = absence * (1 + later / recurrence)
        self.priority[layers] = -(self._served[layers] + self.layers * (1 + wait))


def _logit(share: np.ndarray | float, floor: float) -> np.ndarray:
    """log odds of a share, kept finite by ``floor`` on both sides."""
    return np.log((share + floor) / (1 + floor - share))
