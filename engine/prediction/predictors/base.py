"""What every predictor answers, and the ground they stand on.

A predictor is told what happens (a request begins, a layer routes, vectors pass by) and is asked: how likely is each
expert of the layers ahead? Answers are chances of use per token, float32 in 0..1, undecayed; None means "no opinion",
and nothing should be fetched on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Flag
from typing import ClassVar, Protocol

import numpy as np

from engine.prediction.shape import Phase, Shape, State


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
    last end_request. ahead may come at any time in a pass. All on the engine thread but ``learn``, which may run
    anywhere, one call at a time.

    resting: observe and learn, but spend nothing on foreseeing; ``ahead`` may answer None. Changes between passes only.
    """

    name: str
    resting: bool

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

    def ahead(self, layer: int, count: int) -> np.ndarray | None:
        """Chances of the layers after ``layer``, the last one that routed (-1: none yet), nearest first: float32
        ``[n, experts]``, n <= count; fewer where the farther ones are not foreseen.

        Beyond the last layer the next token's layers follow, where the predictor can see that far. The array is the
        predictor's own: not to be written to, and valid until its next call.
        """

    def predict(self, layer: int, distance: int) -> np.ndarray | None:
        """Of ``ahead``, the layer ``distance`` (1 or more) after ``layer``: float32 ``[experts]``."""

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
    needs_hidden: ClassVar[bool] = False  # cannot do without router inputs, looks or tokens: no log can replay it
    wants = Wants.NOTHING

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.resting = False

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

    def ahead(self, layer: int, count: int) -> np.ndarray | None:
        return None

    def predict(self, layer: int, distance: int) -> np.ndarray | None:
        chances = self.ahead(layer, distance)
        return chances[distance - 1] if chances is not None and len(chances) >= distance else None

    def study(self, sample: Sample) -> None:
        pass

    def learn(self, seconds: float) -> bool:
        return False

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass


def following(table: np.ndarray, layer: int, count: int) -> np.ndarray:
    """Rows ``layer + 1 ..`` of ``table [layers, experts]``, ``count`` of them; after the last comes the first."""
    if layer + 1 + count <= len(table):
        return table[layer + 1 : layer + 1 + count]
    return table.take(range(layer + 1, layer + 1 + count), axis=0, mode="wrap")


def checked(saved: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """``saved`` when it is of that shape, numbers, and finite; ValueError otherwise."""
    if saved.shape != shape or saved.dtype.kind not in "fiu" or not np.isfinite(saved).all():
        raise ValueError(f"saved numbers of {saved.shape} {saved.dtype} are not {shape}, or not finite")
    return saved
