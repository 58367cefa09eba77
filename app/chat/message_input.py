"""The field one writes a message in: grows with the text, knows its keys, and hands on files that are pasted."""

from __future__ import annotations

import math

from PySide6.QtCore import QEvent, QMimeData, Qt, Signal, Slot
from PySide6.QtGui import QDragEnterEvent, QFontMetricsF, QInputMethodEvent, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QPlainTextEdit, QWidget

from app.drop_zone import files_in
from app.theme import font

MAX_LINES = 8


class Input(QPlainTextEdit):
    """Enter sends, Shift+Enter breaks the line; while an input method composes, Enter is its own."""

    sent = Signal()
    paged = Signal(bool)  # Page Up (True) or Page Down: the conversation is meant, not this field
    height_changed = Signal()
    files_pasted = Signal(list)  # paths

    _lines = 0
    _most = MAX_LINES

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFont(font("body"))
        self.setAccessibleName(self.tr("Message"))
        self.setTabChangesFocus(True)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        self.document().setDocumentMargin(0)
        self._composing = False
        self.textChanged.connect(self.measure)
        self.measure()

    def set_room(self, height: int) -> None:
        """Grow up to this height, px, and to MAX_LINES at most."""
        most = max(2, min(MAX_LINES, int(height / QFontMetricsF(self.font()).lineSpacing())))
        if most != self._most:
            self._most, self._lines = most, 0
            self.measure()

    @Slot()
    def measure(self) -> None:
        """Be as high as the text is at this width."""
        lines = max(1, round(self.document().size().height()))
        if lines != self._lines:
            self._lines = lines
            scrolls = lines > self._most
            policy = Qt.ScrollBarPolicy
            self.setVerticalScrollBarPolicy(policy.ScrollBarAsNeeded if scrolls else policy.ScrollBarAlwaysOff)
            line = math.ceil(QFontMetricsF(self.font()).lineSpacing())
            self.setFixedHeight(min(lines, self._most) * line + 4)
            self.height_changed.emit()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            self._lines = 0
            self.measure()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.measure()

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        return bool(files_in(source)) or super().canInsertFromMimeData(source)

    def insertFromMimeData(self, source: QMimeData) -> None:
        """Files are handed on, everything else is text without a look."""
        if files := files_in(source):
            self.files_pasted.emit(files)
        elif source.hasText():
            self.insertPlainText(source.text())

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if files_in(event.mimeData()):
            event.ignore()  # what is around this field takes them, here as beside it
        else:
            super().dragEnterEvent(event)

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        self._composing = bool(event.preeditString())
        super().inputMethodEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        breaks = event.modifiers() & (Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.AltModifier)
        if enter and not self._composing and not breaks:
            self.sent.emit()
        elif enter and not self._composing:
            self.insertPlainText("\n")
            self.ensureCursorVisible()
        elif event.key() in (Qt.Key.Key_PageUp, Qt.Key.Key_PageDown):
            self.paged.emit(event.key() == Qt.Key.Key_PageUp)
        else:
            super().keyPressEvent(event)
