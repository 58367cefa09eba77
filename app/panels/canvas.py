"""The heatmap's pixels: every cell's picture copied to its place, a row of pixels of all cells at a time.

Copying runs of pixels is three times as fast as looking every pixel up by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtGui import QImage

from app.panels import cells, glyphs
from app.panels.grid import Grid

if TYPE_CHECKING:
    from app.colors import Colors


class Canvas:
    """A buffer for one placement in one set of colours."""

    def __init__(self, placed: Grid, scale: float, colors: Colors) -> None:
        self._placed = placed
        groups = placed.columns // placed.group
        table = glyphs.atlas(placed.cell_width, placed.cell_height, scale, colors)
        ground = table[cells.STATES, 0]
        pictures = np.full((len(table), placed.cell_height, placed.pitch_x), ground)
        pictures[:, :, : placed.cell_width] = table.reshape(len(table), placed.cell_height, placed.cell_width)
        # by row of the picture: [cell_height] x [states + 1, pitch_x]
        self._rows = [np.ascontiguousarray(pictures[:, y]) for y in range(placed.cell_height)]
        self._pixels = np.full(
            (
                placed.layers * (placed.fold * placed.pitch_y + placed.layer_gap),
                groups * (placed.group * placed.pitch_x + placed.group_gap),
            ),
            ground,
        )
        bands = self._pixels.reshape(placed.layers, -1, groups, placed.group * placed.pitch_x + placed.group_gap)
        # the same memory as [layers, fold, pitch_y, groups, pixels of a group]
        self._places = bands[:, : placed.fold * placed.pitch_y, :, : placed.group * placed.pitch_x].reshape(
            placed.layers, placed.fold, placed.pitch_y, groups, placed.group * placed.pitch_x
        )
        assert np.shares_memory(self._places, self._pixels)
        # a state for each place; a last row that is not full ends in gaps
        self._states = np.full((placed.layers, placed.fold * placed.columns), cells.STATES, np.intp)
        self._taken = np.empty((self._states.size, placed.pitch_x), np.uint32)

    def paint(self, states: np.ndarray) -> None:
        """Show these states, ``[layers, experts]``."""
        placed = self._placed
        self._states[:, : placed.experts] = states
        chosen = self._states.reshape(-1)
        shape = (placed.layers, placed.fold, self._places.shape[3], placed.group * placed.pitch_x)
        for y, row in enumerate(self._rows):
            np.take(row, chosen, axis=0, out=self._taken, mode="clip")
            self._places[:, :, y] = self._taken.reshape(shape)

    def image(self) -> QImage:
        """The pixels as an image that shares them."""
        return QImage(
            self._pixels.data,
            self._placed.width,
            self._placed.height,
            4 * self._pixels.shape[1],
            QImage.Format.Format_RGB32,
        )
