"""A hair line between the parts of a dialog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

if TYPE_CHECKING:
    from app.theme import Theme


class Divider(QWidget):
    """A hair line, across or down."""

    def __init__(self, theme: Theme, down: bool = False) -> None:
        super().__init__()
        self._theme = theme
        if down:
            self.setFixedWidth(1)
        else:
            self.setFixedHeight(1)

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), QColor(self._theme.colors.border))
