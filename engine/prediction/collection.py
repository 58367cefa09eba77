"""Past requests' activation matrices, and which of them the present pass resembles.

The match is incremental. Cosine over the layers seen so far needs, per past request n, the dot product with the
iteration matrix and the norm of n's first rows. A new layer changes the dot products by a few columns only, the chosen
experts', so the counts lie as ``[layer][expert][entry]``: each chosen expert is one contiguous row to add.

What bounds it is memory traffic, so counts are uint16 (half of float32; 10,000 entries of 26 x 64 are 33 MB) and are
summed in uint16 while the largest possible sum fits, in float32 from there on. While they fit nothing is carried from
one count to the next, so four of them are added as one uint64, which numpy starts and runs faster. A request with more
than ``_MOST`` tokens on one expert is halved until it fits, which the cosine does not notice beyond rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.prediction.shape import decay

DEFAULT_CAPACITY = 120
MAX_CAPACITY = 10_000
MAX_BYTES = 512 << 20  # of one collection's counts, both layouts
_MOST = 8191  # of one cell: eight of them fit into uint16
_SUM_LIMIT = 65535
_BLOCK = 64  # entries are allocated in multiples of it, so that every row starts on a cache line


class Collection:
    """At most ``capacity`` matrices ``[layers, experts]``; when full, a newcomer replaces its nearest neighbour.

    The capacity shrinks where that many matrices would take more than ``max_bytes``.
    """

    def __init__(self, layers: int, experts: int, capacity: int = DEFAULT_CAPACITY, max_bytes: int = MAX_BYTES) -> None:
        self.shape = (layers, experts)
        affordable = max_bytes // (4 * layers * experts)
        self.capacity = max(1, min(capacity, MAX_CAPACITY, affordable))
        self.version = 0  # changes with every entry; a running match is valid for one version
        self.peak = 0  # the largest count of any entry
        self._count = 0
        self._columns: np.ndarray  # uint16 [layer, expert, entry]
        self._matrices: np.ndarray  # the same counts, entry first: what a match reads out
        self._row_weight: np.ndarray  # float32 [entry, layer]: 1 / sum of the row, 0 where it is empty
        self._inverse_norms: np.ndarray  # float32 [layer, entry]: 1 / norm of rows 0..layer, 0 where they are empty
        self.rows: list[list[np.ndarray]] = []  # rows[layer][expert]: uint16 [room], views into the columns
        self.fours: list[list[np.ndarray]] = []  # the same as uint64 [room / 4]: four counts each
        self.inverse_norms: list[np.ndarray] = []  # inverse_norms[layer]: float32 [room], views
        self._allocate(min(self.capacity, _BLOCK))

    def __len__(self) -> int:
        return self._count

    def _allocate(self, wanted: int) -> None:
        layers, experts = self.shape
        room = -(-wanted // _BLOCK) * _BLOCK
        columns = _aligned_zeros((layers, experts, room), np.uint16)
        matrices = np.zeros((room, layers, experts), np.uint16)
        norms = _aligned_zeros((layers, room), np.float32)
        weight = np.zeros((room, layers), np.float32)
        if n := self._count:
            columns[..., :n] = self._columns[..., :n]
            matrices[:n] = self._matrices[:n]
            norms[:, :n] = self._inverse_norms[:, :n]
            weight[:n] = self._row_weight[:n]
        self._columns, self._matrices, self._inverse_norms, self._row_weight = columns, matrices, norms, weight
        self.rows = [list(layer) for layer in columns]
        self.fours = [list(layer) for layer in columns.view(np.uint64)]
        self.inverse_norms = list(norms)

    @property
    def room(self) -> int:
        """Entries allocated; those from ``len()`` on are zero."""
        return self._columns.shape[2]

    @property
    def counts(self) -> np.ndarray:
        """uint16 ``[entries, layers, experts]``, read only."""
        view = self._matrices[: self._count]
        view.flags.writeable = False
        return view

    def add(self, matrix: np.ndarray) -> int:
        """Take in a finished request's counts ``[layers, experts]``; where it went, or -1 for an empty one."""
        if matrix.shape != self.shape:
            raise ValueError(f"a matrix of {matrix.shape} does not fit a collection of {self.shape}")
        counts = _fitted(matrix)
        if not counts.any():
            return -1
        if self._count < self.capacity:
            place = self._count
            if place == self.room:
                self._allocate(min(self.capacity, 2 * self.room))
            self._count += 1
        else:
            place = int(self.cosines(counts).argmax())
        self._put(place, counts)
        return place

    def _put(self, place: int, counts: np.ndarray) -> None:
        self._columns[..., place] = counts
        self._matrices[place] = counts
        exact = counts.astype(np.float64)
        norms = np.sqrt(np.cumsum((exact**2).sum(axis=1)))
        sums = exact.sum(axis=1)
        self._inverse_norms[:, place] = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
        self._row_weight[place] = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > 0)
        self.peak = max(self.peak, int(counts.max()))
        self.version += 1

    def cosines(self, matrix: np.ndarray) -> np.ndarray:
        """float32 ``[entries]``: cosine of a whole matrix with every entry, computed afresh."""
        flat = np.asarray(matrix, np.float32).reshape(-1)
        norm = float(np.linalg.norm(flat))
        if norm == 0:
            return np.zeros(self._count, np.float32)
        dots = np.empty(self._count, np.float32)
        for start in range(0, self._count, 256):  # float32 copies of a few entries at a time
            block = self._matrices[start : min(start + 256, self._count)].reshape(-1, flat.size)
            dots[start : start + len(block)] = block.astype(np.float32) @ flat
        return dots * self._inverse_norms[-1, : self._count] / np.float32(norm)

    def shares(self, entries: np.ndarray, weights: np.ndarray, first: int, last: int) -> np.ndarray:
        """Mean of the entries' row-normalised rows ``first..last-1``, weighted: float32 ``[last - first, experts]``.

        Each row sums to 1, or to 0 where no entry has counts.
        """
        factor = self._row_weight[entries, first:last] * weights[:, None]
        mixed = np.einsum("nl,nle->le", factor, self._matrices[entries, first:last].astype(np.float32))
        mixed /= np.maximum(np.add.reduce(mixed, axis=1, keepdims=True), 1e-12)
        return mixed

    def likelihood(self, entries: np.ndarray, weights: np.ndarray, layer: int) -> np.ndarray:
        """The paper's figure for layers after ``layer``: shares x (1 - (i-l)/L), ``[layers - 1 - layer, experts]``."""
        layers = self.shape[0]
        worth = np.array([decay(i - layer, layers) for i in range(layer + 1, layers)], np.float32)
        return self.shares(entries, weights, layer + 1, layers) * worth[:, None]

    def mean(self) -> np.ndarray:
        """All requests' row-normalised shares, each request counting the same: float32 ``[layers, experts]``."""
        result = np.zeros(self.shape, np.float32)
        for start in range(0, self._count, 256):
            block = slice(start, min(start + 256, self._count))
            result += np.einsum("nl,nle->le", self._row_weight[block], self._matrices[block].astype(np.float32))
        sums = result.sum(axis=1, keepdims=True)
        return np.divide(result, sums, out=result, where=sums > 0)

    def restore(self, counts: np.ndarray) -> None:
        """Take the newest of saved counts ``[entries, layers, experts]``, as many as fit. ValueError when damaged."""
        if counts.ndim != 3 or counts.shape[1:] != self.shape or counts.dtype.kind != "u":
            raise ValueError(f"saved matrices of {counts.shape} {counts.dtype} do not fit {self.shape}")
        self._count = self.peak = 0
        self._allocate(min(self.capacity, max(_BLOCK, len(counts))))
        for matrix in counts[-self.capacity :]:
            fitted = _fitted(matrix)
            if fitted.any():
                self._put(self._count, fitted)
                self._count += 1
        self.version += 1


