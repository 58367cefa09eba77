"""Where the next message is written: grows with the text, shows the context, and holds Send or Stop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QEvent, QRectF, Qt, Signal, Slot
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QResizeEvent, QTextCursor
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.chat.attachments import MAX_FILES, Attachment, NotText, quoted, read_attachment, size_in_words
from app.chat.languages import Languages
from app.chat.message_input import Input
from app.chat.meter import ContextMeter
from app.panels.parts import plain_tip
from app.theme import Theme, font, space
from engine.messages import Thinking, TokenCount


class Chip(QPushButton):
    """A file that goes along: a click takes it out."""

    def __init__(self, attachment: Attachment, parent: QWidget) -> None:
        name = attachment.name if len(attachment.name) <= 32 else f"{attachment.name[:20]}…{attachment.name[-10:]}"
        super().__init__(f"{name}   {size_in_words(len(attachment.text.encode()))}   ✕", parent)
        self.setProperty("kind", "chip")
        self.setAccessibleName(self.tr("Take out %1").replace("%1", attachment.name))
        self.setToolTip(plain_tip(self.accessibleName()))


class Chips(QWidget):
    """The files that go along, in as many rows as they need."""

    removed = Signal(object)  # Attachment

    def show_files(self, attachments: Sequence[Attachment]) -> None:
        for old in self.findChildren(Chip):
            old.hide()
            old.setParent(None)
            old.deleteLater()
        for attachment in attachments:
            chip = Chip(attachment, self)
            chip.clicked.connect(lambda _=False, which=attachment: self.removed.emit(which))
            chip.show()
        self.setVisible(bool(attachments))
        self._place()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place()

    def _place(self) -> None:
        x, y, row = 0, 0, 0
        for chip in self.findChildren(Chip):
            size = chip.sizeHint()
            if x and x + size.width() > self.width():
                x, y = 0, y + row + space(2)
            row = size.height()
            chip.setGeometry(x, y, min(size.width(), max(1, self.width())), row)
            x += size.width() + space(2)
        if self.height() != y + row:
            self.setFixedHeight(y + row)


class Composer(QWidget):
    """Emits ``sent`` with the text and the files quoted in it, and ``stopped``. All stays until ``clear`` is called."""

    sent = Signal(str)
    stopped = Signal()
    changed = Signal()  # the text, or the files that go along
    options_wanted = Signal()
    thinking_wanted = Signal(bool)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme = theme
        self._busy = False
        self._ready = False
        self._too_long = False
        self._attachments: list[Attachment] = []
        self._refused = ""  # what is wrong with files that were given last
        self._outgrown = ""  # what is wrong with the length of it all
        self._style_name = ""
        self._switch: Thinking = "fixed"
        self.chips = Chips(self)
        self.chips.removed.connect(self._take_out)
        self.chips.hide()
        self.languages = Languages(theme, self)
        self.input = Input(self)
        self.input.sent.connect(self._send)
        self.input.textChanged.connect(self._text_changed)
        self.input.files_pasted.connect(self.attach)
        self.input.installEventFilter(self)
        self.note = QLabel(self)
        self.note.setWordWrap(True)
        self.note.setFont(font("small"))
        self.note.setTextFormat(Qt.TextFormat.PlainText)
        self.note.setProperty("role", "warn")
        self.note.hide()
        self.meter = ContextMeter(theme, self)
        self.options = QPushButton(self)
        self.options.setProperty("kind", "quiet")
        self.options.clicked.connect(self.options_wanted)
        self.thinking = QPushButton(self)
        self.thinking.setProperty("kind", "quiet")
        self.thinking.setCheckable(True)
        self.thinking.clicked.connect(self.thinking_wanted)
        self.thinking.hide()
        self.files = QPushButton(self.tr("Attach…"), self)
        self.files.setProperty("kind", "quiet")
        self.files.setAccessibleName(self.tr("Attach text files"))
        self.files.setToolTip(self.tr("Text files that go with the message; they can be dropped on the chat as well"))
        self.files.clicked.connect(self._choose_files)
        self.action = QPushButton(self)
        self.action.setProperty("kind", "strong")
        self.action.clicked.connect(self._act)
        row = QHBoxLayout()
        row.setSpacing(space(3))
        row.addWidget(self.meter)
        row.addWidget(self.options)
        row.addWidget(self.thinking)
        row.addWidget(self.files)
        row.addStretch(1)
        self.hint = QLabel(self)
        self.hint.setProperty("role", "faint")
        row.addWidget(self.hint)
        row.addWidget(self.action)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(space(4), space(3.5), space(3), space(3))
        layout.setSpacing(space(3))
        layout.addWidget(self.languages)
        layout.addWidget(self.chips)
        layout.addWidget(self.input)
        layout.addWidget(self.note)
        layout.addLayout(row)
        self.setFocusProxy(self.input)
        theme.changed.connect(self.update)
        self._update()

    # -------------------------------------------------------------------------------------------- state

    def set_state(self, ready: bool, busy: bool, placeholder: str) -> None:
        """ready: a model could answer. busy: an answer is under way, the button stops it."""
        self._ready, self._busy = ready, busy
        if placeholder != self.input.placeholderText():
            self.input.setPlaceholderText(placeholder)
            self.input.viewport().update()  # Qt does not paint anew when only the words change
        self._update()

    def name_style(self, name: str, details: str) -> None:
        """How answers are to be, in a word, and in full for those who point at it."""
        self._style_name = name
        self._fit()
        self.options.setAccessibleName(self.tr("How answers are to be: %1").replace("%1", name))
        self.options.setToolTip(plain_tip(details))

    def show_thinking(self, switch: Thinking, on: bool) -> None:
        """Whether the model's thinking can be switched, and whether it thinks now."""
        self._switch = switch
        state = self.tr("on") if on else self.tr("off")
        if switch == "effort":
            state = self.tr("long") if on else self.tr("short")
        self.thinking.setText(self.tr("Thinking: %1").replace("%1", state))
        self.thinking.setChecked(on)
        self.thinking.setToolTip(
            self.tr("How long the model thinks before it answers")
            if switch == "effort"
            else self.tr("Whether the model thinks before it answers")
        )
        self._fit()

    @property
    def text(self) -> str:
        """What was typed."""
        return self.input.toPlainText()

    @property
    def message(self) -> str:
        """What would be sent: the files that go along, quoted, and the text."""
        return quoted(self._attachments, self.text.strip("\n"))

    def clear(self) -> None:
        self.set_draft("")

    @Slot()
    def _text_changed(self) -> None:
        self._update()
        self.changed.emit()

    def set_draft(self, text: str, attachments: Sequence[Attachment] = (), problem: str = "") -> None:
        """Put another draft, and the files that go along with it, in place of what is there.

        problem: what there is to say of files that do not go along any more.
        """
        self._attachments = list(attachments)
        self.chips.show_files(self._attachments)
        self._refused, self._outgrown = problem, ""
        self._say()
        self.set_text(text)

    def set_text(self, text: str) -> None:
        """Put another text in place of what is there; the caret goes behind it."""
        self.input.setPlainText(text)
        self.input.moveCursor(QTextCursor.MoveOperation.End)

    @Slot()
    def _update(self) -> None:
        self.action.setText(self.tr("Stop") if self._busy else self.tr("Send"))
        can_send = self._ready and self.has_message and not self._too_long
        self.action.setEnabled(self._busy or can_send)
        keys = self.tr("Esc stops") if self._busy else self.tr("Enter sends, Shift+Enter breaks")
        in_row = [self.meter, self.options, self.files, self.action]
        in_row += [self.thinking] if self._switch != "fixed" else []
        taken = sum(widget.sizeHint().width() + space(3) for widget in in_row)
        fits = self.width() - space(8) - taken > self.hint.fontMetrics().horizontalAdvance(keys)
        self.hint.setText(keys if fits and (self._busy or self.text) else "")

    @property
    def has_message(self) -> bool:
        """There is something that could be sent."""
        return bool(self._attachments or self.text.strip())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()
        self._update()

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.LayoutRequest:  # what stands in the row has grown, or shrunk
            self._fit()
        return super().event(event)

    def _fit(self) -> None:
        """Where the row gets too narrow the meter shrinks first, then the button for files goes, then the switch for
        thinking, which the sheet has as well, then words do."""
        metrics, padding = self.options.fontMetrics(), space(5)
        words = f"{self._style_name} ▾"
        room = self.contentsRect().width() - space(7) - 5 * space(3) - self.action.sizeHint().width()
        left = room - metrics.horizontalAdvance(words) - padding
        switch = self.thinking.sizeHint().width() + space(3) if self._switch != "fixed" else 0
        self.thinking.setVisible(bool(switch) and left >= self.meter.wide(compact=True) + switch)
        others = self.files.sizeHint().width() + switch
        self.files.setVisible(left >= self.meter.wide(compact=True) + others)
        self.meter.set_compact(left < self.meter.wide(compact=False) + others)
        if left < self.meter.wide(compact=True):
            most = room - self.meter.wide(compact=True) - padding - metrics.horizontalAdvance(" ▾")
            words = f"{metrics.elidedText(self._style_name, Qt.TextElideMode.ElideRight, max(space(6), most))} ▾"
        if words != self.options.text():
            self.options.setText(words)

    def set_room(self, height: int) -> None:
        """The text may take about this much height, px, before it scrolls."""
        self.input.set_room(height)

    def show_count(self, count: TokenCount | None) -> None:
        """What the message and the conversation come to; None: nothing to count, or not counted yet."""
        self.meter.set_count(count)
        self._too_long = count is not None and count.tokens >= count.context
        self._outgrown = self._length_in_words(count) if count is not None else ""
        self._say()
        self._update()

    def _length_in_words(self, count: TokenCount) -> str:
        """What its length means for the message or the conversation; "" when there is room."""
        if count.tokens >= count.context:
            words = self.tr(
                "This message alone has more tokens (%1) than the context holds (%2). Shorten it, or load the model "
                "with a longer context."
            )
            return words.replace("%1", f"{count.tokens:,}").replace("%2", f"{count.context:,}")
        if not count.left_out:
            return ""
        words = self.tr("The conversation outgrows the context: its oldest %1 messages will be left out.")
        if count.left_out == 1:
            words = self.tr("The conversation outgrows the context: its oldest message will be left out.")
        return words.replace("%1", f"{count.left_out:,}")

    def _say(self) -> None:
        """Sentences below the text, or none: neither hides the other."""
        self.note.setText("\n".join(words for words in (self._refused, self._outgrown) if words))
        self.note.setVisible(bool(self.note.text()))

    @Slot()
    def _act(self) -> None:
        if self._busy:
            self.stopped.emit()
        else:
            self._send()

    @Slot()
    def _send(self) -> None:
        if self._ready and not self._busy and self.has_message and not self._too_long:
            self.sent.emit(self.message)

    # -------------------------------------------------------------------------------------------- files

    @property
    def attachments(self) -> Sequence[Attachment]:
        """The files that go along."""
        return self._attachments

    @Slot(list)
    def attach(self, paths: Sequence[Path]) -> None:
        """Let these files go along; a sentence says which cannot, and why."""
        problems: list[str] = []
        for path in paths:
            if len(self._attachments) >= MAX_FILES:
                problems.append(self.tr("At most %1 files can go along.").replace("%1", str(MAX_FILES)))
                break
            try:
                attachment = read_attachment(path)
            except NotText as problem:
                problems.append(str(problem))
                continue
            if attachment not in self._attachments:
                self._attachments.append(attachment)
        self.chips.show_files(self._attachments)
        self._refused = " ".join(problems)
        self._say()
        self._text_changed()
        self.input.setFocus()

    @Slot(object)
    def _take_out(self, attachment: Attachment) -> None:
        self._attachments.remove(attachment)
        self.chips.show_files(self._attachments)
        self._refused = ""
        self._say()
        self._text_changed()
        self.input.setFocus()

    @Slot()
    def _choose_files(self) -> None:
        dialog = QFileDialog(self, self.tr("Attach text files"))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
        dialog.filesSelected.connect(lambda names: self.attach([Path(name) for name in names]))
        dialog.open()

    # ------------------------------------------------------------------------------------------ painting

    def eventFilter(self, watched: QWidget, event: QEvent) -> bool:  # type: ignore[override]
        if watched is self.input and event.type() in (QEvent.Type.FocusIn, QEvent.Type.FocusOut):
            self.update()
        return super().eventFilter(watched, event)

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self.theme.colors
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QColor(colors.accent if self.input.hasFocus() else colors.border))
        painter.setBrush(QColor(colors.surface_raised))
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 12, 12)
        painter.end()
