"""The left column: New chat, and the conversations in the data folder, latest first."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path

from PySide6.QtCore import QSize, Qt, Signal, Slot
from PySide6.QtGui import QFont
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QLabel,
    QListWidget,
    QListWidgetItem,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.theme import Theme, font, space
from engine.errors import SessionError
from engine.sessions.library import ConversationEntry, Library

PATH = Qt.ItemDataRole.UserRole


class Sidebar(QWidget):
    """Emits what the user wants: a new chat, or a saved one."""

    new_chat = Signal()
    opened = Signal(Path)

    def __init__(self, theme: Theme, folder: Path, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("sidebar")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._folder = folder
        self._current: Path | None = None
        self.new_button = QPushButton(self.tr("New chat"), self)
        self.new_button.setProperty("kind", "wide")
        self.new_button.clicked.connect(self.new_chat)
        self.list = QListWidget(self)
        self.list.setAccessibleName(self.tr("Conversations"))
        self.list.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.list.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.list.setUniformItemSizes(False)
        self.list.itemClicked.connect(self._open)
        self.list.itemActivated.connect(self._open)
        self.empty = QLabel(self.tr("Your conversations will be listed here."), self)
        self.empty.setProperty("role", "faint")
        self.empty.setWordWrap(True)
        line = QFrame(self)
        line.setProperty("line", "true")
        foot = QLabel(self.tr("All chats stay on this computer."), self)
        foot.setProperty("role", "faint")
        foot.setWordWrap(True)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(space(3), space(4), space(3), space(4))
        layout.setSpacing(space(3))
        layout.addWidget(self.new_button)
        layout.addWidget(self.empty)
        layout.addWidget(self.list, 1)
        layout.addWidget(line)
        layout.addWidget(foot)
        self.refresh()

    @Slot()
    def refresh(self) -> None:
        """Read the folder again."""
        self.list.clear()
        try:
            entries = Library(self._folder).entries()
        except SessionError as error:
            self.empty.setText(str(error))
            entries = []
        heading = ""
        for entry in entries:
            if (when := _day(entry, self)) != heading:
                heading = when
                self.list.addItem(_heading(when))
            self.list.addItem(_item(entry))
        self.empty.setVisible(not entries)
        self.select(self._current)

    def put_first(self, path: Path, title: str) -> None:
        """This conversation was just added to: it leads the list. Without reading the folder again."""
        self.empty.hide()
        today = self.tr("Today")
        if self.list.count() == 0 or self.list.item(0).text() != today:
            self.list.insertItem(0, _heading(today))
        for row in range(1, self.list.count()):
            if self.list.item(row).data(PATH) == str(path):
                if row == 1:
                    return
                self._take(row)
                break
        self.list.insertItem(1, _item(ConversationEntry(path.stem, path, title, 0.0)))
        self.select(self._current)

    def _take(self, row: int) -> None:
        """Remove a row, and the heading above it when nothing is left under that."""
        self.list.takeItem(row)
        below = self.list.item(row)
        above = self.list.item(row - 1)
        if not above.data(PATH) and row > 1 and (below is None or not below.data(PATH)):
            self.list.takeItem(row - 1)

    def select(self, current: Path | None) -> None:
        """Mark the conversation on the screen; None marks none."""
        self._current = current
        self.list.clearSelection()
        self.list.setCurrentRow(-1)
        for row in range(self.list.count()):
            item = self.list.item(row)
            if current is not None and item.data(PATH) == str(current):
                self.list.setCurrentItem(item)

    @Slot(QListWidgetItem)
    def _open(self, item: QListWidgetItem) -> None:
        path = item.data(PATH)
        if path and Path(path) != self._current:
            self.opened.emit(Path(path))


def _day(entry: ConversationEntry, widget: QWidget) -> str:
    """The heading a conversation stands under."""
    day = datetime.fromtimestamp(entry.modified).date()
    today = date.today()
    if day >= today:
        return widget.tr("Today")
    if day == today - timedelta(days=1):
        return widget.tr("Yesterday")
    if day > today - timedelta(days=7):
        return widget.tr("This week")
    return f"{day:%B %Y}"


def _heading(text: str) -> QListWidgetItem:
    item = QListWidgetItem(text)
    item.setFlags(Qt.ItemFlag.NoItemFlags)
    item.setFont(font("small"))
    item.setSizeHint(QSize(0, space(9)))
    item.setTextAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignBottom)
    return item


def _item(entry: ConversationEntry) -> QListWidgetItem:
    item = QListWidgetItem(entry.title if not entry.problem else f"!  {entry.title}")
    item.setData(PATH, str(entry.path))
    item.setToolTip(entry.problem or entry.title)
    item.setSizeHint(QSize(0, space(9)))
    look = QFont(font("body"))
    look.setItalic(bool(entry.problem))
    item.setFont(look)
    return item
