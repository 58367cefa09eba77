"""Boxes that can be painted: what a formula is set with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPainterPath, QPen

from app.chat.latex_tree import Kind

Paint = Callable[[QPainter, float, float], None]  # painter, x, y of the baseline


@dataclass(frozen=True, slots=True)
class Box:
    """Something that is set. All in px."""

    width: float
    height: float  # above the baseline
    depth: float  # below it
    paint: Paint
    kind: Kind = "ord"


def _nothing(painter: QPainter, x: float, y: float) -> None: ...


def blank(width: float) -> Box:
    """Room with nothing in it."""
    return Box(width, 0, 0, _nothing)


EMPTY = blank(0)


def moved(box: Box, up: float) -> Box:
    """The box, so much higher."""
    return replace(box, height=box.height + up, depth=box.depth - up, paint=lambda p, x, y: box.paint(p, x, y - up))


def group(placed: Sequence[tuple[float, Box]], width: float, kind: Kind = "ord") -> Box:
    """Boxes side by side, each at its place from the left."""

    def paint(painter: QPainter, x: float, y: float) -> None:
        for left, box in placed:
            box.paint(painter, x + left, y)

    height = max((box.height for _, box in placed), default=0.0)
    depth = max((box.depth for _, box in placed), default=0.0)
    return Box(width, height, depth, paint, kind)


def centred(box: Box, width: float) -> tuple[float, Box]:
    """The box with its place in the middle of a width."""
    return (width - box.width) / 2, box


def line(painter: QPainter, x: float, y: float, width: float, rule: float) -> None:
    """A horizontal line around ``y``."""
    painter.fillRect(QRectF(x, y - rule / 2, width, max(1.0, rule)), painter.pen().color())


def stroke(painter: QPainter, path: QPainterPath, width: float) -> None:
    """A path drawn with a flat pen."""
    painter.save()
    painter.setPen(QPen(painter.pen().color(), width, Qt.PenStyle.SolidLine, Qt.PenCapStyle.FlatCap))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawPath(path)
    painter.restore()
