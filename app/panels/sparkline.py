"""A small line over time. Gaps stay gaps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QLinearGradient, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.panels.history import POINTS
from app.theme import font

if TYPE_CHECKING:
    from app.theme import Theme


class Sparkline(QWidget):
    """Draws ``values``, oldest left: fills from the left, then scrolls. It reads them when it is painted.

    top: what the upper line stands for; None: a round number above the largest value. words: of a value, for the upper
    line's label.
    """

    def __init__(
        self,
        theme: Theme,
        values: Sequence[float | None],
        top: float | None = 1.0,
        words: Callable[[float], str] = str,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._theme = theme
        self._values = values
        self._top = top
        self._words = words
        self._best: float | None = None
        self.setFixedHeight(52)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    @property
    def values(self) -> tuple[float | None, ...]:
        return tuple(self._values)

    @property
    def known(self) -> bool:
        """Whether there is anything to draw."""
        return any(value is not None for value in self._values)

    def set_best(self, value: float | None) -> None:
        """A dashed line at what could be reached at best."""
        self._best = value
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(320, self.height())

    def top(self) -> float:
        """What the upper line stands for."""
        if self._top is not None:
            return self._top
        return round_above(max((value for value in self._values if value is not None), default=0.0))

    def _runs(self, box: QRectF, top: float) -> list[list[QPointF]]:
        """The points, broken where nothing was measured."""
        values = list(self._values)
        runs: list[list[QPointF]] = [[]]
        step = box.width() / (POINTS - 1)
        # a short history is stretched over at least a third of the width, so that the first answer shows a line
        step = max(step, min(box.width() / max(1, len(values) - 1), 3 * step))
        for index, value in enumerate(values):
            if value is None:
                runs.append([])
            else:
                share = min(max(value / top, 0.0), 1.0)
                runs[-1].append(QPointF(box.left() + index * step, box.bottom() - share * box.height()))
        return [run for run in runs if run]

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        painter = QPainter(self)
        top = self.top()
        small = font("small", size=10, tabular=True)
        metrics = QFontMetricsF(small)
        room = max(30.0, metrics.horizontalAdvance("100%") + 2)  # on the right for what the upper line stands for
        box = QRectF(self.rect()).adjusted(0.5, 6.5, -2.5 - room, -0.5)
        painter.setPen(QPen(QColor(colors.border), 1))
        painter.drawLine(QPointF(0, box.bottom()), QPointF(box.right(), box.bottom()))
        painter.setPen(QPen(QColor(colors.border), 1, Qt.PenStyle.DotLine))
        for share in (0.5, 1.0):
            y = round(box.bottom() - share * box.height()) + 0.5
            painter.drawLine(QPointF(0, y), QPointF(box.right(), y))
        painter.setFont(small)
        painter.setPen(QColor(colors.text_faint))
        label = QRectF(box.right() + 2, 0, room, max(13.0, metrics.height()))
        painter.drawText(label, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, self._words(top))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        runs = self._runs(box, top)
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
        if self._best is not None:
            y = round(box.bottom() - min(self._best / top, 1.0) * box.height()) + 0.5
            painter.setPen(QPen(QColor(colors.text_muted), 1, Qt.PenStyle.DashLine))
            painter.drawLine(QPointF(0, y), QPointF(box.right(), y))


def round_above(value: float) -> float:
    """The next of 1, 2, 5, 10, 20, .. that is not below ``value``."""
    if value <= 0:
        return 1.0
    step = 1e-3
    while True:
        for factor in (1, 2, 5):
            if factor * step >= value:
                return factor * step
        step *= 10
