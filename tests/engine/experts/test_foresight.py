"""Foresight: the prompter hears everything, and whispers only while the trial lets it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from engine.experts.foresight import Foresight
from engine.experts.trial import ROUNDS, WINDOW, Trial
from engine.prediction.predictors import Wants
from engine.prediction.prompter import Prompter
from engine.prediction.shape import Shape

SHAPE = Shape(4, 8, 2, 16)


class Heard:
    """Who was ordered: (after layer, layers meant)."""

    def __init__(self, predictor: str, mode: str = "on") -> None:
        self.foresight = Foresight(Prompter(predictor, SHAPE), Trial(mode))
        self.orders: list[tuple[int, list[int]]] = []
        self.foresight.bind(self._order)
        self.foresight.begin_request()

    def _order(self, layer: int, guesses: Sequence[Any]) -> None:
        self.orders.append((layer, [guess.layer for guess in guesses]))

    def token(self, seconds: float = 0.01) -> list[list[int]]:
        """A decode pass of the same experts; the layers foreseen after each."""
        self.foresight.begin_pass("decode", 1)
        seen = []
        for layer in range(SHAPE.layers):
            guesses = self.foresight.routed(layer, np.array([layer, layer + 2]), np.ones(2, np.uint32))
            seen.append([guess.layer for guess in guesses])
        self.foresight.end_pass(seconds)
        return seen


def test_the_next_layers_are_foreseen_after_each_and_before_the_first() -> None:
    heard = Heard("popularity")
    heard.token()
    heard.orders.clear()
    assert heard.token() == [[1, 2, 3], [2, 3, 0], [3, 0, 1], [0, 1, 2]], "after the last layer comes the next token"
    assert heard.orders == [(-1, [0, 1, 2])]


def test_a_prompt_is_listened_to_and_nobody_is_foreseen_for_it() -> None:
    heard = Heard("popularity")
    heard.foresight.begin_pass("prefill", 5)
    assert list(heard.foresight.routed(0, np.array([1, 6]), np.array([5, 5], np.uint32))) == []
    heard.foresight.end_pass(0.5)
    assert heard.orders == []
    assert heard.foresight.prompter.predictor.counts["prefill"][0, [1, 6]].tolist() == [5, 5]


@pytest.mark.parametrize("mode", ["off", "auto"])
def test_while_it_does_not_pay_the_prompter_rests_and_goes_on_learning(mode: str) -> None:
    heard = Heard("popularity", mode)
    if mode == "auto":
        for _ in range(2 * ROUNDS * WINDOW):
            heard.token(2.0 if heard.foresight.trial.on else 1.0)
        assert heard.foresight.news == heard.foresight.state().verdict
    heard.orders.clear()
    counted = heard.foresight.prompter.predictor.counts["decode"].sum()
    assert heard.token() == [[]] * SHAPE.layers
    assert heard.orders == []
    assert heard.foresight.prompter.resting
    assert heard.foresight.prompter.predictor.counts["decode"].sum() > counted


def test_a_stopped_pass_is_no_measurement() -> None:
    heard = Heard("popularity", "auto")
    for _ in range(4 * ROUNDS * WINDOW):
        heard.foresight.begin_pass("decode", 1)
        heard.foresight.end_pass(0.0)
    assert heard.foresight.trial.verdicts == 0


def test_other_routers_are_asked_only_for_whoever_listens() -> None:
    class Taps:
        wants = Wants.NOTHING
        closed = False

        def close(self) -> None:
            self.closed = True

    heard, taps = Heard("gate", "auto"), Taps()
    heard.foresight.listen(taps)  # type: ignore[arg-type]
    for _ in range(2 * ROUNDS * WINDOW):
        heard.token(2.0 if heard.foresight.trial.on else 1.0)
        assert (Wants.LOOK in taps.wants) is (not heard.foresight.prompter.resting)
    heard.token()
    assert Wants.LOOK not in taps.wants
    heard.foresight.close()
    assert taps.closed


def test_time_spent_and_accuracy_are_told() -> None:
    heard = Heard("previous-token")
    for _ in range(5):
        heard.token()
    heard.foresight.begin_pass("decode", 1)
    heard.foresight.routed(0, np.array([0, 2]), np.ones(2, np.uint32))
    assert heard.foresight.end_pass(0.1) > 0
    assert heard.foresight.state().accuracy == (1.0, 1.0, 1.0)
