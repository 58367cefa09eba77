"""Small parts that panels and dialogs share: plain-text labels, safe tooltips; a panel, its heading, its figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QPoint, QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QColor, QHideEvent, QMouseEvent, QPainter, QPaintEvent, QShowEvent
from PySide6.QtWidgets import QApplication, QHBoxLayout, QLabel, QScrollArea, QSizePolicy, QVBoxLayout, QWidget

from app.panels.format import NOTHING
from app.panels.icons import SignButton
from app.theme import font, space

if TYPE_CHECKING:
    from app.theme import FontRole, Theme


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


def show_figure(shown: QLabel, text: str) -> None:
    """Put a figure into its label; what was not measured is no louder than the words around it."""
    if shown.text() != text:
        shown.setText(text)
    measured = text != NOTHING
    if shown.property("measured") != measured:
        shown.setProperty("measured", measured)
        shown.style().polish(shown)


def scrolling(name: str, inside: QWidget, boxed: bool = False) -> QScrollArea:
    """Something to read that may be higher than its place: the keyboard can go there and scroll it, and one sees so."""
    inside.setObjectName("sideSheetInside")
    area = QScrollArea()
    area.setProperty("ring", "boxed" if boxed else "bare")
    area.setAccessibleName(name)
    area.setWidgetResizable(True)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    area.setWidget(inside)
    return area


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


@dataclass(frozen=True)
class Feed:
    """Where a panel hears something: ``signal`` calls ``slot``, and ``latest`` is what it said last, None: nothing."""

    signal: Any  # SignalInstance
    slot: Callable[[Any], None]
    latest: Callable[[], object] = lambda: None


class Panel(QWidget):
    """Shows the latest snapshot while there is somebody to see it. Hidden, it is told nothing and costs nothing."""

    pace = 0.3  # seconds between two changes of its words: an eye reads no faster, and laying out words costs most
    heading: Heading
    body: QWidget
    nothing: QLabel

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._stale = True
        self._next = 0.0  # time.monotonic() of the next change
        self._later = QTimer(self)
        self._later.setSingleShot(True)
        self._later.timeout.connect(self.refresh)
        self._feeds: tuple[Feed, ...] = ()
        self._listening = False

    def arrange(self, heading: Heading, body: QWidget, nothing: str) -> None:
        """Heading and ``body``; ``nothing`` says in its place what will be there, and when, until ``show_body``."""
        self.heading, self.body, self.nothing = heading, body, label(nothing, "muted")
        self.nothing.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.nothing.setWordWrap(True)
        self.nothing.setContentsMargins(space(4), space(5), space(4), space(5))
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(space(2))
        column.addWidget(heading)
        column.addWidget(body)
        column.addWidget(self.nothing, 1)
        self.show_body(False)

    def show_body(self, shown: bool) -> None:
        """Whether there is something to show. Nothing stands in the middle of whatever room there is."""
        self.body.setVisible(shown)
        self.nothing.setVisible(not shown)
        high = QSizePolicy.Policy.Maximum if shown else QSizePolicy.Policy.Expanding
        self.setSizePolicy(QSizePolicy.Policy.Expanding, high)

    @property
    def listening(self) -> bool:
        """Whether anything reaches the panel now."""
        return self._listening

    def follow(self, *feeds: Feed) -> None:
        """Hear these whenever the panel is seen."""
        self._feeds = feeds
        if self.isVisible():
            self._listen()

    def _listen(self) -> None:
        if self._listening:
            return
        self._listening = True
        for feed in self._feeds:
            feed.signal.connect(feed.slot)
            latest = feed.latest()
            if latest is not None:
                feed.slot(latest)

    def mark_stale(self, *news: object) -> None:
        """There is something new to show."""
        self._stale = True
        if not self.isVisible() or self._later.isActive():
            return
        wait = self._next - time.monotonic()
        if wait <= 0:
            self.refresh()
        else:
            self._later.start(round(1000 * wait) + 1)

    @Slot()
    def refresh(self) -> None:
        """Show what is new, if anything is."""
        self._later.stop()
        if self._stale:
            self._stale = False
            self._next = time.monotonic() + self.pace
            self.show_now()

    def show_now(self) -> None:
        """Put the latest snapshot into the widgets."""
        raise NotImplementedError

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._listen()
        self.refresh()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._later.stop()
        if self._listening:
            self._listening = False
            for feed in self._feeds:
                feed.signal.disconnect(feed.slot)


class Note(QWidget):
    """A quiet line on the right that changes with every token. Not a label: those have everything laid out again."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._text = ""
        self.setFont(font("small", tabular=True))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)

    def text(self) -> str:
        return self._text

    def setText(self, text: str) -> None:
        self._text = text
        self.setAccessibleName(text)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setPen(QColor(self._theme.colors.text_muted))
        shown = self.fontMetrics().elidedText(self._text, Qt.TextElideMode.ElideRight, self.width())
        painter.drawText(self.rect(), int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter), shown)


class Heading(QWidget):
    """A panel's first row: its name, on the right something quiet about its state, and a button for its place.

    Dragged, it says where the pointer is: ``dragged`` while it goes on, ``dropped`` at its end.
    """

    dragged = Signal(QPoint)  # on the screen
    dropped = Signal(QPoint)

    def __init__(self, name: str, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.name = name
        self._pressed: QPoint | None = None
        self._dragging = False
        self._note = Note(theme)
        self.button = SignButton(theme, "more", self.tr("Place of the panel “{name}”").format(name=name))
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(space(1))
        row.addWidget(label(name, "title"))
        row.addWidget(self._note, 1)
        row.addWidget(self.button)
        self.setCursor(Qt.CursorShape.OpenHandCursor)

    @property
    def note(self) -> str:
        return self._note.text()

    def set_note(self, text: str) -> None:
        if text != self._note.text():
            self._note.setText(text)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._pressed = event.globalPosition().toPoint()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._pressed is None:
            return
        at = event.globalPosition().toPoint()
        if not self._dragging and (at - self._pressed).manhattanLength() < QApplication.startDragDistance():
            return
        self._dragging = True
        self.setCursor(Qt.CursorShape.ClosedHandCursor)
        self.dragged.emit(at)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self.setCursor(Qt.CursorShape.OpenHandCursor)
        dragging, self._pressed, self._dragging = self._dragging, None, False
        if dragging:
            self.dropped.emit(event.globalPosition().toPoint())


class FigureRow(QWidget):
    """Figures side by side, each with a word below and its meaning in a tooltip."""

    def __init__(self, figures: Sequence[tuple[str, str, str]], parent: QWidget | None = None) -> None:
        """figures: key, word, meaning."""
        super().__init__(parent)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(space(2))
        self._figures: dict[str, tuple[QLabel, str]] = {}
        for key, word, meaning in figures:
            pair = QVBoxLayout()
            pair.setSpacing(0)
            figure = label(role="title", figures="title")
            show_figure(figure, NOTHING)
            figure.setToolTip(plain_tip(meaning))
            pair.addWidget(figure)
            pair.addWidget(label(word, "faint"))
            row.addLayout(pair, 1)
            self._figures[key] = (figure, meaning)

    def set(self, key: str, text: str) -> None:
        figure, meaning = self._figures[key]
        if figure.text() != text:
            show_figure(figure, text)
            figure.setAccessibleName(f"{meaning}: {text}")

    def text(self, key: str) -> str:
        return self._figures[key][0].text()


def pair(left: QWidget, right: QWidget) -> QHBoxLayout:
    """A name at the left and its figure at the right."""
    row = QHBoxLayout()
    row.addWidget(left)
    row.addStretch(1)
    row.addWidget(right)
    return row
