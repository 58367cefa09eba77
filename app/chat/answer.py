"""One answer of the model: folded thought, streaming text, and below it the figures that belong to it."""

from __future__ import annotations

import time

from PySide6.QtCore import QMargins, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QColor, QGuiApplication, QPainter, QPaintEvent
from PySide6.QtWidgets import QPushButton, QWidget

from app.chat.actions import AnswerActions
from app.chat.body import MarkdownBody
from app.chat.cards import Label
from app.chat.column import Column
from app.chat.figures import in_a_line, in_full
from app.chat.pointing import character_under
from app.chat.raw import RawText
from app.chat.reasoning import ReasoningStream, for_the_next_turn, split
from app.theme import Theme, font, space
from engine.messages import CacheCounters, Finished, FinishReason, Timings


class Fold(Column):
    """A thought, folded to one line until someone wants to read it."""

    link_clicked = Signal(str)
    pointed = Signal(str, int)  # as of ``MarkdownBody``

    def __init__(self, theme: Theme, began: float, parent: QWidget | None = None) -> None:
        super().__init__(parent, gap=space(1), margins=QMargins(space(2.5), 0, 0, 0))
        self.theme = theme
        self._unread: list[str] = []  # text that is rendered only once the fold opens
        self.length = 0  # characters
        self._ended = False
        self._began = began  # time.monotonic()
        self._seconds: float | None = None  # it took; None: nobody measured
        self._about = False  # the duration is an estimate
        self.button = FoldButton(self)
        self.button.clicked.connect(self._toggled)
        self.body = MarkdownBody(theme, self, muted=True)
        self.body.link_clicked.connect(self.link_clicked)
        self.body.pointed.connect(self.pointed)
        self.add(self.button)
        self.add(self.body)
        self.body.hide()
        theme.changed.connect(self.update)
        self._name()

    def feed(self, text: str) -> None:
        self.length += len(text)
        self._unread.append(text)
        self._name()
        if self.button.isChecked():
            self._render()

    def resume(self, began: float) -> None:
        """The thought goes on that began then, as of time.monotonic()."""
        self._began = began
        self._name()

    def end(self) -> None:
        """The thought is complete, just now."""
        self._end(time.monotonic() - self._began, about=False)

    def was(self, seconds: float | None) -> None:
        """The thought is an old one that took about so long; None: nobody knows."""
        self._end(seconds, about=True)

    def _end(self, seconds: float | None, about: bool) -> None:
        if not self._ended:
            self._ended, self._seconds, self._about = True, seconds, about
            self._name()
            if self.button.isChecked():
                self._render()

    def open(self) -> None:
        self.button.setChecked(True)
        self._toggled()

    def _render(self) -> None:
        self.body.feed("".join(self._unread))
        self._unread.clear()
        if self._ended:
            self.body.finish()

    def _name(self) -> None:
        seconds = self._seconds if self._ended else time.monotonic() - self._began
        if seconds is None or seconds < 1:
            text = self.tr("Thought") if self._ended else self.tr("Thinking…")
        elif not self._ended:
            text = self.tr("Thinking for %1 s…").replace("%1", f"{seconds:.0f}")
        else:
            words = self.tr("Thought for about %1 s") if self._about else self.tr("Thought for %1 s")
            text = words.replace("%1", f"{seconds:.0f}")
        mark = "▾" if self.button.isChecked() else "▸"
        if self.button.text() != f"{mark}  {text}":
            self.button.setText(f"{mark}  {text}")
            self.button.setAccessibleName(text)

    @Slot()
    def _toggled(self) -> None:
        shown = self.button.isChecked()
        self.body.setVisible(shown)
        if shown:
            self._render()
        self._name()
        self.refit(self.body)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(0, 0, 2, self.height(), QColor(self.theme.colors.border))
        painter.end()


