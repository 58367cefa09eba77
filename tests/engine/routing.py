"""Routing as a small model's looks, made up: for judging policies where no real log is at hand.

Every layer has favourites (Zipf), every conversation a subject that drifts and shifts them, every token keeps part of
the last token's choice, and neighbouring layers follow a common mood of the token. With 30 layers of 32 experts and 12
to a token the figures come close to those of a real dense model cut into experts (LRU 52, Belady 83% at half).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from engine.sessions.log import SessionLog


class Routing:
    """Draws the experts of token after token. ``token()`` gives int64 ``[layers, top_k]``, best first."""

    def __init__(self, layers: int, experts: int, top_k: int, seed: int = 0) -> None:
        self.shape, self.top_k = (layers, experts), top_k
        self._random = np.random.default_rng(seed)
        popular = -0.6 * np.log(1 + np.arange(experts))
        self._favour = np.stack([self._random.permutation(popular) for _ in range(layers)])
        self._moods = self._random.normal(size=(8, layers, experts))
        self.new_subject()

    def new_subject(self) -> None:
        self._subject = self._random.normal(size=self.shape)
        self._recent = np.zeros(self.shape)

    def token(self) -> np.ndarray:
        noise = self._random.normal(size=self.shape)
        self._subject += 0.05 * (self._random.normal(size=self.shape) - self._subject)
        self._recent = 0.7 * self._recent + 0.7 * noise
        mood = np.tensordot(self._random.normal(size=8), self._moods, 1) / 8**0.5
        scores = self._favour + 0.6 * self._subject + 0.8 * self._recent + 0.4 * mood
        return np.argsort(-scores, axis=1, kind="stable")[:, : self.top_k]


def write_log(
    path: Path, routing: Routing, answers: Sequence[tuple[int, int]], policy: str = "lru", slots: int = 0
) -> Path:
    """A log of ``answers`` (prompt tokens, decode tokens) from a cold start. Misses in it are not those of a cache."""
    layers, experts = routing.shape
    with SessionLog.create_at(path, "greenroom test") as log:
        log.append_model(
            name="made up", source="", family="", signature="made-up", layers=layers, experts=experts,
            top_k=routing.top_k, slots=slots or layers * experts // 2, slot_bytes=1000, policy=policy, device="CPU",
            dtype="float32", program="", hardware="", resident=[],
        )  # fmt: skip
        for number, (prompt, length) in enumerate(answers):
            routing.new_subject()
            answer = f"answer-{number}"
            log.append_start(answer=answer, parent=None, prompt_tokens=prompt, reused_tokens=0, sampling={})
            common = {"missed": np.zeros(routing.shape, bool), "fetched_bytes": 0, "stall": 0.0, "seconds": 0.0}
            counts = sum(_counts(routing.token(), experts) for _ in range(prompt))
            log.append_pass(answer=answer, phase="prefill", tokens=prompt, counts=counts, **common)
            for routed in _tokens(routing, length):
                log.append_pass(answer=answer, phase="decode", tokens=1, routed=routed, **common)
    return path


def _tokens(routing: Routing, count: int) -> Iterator[np.ndarray]:
    return (routing.token() for _ in range(count))


def _counts(routed: np.ndarray, experts: int) -> np.ndarray:
    return np.stack([np.bincount(chosen, minlength=experts) for chosen in routed])
