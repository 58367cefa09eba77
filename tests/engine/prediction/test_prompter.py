"""The prompter: guesses on time, scores kept, and every finished request remembered whoever predicts."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import OptionError
from engine.prediction.predictors import Wants
from engine.prediction.predictors.eam import likely_first
from engine.prediction.prompter import PREDICTORS, Prompter
from engine.prediction.shape import Shape
from tests.engine.prediction.traces import LinearModel, play

SHAPE = Shape(layers=4, experts=8, top_k=2)


@pytest.fixture(scope="module")
def model() -> LinearModel:
    return LinearModel.random(layers=5, experts=16, top_k=3, hidden=24)


def decode(prompter: Prompter, ids: list[int], tokens: int = 1) -> None:
    for _ in range(tokens):
        prompter.begin_pass("decode", 1)
        for layer in range(SHAPE.layers):
            prompter.routed(layer, ids)
            prompter.ahead(layer)
        prompter.end_pass()


def test_guesses_come_nearest_first_and_after_the_last_layer_comes_the_next_tokens_first() -> None:
    prompter = Prompter("next-index", SHAPE, horizon=3)
    prompter.begin_request()
    prompter.begin_pass("decode", 1)
    ahead = prompter.ahead(0)
    assert [(guess.layer, guess.distance) for guess in ahead] == [(1, 1), (2, 2), (3, 3)]
    assert [guess.worth for guess in ahead] == [0.75, 0.5, 0.25]
    assert [(guess.layer, guess.distance) for guess in prompter.ahead(2)] == [(3, 1), (0, 2), (1, 3)]
    assert [guess.layer for guess in prompter.ahead(3)] == [0, 1, 2]
    assert [guess.layer for guess in prompter.ahead(-1)] == [0, 1, 2]


def test_none_whispers_nothing_but_the_request_is_remembered() -> None:
    prompter = Prompter("none", SHAPE)
    prompter.begin_request()
    decode(prompter, [2, 3], tokens=5)
    assert prompter.ahead(0) == []
    prompter.end_request()
    assert prompter.history.collections["decode"].counts[0, 1].tolist() == [0, 0, 5, 5, 0, 0, 0, 0]
    assert likely_first(SHAPE, prompter.state())[:8].tolist() == [2, 3, 10, 11, 18, 19, 26, 27]


@pytest.mark.parametrize("name", PREDICTORS)
def test_a_request_enters_the_history_once(name: str, model: LinearModel) -> None:
    prompter = Prompter(name, Shape(model.layers, model.experts, model.top_k, model.hidden))
    play(model, prompter, tokens=12)
    prompter.begin_request()  # an answer that was stopped before its first pass leaves nothing
    prompter.begin_request()
    prompter.end_request()
    counts = prompter.history.collections["decode"].counts
    assert len(counts) == 1
    assert counts[0].sum() == 12 * model.layers * model.top_k


def test_the_score_is_kept_by_distance(model: LinearModel) -> None:
    prompter = Prompter("gate-fitted", Shape(model.layers, model.experts, model.top_k, model.hidden))
    play(model, prompter, tokens=200)
    prompter.meter.reset()
    play(model, prompter, tokens=50, seed=5)
    near, middle, far = prompter.accuracy()
    slots = 50 * model.top_k
    assert (near.wanted, near.silent) == (4 * slots, slots), "nobody can foresee the first layer"
    assert (middle.wanted, far.wanted) == (3 * slots, 2 * slots)
    for accuracy in (near, middle, far):
        assert accuracy.share is not None
        assert accuracy.share > 0.95


def test_another_predictor_keeps_what_the_last_one_learnt(model: LinearModel) -> None:
    shape = Shape(model.layers, model.experts, model.top_k, model.hidden)
    first = Prompter("gate-fitted", shape)
    play(model, first, tokens=100)
    second = Prompter("popularity", shape, first.state())
    play(model, second, tokens=10)
    third = Prompter("gate-fitted", shape, second.state())
    assert len(third.history.collections["decode"]) == 2
    third.learn(10)
    play(model, third, tokens=20, learn=False)
    assert third.accuracy()[0].share == pytest.approx(1.0, abs=0.1)


def test_state_of_another_shape_is_forgotten_and_does_not_stop_the_load(model: LinearModel) -> None:
    before = Prompter("blend", Shape(model.layers, model.experts, model.top_k, model.hidden))
    play(model, before, tokens=100)
    after = Prompter("blend", SHAPE, before.state())
    decode(after, [1, 2])
    assert len(after.history.collections["decode"]) == 0


def test_a_model_of_one_layer_has_nothing_ahead() -> None:
    shape = Shape(1, 4, 1, hidden=3)
    for name in PREDICTORS:
        prompter = Prompter(name, shape)
        prompter.begin_request()
        for _ in range(3):
            prompter.begin_pass("decode", 1)
            prompter.token(np.ones(3, np.float32), np.ones(3, np.float32))
            prompter.ahead(-1)
            prompter.router(0, np.ones(3, np.float32), np.arange(4, dtype=np.float32))
            prompter.routed(0, [3])
            assert prompter.ahead(0) == []
            prompter.end_pass()
            prompter.learn(0.01)
        prompter.end_request()
        Prompter(name, shape, prompter.state())


@pytest.mark.parametrize("name", PREDICTORS)
def test_a_resting_prompter_foresees_nothing_and_goes_on_learning(name: str, model: LinearModel) -> None:
    shape = Shape(model.layers, model.experts, model.top_k, model.hidden)
    rested, worked = Prompter(name, shape), Prompter(name, shape)
    rested.resting = True
    for prompter in (rested, worked):
        play(model, prompter, tokens=200)
        prompter.meter.reset()
    assert Wants.LOOK not in rested.wants
    rested.resting = False
    for prompter in (rested, worked):
        play(model, prompter, tokens=40, seed=5, learn=False)
    first, second = rested.accuracy()[0], worked.accuracy()[0]
    assert first.silent == second.silent
    if second.share is not None:
        assert first.share == pytest.approx(second.share, abs=0.1)


def test_resting_leaves_no_guess_and_no_score(model: LinearModel) -> None:
    prompter = Prompter("blend", Shape(model.layers, model.experts, model.top_k, model.hidden))
    play(model, prompter, tokens=100)
    prompter.meter.reset()
    prompter.resting = True
    play(model, prompter, tokens=20, learn=False)
    assert prompter.accuracy()[0].recall is None
    assert prompter.ahead(0) == []


def test_names_are_checked_once_for_all() -> None:
    with pytest.raises(OptionError, match="choose one of none, next-index, popularity"):
        Prompter("", SHAPE)
