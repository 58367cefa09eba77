"""The head of a panel about a rate: the figure in large, what it is, something to compare it with, and its past."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.panels import format
from app.panels.parts import label, show_figure
from app.panels.sparkline import Sparkline
from app.theme import space


class RateHead(QWidget):
    """``rate`` is the figure, ``aside`` the words at the right; ``line`` draws the past."""

    def __init__(self, words: str, aside: str, line: Sparkline, parent: QWidget | None = None) -> None:
        """words: what the figure is. aside: what the words at the right mean, for a tooltip."""
        super().__init__(parent)
        self.rate = label(figures="figure")
        show_figure(self.rate, format.NOTHING)
        self.aside = label(role="small", figures="small")
        self.aside.setToolTip(aside)
        self.line = line
        row = QHBoxLayout()
        row.setSpacing(space(2))
        row.addWidget(self.rate, 0, Qt.AlignmentFlag.AlignBottom)
        row.addWidget(label(words, "small"), 0, Qt.AlignmentFlag.AlignBottom)
        row.addStretch(1)
        row.addWidget(self.aside, 0, Qt.AlignmentFlag.AlignBottom)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(space(2))
        column.addLayout(row)
        column.addWidget(line)
        self.draw_line()

    def draw_line(self) -> None:
        """The past as it is now; while there is none, no axes either."""
        self.line.setVisible(self.line.known)
        self.line.update()
