"""Past requests, and which of them a pass resembles: equal to the textbook cosine, bounded, the nearest replaced."""

from __future__ import annotations

import numpy as np
import pytest

from engine.prediction.collection import Collection, Match, largest
from tests.engine.prediction.traces import random_request

LAYERS, EXPERTS = 7, 12


def naive(entries: list[np.ndarray], iteration: np.ndarray, layer: int) -> np.ndarray:
    """Cosine over rows 0..layer, as one would write it on a blackboard."""
    seen = iteration[: layer + 1].astype(np.float64).ravel()
    result = []
    for entry in entries:
        past = entry[: layer + 1].astype(np.float64).ravel()
        size = np.linalg.norm(past) * np.linalg.norm(seen)
        result.append(past @ seen / size if size else 0.0)
    return np.array(result)


def filled(entries: list[np.ndarray], **options: int) -> Collection:
    collection = Collection(*entries[0].shape, **options)
    for entry in entries:
        collection.add(entry)
    return collection


def requests(count: int, tokens: int = 40, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [random_request(rng, LAYERS, EXPERTS, tokens, topic=int(rng.integers(EXPERTS))) for _ in range(count)]


@pytest.mark.parametrize("tokens", [1, 40, 1500, 8000], ids=lambda n: f"{n} tokens a request")
@pytest.mark.parametrize("count", [1, 64, 65, 300])
def test_the_running_match_equals_the_naive_cosine(count: int, tokens: int) -> None:
    entries = requests(count, tokens)
    collection = filled(entries, capacity=1000)
    match = Match(collection)
    rng = np.random.default_rng(1)
    for _ in range(2):  # a second pass starts from nothing
        match.begin()
        assert not match.cosines().any()
        iteration = np.zeros((LAYERS, EXPERTS))
        for layer in range(LAYERS):
            ids = rng.permutation(EXPERTS)[:6]
            iteration[layer, ids] = 1
            match.seen(layer, ids.tolist())
            np.testing.assert_allclose(match.cosines(), naive(entries, iteration, layer), atol=1e-5)


def test_a_prefill_matches_with_its_counts() -> None:
    entries = requests(90)
    match = Match(filled(entries))
    rng = np.random.default_rng(2)
    iteration = rng.integers(0, 500, (LAYERS, EXPERTS))
    for layer in range(LAYERS):
        ids = np.flatnonzero(iteration[layer])
        match.seen_counts(layer, ids.tolist(), iteration[layer, ids])
        np.testing.assert_allclose(match.cosines(), naive(entries, iteration, layer), atol=1e-5)


def test_a_model_whose_every_layer_picks_many_experts_still_adds_up() -> None:
    """More picks times larger counts than 16 bits hold, in one layer already."""
    entries = [np.full((3, 32), 8191, np.uint32), np.eye(3, 32, dtype=np.uint32) * 8191]
    match = Match(filled(entries))
    iteration = np.zeros((3, 32))
    for layer in range(3):
        iteration[layer, :20] = 1
        match.seen(layer, list(range(20)))
        np.testing.assert_allclose(match.cosines(), naive(entries, iteration, layer), atol=1e-5)


def test_counts_beyond_16_bits_are_scaled_and_keep_their_direction() -> None:
    rng = np.random.default_rng(3)
    long = random_request(rng, LAYERS, EXPERTS, 3_000_000)
    collection = filled([long])
    assert collection.counts.max() <= 8191
    assert ((collection.counts[0] > 0) == (long > 0)).all()
    assert collection.cosines(long)[0] == pytest.approx(1.0, abs=1e-5)


def test_empty_layers_and_empty_requests_are_no_trouble() -> None:
    entry = np.zeros((LAYERS, EXPERTS), np.uint32)
    collection = Collection(LAYERS, EXPERTS)
    assert collection.add(entry) == -1
    assert len(collection) == 0
    assert not collection.mean().any()
    entry[3, 2] = 5
    collection.add(entry)
    match = Match(collection)
    match.seen(0, [1])
    assert match.cosines().tolist() == [0.0]
    match.seen(3, [2])
    assert match.cosines()[0] == pytest.approx(2**-0.5)
    with pytest.raises(ValueError, match="does not fit"):
        collection.add(np.zeros((2, 2), np.uint32))


def test_when_full_the_most_similar_entry_gives_way() -> None:
    collection = Collection(2, 8, capacity=4)
    apart = [np.eye(8, dtype=np.uint32)[[i, i]] * 9 for i in range(4)]
    assert [collection.add(matrix) for matrix in apart] == [0, 1, 2, 3]
    newcomer = apart[2].copy()
    newcomer[0, 7] = 3
    assert collection.add(newcomer) == 2
    assert len(collection) == 4
    np.testing.assert_array_equal(collection.counts[2], newcomer)
    np.testing.assert_array_equal(collection.counts[3], apart[3])


def test_replacement_leaves_nothing_of_the_old_entry_in_the_match() -> None:
    entries = requests(40, seed=5)
    collection = filled(entries, capacity=10)
    kept = [matrix.copy() for matrix in collection.counts]
    match = Match(collection)
    iteration = np.zeros((LAYERS, EXPERTS))
    for layer in range(LAYERS):
        iteration[layer, [0, 5]] = 1
        match.seen(layer, [0, 5])
    np.testing.assert_allclose(match.cosines(), naive(kept, iteration, LAYERS - 1), atol=1e-5)


def test_a_match_knows_when_the_collection_has_changed() -> None:
    collection = filled(requests(64), capacity=200)
    match = Match(collection)
    assert not match.stale
    collection.add(requests(1, seed=9)[0])  # and grows beyond what was allocated
    assert match.stale
    match.begin()
    match.seen(0, [1, 2])
    assert len(match.cosines()) == 65


def test_capacity_bends_to_the_bytes_allowed() -> None:
    assert Collection(26, 64, capacity=10**6).capacity == 10_000
    small = Collection(26, 64, capacity=10_000, max_bytes=1 << 20)
    assert small.capacity == (1 << 20) // (26 * 64 * 4)
    for matrix in requests(400, seed=4):
        padded = np.zeros((26, 64), np.uint32)
        padded[:LAYERS, :EXPERTS] = matrix
        small.add(padded)
    assert len(small) == small.capacity
    assert small.room * 26 * 64 * 4 <= (1 << 20) + 64 * 26 * 64 * 4


def test_the_best_matches_are_the_best_whatever_the_number() -> None:
    rng = np.random.default_rng(6)
    for n in (1, 7, 2047, 2048, 5000, 10_000):
        values = rng.random(n).astype(np.float32)
        for wanted in (1, 8, 24):
            found = largest(values, wanted)
            assert sorted(values[found]) == sorted(np.sort(values)[-wanted:]), (n, wanted)
            assert len(set(found.tolist())) == min(n, wanted)


def test_best_one_is_the_first_of_the_best() -> None:
    match = Match(filled(requests(200), capacity=200))
    match.seen(0, [3, 4, 5])
    entries, cosines = match.best(8)
    assert match.best_one() in entries
    assert cosines.max() == pytest.approx(match.cosines()[match.best_one()])


def test_likelihood_is_row_normalised_and_decays_with_distance() -> None:
    entries = requests(3)
    collection = filled(entries)
    likelihood = collection.likelihood(np.array([0, 2]), np.array([1.0, 1.0]), 2)
    assert likelihood.shape == (LAYERS - 3, EXPERTS)
    for i, row in enumerate(likelihood, start=3):
        shares = [entries[n][i] / entries[n][i].sum() for n in (0, 2)]
        np.testing.assert_allclose(row, np.mean(shares, axis=0) * (1 - (i - 2) / LAYERS), atol=1e-6)


def test_the_mean_counts_every_request_the_same_however_long() -> None:
    short, long = np.zeros((1, 4), np.uint32), np.zeros((1, 4), np.uint32)
    short[0, 0], long[0, 3] = 1, 1000
    assert filled([short, long]).mean().tolist() == [[0.5, 0.0, 0.0, 0.5]]


def test_a_saved_collection_comes_back_the_same() -> None:
    collection = filled(requests(70), capacity=200)
    back = Collection(LAYERS, EXPERTS, capacity=200)
    back.restore(collection.counts.copy())
    np.testing.assert_array_equal(back.counts, collection.counts)
    np.testing.assert_allclose(back.cosines(requests(1)[0]), collection.cosines(requests(1)[0]))
    smaller = Collection(LAYERS, EXPERTS, capacity=10)
    smaller.restore(collection.counts.copy())
    np.testing.assert_array_equal(smaller.counts, collection.counts[-10:])
    with pytest.raises(ValueError, match="do not fit"):
        back.restore(np.zeros((4, 2, 2), np.uint16))
