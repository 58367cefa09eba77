"""A map's steady error in one conversation is found within a few tokens, and forgotten with it."""

from __future__ import annotations

import numpy as np

from engine.prediction.drift import Drift
from engine.prediction.predictors.gate_fitted import GateFitted
from engine.prediction.shape import Shape
from tests.engine.prediction.traces import LinearModel, chosen, play


def test_a_steady_error_is_mostly_corrected_after_a_few_tokens() -> None:
    drift, rng = Drift((3, 4)), np.random.default_rng(0)
    steady = rng.standard_normal((3, 4)).astype(np.float32)
    for _ in range(12):
        drift.add(steady + 0.1 * rng.standard_normal((3, 4)).astype(np.float32))
    np.testing.assert_allclose(drift.correction, 0.8 * steady, atol=0.2)
    drift.begin()
    assert not drift.correction.any()


def test_a_subject_the_map_does_not_know_is_followed() -> None:
    """Some experts are liked more in this conversation than the map says: with the drift they are foreseen."""
    model = LinearModel.random(layers=4, experts=16, top_k=4, hidden=24)
    shape = Shape(model.layers, model.experts, model.top_k, model.hidden)
    predictor = GateFitted(shape)
    play(model, predictor, tokens=300)
    liked = np.zeros(16, np.float32)
    liked[:4] = 12.0
    rng, final = np.random.default_rng(3), np.zeros(model.hidden, np.float32)
    early: list[float] = []
    late: list[float] = []
    predictor.begin_request()
    for token in range(60):
        predictor.begin_pass("decode", 1)
        inputs, scores, final = model.token(final, model.vocabulary[rng.integers(50)])
        for layer in range(model.layers):
            predictor.router(layer, inputs[layer], scores[layer] + liked)
            chances = predictor.predict(layer, 1)
            if chances is not None and layer + 1 < model.layers:
                wanted = chosen(scores[layer + 1] + liked, 4)
                right = len(np.intersect1d(chosen(chances, 4), wanted)) / 4
                (early if token == 0 else late if token > 15 else []).append(right)
            predictor.routed(layer, chosen(scores[layer] + liked, 4).tolist())
        predictor.end_pass()
    assert np.mean(late) > 0.8 > np.mean(early) + 0.1
