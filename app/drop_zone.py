"""Where files can be dropped: anywhere in a part of the window, which says so while they are held over it."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QEvent, QMargins, QMimeData, QObject, QRect, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QDropEvent, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QLabel, QLayout, QWidget

from app.theme import Theme, font, space

VEIL = 0.86  # of what lies below: it can still be told, and does not compete


class DropZone(QWidget):
    """Takes what is dropped on ``room`` or on anything in it that leaves files alone; lies over it meanwhile.

    Drags without local files get no hint and go where they would have gone. ``within``: its margins stay uncovered.
    """

    dropped = Signal(list)  # paths

    def __init__(self, theme: Theme, room: QWidget, words: str, within: QLayout | None = None) -> None:
        super().__init__(room)
        self._theme, self._room, self._within = theme, room, within
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)  # what lies below stays the target
        self.label = QLabel(words, self)
        self.label.setTextFormat(Qt.TextFormat.PlainText)
        self.label.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.label.setWordWrap(True)
        self.label.setProperty("card", "drop")
        self.label.setFont(font("body"))
        self.hide()
        room.setAcceptDrops(True)
        room.installEventFilter(self)
        theme.changed.connect(self.update)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.DragLeave:
            self.hide()
        elif event.type() == QEvent.Type.Resize and not self.isHidden():
            self._cover()
        elif isinstance(event, QDropEvent) and (files := files_in(event.mimeData())):
            # entering and moving are drops too; a copy, if that can be had: a move would take the file from its place
            copies = event.possibleActions() & Qt.DropAction.CopyAction
            event.setDropAction(Qt.DropAction.CopyAction if copies else event.proposedAction())
            event.accept()
            if event.type() == QEvent.Type.Drop:
                self.hide()
                self.dropped.emit(files)
            elif self.isHidden():
                self._cover()
                self.show()
                self.raise_()
            return True
        return super().eventFilter(watched, event)

    def _cover(self) -> None:
        bare = self._within.contentsMargins() if self._within is not None else QMargins()
        self.setGeometry(self._room.rect().marginsRemoved(bare))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place()

    def _place(self) -> None:
        """The words in the middle, in as many lines as they need."""
        most = self.width() - 2 * space(8)
        self.label.setWordWrap(False)
        width = min(self.label.sizeHint().width(), most)
        self.label.setWordWrap(True)
        place = QRect(0, 0, width, self.label.heightForWidth(width))
        place.moveCenter(self.rect().center())
        self.label.setGeometry(place)

    def paintEvent(self, event: QPaintEvent) -> None:
        veil, accent = QColor(self._theme.colors.window), QColor(self._theme.colors.accent)
        veil.setAlphaF(VEIL)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.fillRect(self.rect(), veil)
        painter.setPen(QPen(accent, 2, Qt.PenStyle.DashLine))
        inset = space(2) + 1
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(inset, inset, -inset, -inset), 12, 12)
        painter.end()


def files_in(source: QMimeData) -> list[Path]:
    """Paths of the files that are dragged or copied."""
    return [Path(url.toLocalFile()) for url in source.urls() if url.isLocalFile()]
