"""What every predictor answers, and the plain ones.

A predictor is told what happens (a request begins, a layer routes, vectors pass by) and is asked: how likely is each
expert of a layer that lies ``distance`` layers ahead? Answers are chances of use per token, float32 ``[experts]`` in
0..1, undecayed; None means "no opinion", and nothing should be fetched on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Flag
from typing import Protocol

import numpy as np

from engine.prediction.shape import PHASES, Phase, Shape, State


class Wants(Flag):
    """Vectors that a predictor asks its caller to capture; what nobody wants need not leave the device."""

    NOTHING = 0
    ROUTER = 1  # router(): the router's input and its scores, of every layer, for the last token of a pass
    LOOK = 2  # look(): a later layer's router asked about this layer's state
    TOKEN = 4  # token(): final hidden state of the last token, embedding of the one to come


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Consecutive tokens to learn from, of a prefill say. All float arrays with the tokens first.

    inputs: what the routers saw, ``[n, layers, hidden]``. scores: what they said, ``[n, layers, experts]``.
    hidden: final hidden states, ``[n, hidden]``. embeddings: of the tokens themselves, ``[n, hidden]``. The last two
    may be left out.
    """

    inputs: np.ndarray
    scores: np.ndarray
    hidden: np.ndarray | None = None
    embeddings: np.ndarray | None = None


class Predictor(Protocol):
    """Order of calls: begin_request; per pass begin_pass, [token], per layer [router, look...], routed, end_pass; at
    last end_request. predict may come at any time in a pass. All on the engine thread but ``learn``, which may run
    anywhere, one call at a time.
    """

    name: str

    @property
    def wants(self) -> Wants: ...

    def begin_request(self) -> None: ...

    def end_request(self) -> None:
        """The request is over, however it ended; what it teaches is kept."""

    def token(self, hidden: np.ndarray, embedding: np.ndarray) -> None:
        """At the beginning of a decode pass: the last token's final hidden state ``[hidden]``, the present one's
        embedding. The arrays may be reused after the call."""

    def begin_pass(self, phase: Phase, tokens: int) -> None: ...

    def router(self, layer: int, inputs: np.ndarray, scores: np.ndarray) -> None:
        """Of the pass's last token: what the router of ``layer`` saw ``[hidden]`` and said ``[experts]``.

        Scores are what its top-k was taken from, larger is better. The arrays may be reused after the call.
        """

    def look(self, layer: int, distance: int, scores: np.ndarray) -> None:
        """The router of ``layer + distance``, asked about ``layer``'s state, said ``scores [experts]``."""

    def routed(self, layer: int, ids: Sequence[int], counts: np.ndarray | None = None) -> None:
        """``ids`` (distinct) were chosen, by ``counts`` tokens each; None: by the pass's one token."""

    def end_pass(self) -> None: ...

    def predict(self, layer: int, distance: int) -> np.ndarray | None:
        """Chances of the experts of layer ``layer + distance``, seen after ``layer`` routed (-1: before the first).

        distance >= 1. Beyond the last layer the next token's layers follow, where the predictor can see that far.
        The array is the predictor's own: not to be written to, and valid until its next call.
        """

    def study(self, sample: Sample) -> None:
        """Learn from tokens that nobody had to predict."""

    def learn(self, seconds: float) -> bool:
        """Work off what was observed, for about that long; True while more waits. May run on any thread."""

    def state(self) -> State:
        """What is worth keeping until the next load."""

    def restore(self, state: State) -> None:
        """Take back what ``state`` gave, before anything is learnt; keys of others are ignored. What has to be solved
        is left to ``learn``, so that a load does not wait. ValueError when it does not fit."""


