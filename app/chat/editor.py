"""A message of the user's being said otherwise, in the place where it stands."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt, Signal, Slot
from PySide6.QtGui import QColor, QKeyEvent, QPainter, QPaintEvent, QTextCursor
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.chat.message_input import Input
from app.theme import Theme, space


class MessageEditor(QWidget):
    """Enter sends the new version, Esc leaves the old one as it is."""

    sent = Signal(str)
    cancelled = Signal()
    height_changed = Signal()

    def __init__(self, theme: Theme, text: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._can_ask = True
        self.input = Input(self)
        self.input.setAccessibleName(self.tr("Edit your message"))
        self.input.setPlainText(text)
        self.input.moveCursor(QTextCursor.MoveOperation.End)
        self.input.sent.connect(self._send)
        self.input.textChanged.connect(self._update)
        self.input.height_changed.connect(self.height_changed)
        hint = QLabel(self.tr("The first version is kept"), self)
        hint.setProperty("role", "faint")
        self.cancel = QPushButton(self.tr("Cancel"), self)
        self.cancel.setProperty("kind", "quiet")
        self.cancel.clicked.connect(self.cancelled)
        self.send = QPushButton(self.tr("Send"), self)
        self.send.setProperty("kind", "strong")
        self.send.clicked.connect(self._send)
        row = QHBoxLayout()
        row.setSpacing(space(2))
        row.addWidget(hint)
        row.addStretch(1)
        row.addWidget(self.cancel)
        row.addWidget(self.send)
        layout = self._layout = QVBoxLayout(self)
        layout.setContentsMargins(space(4), space(3), space(3), space(3))
        layout.setSpacing(space(2))
        layout.addWidget(self.input)
        layout.addLayout(row)
        self.setFocusProxy(self.input)
        theme.changed.connect(self.update)
        self._update()

    @property
    def text(self) -> str:
        """What is in it."""
        return self.input.toPlainText()

    def allow(self, can_ask: bool) -> None:
        """Whether a new version could be answered now."""
        self._can_ask = can_ask
        self._update()

    def fit(self, width: int) -> int:
        self.resize(width, self.height())
        self._layout.activate()
        # the field grows while it is being shown, and Qt then breaks its lines for the width it had before
        self.input.setLineWrapMode(Input.LineWrapMode.NoWrap)
        self.input.setLineWrapMode(Input.LineWrapMode.WidgetWidth)
        self.input.measure()
        return self.sizeHint().height()

    @Slot()
    def _update(self) -> None:
        self.send.setEnabled(self._can_ask and bool(self.text.strip()))

    @Slot()
    def _send(self) -> None:
        if self.send.isEnabled():
            self.sent.emit(self.text.strip("\n"))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.cancelled.emit()
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QColor(colors.accent))
        painter.setBrush(QColor(colors.surface_raised))
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 12, 12)
        painter.end()
