"""Iteration and request matrices: what a pass and a request add up to."""

from __future__ import annotations

import numpy as np

from engine.prediction.matrices import RequestMatrices
from engine.prediction.shape import Shape, decay


def test_prefill_and_decode_are_counted_apart() -> None:
    matrices = RequestMatrices(Shape(2, 4, 2))
    matrices.begin_request()
    matrices.begin_pass("prefill", 5)
    matrices.routed(0, [0, 3], np.array([5, 5], np.uint32))
    matrices.end_pass()
    for _ in range(3):
        matrices.begin_pass("decode", 1)
        matrices.routed(0, [1, 2])
        assert matrices.iteration[0].tolist() == [0, 1, 1, 0]
        assert not matrices.iteration[1].any(), "not routed yet"
        matrices.routed(1, [0, 1])
        matrices.end_pass()
    assert matrices.request["prefill"].tolist() == [[5, 0, 0, 5], [0, 0, 0, 0]]
    assert matrices.request["decode"].tolist() == [[0, 3, 3, 0], [3, 3, 0, 0]]
    assert matrices.tokens == {"prefill": 5, "decode": 3}


def test_a_pass_stopped_half_way_does_not_count() -> None:
    matrices = RequestMatrices(Shape(2, 4, 2))
    matrices.begin_pass("decode", 1)
    matrices.routed(0, [1, 2])
    matrices.begin_pass("decode", 1)
    matrices.end_pass()
    assert not matrices.request["decode"].any()
    matrices.begin_request()
    assert matrices.tokens == {"prefill": 0, "decode": 0}


def test_decay_is_the_papers() -> None:
    assert [decay(distance, 4) for distance in (0, 1, 4, 9)] == [1.0, 0.75, 0.0, 0.0]
