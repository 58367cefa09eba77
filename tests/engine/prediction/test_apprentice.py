"""The plain look-ahead until the fitted one is better; then that one alone."""

from __future__ import annotations

import numpy as np

from engine.prediction.predictors import Wants
from engine.prediction.prompter import Prompter
from engine.prediction.shape import Shape

SHAPE = Shape(layers=4, experts=16, top_k=4, hidden=24)


class World:
    """Every layer turns the state by ``turn`` of a random rotation; routers are linear."""

    def __init__(self, turn: float) -> None:
        self.random = np.random.default_rng(5)
        size = SHAPE.hidden
        rotation = np.linalg.qr(self.random.normal(size=(size, size)))[0]
        self.change = (1 - turn) * np.eye(size) + turn * rotation
        self.routers = self.random.normal(size=(SHAPE.layers, size, SHAPE.experts))

    def token(self, prompter: Prompter) -> None:
        state = self.random.normal(size=SHAPE.hidden)
        prompter.begin_pass("decode", 1)
        for layer in range(SHAPE.layers):
            scores = state @ self.routers[layer]
            prompter.router(layer, state.astype(np.float32), scores.astype(np.float32))
            if Wants.LOOK in prompter.wants:
                for distance in range(1, min(3, SHAPE.layers - 1 - layer) + 1):
                    prompter.look(layer, distance, (state @ self.routers[layer + distance]).astype(np.float32))
            prompter.routed(layer, np.argsort(-scores)[: SHAPE.top_k].tolist())
            prompter.ahead(layer)
            state = state @ self.change
        prompter.end_pass()

    def tokens(self, prompter: Prompter, count: int) -> None:
        for _ in range(count):
            self.token(prompter)
            while prompter.learn(0.01):
                pass


def test_speaks_from_the_first_token_on_and_better_when_it_has_learnt() -> None:
    world, prompter = World(turn=0.7), Prompter("apprentice", SHAPE)
    prompter.begin_request()
    assert prompter.wants == Wants.ROUTER | Wants.LOOK
    world.tokens(prompter, 30)
    at_first = prompter.accuracy()[0]
    assert at_first.share is not None  # the plain look-ahead stood in
    world.tokens(prompter, 400)
    assert prompter.wants == Wants.ROUTER  # no later router is asked any more
    prompter.meter.reset()
    world.tokens(prompter, 50)
    later = prompter.accuracy()[0].share
    assert later is not None
    assert later > 0.9 > at_first.share + 0.1


def test_stays_with_the_plain_look_ahead_where_nothing_can_be_learnt_better() -> None:
    world, prompter = World(turn=0.0), Prompter("apprentice", SHAPE)
    prompter.begin_request()
    world.tokens(prompter, 20)
    assert prompter.accuracy()[0].share == 1.0  # a layer that changes nothing


def test_what_was_decided_outlives_a_load() -> None:
    world, prompter = World(turn=0.7), Prompter("apprentice", SHAPE)
    prompter.begin_request()
    world.tokens(prompter, 430)
    again = Prompter("apprentice", SHAPE, prompter.state())
    assert again.wants == Wants.ROUTER
