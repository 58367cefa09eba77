"""A bar split by kind. Each kind has a colour and a pattern, so that it reads without colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import QRect, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.panels.legend import Picture

if TYPE_CHECKING:
    from app.colors import Colors
    from app.theme import Theme

HEIGHT = 14


@dataclass(frozen=True)
class Segment:
    """kind: a field of ``Colors`` that names the colour: "dense", "experts", "kv", "workspace", "other"."""

    kind: str
    amount: float


def paint_kind(painter: QPainter, box: QRectF, kind: str, colors: Colors) -> None:
    """Fill ``box`` with a kind's colour and pattern: experts plain, dense, kv and workspace lines, other dots."""
    base = QColor(getattr(colors, kind))
    painter.save()
    painter.setClipRect(box, Qt.ClipOperation.IntersectClip)
    painter.fillRect(box, base)
    ink = QColor(colors.window)
    ink.setAlpha(110)
    painter.setPen(QPen(ink, 1))
    left, top, right, bottom = int(box.left()), int(box.top()), int(box.right()) + 1, int(box.bottom()) + 1
    high = bottom - top
    painter.setRenderHint(QPainter.RenderHint.Antialiasing, kind in ("dense", "kv"))
    if kind == "dense":
        for x in range(left - high, right, 5):
            painter.drawLine(x, bottom, x + high, top)
    elif kind == "kv":
        for x in range(left - high, right, 3):
            painter.drawLine(x, top, x + high, bottom)
    elif kind == "workspace":
        for y in range(top + 2, bottom, 4):
            painter.drawLine(left, y, right, y)
    elif kind == "other":
        for row, y in enumerate(range(top + 2, bottom, 3)):
            for x in range(left + 2 + 2 * (row % 2), right, 4):
                painter.drawPoint(x, y)
    painter.restore()


def picture(kind: str) -> Picture:
    """The kind as a legend's picture."""

    def draw(painter: QPainter, box: QRect, colors: Colors) -> None:
        paint_kind(painter, QRectF(box), kind, colors)

    return draw


class SegmentedBar(QWidget):
    """Segments side by side over a total; the rest is free and stays empty."""

    def __init__(self, theme: Theme, parent: QWidget | None = None, ground: str = "surface") -> None:
        """ground: the field of ``Colors`` for what is free."""
        super().__init__(parent)
        self._theme, self._ground = theme, ground
        self._segments: tuple[Segment, ...] = ()
        self._total = 0.0
        self.setFixedHeight(HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._segments

    def show_segments(self, segments: Sequence[Segment], total: float) -> None:
        if (tuple(segments), total) != (self._segments, self._total):
            self._segments, self._total = tuple(segments), total
            self.update()

    def spans(self) -> list[tuple[Segment, float, float]]:
        """Each segment with its left edge and width in px. A segment too thin to see gets 2 px."""
        if self._total <= 0:
            return []
        total = max(self._total, sum(segment.amount for segment in self._segments))
        spans, left = [], 0.0
        for segment in self._segments:
            if segment.amount > 0:
                width = max(2.0, self.width() * segment.amount / total)
                width = min(width, self.width() - left)
                spans.append((segment, left, width))
                left += width
        return spans

    def sizeHint(self) -> QSize:
        return QSize(320, HEIGHT)

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        outline = QPainterPath()
        outline.addRoundedRect(QRectF(self.rect()), 4, 4)
        painter.setClipPath(outline)
        painter.fillRect(self.rect(), QColor(getattr(colors, self._ground)))
        for segment, left, width in self.spans():
            # a hair of the ground between neighbours
            gap = 1.0 if width > 4 else 0.0
            paint_kind(painter, QRectF(round(left), 0, max(1, round(width) - gap), HEIGHT), segment.kind, colors)