class Match:
    """The running comparison of one pass with a collection. Buffers are made once and used in place."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self.layer = -1  # the last layer seen
        self._version = -1
        self._sized = -1
        self._flushed = False
        self.begin()

    def begin(self) -> None:
        """A new pass: nothing seen."""
        collection = self.collection
        if collection.version != self._version:
            self._version = collection.version
            self._rows = collection.rows
            self._fours = collection.fours
            self._inverse_norms = collection.inverse_norms
            self._safe_picks = _SUM_LIMIT // max(1, collection.peak)
            if collection.room != self._sized:
                self._sized = collection.room
                self._small = _aligned_zeros((self._sized,), np.uint16)
                self._small_fours = self._small.view(np.uint64)
                self._large = _aligned_zeros((self._sized,), np.float32)
                self._padded = _aligned_zeros((self._sized,), np.float32)
            self._scores = self._padded[: len(collection)]
        self._small.fill(0)
        if self._flushed:
            self._large.fill(0)
            self._flushed = False
        self._picks_left = self._safe_picks  # what _small can take without overflow, whoever is picked
        self._squares = 0.0
        self.layer = -1

    def seen(self, layer: int, ids: Sequence[int]) -> None:
        """One token chose these experts (distinct ids) in ``layer``: add their columns."""
        picks = len(ids)
        self._squares += picks
        self.layer = layer
        self._picks_left -= picks
        if self._picks_left < 0:
            self._many(layer, ids, None)
            return
        row, small, add = self._fours[layer], self._small_fours, np.add
        for expert in ids:
            add(small, row[expert], small)

    def seen_counts(self, layer: int, ids: Sequence[int], counts: np.ndarray) -> None:
        """Several tokens at once: ``counts`` of them chose each expert."""
        self._many(layer, ids, counts)
        self._squares += float((counts.astype(np.float64) ** 2).sum())
        self.layer = layer

    def _many(self, layer: int, ids: Sequence[int], counts: np.ndarray | None) -> None:
        """Where the sums may not fit into uint16: move them to float32 first."""
        row, large = self._rows[layer], self._large
        large += self._small
        self._small.fill(0)
        self._picks_left = self._safe_picks
        self._flushed = True
        factors = [1.0] * len(ids) if counts is None else counts.tolist()
        for expert, factor in zip(ids, factors, strict=True):
            large += row[expert] * np.float32(factor)

    def scores(self) -> np.ndarray:
        """float32 ``[entries]``: cosine over the layers seen times the iteration matrix's norm, which is the same for
        every entry and so not worth a pass over the array. Valid until the next call; zeros before the first layer."""
        padded, layer = self._padded, self.layer
        if layer < 0:
            padded.fill(0)
        else:
            sums = np.add(self._large, self._small, padded) if self._flushed else self._small
            np.multiply(sums, self._inverse_norms[layer], padded)
        return self._scores

    def cosines(self) -> np.ndarray:
        """float32 ``[entries]``: cosine of the iteration matrix with every entry, over the layers seen."""
        return self.scores() * np.float32(self._scale())

    def best_one(self) -> int:
        """The most similar past request; 0 where there is none."""
        self.scores()
        return int(self._padded.argmax())  # what pads it is 0, as small as scores get, and comes last

    def best(self, wanted: int) -> tuple[np.ndarray, np.ndarray]:
        """Entries most similar to the pass and their cosines, in no order."""
        scores = self.scores()
        entries = largest(scores, wanted)
        return entries, scores[entries] * np.float32(self._scale())

    def _scale(self) -> float:
        return float(self._squares) ** -0.5 if self._squares else 0.0

    @property
    def stale(self) -> bool:
        """True after the collection changed: begin again."""
        return self._version != self.collection.version

    def add_dots_to(self, total: np.ndarray) -> None:
        """Add this pass's dot products to a request's: float64 ``[room]``."""
        total += self._small
        if self._flushed:
            total += self._large


def largest(values: np.ndarray, wanted: int) -> np.ndarray:
    """Indices of the ``wanted`` largest of ``values [n]``, in no order.

    Of many values, cut into strips, the ``wanted``-th largest strip maximum is a bound below which none of them can
    lie, and few values lie above it. Partitioning all 10,000 would cost more than the match itself.
    """
    n = len(values)
    if wanted >= n:
        return np.arange(n)
    width = int(n**0.5)
    if n < 2048 or wanted * 4 > width:
        return values.argpartition(n - wanted)[n - wanted :]
    maxima = np.maximum.reduce(values[: n - n % width].reshape(-1, width))
    maxima.partition(width - wanted)
    candidates = (values >= maxima[width - wanted]).nonzero()[0]
    surplus = len(candidates) - wanted
    return candidates[values[candidates].argpartition(surplus)[surplus:]] if surplus else candidates


def _fitted(matrix: np.ndarray) -> np.ndarray:
    """Counts as uint16 of at most ``_MOST``, halved as often as that takes (a count of 1 or more stays above 0)."""
    counts = np.asarray(matrix)
    most = int(counts.max(initial=0))
    shift = max(0, most.bit_length() - _MOST.bit_length())
    if shift == 0:
        return counts.astype(np.uint16)
    halved = np.rint(counts / (1 << shift))
    return np.minimum(np.maximum(halved, counts > 0), _MOST).astype(np.uint16)


def _aligned_zeros(shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray:
    """Zeros that start on a cache line (64 bytes)."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)
