"""The picture of every cell state, drawn once per cell size into one table that the heatmap looks pixels up in.

Each mark has a shape of its own, so the heatmap reads without colour. An outline was routed and found on the device,
with a filled corner where it was fetched ahead. A cross was routed and had to be waited for; half a cross, a slash, is
the rest of an early fetch. A bar was fetched ahead for nothing, a dot is expected next. A full square is on the device,
a small one waits. Cells under 5 px have no room for shapes: routed is the brightest solid, fetched ahead its upper half
alone, missed a checker, late a lit upper half, predicted a lit centre.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtGui import QColor, QImage, QPixmap

from app.panels.cells import LEVELS, STATES, Mark

if TYPE_CHECKING:
    from app.colors import Colors

SMALLEST_SHAPE = 5  # device px that outline, cross and dot need


def _channels(name: str) -> tuple[int, int, int]:
    color = QColor(name)
    return color.red(), color.green(), color.blue()


def ramp(colors: Colors) -> np.ndarray:
    """The heat ramp stretched to one colour per level, uint32 ARGB ``[LEVELS]``."""
    stops = np.array([_channels(name) for name in colors.heat], np.float64)
    at = np.linspace(0, len(stops) - 1, LEVELS)
    channels = [np.interp(at, np.arange(len(stops)), stops[:, i]).round().astype(np.uint32) for i in range(3)]
    return np.uint32(0xFF000000) | channels[0] << 16 | channels[1] << 8 | channels[2]


def argb(name: str) -> np.uint32:
    """ "#rrggbb" as one opaque pixel."""
    return np.uint32(QColor(name).rgba())


def mixed(first: str, second: str, share: float) -> np.uint32:
    """ARGB of ``share`` parts of ``second`` in ``first``."""
    pairs = zip(_channels(first), _channels(second), strict=True)
    red, green, blue = (round(a + (b - a) * share) for a, b in pairs)
    return np.uint32(0xFF000000 | red << 16 | green << 8 | blue)


def atlas(width: int, height: int, scale: float, colors: Colors) -> np.ndarray:
    """Pixels of each state, uint32 ARGB ``[STATES + 1, height * width]``; the last is a gap, of the panel's ground."""
    ground = argb(colors.sidebar)
    table = np.full((2, 8, 2, LEVELS, height, width), ground)
    small = min(width, height)
    shapes = small >= SMALLEST_SHAPE
    heat = ramp(colors)
    waiting = heat.copy()
    waiting[0] = argb(colors.border)
    table[:, :, 1] = heat[:, None, None]
    inset = max(1, round(small * 0.25)) if shapes else 0
    table[:, :, 0, :, inset : height - inset, inset : width - inset] = waiting[:, None, None]
    draw = _shapes if shapes else _patterns
    draw(table, max(1, round(scale)) if small >= 4 * scale else 1, colors)
    result = np.full((STATES + 1, height * width), ground)
    result[:STATES] = table.reshape(STATES, -1)
    return result


def _shapes(table: np.ndarray, pen: int, colors: Colors) -> None:
    height, width = table.shape[-2:]
    ink, alarm, warm = (argb(name) for name in (colors.text, colors.danger, colors.warm))
    outline = np.ones((height, width), bool)
    outline[pen : height - pen, pen : width - pen] = False
    down, up = _diagonals(height, width, pen)
    for mark, color, strokes in ((Mark.MISS, colors.danger, down | up), (Mark.LATE, colors.warm, up)):
        # who had to be waited for stands on an empty cell: the strokes must not drown in heat
        table[:, mark][...] = mixed(colors.sidebar, color, 0.12)
        table[:, mark][..., outline] = mixed(colors.sidebar, color, 0.55)
        table[:, mark][..., strokes] = alarm if mark is Mark.MISS else warm
    for mark in (Mark.HIT, Mark.EARLY):
        table[:, mark][..., outline] = ink
    table[:, Mark.EARLY][..., _corner(height, width)] = ink
    table[:, Mark.WASTED][..., _bar(height, width, pen)] = argb(colors.text_muted)
    table[1][..., _dot(height, width)] = ink


