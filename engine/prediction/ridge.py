"""Ridge regression that learns as it goes, and the low-rank bases that keep it affordable for wide models.

Rows are folded into the normal equations and forgotten: with features x (a constant 1 appended) and targets y,

    G = sum x x^T,  B = sum x y^T,  W = (G + s diag(G) + tiny I)^-1 B

(Hoerl & Kennard 1970; scaling the ridge by G's diagonal makes it blind to the units of the features).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from engine.prediction.predictors.base import checked
from engine.prediction.shape import State

CAUTION = 0.4  # of theory's strength; fits the look-ahead on the demo's routing best
_UNKNOWN = 0.3  # share unexplained, before it is measured
_WEAKEST = 1e-4  # s never below
_BLOCK = 128  # rows and columns of one step of a solve: a few milliseconds


class Ridge:
    """A linear map ``[inputs] -> [outputs]`` with a constant. ``fold`` and ``solve`` are for an idle thread.

    The strength s follows how much there is to explain: features / rows x u / (1 - u), u being the share of the
    targets' variance that the weights left unexplained in rows they had not seen. A fixed 0.001 cost the call sheet 9
    points of accuracy on the demo's routing (2,200 rows, 2,112 features), where 0.3 to 1 was best; for the look-ahead
    0.01 to 0.03 was.

    ``weights`` is replaced as a whole, never written to, so that others may use it meanwhile; None until solved.
    """

    def __init__(self, inputs: int, outputs: int, caution: float | np.ndarray = CAUTION) -> None:
        """caution: share of theory's strength, of all features or ``[inputs]``."""
        self.inputs, self.outputs = inputs, outputs
        self._caution = caution
        self.rows = 0
        self.weights: np.ndarray | None = None  # float32 [inputs + 1, outputs], the constant last
        self._unexplained = _UNKNOWN
        self._gram = np.zeros((inputs + 1, inputs + 1), np.float32)  # the lower triangle counts
        self._cross = np.zeros((inputs + 1, outputs), np.float32)

    @staticmethod
    def bytes_needed(inputs: int, outputs: int) -> int:
        return 4 * (inputs + 1) * (inputs + 1 + 2 * outputs)

    def fold(self, x: np.ndarray, y: np.ndarray) -> None:
        """Add rows ``x [n, inputs]``, ``y [n, outputs]``, all of them finite."""
        features = np.ones((len(x), self.inputs + 1), np.float32)
        features[:, :-1] = x
        if self.weights is not None:  # before they are learnt from
            missed = float(np.square(y - features @ self.weights).sum())
            varied = float(np.square(y - y.mean(axis=0)).sum())
            if varied:
                self._unexplained += 0.3 * (min(missed / varied, 1.0) - self._unexplained)
        for start in range(0, self.inputs + 1, 4 * _BLOCK):
            columns = slice(start, start + 4 * _BLOCK)
            self._gram[start:, columns] += features[:, start:].T @ features[:, columns]
        self._cross += features.T @ y
        self.rows += len(x)

    def solve(self) -> Iterator[None]:
        """Fit the weights to all rows so far, in steps of a few milliseconds."""
        if not self.rows:
            return
        size = self.inputs + 1
        gram, cross = np.empty((size, size)), np.empty((size, self.outputs))
        for start in range(0, size, _BLOCK):  # a piece at a time: fresh memory is slow
            rows = slice(start, start + _BLOCK)
            gram[rows, : rows.stop], cross[rows] = self._gram[rows, : rows.stop], self._cross[rows]
            yield
        diagonal = np.diagonal(gram).copy()
        unexplained = min(max(self._unexplained, 1e-4), 0.8)
        strength = self._caution * (self.inputs / self.rows * unexplained / (1 - unexplained))
        ridge = 1e-6 * diagonal.mean() + 1e-12 + np.zeros_like(diagonal)
        ridge[:-1] += np.maximum(_WEAKEST, strength) * diagonal[:-1]
        ridge[-1] = 0.0  # the constant is free
        gram[np.diag_indices_from(gram)] += ridge
        with suppress(np.linalg.LinAlgError):  # the old weights stay; more rows will cure it
            yield from _solve_in_place(gram, cross)
            self.weights = cross.astype(np.float32)

    def predict(self, x: np.ndarray) -> np.ndarray | None:
        """``[outputs]`` for ``x [inputs]``; None before the first solve."""
        weights = self.weights
        if weights is None:
            return None
        return x @ weights[:-1] + weights[-1]

    def state(self, name: str) -> State:
        """The lower triangle of G, B, and the number of rows."""
        return {
            f"{name}/lower": self._gram[np.tril_indices(self.inputs + 1)],
            f"{name}/cross": self._cross.copy(),
            f"{name}/rows": np.array(self.rows),
        }

    def restore(self, name: str, state: State) -> bool:
        """Take back what ``state`` gave, unsolved; False when there is nothing. ValueError when it does not fit."""
        if f"{name}/rows" not in state:
            return False
        size = self.inputs + 1
        lower = np.tril_indices(size)
        gram = np.zeros_like(self._gram)
        gram[lower] = checked(state[f"{name}/lower"], (len(lower[0]),))
        self._cross[:] = checked(state[f"{name}/cross"], self._cross.shape)
        self._gram = gram
        self.rows = int(checked(state[f"{name}/rows"], ()))
        return True


