"""Made-up routing with known structure, for tests that need to know the right answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.prediction.predictors import Predictor
from engine.prediction.prompter import Prompter


@dataclass(frozen=True)
class LinearModel:
    """A residual stream with routers: x_{l+1} = A_l x_l, scores_l = R_l x_l, so a linear map ahead exists exactly.

    The next token starts from B (final hidden) + C (its embedding).
    """

    layers: int
    experts: int
    top_k: int
    hidden: int
    steps: np.ndarray  # [layers, hidden, hidden]
    routers: np.ndarray  # [layers, experts, hidden]
    carry: np.ndarray  # [hidden, hidden]
    vocabulary: np.ndarray  # [tokens, hidden]

    @classmethod
    def random(cls, layers: int, experts: int, top_k: int, hidden: int, seed: int = 0) -> LinearModel:
        rng = np.random.default_rng(seed)
        steps = np.stack([np.linalg.qr(rng.standard_normal((hidden, hidden)))[0] for _ in range(layers)])
        routers = rng.standard_normal((layers, experts, hidden))
        carry = np.linalg.qr(rng.standard_normal((hidden, hidden)))[0] * 0.5
        return cls(layers, experts, top_k, hidden, steps, routers, carry, rng.standard_normal((50, hidden)))

    def token(self, final: np.ndarray, embedding: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(router inputs [L, H], scores [L, E], final hidden [H]) of the next token."""
        x = self.carry @ final + embedding
        inputs, scores = [], []
        for step, router in zip(self.steps, self.routers, strict=True):
            inputs.append(x.astype(np.float32))
            scores.append((router @ x).astype(np.float32))
            x = step @ x
        return np.stack(inputs), np.stack(scores), x.astype(np.float32)


def chosen(scores: np.ndarray, top_k: int) -> np.ndarray:
    return np.argsort(-scores, kind="stable")[:top_k]


def play(
    model: LinearModel, listener: Predictor | Prompter, tokens: int, seed: int = 1, learn: bool = True, first: int = -1
) -> dict[int, float]:
    """Decode ``tokens`` tokens; share of slots right by distance, asked after layer ``first`` and those beyond."""
    rng = np.random.default_rng(seed)
    right: dict[int, list[float]] = {}
    final = np.zeros(model.hidden, np.float32)
    listener.begin_request()
    for _ in range(tokens):
        embedding = model.vocabulary[rng.integers(len(model.vocabulary))]
        listener.begin_pass("decode", 1)
        listener.token(final, embedding.astype(np.float32))
        inputs, scores, final = model.token(final, embedding)
        for layer in range(-1, model.layers):
            if layer >= 0:
                listener.router(layer, inputs[layer], scores[layer])
                listener.routed(layer, chosen(scores[layer], model.top_k).tolist())
            for distance in (1, 2, 3):
                if isinstance(listener, Prompter) or layer < first or layer + distance >= model.layers:
                    continue
                chances = listener.predict(layer, distance)
                if chances is not None:
                    wanted = chosen(scores[layer + distance], model.top_k)
                    named = chosen(chances, model.top_k)
                    right.setdefault(distance, []).append(len(np.intersect1d(wanted, named)) / model.top_k)
            if isinstance(listener, Prompter):
                listener.ahead(layer)
        listener.end_pass()
        while learn and listener.learn(1.0):
            pass
    listener.end_request()
    while learn and listener.learn(1.0):
        pass
    return {distance: float(np.mean(shares)) for distance, shares in right.items()}


def random_request(rng: np.random.Generator, layers: int, experts: int, tokens: int, topic: int = 0) -> np.ndarray:
    """Counts of a request whose tokens prefer experts near ``topic``: uint32 ``[layers, experts]``."""
    weights = np.exp(-0.5 * ((np.arange(experts) - topic + np.arange(layers)[:, None]) % experts) / 3)
    weights /= weights.sum(axis=1, keepdims=True)
    return np.stack([rng.multinomial(tokens, row) for row in weights]).astype(np.uint32)
