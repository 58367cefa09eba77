"""The accuracy meter counts by hand-made examples."""

from __future__ import annotations

import numpy as np

from engine.prediction.meter import AccuracyMeter


def chances(**given: float) -> np.ndarray:
    row = np.zeros(6, np.float32)
    for name, chance in given.items():
        row[int(name[1:])] = chance
    return row


def meter_of(distances: int) -> AccuracyMeter:
    return AccuracyMeter(layers=4, experts=6, top_k=2, distances=distances)


def test_shares_of_slots_by_distance() -> None:
    meter = meter_of(distances=2)
    meter.begin_pass()
    meter.predicted(0, np.stack([chances(e0=0.9, e1=0.8, e2=0.7), chances(e4=0.5)]))  # names 0 and 1; then 4 only
    meter.routed(0, [3, 4])
    meter.routed(1, [1, 2])
    meter.routed(2, [4, 5])
    meter.end_pass()
    near, far = meter.accuracy(1), meter.accuracy(2)
    assert (near.wanted, near.proposed, near.right, near.silent) == (2, 2, 1, 4)
    assert (far.wanted, far.proposed, far.right, far.silent) == (2, 1, 1, 4)
    assert near.share == 0.5
    assert (far.precision, far.share) == (1.0, 0.5)
    assert far.recall == 1 / 6


def test_a_new_pass_forgets_guesses_and_keeps_sums() -> None:
    meter = meter_of(distances=2)
    meter.predicted(0, chances(e0=1, e1=1)[None])
    meter.begin_pass()
    meter.routed(1, [0, 1])
    meter.end_pass()
    assert meter.accuracy(1).share is None
    assert meter.accuracy(1).silent == 2
    meter.reset()
    assert meter.accuracy(1).recall is None


def test_a_later_guess_about_the_same_layer_replaces_the_earlier() -> None:
    meter = meter_of(distances=1)
    meter.predicted(0, chances(e0=1, e1=1)[None])
    meter.predicted(0, np.stack([chances(e4=1, e5=1), chances(e0=1)]))  # the second is beyond what is measured
    meter.routed(1, [4, 5])
    meter.routed(2, [4, 5])
    meter.end_pass()
    assert meter.accuracy(1).share == 1.0
    assert meter.accuracy(1).silent == 2


def test_who_names_everybody_is_always_right_and_not_precise() -> None:
    meter = AccuracyMeter(layers=2, experts=3, top_k=3, distances=1)
    meter.predicted(0, np.ones((1, 3), np.float32))
    meter.routed(1, [2])
    meter.end_pass()
    assert meter.accuracy(1).share == 1.0
    assert meter.accuracy(1).precision == 1 / 3