def _solve_in_place(gram: np.ndarray, cross: np.ndarray) -> Iterator[None]:
    """``cross`` becomes gram^-1 cross; of ``gram``, positive definite, the lower triangle counts and is used up.

    Cholesky by blocks, right-looking (Golub & Van Loan, section 4.2.6), so that no step is long: solving the call
    sheet's 2,112 features in one call took a second. Raises LinAlgError.
    """
    size = len(gram)
    blocks = [slice(start, min(start + _BLOCK, size)) for start in range(0, size, _BLOCK)]
    for number, now in enumerate(blocks):
        below = slice(now.stop, size)
        inverse = np.linalg.inv(np.linalg.cholesky(gram[now, now]))
        gram[now, now] = inverse
        gram[below, now] = gram[below, now] @ inverse.T
        cross[now] = inverse @ cross[now]
        yield
        for later in blocks[number + 1 :]:
            rest = slice(later.start, size)
            gram[rest, later] -= gram[rest, now] @ gram[later, now].T
            cross[later] -= gram[later, now] @ cross[now]
            yield
    for number, now in reversed(list(enumerate(blocks))):
        cross[now] = gram[now, now].T @ cross[now]
        for earlier in blocks[:number]:
            cross[earlier] -= gram[now, earlier].T @ cross[now]
            yield


class Basis:
    """The directions in which rows vary most: ``[width] -> [rank]``. Where rank >= width, nothing is done.

    Found once, from the first rows, by a randomised range finder with one power step (Halko, Martinsson & Tropp 2011,
    algorithm 4.4), so its cost is linear in the width.
    """

    def __init__(self, width: int, rank: int) -> None:
        self.width = width
        self.rank = min(rank, width)
        self._axes: np.ndarray | None = None  # float32 [width, rank], orthonormal columns

    @property
    def found(self) -> bool:
        return self.rank == self.width or self._axes is not None

    @property
    def rows_needed(self) -> int:
        return 0 if self.rank == self.width else self.rank + 32

    def find(self, rows: np.ndarray) -> None:
        """``rows [n, width]``, all of them finite; ``rows_needed`` of them or more."""
        if self.found:
            return
        rows = rows.astype(np.float32, copy=False)
        trial = np.random.default_rng(0).standard_normal((len(rows), self.rank)).astype(np.float32)
        axes = np.linalg.qr(rows.T @ trial)[0]
        axes = np.linalg.qr(rows.T @ (rows @ axes))[0]
        if axes.shape[1] < self.rank:  # fewer rows than directions wanted
            axes = np.pad(axes, ((0, 0), (0, self.rank - axes.shape[1])))
        self._axes = np.ascontiguousarray(axes, np.float32)

    def apply(self, rows: np.ndarray) -> np.ndarray:
        """``[..., width] -> [..., rank]``."""
        return rows if self._axes is None else rows @ self._axes

    def state(self, name: str) -> State:
        return {} if self._axes is None else {f"{name}/axes": self._axes}

    def restore(self, name: str, state: State) -> bool:
        if self.rank == self.width:
            return True
        if f"{name}/axes" not in state:
            return False
        self._axes = checked(state[f"{name}/axes"], (self.width, self.rank)).astype(np.float32)
        return True
