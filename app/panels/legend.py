"""A row of small pictures with words, wrapping as text does. Painted; the words are also its accessible name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.theme import font, space

if TYPE_CHECKING:
    from app.colors import Colors
    from app.theme import Theme

SWATCH = 9  # px

Picture = Callable[[QPainter, QRect, "Colors"], None]


@dataclass(frozen=True)
class Entry:
    """``picture`` draws into a box ``width`` px wide and SWATCH high; None: words alone."""

    text: str
    picture: Picture | None = None
    width: int = SWATCH


def _font() -> QFont:
    return font("small", tabular=True)


def _line() -> int:
    """Height of a line, px."""
    return max(18, QFontMetrics(_font()).height() + space(0.5))


class Legend(QWidget):
    """Shows ``entries`` left to right, on as many lines as the width needs."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._entries: tuple[Entry, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self._fit)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(entry.text for entry in self._entries)

    def set_entries(self, entries: Sequence[Entry]) -> None:
        self._entries = tuple(entries)
        self.setAccessibleName(", ".join(self.texts))
        self._fit()

    def _places(self, width: int) -> list[tuple[Entry, int, int]]:
        """Each entry with its left edge and its line."""
        metrics = QFontMetrics(_font())
        places = []
        x, line = 0, 0
        for entry in self._entries:
            wide = self._picture_width(entry) + metrics.horizontalAdvance(entry.text)
            if x and x + wide > width:
                x, line = 0, line + 1
            places.append((entry, x, line))
            x += wide + space(3)
        return places

    @staticmethod
    def _picture_width(entry: Entry) -> int:
        return entry.width + space(1.25) if entry.picture else 0

    def _fit(self) -> None:
        width = self.width() if self.testAttribute(Qt.WidgetAttribute.WA_Resized) else 320
        lines = max((line for *_, line in self._places(width)), default=0) + 1
        self.setFixedHeight(lines * _line())
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(320, self.minimumHeight())

    def resizeEvent(self, event: QResizeEvent) -> None:
        if event.size().width() != event.oldSize().width():
            self._fit()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setFont(_font())
        colors, line_height = self._theme.colors, _line()
        for entry, x, line in self._places(self.width()):
            top = line * line_height
            if entry.picture is not None:
                painter.save()
                entry.picture(painter, QRect(x, top + (line_height - SWATCH) // 2, entry.width, SWATCH), colors)
                painter.restore()
            painter.setPen(QColor(colors.text_muted))
            left = x + self._picture_width(entry)
            painter.drawText(
                QRect(left, top, self.width() - left, line_height),
                Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter,
                entry.text,
            )
