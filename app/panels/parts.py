"""Small parts that the panels and the dialogs share: plain-text labels, a panel's heading row, safe tooltips."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QWidget

from app.theme import font, space

if TYPE_CHECKING:
    from app.theme import FontRole


def plain_tip(text: str) -> str:
    """``text`` for setToolTip: Qt guesses whether a tooltip is HTML, and a folder's name may look like it."""
    return f"<span>{escape(text)}</span>" if text else ""


def label(text: str = "", role: str = "", figures: FontRole | None = None) -> QLabel:
    """A label that never takes its text for markup; ``role`` as the style sheet knows it.

    ``figures``: the font role of a figure, set with tabular digits.
    """
    made = QLabel(text)
    made.setTextFormat(Qt.TextFormat.PlainText)
    if role:
        made.setProperty("role", role)
    if figures is not None:
        made.setFont(font(figures, tabular=True))
    return made


class ElidedLabel(QLabel):
    """One line of plain text that gives up its middle when it must, and then shows all of it in a tooltip."""

    def __init__(self, text: str = "", role: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        if role:
            self.setProperty("role", role)
        self.setText(text)

    def setText(self, text: str) -> None:
        one_line = " ".join(text.split())
        super().setText(one_line)
        self.setToolTip(plain_tip(one_line))
        self.setAccessibleName(one_line)

    def shown(self) -> str:
        """The text as painted at the present width."""
        return self.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideMiddle, self.width())

    def minimumSizeHint(self) -> QSize:
        return QSize(0, super().minimumSizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setPen(self.palette().windowText().color())
        painter.drawText(self.rect(), int(self.alignment() | Qt.AlignmentFlag.AlignVCenter), self.shown())


class Panel(QWidget):
    """Keeps the latest snapshot; shows it when there is somebody to see it, and costs nothing while hidden."""

    _stale = True

    def mark_stale(self) -> None:
        """There is something new to show."""
        self._stale = True
        if self.isVisible():
            self.refresh()

    def refresh(self) -> None:
        """Show what is new, if anything is."""
        if self._stale:
            self._stale = False
            self.show_now()

    def show_now(self) -> None:
        """Put the latest snapshot into the widgets."""
        raise NotImplementedError

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()


class Heading(QWidget):
    """A panel's first row: its name, and on the right something quiet about its state."""

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._note = label(role="small")
        self._note.setFont(font("small", tabular=True))
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(space(2))
        row.addWidget(label(name, "title"))
        row.addStretch(1)
        row.addWidget(self._note)

    @property
    def note(self) -> str:
        return self._note.text()

    def set_note(self, text: str) -> None:
        self._note.setText(text)
