"""A check box drawn in the theme's colours: the style's own is hard to see in the dark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QCheckBox, QWidget

from app.theme import space

if TYPE_CHECKING:
    from app.theme import Theme

_SIDE = 16


class CheckBox(QCheckBox):
    """Behaves as QCheckBox does; only the painting is its own."""

    def __init__(self, text: str, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(text, parent)
        self._theme = theme
        theme.changed.connect(self.update)

    def sizeHint(self) -> QSize:
        metrics = self.fontMetrics()
        return QSize(
            _SIDE + space(2) + metrics.horizontalAdvance(self.text()) + 2, max(_SIDE + 4, metrics.height() + 4)
        )

    def hitButton(self, pos: object) -> bool:
        return True

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        box = QRectF(1, (self.height() - _SIDE) / 2, _SIDE, _SIDE).adjusted(0.5, 0.5, -0.5, -0.5)
        edge = colors.text if self.hasFocus() else colors.accent if self.isChecked() else colors.text_faint
        painter.setPen(QPen(QColor(edge), 1.5 if self.hasFocus() else 1))
        painter.setBrush(QColor(colors.accent if self.isChecked() else colors.surface))
        painter.drawRoundedRect(box, 4, 4)
        if self.isChecked():
            pen = QPen(QColor(colors.on_accent), 1.8)
            pen.setCapStyle(Qt.PenCapStyle.RoundCap)
            pen.setJoinStyle(Qt.PenJoinStyle.RoundJoin)
            painter.setPen(pen)
            left, top = box.left(), box.top()
            tick = ((3.5, 7.8), (6.3, 10.6), (11.4, 4.6))
            painter.drawPolyline(QPolygonF([QPointF(left + x, top + y) for x, y in tick]))
        painter.setPen(QColor(colors.text if self.isEnabled() else colors.text_faint))
        words = self.rect().adjusted(_SIDE + space(2), 0, 0, 0)
        painter.drawText(words, int(Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextShowMnemonic), self.text())
