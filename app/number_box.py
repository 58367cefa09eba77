"""Boxes for numbers whose digits stand where the words of other boxes do."""

from __future__ import annotations

from PySide6.QtWidgets import QAbstractSpinBox, QDoubleSpinBox, QSpinBox

from app.theme import space


class WholeBox(QSpinBox):
    """A whole number."""

    def __init__(self) -> None:
        super().__init__()
        _inset(self)


class RealBox(QDoubleSpinBox):
    """A number with decimals."""

    def __init__(self) -> None:
        super().__init__()
        _inset(self)


def _inset(box: QAbstractSpinBox) -> None:
    """Qt gives the padding that a style sheet asks for to the box, and lays the line with the digits over it."""
    box.lineEdit().setTextMargins(space(2), 0, space(1), 0)
