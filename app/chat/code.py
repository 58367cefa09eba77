"""A code block as a card: its language, a Copy button, and the code, which scrolls sideways and never wraps."""

from __future__ import annotations

import math

from PySide6.QtCore import QLineF, QRectF, Qt, QTimer, Signal, Slot
from PySide6.QtGui import (
    QColor,
    QFontMetricsF,
    QGuiApplication,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QTextCursor,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QLabel, QPlainTextEdit, QPushButton, QWidget

from app.chat.harmless import harmless
from app.chat.highlight import Highlighter
from app.chat.indents import insets
from app.chat.markdown import Code
from app.chat.pointing import position_clicked
from app.theme import RADIUS, Theme, font, space

HEADER = 32  # px
PADDING = 12  # px around the code
SCROLL_BAR = 10  # px


class CodeText(QPlainTextEdit):
    """The code itself: read-only, selectable, every line on one line."""

    pointed = Signal(int)  # a plain click on the character at this position

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setReadOnly(True)
        self.setUndoRedoEnabled(False)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.setFont(font("mono"))
        self.document().setDocumentMargin(0)
        self.viewport().setAutoFillBackground(False)
        self.setTabStopDistance(4 * QFontMetricsF(self.font()).horizontalAdvance(" "))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        if (position := position_clicked(self, event)) >= 0:
            self.pointed.emit(position)

    def wheelEvent(self, event: QWheelEvent) -> None:
        if abs(event.angleDelta().x()) > abs(event.angleDelta().y()):
            super().wheelEvent(event)  # sideways is ours
        else:
            event.ignore()  # up and down is the transcript's


class CodeCard(QWidget):
    """Shows one ``Code`` leaf; ``show_code`` again with a longer text only appends."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme = theme
        self._code = Code("")
        self._shown = ""  # its text, with odd characters made visible
        self._longest = 0.0  # px, of a line
        self._measured = 0  # characters whose lines are measured
        self._highlighter: Highlighter | None = None
        self._language = QLabel(self)
        self._language.setProperty("role", "small")
        self._copy = QPushButton(self.tr("Copy"), self)
        self._copy.setProperty("kind", "quiet")
        self._copy.setCursor(Qt.CursorShape.PointingHandCursor)
        self._copy.clicked.connect(self.copy)
        self._back = QTimer(self)
        self._back.setSingleShot(True)
        self._back.setInterval(1500)
        self._back.timeout.connect(lambda: self._copy.setText(self.tr("Copy")))
        self.text = CodeText(self)
        self._line = math.ceil(QFontMetricsF(self.text.font()).lineSpacing())

    @property
    def leaf(self) -> Code:
        return self._code

    @Slot()
    def copy(self) -> None:
        """The whole code, to the clipboard."""
        QGuiApplication.clipboard().setText(self._code.text)
        self._copy.setText(self.tr("Copied"))
        self._back.start()

    def show_code(self, code: Code, live: bool) -> None:
        """Show a code block; ``live``: more of it is coming."""
        before, self._code = self._code, code
        if self._highlighter is None or code.language != before.language:
            self._set_language(code.language)
        if insets(code) != insets(before):
            self.update()
        shown = harmless(code.text)
        if shown != self._shown:
            self._set_text(self._shown, shown)
            self._shown = shown
        assert self._highlighter is not None
        if live:
            self._highlighter.update_live(shown)
        else:
            self._highlighter.read_all(shown)

    def restyle(self) -> None:
        """Colour everything again in the theme's colours."""
        self.text.setFont(font("mono"))  # letters may have another size now
        self.text.setTabStopDistance(4 * QFontMetricsF(self.text.font()).horizontalAdvance(" "))
        self._line = math.ceil(QFontMetricsF(self.text.font()).lineSpacing())
        self._drop_highlighter()
        self._measure(self._shown, 0)
        self.show_code(self._code, live=False)
        self.update()

    def fit(self, width: int) -> int:
        left, right = insets(self._code)
        inner = width - left - right - 2 * PADDING
        lines = self.text.document().blockCount() * self._line
        if self._longest > inner:
            lines += SCROLL_BAR
        self._copy.adjustSize()
        size = self._copy.size()
        self._copy.move(width - right - size.width() - space(1), (HEADER - size.height()) // 2)
        self._language.setGeometry(left + PADDING, 0, max(0, inner - size.width()), HEADER)
        self.text.setGeometry(left + PADDING, HEADER + space(2), inner, lines)
        return HEADER + lines + space(2) + PADDING

    def _set_language(self, language: str) -> None:
        self._language.setText(language or self.tr("code"))
        name = self.tr("%1 code").replace("%1", language).strip() if language else self.tr("Code")
        self.text.setAccessibleName(name)
        self._copy.setAccessibleName(self.tr("Copy code"))
        self._drop_highlighter()
        self._highlighter = Highlighter(self.text.document(), self.theme, language)

    def _drop_highlighter(self) -> None:
        """Without this it lives on with the document, and paints over the next one's colours."""
        highlighter, self._highlighter = self._highlighter, None
        if highlighter is not None:
            highlighter.stop()
            highlighter.deleteLater()

    def _set_text(self, before: str, text: str) -> None:
        if text.startswith(before) and before:
            cursor = QTextCursor(self.text.document())
            cursor.movePosition(QTextCursor.MoveOperation.End)
            cursor.insertText(text[len(before) :])
        else:
            self.text.setPlainText(text)
            self._measured = 0
        self._measure(text, self._measured)

    def _measure(self, text: str, measured: int) -> None:
        """Find the longest line; the first ``measured`` characters are known."""
        metrics = QFontMetricsF(self.text.font())
        self._longest = self._longest if measured else 0.0
        start = text.rfind("\n", 0, measured) + 1
        for line in text[start:].split("\n"):
            self._longest = max(self._longest, metrics.horizontalAdvance(line.expandtabs(4)[:2000]) + 2)
        self._measured = len(text)

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self.theme.colors
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        left, right = insets(self._code)
        box = QRectF(left + 0.5, 0.5, self.width() - left - right - 1, self.height() - 1)
        painter.setPen(QColor(colors.border))
        painter.setBrush(QColor(colors.code_background))
        painter.drawRoundedRect(box, RADIUS, RADIUS)
        painter.drawLine(QLineF(box.left(), HEADER + 0.5, box.right(), HEADER + 0.5))
        painter.end()
