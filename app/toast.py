"""A short word at the foot of the chat that goes away by itself, with one thing that can be done about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from PySide6.QtCore import QEvent, QRectF, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QWidget

from app.theme import Theme, space

SECONDS = 9.0
MOST_WIDTH = 560  # px


class Toast(QWidget):
    """One word at a time, centred above ``foot``, or above another toast. It waits while mouse or keyboard is on it."""

    gone = Signal()  # its time is over, or the user dismissed it
    moved = Signal()

    def __init__(self, theme: Theme, parent: QWidget, foot: QWidget, below: Toast | None = None) -> None:
        super().__init__(parent)
        self._below = below
        self._theme = theme
        self._room = parent
        self._foot = foot
        self._act: Callable[[], None] = lambda: None
        self.label = QLabel(self)
        self.label.setTextFormat(Qt.TextFormat.PlainText)
        self.label.setWordWrap(True)
        self.button = QPushButton(self.tr("Undo"), self)
        self.button.setProperty("kind", "link")
        self.button.clicked.connect(self.act)
        self.close_button = QPushButton("✕", self)
        self.close_button.setProperty("kind", "quiet")
        self.close_button.setAccessibleName(self.tr("Dismiss"))
        self.close_button.setToolTip(self.tr("Dismiss"))
        self.close_button.clicked.connect(self.dismiss)
        layout = self._layout = QHBoxLayout(self)
        layout.setContentsMargins(space(4), space(2), space(2), space(2))
        layout.setSpacing(space(2))
        layout.addWidget(self.label, 1)
        layout.addWidget(self.button)
        layout.addWidget(self.close_button)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._time_over)
        theme.changed.connect(self.update)
        parent.installEventFilter(self)
        foot.installEventFilter(self)
        if below is not None:
            below.moved.connect(self._place)
        self.hide()

    def say(self, text: str, action: str = "", act: Callable[[], None] = lambda: None) -> None:
        """Show a word in place of the one before, with a button when ``action`` names one."""
        self._act = act
        self.label.setText(text)
        self.button.setText(action or self.button.text())
        self.button.setVisible(bool(action))
        self.setAccessibleName(text)
        self.show()
        self._place()
        self.raise_()
        self._timer.start(round(1000 * SECONDS))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What happens inside takes none of the time that it is shown for."""
        left = self._timer.remainingTime()
        self._timer.stop()
        try:
            yield
        finally:
            if left >= 0 and not self.isHidden():
                self._timer.start(left)

    @Slot()
    def act(self) -> None:
        """Do what the button says."""
        if not self.isHidden():
            act, self._act = self._act, lambda: None
            self.withdraw()
            act()

    def withdraw(self) -> None:
        """Take the word back."""
        self._timer.stop()
        self.hide()
        self.moved.emit()

    @Slot()
    def dismiss(self) -> None:
        if not self.isHidden():
            self.withdraw()
            self.gone.emit()

    @Slot()
    def _time_over(self) -> None:
        if self.underMouse() or self.button.hasFocus() or self.close_button.hasFocus():
            self._timer.start(1000)
        else:
            self.dismiss()

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        if self._timer.isActive():
            self._timer.start(max(2000, self._timer.remainingTime()))

    def eventFilter(self, watched: QWidget, event: QEvent) -> bool:  # type: ignore[override]
        if event.type() in (QEvent.Type.Resize, QEvent.Type.Move) and not self.isHidden():
            self._place()
        return super().eventFilter(watched, event)

    @Slot()
    def _place(self) -> None:
        room = self._room.width() - 2 * space(4)
        fixed = self.sizeHint().width() - self.label.sizeHint().width()
        wanted = self.label.fontMetrics().horizontalAdvance(self.label.text()) + fixed + space(1)
        width = max(min(wanted, room, MOST_WIDTH), min(room, 160))
        self.resize(width, self._layout.heightForWidth(width))
        bottom = self._foot.mapTo(self._room, self._foot.rect().topLeft()).y()
        if self._below is not None and not self._below.isHidden():
            bottom = self._below.y()
        self.move((self._room.width() - width) // 2, bottom - self.height() - space(2))
        self.moved.emit()

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QColor(colors.border))
        painter.setBrush(QColor(colors.surface_raised))
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 10, 10)
        painter.end()
