"""Small buttons with a drawn sign: play, pause, more, back to now. Drawn in the theme's colours at any scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QToolButton, QWidget

if TYPE_CHECKING:
    from app.theme import Theme

Sign = Literal["play", "pause", "more", "dock"]

SIDE = 24  # px


class SignButton(QToolButton):
    """A square button; ``name`` is its tooltip and what a screen reader says."""

    def __init__(self, theme: Theme, sign: Sign, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._sign: Sign = sign
        self.setFixedSize(SIDE, SIDE)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.set_sign(sign, name)
        theme.changed.connect(self.update)

    @property
    def sign(self) -> Sign:
        return self._sign

    def set_sign(self, sign: Sign, name: str) -> None:
        self._sign = sign
        self.setAccessibleName(name)
        self.setToolTip(name)
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(SIDE, SIDE)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)  # hover and focus, as the style sheet says
        colors = self._theme.colors
        ink = QColor(colors.text_faint if not self.isEnabled() else colors.text_muted)
        if self.isEnabled() and (self.underMouse() or self.hasFocus()):
            ink = QColor(colors.text)
        if not self.isEnabled():
            ink.setAlpha(110)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(ink)
        middle = QRectF(self.rect()).center()
        x, y = middle.x(), middle.y()
        if self._sign == "play":
            painter.drawPolygon(QPolygonF([QPointF(x - 3.5, y - 5), QPointF(x + 5, y), QPointF(x - 3.5, y + 5)]))
        elif self._sign == "pause":
            painter.drawRoundedRect(QRectF(x - 4.5, y - 5, 3, 10), 1, 1)
            painter.drawRoundedRect(QRectF(x + 1.5, y - 5, 3, 10), 1, 1)
        elif self._sign == "more":
            for step in (-5, 0, 5):
                painter.drawEllipse(QPointF(x + step, y), 1.4, 1.4)
        else:  # dock: a window's corner with an arrow into it
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(ink, 1.4, c=Qt.PenCapStyle.RoundCap, j=Qt.PenJoinStyle.RoundJoin))
            painter.drawPolyline([QPointF(x - 5, y - 1), QPointF(x - 5, y + 5), QPointF(x + 1, y + 5)])
            painter.drawLine(QPointF(x + 5, y - 5), QPointF(x - 2, y + 2))
            painter.drawPolyline([QPointF(x + 2, y + 2), QPointF(x - 2, y + 2), QPointF(x - 2, y - 2)])