def _diagonals(height: int, width: int, pen: int) -> tuple[np.ndarray, np.ndarray]:
    """The falling and the rising one in the centred square, clear of the outline by a pixel where there is room."""
    side = min(height, width)
    margin = 2 * pen if side >= 7 * pen else pen
    length = side - 2 * margin
    down, up = np.zeros((height, width), bool), np.zeros((height, width), bool)
    top, left = (height - length) // 2, (width - length) // 2
    thick = pen if length > 3 else 1
    for step in range(length):
        for wide in range(thick):
            across = min(step + wide, length - 1)
            down[top + step, left + across] = True
            up[top + step, left + length - 1 - across] = True
    return down, up


def _corner(height: int, width: int) -> np.ndarray:
    """A filled triangle in the upper left: it came in before it was called."""
    side = max(3, round(min(height, width) * 0.6))
    rows, columns = np.indices((height, width))
    return np.asarray(rows + columns < side)


def _bar(height: int, width: int, pen: int) -> np.ndarray:
    """A bar across the middle, a pixel short of both sides."""
    mask = np.zeros((height, width), bool)
    thick = pen + (height - pen) % 2
    top = (height - thick) // 2
    mask[top : top + thick, pen : width - pen] = True
    return mask


def _dot(height: int, width: int) -> np.ndarray:
    """A centred square of about a third of the cell, of the cell's own parity so that it sits in the middle."""
    mask = np.zeros((height, width), bool)
    side = max(1, round(min(height, width) / 3))
    grow = 1 if side > 2 or min(height, width) > 5 else -1  # in the smallest cells it must leave the other mark visible
    tall, wide = (side + grow * ((extent - side) % 2) for extent in (height, width))
    top, left = (height - tall) // 2, (width - wide) // 2
    mask[top : top + tall, left : left + wide] = True
    return mask


def _patterns(table: np.ndarray, pen: int, colors: Colors) -> None:
    height, width = table.shape[-2:]
    ink, alarm, warm = (argb(name) for name in (colors.text, colors.danger, colors.warm))
    dark = argb(colors.border)
    rows, columns = np.indices((height, width))
    checker = (rows + columns) % 2 == 0
    centre = (rows == height // 2) & (columns == width // 2)
    upper = rows < max(1, height // 2)
    table[:, Mark.HIT][...] = ink
    table[:, Mark.EARLY][...] = ink
    table[:, Mark.EARLY][..., ~upper] = argb(colors.accent)
    table[:, Mark.MISS][...] = dark
    table[:, Mark.MISS][..., checker] = alarm
    table[:, Mark.LATE][...] = dark
    table[:, Mark.LATE][..., upper] = warm
    if height * width > 2:
        table[:, Mark.WASTED][..., rows == height // 2] = argb(colors.text_faint)
    table[1, Mark.NONE][..., centre] = ink
    if height * width > 2:
        table[1, Mark.HIT][..., centre] = dark


def swatch(
    state: int, side: int, scale: float, colors: Colors, cell: tuple[int, int] = (SMALLEST_SHAPE, SMALLEST_SHAPE)
) -> QPixmap:
    """One cell as a picture for the legend, ``side`` logical pixels square.

    cell: width and height of the heatmap's cells in device pixels; of those too small for shapes it is the pattern,
    enlarged.
    """
    pixels = round(side * scale)
    width, height = (pixels, pixels) if min(cell) >= SMALLEST_SHAPE else cell
    data = np.ascontiguousarray(atlas(width, height, scale, colors)[state].reshape(height, width))
    image = QImage(data.data, width, height, 4 * width, QImage.Format.Format_RGB32).copy()
    if (width, height) != (pixels, pixels):
        image = image.scaled(pixels, pixels)
    image.setDevicePixelRatio(scale)
    return QPixmap.fromImage(image)
