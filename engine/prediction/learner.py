"""Learning beside the conversation: the engine thread drops rows, an idle thread folds and solves them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np

from engine.prediction.calibration import Curve, thresholds
from engine.prediction.predictors.base import Silent, checked
from engine.prediction.predictors.gate import padded
from engine.prediction.ridge import Ridge
from engine.prediction.shape import Phase, Shape, State

BUDGET = 128 << 20  # bytes of normal equations and weights of one predictor
WIDE = 1024  # features up to here are used as they are
NARROWED = 256  # of a wider vector, this many directions
BATCH = 64  # tokens folded at a time
ROWS_BYTES = 64 << 20  # of tokens that wait to be folded
FIRST_SOLVE = 64  # rows; then whenever there are an eighth more, so that a solve is paid by ever more tokens
PLENTY = 20_000  # rows, after which one token in four is enough


class Rows:
    """Training rows on their way from the engine thread to the learner: one block fills while the other is folded.

    A row that comes while both are full is dropped and counted; memory stays bounded and nobody waits.
    """

    def __init__(self, rows: int, width: int, outputs: int) -> None:
        self._blocks = [(np.zeros((rows, width), np.float32), np.zeros((rows, outputs), np.float32)) for _ in range(2)]
        self._lock = threading.Lock()
        self._filling, self._filled, self._waiting = 0, 0, 0
        self.size = rows
        self.dropped = 0

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for block in self._blocks for part in block)

    def put(self, x: np.ndarray, y: np.ndarray) -> bool:
        with self._lock:
            if self._filled == self.size:
                if self._waiting:
                    self.dropped += 1
                    return False
                self._swap()
            xs, ys = self._blocks[self._filling]
            xs[self._filled], ys[self._filled] = x, y
            self._filled += 1
            return True

    def take(self, at_least: int) -> tuple[np.ndarray, np.ndarray] | None:
        """The waiting block, or the filling one when it has that many rows. ``done`` gives it back."""
        with self._lock:
            if not self._waiting:
                if self._filled < max(1, at_least):
                    return None
                self._swap()
            xs, ys = self._blocks[1 - self._filling]
            return xs[: self._waiting], ys[: self._waiting]

    def done(self) -> None:
        with self._lock:
            self._waiting = 0

    def _swap(self) -> None:
        self._waiting, self._filled = self._filled, 0
        self._filling = 1 - self._filling


class Learner(Silent):
    """Router scores foreseen by linear maps. What was observed is worked off in small steps by whoever has time.

    What is learnt and foreseen are distances to the threshold: score minus the middle of the k-th best and the next.
    The threshold of a token is the same for all experts, so it changes no order, and chances need no threshold found.
    """

    def __init__(self, shape: Shape, distances: int, width: int, first_rows: int = BATCH, next_layers: int = 0) -> None:
        """next_layers: of the next token, so many layers' scores are learnt beside those of the token itself."""
        super().__init__(shape)
        self._row_layers = shape.layers + next_layers
        outputs = self._row_layers * shape.experts
        affordable = max(8, ROWS_BYTES // (8 * (width + outputs)))
        self._curve = Curve(distances)  # over distances to the threshold in units of the layer's spread
        self._spread = np.ones(shape.layers, np.float32)  # of a layer's scores
        self._scores = np.full((shape.layers, shape.experts), -np.inf, np.float32)  # of the pass under way
        self._heard = np.zeros(shape.layers, bool)
        self._rows = Rows(min(max(BATCH, first_rows), affordable), width, outputs)
        self._seen = 0
        self._hurry = False  # a request has ended: what waits is worked off though it fills no batch
        self._steps: Iterator[bool] = self._learning()

    @property
    def dropped(self) -> int:
        """Tokens nobody had time to learn from."""
        return self._rows.dropped

    @property
    def waiting_bytes(self) -> int:
        """Memory for tokens on their way to the learner."""
        return self._rows.nbytes

    @property
    def learnt(self) -> int:
        """Tokens learnt from."""
        raise NotImplementedError

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        self._heard[:] = False

    def router(self, layer: int, inputs: np.ndarray, scores: np.ndarray) -> None:
        self._scores[layer, : len(scores)] = scores
        self._heard[layer] = True

    def end_request(self) -> None:
        self._hurry = True

    def learn(self, seconds: float) -> bool:
        ends = time.perf_counter() + seconds
        try:
            while next(self._steps):
                if time.perf_counter() >= ends:
                    return True
        except Exception:  # memory, say: the rows at hand are lost, those that come are not
            self._rows.done()
            self._steps = self._learning()
            raise
        return False

    def _observe(self, x: np.ndarray, scores: np.ndarray) -> None:
        """A token to learn from; ``scores [layers, experts]``, the next token's last."""
        self._seen += 1
        if self.learnt < PLENTY or self._seen % 4 == 0:
            self._rows.put(x, scores.reshape(-1))

    def _learning(self) -> Iterator[bool]:
        """True after each small piece of work, False when there is none."""
        solve_at = FIRST_SOLVE
        if self.learnt:  # restored
            for _ in self._solve():
                yield True
        while True:
            block = self._rows.take(self._enough())
            if block is None:
                self._hurry = False
                yield False
                continue
            x, scores = self._whole(*block)
            yield True
            for _ in self._fold(x, scores) if len(x) else ():
                yield True
            self._rows.done()
            if self.learnt >= solve_at:
                for _ in self._solve():
                    yield True
                solve_at = max(self.learnt + FIRST_SOLVE, self.learnt * 9 // 8)
            yield True

    def _whole(self, x: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those rows that are finite throughout; of the scores ``[n, layers, experts]``, distances to the threshold."""
        shape = self.shape
        scores = padded(scores.reshape(-1, self._row_layers, shape.experts), shape.experts)
        finite = np.isfinite(x).all(axis=1) & np.isfinite(scores).all(axis=(1, 2))
        if not finite.all():
            x, scores = x[finite], scores[finite]
        if len(x):
            spread = scores[:, : shape.layers].std(axis=2).mean(axis=0) + 1e-9
            self._spread = spread if not self.learnt else self._spread * np.float32(0.9) + spread * np.float32(0.1)
        return x, scores - thresholds(scores, shape.top_k)

    def _enough(self) -> int:
        """Rows that are worth a fold. The very first fold finds the bases, which takes as many as there is room for."""
        if not (self.learnt or self._based):
            return self._rows.size
        return 1 if self._hurry else min(BATCH, self._rows.size)

    @property
    def _based(self) -> bool:
        """Whether all bases are found."""
        raise NotImplementedError

    def _fold(self, x: np.ndarray, scores: np.ndarray) -> Iterator[None]:
        """``x [n, width]``, ``scores [n, layers, experts]`` as distances to the threshold."""
        raise NotImplementedError

    def _solve(self) -> Iterator[None]:
        raise NotImplementedError

    def state(self) -> State:
        return {f"{self.name}/curve": self._curve.ab.copy(), f"{self.name}/spread": self._spread.copy()}

    def restore(self, state: State) -> None:
        if f"{self.name}/curve" in state:
            self._curve.ab[:] = checked(state[f"{self.name}/curve"], self._curve.ab.shape)
            self._spread = checked(state[f"{self.name}/spread"], self._spread.shape).astype(np.float32)


def affordable_rank(width: int, outputs: int, maps: int, rank: int | None, budget: int) -> int:
    """Features to keep of ``width``: as many as the budget's bytes allow, of a wide vector a few hundred."""
    chosen = rank or (width if width <= WIDE else NARROWED)
    while chosen > 16 and maps * Ridge.bytes_needed(chosen, outputs) > budget:
        chosen = chosen * 7 // 8
    return min(chosen, width)
