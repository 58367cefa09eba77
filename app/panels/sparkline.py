"""A small line of shares over time, with a ring of the latest values. Gaps stay gaps."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QLinearGradient, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

if TYPE_CHECKING:
    from app.theme import Theme

KEPT = 240


class Sparkline(QWidget):
    """Shares 0..1, oldest left. Fills from the left, then scrolls."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._values: deque[float | None] = deque(maxlen=KEPT)
        self.setFixedHeight(48)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    @property
    def values(self) -> tuple[float | None, ...]:
        return tuple(self._values)

    def add(self, share: float | None) -> None:
        self._values.append(share)
        self.update()

    def clear(self) -> None:
        self._values.clear()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(320, self.height())

    def _runs(self, box: QRectF) -> list[list[QPointF]]:
        """The points, broken where nothing was measured."""
        runs: list[list[QPointF]] = [[]]
        step = box.width() / (KEPT - 1)
        # a short history is stretched over at least a third of the width, so that the first answer shows a line
        step = max(step, min(box.width() / max(1, len(self._values) - 1), 3 * step))
        for index, value in enumerate(self._values):
            if value is None:
                runs.append([])
            else:
                share = min(max(value, 0.0), 1.0)
                runs[-1].append(QPointF(box.left() + index * step, box.bottom() - share * box.height()))
        return [run for run in runs if run]

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        painter = QPainter(self)
        box = QRectF(self.rect()).adjusted(0.5, 2.5, -2.5, -0.5)
        painter.setPen(QPen(QColor(colors.border), 1))
        painter.drawLine(QPointF(0, box.bottom()), QPointF(self.width(), box.bottom()))
        painter.setPen(QPen(QColor(colors.border), 1, Qt.PenStyle.DotLine))
        for share in (0.5, 1.0):
            y = round(box.bottom() - share * box.height()) + 0.5
            painter.drawLine(QPointF(0, y), QPointF(self.width(), y))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        runs = self._runs(box)
        fill = QLinearGradient(box.topLeft(), box.bottomLeft())
        for place, alpha in ((0.0, 90), (1.0, 20)):
            shade = QColor(colors.accent)
            shade.setAlpha(alpha)
            fill.setColorAt(place, shade)
        for run in runs:
            ground = [QPointF(run[-1].x(), box.bottom()), QPointF(run[0].x(), box.bottom())]
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(fill)
            painter.drawPolygon(QPolygonF(run + ground))
            painter.setPen(QPen(QColor(colors.accent), 1.6, c=Qt.PenCapStyle.RoundCap, j=Qt.PenJoinStyle.RoundJoin))
            painter.drawPolyline(QPolygonF(run))
        if runs and self._values[-1] is not None:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(colors.accent))
            painter.drawEllipse(runs[-1][-1], 2.5, 2.5)
