"""Where the cells of the heatmap lie: whole device pixels, arithmetic only.

Every layer is a band of ``fold`` rows; fold is 1 unless that would leave the cells too narrow to see (128 experts in
a narrow column lie as two rows of 64). What is left of the width becomes wider gaps between groups of columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_FOLD_GAIN = 1.6  # a fold must make the cells this much bigger to be worth it
_MOST_GROUPS = 16
_TALLEST = 22  # logical px: few layers do not become towers


@dataclass(frozen=True)
class Grid:
    """A placement. All lengths are device pixels; ``pitch`` includes the gap after a cell."""

    layers: int
    experts: int
    fold: int
    pitch_x: int
    pitch_y: int
    gap_x: int
    gap_y: int
    layer_gap: int
    group: int  # columns between two wider gaps
    group_gap: int

    @property
    def columns(self) -> int:
        return -(-self.experts // self.fold)

    @property
    def cell_width(self) -> int:
        return self.pitch_x - self.gap_x

    @property
    def cell_height(self) -> int:
        return self.pitch_y - self.gap_y

    @property
    def column_x(self) -> np.ndarray:
        """Left edge of each column."""
        column = np.arange(self.columns)
        return column * self.pitch_x + column // self.group * self.group_gap

    @property
    def row_y(self) -> np.ndarray:
        """Top edge of each row, ``layers * fold`` of them."""
        row = np.arange(self.layers * self.fold)
        return row * self.pitch_y + row // self.fold * self.layer_gap

    @property
    def width(self) -> int:
        return int(self.column_x[-1]) + self.cell_width

    @property
    def height(self) -> int:
        """With the gap after the last row, so that a grid fitted into its own height is the same grid."""
        return int(self.row_y[-1]) + self.pitch_y

    def rectangle(self, layer: int, expert: int) -> tuple[int, int, int, int]:
        """x, y, width, height of a cell."""
        row = layer * self.fold + expert // self.columns
        return (
            int(self.column_x[expert % self.columns]),
            int(self.row_y[row]),
            self.cell_width,
            self.cell_height,
        )

    def cell_at(self, x: float, y: float) -> tuple[int, int] | None:
        """(layer, expert) under a point, gaps counted to the cell before them; None outside."""
        if not (0 <= x < self.width and 0 <= y < self.height):
            return None
        column = int(np.searchsorted(self.column_x, x, "right")) - 1
        row = int(np.searchsorted(self.row_y, y, "right")) - 1
        layer, part = divmod(row, self.fold)
        expert = part * self.columns + column
        return (layer, expert) if expert < self.experts else None


def fit(layers: int, experts: int, width: int, height: int, scale: float = 1.0) -> Grid:
    """The most readable placement within ``width`` x ``height`` device pixels at ``scale`` device pixels per logical.

    Never narrower than a pixel a cell, so a very small area is overrun rather than cells left out.
    """
    best: Grid | None = None
    best_score = -1.0
    fold = 1
    while fold == 1 or experts // fold >= 8:
        candidate = _place(layers, experts, fold, width, height, scale)
        score = min(candidate.pitch_x, candidate.pitch_y, 16 * scale) / (1.0 if fold == 1 else _FOLD_GAIN)
        if candidate.height > height:
            score /= 1e3
        if candidate.width > width:
            score /= 1e6
        if score > best_score:
            best, best_score = candidate, score
        fold *= 2
    assert best is not None
    return best


def _place(layers: int, experts: int, fold: int, width: int, height: int, scale: float) -> Grid:
    columns = -(-experts // fold)
    pixel = max(1, round(scale))
    pitch_x = max(1, width // columns)
    layer_gap = 0 if fold == 1 else pixel
    pitch_y = ((height + layer_gap) // layers - layer_gap) // fold
    if pitch_y < 2 and height // (layers * fold) > pitch_y:
        layer_gap, pitch_y = 0, height // (layers * fold)
    # narrow cells may be bars; those wide enough for marks stay near to squares
    tallest = min(pitch_x if pitch_x > 4 * scale else 3 * pitch_x, round(_TALLEST * scale))
    pitch_y = max(1, min(pitch_y, tallest))
    gap_x, gap_y = (0 if pitch < 4 else 1 if pitch < 6 * scale else pixel for pitch in (pitch_x, pitch_y))
    group = columns
    if columns % 8 == 0 and columns > 8:
        group = 8
        while columns // group > _MOST_GROUPS and columns % (2 * group) == 0:
            group *= 2
    breaks = columns // group - 1
    spare = width + gap_x - columns * pitch_x
    group_gap = min(max(0, spare // breaks), max(4 * pixel, pitch_x // 2)) if breaks else 0
    return Grid(layers, experts, fold, pitch_x, pitch_y, gap_x, gap_y, layer_gap, group, group_gap)
