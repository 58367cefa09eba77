"""The prompter: hears everything, whispers who comes next, and keeps score. What the transfer thread talks to.

prompter = Prompter("blend", Shape(layers, experts, top_k, hidden), state)
prompter.begin_request()
prompter.begin_pass("decode", 1)
prompter.token(hidden, embedding)           # the vectors that prompter.wants: from RouterTaps
prompter.router(layer, inputs, scores); prompter.look(layer, distance, scores)
prompter.routed(layer, ids)                 # after each router
for guess in prompter.ahead(layer): ...     # whom to fetch, and how surely
prompter.end_pass(); prompter.end_request()
prompter.learn(0.002)                       # whenever a thread is idle
state = prompter.state()                    # for the model's profile
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from engine import messages
from engine.errors import OptionError
from engine.kinds import kinds_in
from engine.prediction import predictors
from engine.prediction.collection import DEFAULT_CAPACITY
from engine.prediction.meter import Accuracy, AccuracyMeter
from engine.prediction.predictors import Predictor, Sample, Silent, Wants
from engine.prediction.predictors.blend import Blend
from engine.prediction.predictors.eam import Eam
from engine.prediction.predictors.gate import HORIZON
from engine.prediction.shape import Phase, Shape, State, decay

log = logging.getLogger("greenroom.prediction")

_P = TypeVar("_P", bound=Predictor)


@dataclass(frozen=True, slots=True, eq=False)
class Guess:
    """chances: float32 ``[experts]`` of ``layer``, per token, 0..1. worth: 1 - distance/L, to weigh guesses by.

    After the last layer comes the next token's first.
    """

    layer: int
    distance: int
    chances: np.ndarray
    worth: float


PREDICTORS: dict[str, type[Silent]] = kinds_in(
    predictors, Silent, messages.PREDICTORS, "PREDICTORS in engine/messages/choices.py"
)
"""Every predictor there is by name; ``engine.messages.PREDICTORS`` says in a sentence what each expects."""

NEED_HIDDEN = tuple(name for name, kind in PREDICTORS.items() if kind.needs_hidden)


def make_predictor(name: str, shape: Shape, capacity: int = DEFAULT_CAPACITY, state: State | None = None) -> Predictor:
    """The predictor called ``name``, knowing what ``state`` says as far as it fits.

    capacity: past requests that ``eam`` and ``blend`` compare with. Raises OptionError when there is none of that
    name, or when it needs hidden states and ``shape`` has no width.
    """
    if name not in PREDICTORS:
        raise OptionError(f"There is no predictor {name!r}; choose one of {', '.join(PREDICTORS)}.")
    kind = PREDICTORS[name]
    if kind.needs_hidden and not shape.hidden:
        raise OptionError(f"The predictor {name} needs hidden states, and nothing here can give it any.")
    if issubclass(kind, Blend):
        names = [member for member in kind.MEMBERS if shape.hidden or not PREDICTORS[member].needs_hidden]
        members = [make_predictor(member, shape, capacity, state) for member in names]
        return _restored(lambda: kind(shape, members), state)
    if issubclass(kind, Eam):
        return _restored(lambda: kind(shape, capacity), state)
    return _restored(lambda: kind(shape), state)


def _restored(make: Callable[[], _P], state: State | None) -> _P:
    """What ``make`` makes, with its saved numbers; without them when they are damaged or of another program version."""
    predictor = make()
    if not state:
        return predictor
    try:
        predictor.restore(state)
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        log.warning("what %s had learnt does not fit and is forgotten: %s", predictor.name, error)
        return make()
    return predictor


class Prompter:
    """One predictor at work, its score, and the history of requests that every predictor adds to."""

    def __init__(
        self,
        predictor: str,
        shape: Shape,
        state: State | None = None,
        capacity: int = DEFAULT_CAPACITY,
        horizon: int = HORIZON,
    ) -> None:
        """state: tables of a saved profile; what does not fit is forgotten. Raises OptionError, see make_predictor."""
        self.shape = shape
        self.horizon = max(1, min(horizon, shape.layers - 1))
        self._worth = [decay(distance, shape.layers) for distance in range(self.horizon + 1)]
        self.predictor = make_predictor(predictor, shape, capacity, state)
        self.meter = AccuracyMeter(shape.layers, shape.experts, shape.top_k, self.horizon)
        self._told: tuple[Predictor, ...] = (self.predictor,)
        history = _history_of(self.predictor)
        if history is None:
            history = _restored(lambda: Eam(shape, capacity, matching=False), state)
            self._told += (history,)
        self.history = history
        self._kept: State = dict(state or {})  # of predictors that are not at work now
        self._in_request = False
        self._resting = False

    @property
    def wants(self) -> Wants:
        """Vectors to bring in the next pass. Changes as predictors gain and lose weight, and with ``resting``."""
        return self.predictor.wants & ~Wants.LOOK if self.resting else self.predictor.wants

    @property
    def resting(self) -> bool:
        """While True nothing is foreseen and ``ahead`` is empty, which costs nearly nothing; what passes by is still
        observed and learnt from. To be set between passes."""
        return self._resting

    @resting.setter
    def resting(self, resting: bool) -> None:
        self._resting = self.predictor.resting = resting

    def begin_request(self) -> None:
        """A new question; one that was still open is ended first."""
        self.end_request()
        self._in_request = True
        for one in self._told:
            one.begin_request()

    def end_request(self) -> None:
        if self._in_request:
            self._in_request = False
            for one in self._told:
                one.end_request()

    def token(self, hidden: np.ndarray, embedding: np.ndarray) -> None:
        self.predictor.token(hidden, embedding)

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        self.meter.begin_pass()
        for one in self._told:
            one.begin_pass(phase, tokens)

    def router(self, layer: int, inputs: np.ndarray, scores: np.ndarray) -> None:
        self.predictor.router(layer, inputs, scores)

    def look(self, layer: int, distance: int, scores: np.ndarray) -> None:
        self.predictor.look(layer, distance, scores)

    def routed(self, layer: int, ids: Sequence[int], counts: np.ndarray | None = None) -> None:
        """As ``Predictor.routed``; with ``counts`` None the guesses about this layer are scored."""
        if counts is None and not self.resting:
            self.meter.routed(layer, ids)
        for one in self._told:
            one.routed(layer, ids, counts)

    def end_pass(self) -> None:
        if not self.resting:
            self.meter.end_pass()
        for one in self._told:
            one.end_pass()

    def ahead(self, layer: int) -> list[Guess]:
        """What is expected of the layers after ``layer`` (-1: before the first), nearest first, up to the horizon.

        Only guesses about the pass's own token are scored.
        """
        layers = self.shape.layers
        chances = None if self.resting or layers == 1 else self.predictor.ahead(layer, self.horizon)
        if chances is None:
            return []
        if own := layers - 1 - layer:
            self.meter.predicted(layer, chances[:own])
        return [
            Guess((layer + distance) % layers, distance, chance, self._worth[distance])
            for distance, chance in enumerate(chances, 1)
        ]

    def accuracy(self) -> list[Accuracy]:
        """By distance, from 1."""
        return [self.meter.accuracy(distance) for distance in range(1, self.horizon + 1)]

    def study(self, sample: Sample) -> None:
        self.predictor.study(sample)

    def learn(self, seconds: float) -> bool:
        """Work off what waits, for about that long; True while there is more. Any thread, one at a time."""
        return self.predictor.learn(seconds)

    def state(self) -> State:
        """Everything worth saving: of the predictor at work, of the history, and of others as they were loaded.

        Not while ``learn`` runs.
        """
        state = dict(self._kept)
        for one in self._told:
            state.update(one.state())
        return state


def _history_of(predictor: Predictor) -> Eam | None:
    """The one that keeps past requests, when there is one at work."""
    if isinstance(predictor, Eam):
        return predictor
    if isinstance(predictor, Blend):
        return next((member for member in predictor.members if isinstance(member, Eam)), None)
    return None
