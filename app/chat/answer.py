"""One answer of the model: folded thought, streaming text, and below it the figures that belong to it."""

from __future__ import annotations

import time

from PySide6.QtCore import QMargins, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QColor, QGuiApplication, QPainter, QPaintEvent
from PySide6.QtWidgets import QPushButton, QWidget

from app.chat.body import MarkdownBody
from app.chat.cards import Label
from app.chat.column import Column
from app.chat.reasoning import ReasoningStream
from app.theme import Theme, font, space
from engine.messages import CacheCounters, Finished, FinishReason, Timings


class Fold(Column):
    """A thought, folded to one line until someone wants to read it."""

    link_clicked = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent, gap=space(1), margins=QMargins(space(2.5), 0, 0, 0))
        self.theme = theme
        self._unread: list[str] = []  # text that is rendered only once the fold opens
        self._ended = False
        self._seconds: float | None = None
        self.button = FoldButton(self)
        self.button.clicked.connect(self._toggled)
        self.body = MarkdownBody(theme, self, muted=True)
        self.body.link_clicked.connect(self.link_clicked)
        self.add(self.button)
        self.add(self.body)
        self.body.hide()
        theme.changed.connect(self.update)
        self._name()

    def feed(self, text: str) -> None:
        self._unread.append(text)
        if self.button.isChecked():
            self._render()

    def end(self, seconds: float | None) -> None:
        """The thought is complete; it took so long, None where nobody measured."""
        if not self._ended:
            self._ended, self._seconds = True, seconds
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
        if not self._ended:
            text = self.tr("Thinking…")
        elif self._seconds is None or self._seconds < 1:
            text = self.tr("Thought")
        else:
            text = self.tr("Thought for %1 s").replace("%1", f"{self._seconds:.0f}")
        mark = "▾" if self.button.isChecked() else "▸"
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
        self.copy = QPushButton(self.tr("Copy"), self)
        self.copy.setProperty("kind", "flush")
        self.copy.setAccessibleName(self.tr("Copy answer"))
        self.copy.setCursor(Qt.CursorShape.PointingHandCursor)
        self.copy.hide()

    def fit(self, width: int) -> int:
        self.copy.adjustSize()
        button = self.copy.size() if not self.copy.isHidden() else self.copy.size() * 0
        gap = space(4) if button.width() else 0
        inner = max(60, width - button.width() - gap)
        wanted = self.label.fontMetrics().horizontalAdvance(self.label.text()) + 2
        inner = min(inner, wanted) if self.label.text() else 0
        gap = gap if inner else 0
        height = max(self.label.fit(inner), button.height())
        self.label.setGeometry(0, (height - self.label.fit(inner)) // 2, inner, self.label.fit(inner))
        self.copy.move(inner + gap, (height - button.height()) // 2)
        return height


class AnswerView(Column):
    """Feed it what streams, then ``finish`` it; or ``show_answer`` one that was saved."""

    link_clicked = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent, gap=space(2))
        self.theme = theme
        self.text = ""  # all of it, as the model wrote it
        self.reason: FinishReason | None = None
        self._pieces: list[str] = []
        self._stream = ReasoningStream()
        self._began = time.monotonic()
        self.fold: Fold | None = None
        self.body = self._new_body()
        self.footer = Footer(self)
        self.footer.copy.clicked.connect(self.copy)
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
        body.complete.connect(self.height_changed)
        return body

    @property
    def settled(self) -> bool:
        """Everything that came is shown."""
        return self.body.settled

    @property
    def touched(self) -> bool:
        """The reader opened something here."""
        return self.fold is not None and self.fold.button.isChecked()

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
        self.add(Label(text, "faint", self), index=0)
        self.refit()

    def feed(self, text: str) -> None:
        """New text of the answer."""
        if not text:
            return
        if not self._pieces:
            self.show_status("")
        self._pieces.append(text)
        piece = self._stream.feed(text)
        if piece.restart:
            old, self.body = self.body, self._new_body()
            self.remove(old)
            old.deleteLater()
            self.add(self.body, index=0)
        if piece.thought:
            self._fold().feed(piece.thought)
        if self.fold is not None and self._stream.state == "answer":
            self.fold.end(time.monotonic() - self._began)
        if piece.answer:
            self.body.feed(piece.answer)
            self.refit()

    def _fold(self) -> Fold:
        if self.fold is None:
            self.fold = Fold(self.theme, self)
            self.fold.link_clicked.connect(self.link_clicked)
            self.add(self.fold, index=0)
            self.refit()
        return self.fold

    def finish(self, event: Finished) -> None:
        """The answer has ended."""
        self._close(event.text, event.reason, event.timings, event.cache)

    def show_answer(
        self, text: str, reason: FinishReason | None, timings: Timings | None, cache: CacheCounters | None
    ) -> None:
        """An answer that was saved earlier."""
        if text:
            self.feed(text)
        self._close(text, reason, timings, cache, measured=False)

    def _close(
        self,
        text: str,
        reason: FinishReason | None,
        timings: Timings | None,
        cache: CacheCounters | None,
        measured: bool = True,
    ) -> None:
        self.text, self.reason = text, reason
        piece = self._stream.finish()
        if piece.thought:
            self._fold().feed(piece.thought)
        if piece.answer:
            self.body.feed(piece.answer)
        self.body.finish()
        if self.fold is not None:
            self.fold.end(time.monotonic() - self._began if measured else None)
            if self._stream.state == "thought":
                self.fold.open()  # it never came to an answer: the thought is all there is
        self.footer.copy.setVisible(bool(text))
        self.footer.label.setText(figures(self, reason, timings, cache))
        self.footer.setVisible(bool(text or self.footer.label.text()))
        self.refit(self.footer)

    # ------------------------------------------------------------------------------------------------- copy

    @Slot()
    def copy(self) -> None:
        """The whole answer, as the model wrote it, to the clipboard."""
        QGuiApplication.clipboard().setText(self.text)
        self.footer.copy.setText(self.tr("Copied"))
        self._back.start()

    @Slot()
    def _name_copy(self) -> None:
        self.footer.copy.setText(self.tr("Copy"))


def figures(widget: QWidget, reason: FinishReason | None, timings: Timings | None, cache: CacheCounters | None) -> str:
    """The line below an answer: "168 tokens   14.2 tok/s   first token 1.9 s   hits 83%   stopped"."""
    facts: list[str] = []
    if timings is not None and timings.answer_tokens:
        count = timings.answer_tokens
        facts.append(widget.tr("%1 tokens").replace("%1", f"{count:,}") if count != 1 else widget.tr("1 token"))
        if timings.decode_rate is not None:
            facts.append(widget.tr("%1 tok/s").replace("%1", f"{timings.decode_rate:.1f}"))
        if timings.first_token_seconds is not None:
            facts.append(widget.tr("first token %1 s").replace("%1", f"{timings.first_token_seconds:.1f}"))
    if cache is not None and cache.decode_hit_rate is not None:
        facts.append(widget.tr("hits %1%").replace("%1", f"{100 * cache.decode_hit_rate:.0f}"))
    ends = {
        "length": widget.tr("ended at the length limit"),
        "stopped": widget.tr("stopped"),
        "error": widget.tr("ended by an error"),
    }
    if reason in ends:
        facts.append(ends[reason])
    # a fact stays on one line, a line may end between two
    return "     ".join(fact.replace(" ", "\u00a0") for fact in facts)
