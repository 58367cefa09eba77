"""An answer as the model wrote it: every mark, nothing rendered."""

from __future__ import annotations

from PySide6.QtGui import QColor, QPainter, QPaintEvent, QTextBlockFormat, QTextCursor, QTextOption
from PySide6.QtWidgets import QWidget

from app.chat.harmless import harmless
from app.chat.prose import LEADING, TextView
from app.theme import RADIUS, Theme, font, space

LONGEST_WORD = 1000  # characters; Qt looks long for the ends of longer ones, and need not


class RawText(QWidget):
    """A card with the text in it."""

    def __init__(self, theme: Theme, text: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme = theme
        self._text = TextView(theme, self)
        self._text.setFont(font("mono"))
        endless = max(map(len, text.split()), default=0) > LONGEST_WORD
        wrap = QTextOption.WrapMode.WrapAnywhere if endless else QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere
        self._text.setWordWrapMode(wrap)
        self._text.setAccessibleName(self.tr("The answer as the model wrote it"))
        self._text.setPlainText(harmless(text))
        block = QTextBlockFormat()
        block.setLineHeight(LEADING, QTextBlockFormat.LineHeightTypes.LineDistanceHeight.value)
        cursor = QTextCursor(self._text.document())
        cursor.select(QTextCursor.SelectionType.Document)
        cursor.mergeBlockFormat(block)
        theme.changed.connect(self.update)

    @property
    def text(self) -> str:
        return self._text.toPlainText()

    def fit(self, width: int) -> int:
        pad = space(3)
        height = self._text.fit(width - 2 * pad)
        self._text.setGeometry(pad, pad, width - 2 * pad, height)
        return height + 2 * pad

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QColor(self.theme.colors.border))
        painter.setBrush(QColor(self.theme.colors.code_background))
        painter.drawRoundedRect(self.rect().adjusted(0, 0, -1, -1), RADIUS, RADIUS)
        painter.end()