class FoldButton(QPushButton):
    """A quiet line that opens and closes what is below it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setCheckable(True)
        self.setProperty("kind", "fold")
        self.setCursor(Qt.CursorShape.PointingHandCursor)

    def fit(self, width: int) -> int:
        return self.sizeHint().height()


class Footer(QWidget):
    """Figures of a finished answer, or what the model is doing before its first word; and Copy."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.label = Label("", "faint", self)
        self.label.setFont(font("small", tabular=True))
        self.copy = self._button(self.tr("Copy"), self.tr("Copy answer"))
        self.raw = self._button(self.tr("Raw"), self.tr("Show the answer as the model wrote it"))
        self.raw.setToolTip(self.tr("The text as the model wrote it, with its marks and its thought"))
        self.raw.setCheckable(True)
        self.turn_actions = AnswerActions(self)
        self.turn_actions.hide()

    def _button(self, text: str, name: str) -> QPushButton:
        button = QPushButton(text, self)
        button.setProperty("kind", "flush")
        button.setAccessibleName(name)
        button.setCursor(Qt.CursorShape.PointingHandCursor)
        button.hide()
        return button

    def fit(self, width: int) -> int:
        """Figures and buttons on one line where they fit, else the buttons below."""
        buttons = [widget for widget in (self.copy, self.raw, self.turn_actions) if not widget.isHidden()]
        for widget in buttons:
            widget.adjustSize()
        taken = sum(widget.width() + space(4) for widget in buttons)
        wanted = self.label.fontMetrics().horizontalAdvance(self.label.text()) + 2 if self.label.text() else 0
        inner = min(wanted, width)
        text = self.label.fit(inner) if inner else 0
        row = max((widget.height() for widget in buttons), default=0)
        below = bool(buttons) and inner + taken > width
        height = text + space(1) + row if below else max(text, row)
        self.label.setGeometry(0, 0 if below else (height - text) // 2, inner, text)
        x = 0 if below or not inner else inner + space(4)
        for widget in buttons:
            widget.move(x, height - row + (row - widget.height()) // 2 if below else (height - widget.height()) // 2)
            x += widget.width() + space(4)
        return height


class AnswerView(Column):
    """Feed it what streams, then ``finish`` it; or ``show_answer`` one that was saved."""

    link_clicked = Signal(str)
    pointed = Signal(int)  # a plain click on this character of a complete answer's ``text``

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent, gap=space(2))
        self.theme = theme
        self.text = ""  # all of it, as the model wrote it
        self.reason: FinishReason | None = None
        self._pieces: list[str] = []
        self._stream = ReasoningStream()
        self._live = True  # what comes is being written now
        self._began = time.monotonic()
        self.notes: list[str] = []
        self._raw: RawText | None = None
        self.fold: Fold | None = None
        self.body = self._new_body()
        self.footer = Footer(self)
        self.footer.copy.clicked.connect(self.copy)
        self.footer.raw.toggled.connect(self.show_raw)
        self.turn_actions = self.footer.turn_actions
        self.turn_actions.changed.connect(lambda: self.refit(self.footer))
        self.add(self.body)
        self.add(self.footer, gap=space(2))
        self._back = QTimer(self)
        self._back.setSingleShot(True)
        self._back.setInterval(1500)
        self._back.timeout.connect(self._name_copy)
        self.setAccessibleName(self.tr("Answer"))

    def _new_body(self) -> MarkdownBody:
        body = MarkdownBody(self.theme, self)
        body.link_clicked.connect(self.link_clicked)
        body.pointed.connect(self._point)
        body.complete.connect(self.height_changed)
        return body

    @property
    def settled(self) -> bool:
        """Everything that came is shown."""
        return self.body.settled

    @property
    def touched(self) -> bool:
        """The reader opened something here."""
        return self.footer.raw.isChecked() or (self.fold is not None and self.fold.button.isChecked())

    @property
    def shown_text(self) -> str:
        """What has come so far."""
        return self.text or "".join(self._pieces)

    # -------------------------------------------------------------------------------------------- streaming

    def show_status(self, text: str) -> None:
        """What goes on before the first word."""
        self.footer.label.setText(text)
        self.footer.setVisible(bool(text))
        self.refit(self.footer)

    def add_note(self, text: str) -> None:
        """Something the user should know about this answer, above it and quiet."""
        self.add(Label(text, "faint", self), index=len(self.notes))
        self.notes.append(text)
        self.refit()

    def feed(self, text: str) -> None:
        """New text of the answer."""
        if not text:
            return
        if not self._pieces:
            self._began = time.monotonic()
            self.show_status("")
        self._pieces.append(text)
        piece = self._stream.feed(text)
        if piece.restart:
            old, self.body = self.body, self._new_body()
            self.remove(old)
            old.deleteLater()
            self.add(self.body, index=len(self.notes))
        if piece.thought:
            self._fold().feed(piece.thought)
        if self.fold is not None and self._stream.state == "answer" and self._live:
            self.fold.end()
        if piece.answer:
            self.body.feed(piece.answer)
            self.refit()

    def resume(self, text: str, seconds: float | None) -> None:
        """Begin with what has come of the answer so far, in so many seconds; None: nobody knows."""
        self._live = False
        self.feed(text)
        self._live = True
        self._began = time.monotonic() - (seconds or 0)
        if self.fold is not None:
            self.fold.resume(self._began)
            if self._stream.state == "answer":
                self._was(text, seconds)

    def _was(self, text: str, seconds: float | None) -> None:
        """The thought is complete; ``text`` with it took so long."""
        if self.fold is not None:
            self.fold.was(None if seconds is None else self.fold.length / len(text) * seconds)

    def _fold(self) -> Fold:
        if self.fold is None:
            self.fold = Fold(self.theme, self._began, self)
            self.fold.link_clicked.connect(self.link_clicked)
            self.fold.pointed.connect(self._point)
            self.add(self.fold, index=len(self.notes))
            self.refit()
        return self.fold

    def finish(self, event: Finished) -> None:
        """The answer has ended."""
        self._close(event.text, event.reason, event.timings, event.cache)

    def show_answer(
        self, text: str, reason: FinishReason | None, timings: Timings | None, cache: CacheCounters | None
    ) -> None:
        """An answer that was saved earlier."""
        self._live = False
        if text:
            self.feed(text)
            self._was(text, timings.decode_seconds if timings is not None else None)
        self._close(text, reason, timings, cache)

    def _close(
        self,
        text: str,
        reason: FinishReason | None,
        timings: Timings | None,
        cache: CacheCounters | None,
    ) -> None:
        self.text, self.reason = text, reason
        piece = self._stream.finish()
        if piece.thought:
            self._fold().feed(piece.thought)
        if piece.answer:
            self.body.feed(piece.answer)
        self.body.finish()
        if self.fold is not None:
            self.fold.end()
            if self._stream.state == "thought":
                self.fold.open()  # it never came to an answer: the thought is all there is
        self.footer.copy.setVisible(bool(text))
        self.footer.raw.setVisible(bool(text))
        self.footer.label.setText(in_a_line(reason, timings, cache))
        self.footer.label.setToolTip(in_full(reason, timings, cache))
        self.turn_actions.show()
        self.footer.show()
        self.refit(self.footer)

    @Slot(str, int)
    def _point(self, seen: str, position: int) -> None:
        """Find the character of the answer that was clicked."""
        thought, answer = split(self.text)
        part = thought if self.sender() is self.fold else answer
        start = self.text.rfind(part) if part is answer else self.text.find(part)
        found = character_under(part, seen, position) if part and start >= 0 else None
        if found is not None:
            self.pointed.emit(start + found)

    # ------------------------------------------------------------------------------------------------- copy

    @Slot()
    def copy(self) -> None:
        """What is read to the clipboard: the answer without its thought, unless there is nothing else; or all, raw."""
        raw = self.footer.raw.isChecked()
        QGuiApplication.clipboard().setText(self.text if raw else for_the_next_turn(self.text).strip("\n"))
        self.footer.copy.setText(self.tr("Copied"))
        self._back.start()

    @Slot(bool)
    def show_raw(self, raw: bool) -> None:
        """Show the text as the model wrote it, or as it is meant."""
        if raw and self._raw is None:
            self._raw = RawText(self.theme, self.text)
            self.add(self._raw, index=self.widgets().index(self.footer))
        rendered: list[QWidget] = [self.body] if self.fold is None else [self.fold, self.body]
        for widget in rendered:
            widget.setVisible(not raw)
        if self._raw is not None:
            self._raw.setVisible(raw)
            self.refit(self._raw, *rendered)

    @Slot()
    def _name_copy(self) -> None:
        self.footer.copy.setText(self.tr("Copy"))