class Silent:
    """Says nothing and learns nothing: the predictor ``none``, and the ground the others stand on."""

    name = "none"
    wants = Wants.NOTHING

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def begin_request(self) -> None:
        pass

    def end_request(self) -> None:
        pass

    def token(self, hidden: np.ndarray, embedding: np.ndarray) -> None:
        pass

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        pass

    def router(self, layer: int, inputs: np.ndarray, scores: np.ndarray) -> None:
        pass

    def look(self, layer: int, distance: int, scores: np.ndarray) -> None:
        pass

    def routed(self, layer: int, ids: Sequence[int], counts: np.ndarray | None = None) -> None:
        pass

    def end_pass(self) -> None:
        pass

    def predict(self, layer: int, distance: int) -> np.ndarray | None:
        return None

    def study(self, sample: Sample) -> None:
        pass

    def learn(self, seconds: float) -> bool:
        return False

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass

    def target(self, layer: int, distance: int) -> int:
        """The layer meant, in 0..layers-1; past the last one the next token begins."""
        return (layer + distance) % self.shape.layers


class NextIndex(Silent):
    """The sequential baseline: experts in the order of their numbers, as if the next layer's lay next on a tape."""

    name = "next-index"

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        falling = np.arange(shape.experts, 0, -1, dtype=np.float32)
        self._chances = np.minimum(falling * (shape.top_k / falling.sum()), 1.0)
        self._chances.flags.writeable = False

    def predict(self, layer: int, distance: int) -> np.ndarray | None:
        return self._chances


class Popularity(Silent):
    """How often each expert was chosen per token, prefill and decode apart; while one has no counts, the other's."""

    name = "popularity"

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.counts: dict[Phase, np.ndarray] = {
            phase: np.zeros((shape.layers, shape.experts), np.float64) for phase in PHASES
        }
        self._phase: Phase = "prefill"
        self._chances: dict[int, np.ndarray] = {}  # by layer, of the present phase

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        if phase != self._phase:
            self._chances.clear()
        self._phase = phase

    def routed(self, layer: int, ids: Sequence[int], counts: np.ndarray | None = None) -> None:
        self.counts[self._phase][layer, ids] += 1 if counts is None else counts
        self._chances.pop(layer, None)

    def predict(self, layer: int, distance: int) -> np.ndarray | None:
        target = self.target(layer, distance)
        known = self._chances.get(target)
        if known is not None:
            return known
        for phase in (self._phase, *PHASES):
            counts = self.counts[phase][target]
            total = counts.sum()
            if total:
                chances = np.minimum(counts * (self.shape.top_k / total), 1.0).astype(np.float32)
                self._chances[target] = chances
                return chances
        return None

    def state(self) -> State:
        return {f"{self.name}/{phase}": self.counts[phase].copy() for phase in PHASES}

    def restore(self, state: State) -> None:
        for phase in PHASES:
            saved = state.get(f"{self.name}/{phase}")
            if saved is not None:
                self.counts[phase][:] = checked(saved, self.counts[phase].shape)
        self._chances.clear()


class PreviousToken(Silent):
    """Whoever the last token used in that layer; after a prefill, the share of its tokens that chose the expert."""

    name = "previous-token"

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self._last = np.zeros((shape.layers, shape.experts), np.float32)
        self._known = np.zeros(shape.layers, bool)
        self._tokens = 1

    def begin_request(self) -> None:
        self._known[:] = False

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        self._tokens = max(1, tokens)

    def routed(self, layer: int, ids: Sequence[int], counts: np.ndarray | None = None) -> None:
        row = self._last[layer]
        row.fill(0)
        row[ids] = 1.0 if counts is None else counts / self._tokens
        self._known[layer] = True

    def predict(self, layer: int, distance: int) -> np.ndarray | None:
        target = self.target(layer, distance)
        return self._last[target] if self._known[target] else None


def checked(saved: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """``saved`` when it is of that shape, numbers, and finite; ValueError otherwise."""
    if saved.shape != shape or saved.dtype.kind not in "fiu" or not np.isfinite(saved).all():
        raise ValueError(f"saved numbers of {saved.shape} {saved.dtype} are not {shape}, or not finite")
    return saved
