"""Foresight: what happens in the model is told to the prompter, and what the prompter whispers is fetched ahead.

While the trial says that fetching ahead does not pay, the prompter rests: it goes on learning and predicts nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from engine.experts.records import Phase
from engine.experts.routers import RouterTaps
from engine.experts.trial import Trial
from engine.messages import PrefetchState
from engine.prediction.predictors import Sample, Wants
from engine.prediction.prompter import Guess, Prompter

# Where nobody is missing, what is learnt serves a later load at best: of so many tokens, two in a row are listened to
# (two, for who learns from one token about the next).
LEISURE = 16

COMPLETE = "Every expert is in a slot: there is nobody to fetch ahead."

Order = Callable[[int, Sequence[Guess]], None]


class Foresight:
    """One prompter at work on one model. Only the engine thread calls it, but for ``Prompter.learn``."""

    def __init__(self, prompter: Prompter, trial: Trial) -> None:
        self.prompter = prompter
        self.trial = trial
        self.news = ""  # the latest verdict that was not told yet; whoever tells it empties it
        self._taps: RouterTaps | None = None
        self._order: Order = lambda layer, guesses: None
        self._asking = False  # in this pass
        self._decoding = False
        self._complete = False  # in this pass
        self._idle = 0  # tokens of such passes
        self._spent = 0.0

    def listen(self, taps: RouterTaps) -> None:
        """Hear what the routers see and say."""
        self._taps = taps

    def bind(self, order: Order) -> None:
        """``order(layer, guesses)`` fetches ahead what is expected after ``layer``, -1: before the first."""
        self._order = order

    @property
    def asking(self) -> bool:
        """Whether guesses are asked for in this pass."""
        return self._asking

    def begin_request(self) -> None:
        self.prompter.begin_request()

    def end_request(self) -> None:
        self.prompter.end_request()

    def begin_pass(self, phase: Phase, tokens: int, complete: bool = False, unheard: bool = False) -> None:
        """complete: every expert is here, so nobody is asked for guesses and the trial learns nothing from this pass.
        unheard: what the routers see and say stays on the card as well."""
        began = time.perf_counter()
        self._spent = 0.0
        self._decoding = phase == "decode" and tokens == 1
        self._complete = complete
        if complete and self._decoding:
            self._idle += 1
            unheard = unheard or self._idle % LEISURE > 1
        self._asking = self._decoding and self.trial.on and not complete
        self.prompter.resting = not self._asking
        self.prompter.begin_pass(phase, tokens)
        if self._taps is not None:  # another router's opinion costs a product: only for whoever asks
            wants = Wants.NOTHING if unheard else self.prompter.wants
            self._taps.wants = wants if self._asking else wants & ~Wants.LOOK
        if self._asking and Wants.TOKEN not in self.prompter.wants:
            self._order(-1, self.prompter.ahead(-1))
        self._spent += time.perf_counter() - began

    def routed(self, layer: int, experts: np.ndarray, counts: np.ndarray) -> Sequence[Guess]:
        """As ``engine.experts.runtime.Foresight``."""
        began = time.perf_counter()
        self.prompter.routed(layer, experts.tolist(), None if self._decoding else counts)
        guesses = self.prompter.ahead(layer) if self._asking else ()
        self._spent += time.perf_counter() - began
        return guesses

    def end_pass(self, seconds: float) -> float:
        """The pass took ``seconds``, 0 when it was stopped. Seconds of it that went into foresight."""
        began = time.perf_counter()
        self.prompter.end_pass()
        if self._decoding and seconds > 0 and not self._complete and self.trial.token(seconds):
            self.news = self.trial.words()
        return self._spent + time.perf_counter() - began

    def state(self) -> PrefetchState:
        """For the panels."""
        accuracy = tuple(accuracy.share for accuracy in self.prompter.accuracy())
        if self._complete and self.trial.mode != "off":
            return PrefetchState(False, COMPLETE, accuracy=accuracy)
        return self.trial.state(accuracy)

    def close(self) -> None:
        if self._taps is not None:
            self._taps.close()
            self._taps = None

    # -------------------------------------------------------------------------------- what the taps bring

    def token(self, hidden: np.ndarray, embedding: np.ndarray) -> None:
        began = time.perf_counter()
        self.prompter.token(hidden, embedding)
        if self._asking:
            self._order(-1, self.prompter.ahead(-1))
        self._spent += time.perf_counter() - began

    def router(self, layer: int, inputs: np.ndarray, scores: np.ndarray) -> None:
        began = time.perf_counter()
        self.prompter.router(layer, inputs, scores)
        self._spent += time.perf_counter() - began

    def look(self, layer: int, distance: int, scores: np.ndarray) -> None:
        began = time.perf_counter()
        self.prompter.look(layer, distance, scores)
        self._spent += time.perf_counter() - began

    def study(self, sample: Sample) -> None:
        self.prompter.study(sample)
