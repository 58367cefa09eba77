"""Boxes for numbers: their digits stand where the words of other boxes do, and two arrows step."""

from __future__ import annotations

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPalette, QPen
from PySide6.QtWidgets import QAbstractSpinBox, QDoubleSpinBox, QSpinBox, QStyle, QStyleOptionSpinBox

from app.theme import space


class WholeBox(QSpinBox):
    """A whole number."""

    def __init__(self) -> None:
        super().__init__()
        _inset(self)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        option = QStyleOptionSpinBox()
        self.initStyleOption(option)
        _paint_arrows(self, option)


class RealBox(QDoubleSpinBox):
    """A number with decimals."""

    def __init__(self) -> None:
        super().__init__()
        _inset(self)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        option = QStyleOptionSpinBox()
        self.initStyleOption(option)
        _paint_arrows(self, option)


def _inset(box: QAbstractSpinBox) -> None:
    """Qt gives the padding that a style sheet asks for to the box, and lays the line with the digits over it."""
    box.lineEdit().setTextMargins(space(2), 0, space(1), 0)


def _paint_arrows(box: QAbstractSpinBox, option: QStyleOptionSpinBox) -> None:
    """Two chevrons where the style sheet puts the buttons: bright under the mouse, pale where it goes no further."""
    control, enabled = QStyle.SubControl, QAbstractSpinBox.StepEnabledFlag
    painter = QPainter(box)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    for part, step, up in (
        (control.SC_SpinBoxUp, enabled.StepUpEnabled, -1),
        (control.SC_SpinBoxDown, enabled.StepDownEnabled, 1),
    ):
        rect = box.style().subControlRect(QStyle.ComplexControl.CC_SpinBox, option, part, box)
        role = QPalette.ColorRole.PlaceholderText
        if not box.isEnabled() or not option.stepEnabled & step:
            role = QPalette.ColorRole.Mid
        elif option.activeSubControls == part:
            role = QPalette.ColorRole.Text
        painter.setPen(QPen(box.palette().color(role), 1.5, c=Qt.PenCapStyle.RoundCap, j=Qt.PenJoinStyle.RoundJoin))
        middle = QRectF(rect).center() + QPointF(0, -up)  # the two a little nearer to each other
        tip = middle + QPointF(0, 2.0 * up)
        painter.drawLine(QLineF(tip, middle + QPointF(-3.5, -1.5 * up)))
        painter.drawLine(QLineF(tip, middle + QPointF(3.5, -1.5 * up)))
    painter.end()
