"""Ridge regression in steps gives what one plain solve gives, and its strength follows what is left unexplained."""

from __future__ import annotations

import numpy as np
import pytest

from engine.prediction.ridge import Ridge, _solve_in_place


def made_up(rows: int, inputs: int, outputs: int, noise: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a linear map with a constant."""
    rng = np.random.default_rng(seed)
    weights = np.random.default_rng(9).standard_normal((inputs, outputs))
    x = rng.standard_normal((rows, inputs))
    y = x @ weights + 2.0 + noise * rng.standard_normal((rows, outputs))
    return x.astype(np.float32), y.astype(np.float32)


def solved(ridge: Ridge) -> Ridge:
    for _ in ridge.solve():
        pass
    return ridge


@pytest.mark.parametrize("size", [1, 50, 128, 129, 300])
def test_solving_by_blocks_is_solving(size: int) -> None:
    rng = np.random.default_rng(size)
    x = rng.standard_normal((2 * size, size))
    gram, cross = x.T @ x, rng.standard_normal((size, 7))
    expected = np.linalg.solve(gram, cross)
    gram[np.triu_indices(size, 1)] = np.nan  # the upper triangle is not looked at
    for _ in _solve_in_place(gram, cross):
        pass
    np.testing.assert_allclose(cross, expected, rtol=1e-6, atol=1e-8)


def test_the_map_and_its_constant_are_found() -> None:
    x, y = made_up(600, 200, 5, noise=0.0)
    ridge = Ridge(200, 5)
    assert ridge.predict(x[0]) is None
    for start in range(0, 600, 64):
        ridge.fold(x[start : start + 64], y[start : start + 64])
    solved(ridge)
    fresh, true = made_up(50, 200, 5, noise=0.0, seed=1)
    found = np.stack([ridge.predict(row) for row in fresh])  # type: ignore[misc]
    assert np.square(found - true).mean() < 0.01 * true.var()


def test_noise_is_met_with_caution() -> None:
    """With as many rows as features, plain least squares would be lost; the ridge follows the noise it measures."""
    x, y = made_up(320, 300, 4, noise=20.0)
    fresh, true = made_up(500, 300, 4, noise=0.0, seed=1)
    ridge = Ridge(300, 4, caution=0.8)
    for start in range(0, 320, 64):
        ridge.fold(x[start : start + 64], y[start : start + 64])
        solved(ridge)
    plain = np.linalg.lstsq(np.c_[x, np.ones(320)], y, rcond=None)[0]
    error = np.square(np.stack([ridge.predict(row) for row in fresh]) - true).mean()  # type: ignore[arg-type, misc]
    assert error < 0.3 * np.square(np.c_[fresh, np.ones(500)] @ plain - true).mean()
    assert error < np.square(true - 2.0).mean() * 1.5


def test_features_can_be_held_back_each_by_its_own_measure() -> None:
    x, y = made_up(64, 40, 3, noise=5.0)
    free, held = (solved_with(np.r_[np.full(20, share), np.full(20, 0.4)], x, y) for share in (0.0, 40.0))
    assert np.abs(held[:20]).sum() < 0.5 * np.abs(free[:20]).sum()


def solved_with(caution: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    ridge = Ridge(x.shape[1], y.shape[1], caution)
    ridge.fold(x, y)
    weights = solved(ridge).weights
    assert weights is not None
    return weights


def test_weights_in_use_are_never_written_to() -> None:
    x, y = made_up(100, 10, 2, noise=0.1)
    ridge = Ridge(10, 2)
    ridge.fold(x[:50], y[:50])
    before = solved(ridge).weights
    assert before is not None
    copy = before.copy()
    ridge.fold(x[50:], y[50:])
    solved(ridge)
    assert ridge.weights is not before
    np.testing.assert_array_equal(before, copy)
