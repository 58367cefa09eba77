"""The column itself: New chat, the search field, and the list."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

from PySide6.QtCore import QEvent, QPoint, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QKeyEvent, QKeySequence, QMouseEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QLabel,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QMenu,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.background import Background
from app.drop_zone import DropZone
from app.sidebar.finder import Finder
from app.sidebar.groups import heading
from app.sidebar.rows import MESSAGE, PATH, PROBLEM, WRITING, RowDelegate, dots_rect, entry_item, heading_item
from app.theme import Theme, space
from engine.sessions.library import ConversationEntry, Hit

SEARCH_AFTER = 80  # ms without a key


class ConversationList(QListWidget):
    """Rows that open with a click or Enter; the three dots, the right button and the menu key ask for their menu."""

    chosen = Signal(QListWidgetItem)
    menu_wanted = Signal(QListWidgetItem, QPoint)  # at this place on the screen
    left_upwards = Signal()

    def __init__(self, delegate: RowDelegate, parent: QWidget) -> None:
        super().__init__(parent)
        self.setItemDelegate(delegate)
        self.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.EditKeyPressed)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setMouseTracking(True)
        self.setAccessibleName(self.tr("Conversations"))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        item = self.itemAt(event.position().toPoint())
        if item is None or not item.data(PATH) or event.button() != Qt.MouseButton.LeftButton:
            return
        dots = dots_rect(self.visualItemRect(item))
        if dots.contains(event.position().toPoint()):
            self.menu_wanted.emit(item, self.viewport().mapToGlobal(dots.bottomLeft()))
        else:
            self.chosen.emit(item)

    def contextMenuEvent(self, event: QEvent) -> None:
        keyboard = event.reason() == event.Reason.Keyboard  # type: ignore[attr-defined]
        item = self.currentItem() if keyboard else self.itemAt(event.pos())  # type: ignore[attr-defined]
        if item is not None and item.data(PATH):
            place = self.visualItemRect(item).bottomLeft() if keyboard else event.pos()  # type: ignore[attr-defined]
            self.menu_wanted.emit(item, self.viewport().mapToGlobal(place))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.currentItem() is not None:
            self.chosen.emit(self.currentItem())
            return
        before = self.currentRow()
        super().keyPressEvent(event)
        if event.key() == Qt.Key.Key_Up and self.currentRow() == before:
            self.left_upwards.emit()

    def step_in(self) -> None:
        """The keyboard comes from above: to the first conversation."""
        for row in range(self.count()):
            if self.item(row).data(PATH):
                self.setCurrentRow(row)
                break
        self.setFocus()


class Sidebar(QWidget):
    """Emits what the user wants; what becomes of it is told by ``refresh``, ``put_first``, ``hide_entries``."""

    new_chat = Signal()
    opened = Signal(Path, str)  # the id of a message to show, or ""
    renamed = Signal(Path, str)
    duplicate_wanted = Signal(Path, str)  # and its title
    export_wanted = Signal(Path, str)
    delete_wanted = Signal(Path, str)
    dropped = Signal(list)  # paths of files to import
    left = Signal()  # the keyboard wants to go back to the message

    def __init__(self, theme: Theme, folder: Path, background: Background, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("sidebar")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._entries: list[ConversationEntry] | None = None  # None: not read yet
        self._hits: list[Hit] | None = None  # None: no search
        self._hidden: frozenset[Path] = frozenset()
        self._writing: Path | None = None
        self._current: Path | None = None
        self._problem = ""
        self._unfilled = False  # there is something new to list, once a title has been typed
        self._finder = Finder(folder, background, self)
        self._finder.listed.connect(self._listed)
        self._finder.found.connect(self._found)
        self._finder.failed.connect(self._failed)
        self.new_button = QPushButton(self.tr("New chat"), self)
        self.new_button.setProperty("kind", "wide")
        self.new_button.clicked.connect(self.new_chat)
        self.search = QLineEdit(self)
        self.search.setPlaceholderText(self.tr("Search   Ctrl K"))
        self.search.setAccessibleName(self.tr("Search all conversations"))
        self.search.setClearButtonEnabled(True)
        self.search.installEventFilter(self)
        self.search.textChanged.connect(self._typed)
        self._delegate = RowDelegate(theme, self)
        self._delegate.renamed.connect(lambda path, title: self.renamed.emit(Path(path), title))
        self._delegate.closeEditor.connect(self._title_typed)
        self.list = ConversationList(self._delegate, self)
        self.list.chosen.connect(self._open)
        self.list.menu_wanted.connect(self._show_menu)
        self.list.left_upwards.connect(self.search.setFocus)
        self.list.installEventFilter(self)
        self.empty = QLabel(self)
        self.empty.setProperty("role", "faint")
        self.empty.setTextFormat(Qt.TextFormat.PlainText)
        self.empty.setWordWrap(True)
        self.empty.setContentsMargins(space(3), space(2), space(3), 0)
        self.drop_zone = DropZone(theme, self, self.tr("Drop a session log to import it"))
        self.drop_zone.dropped.connect(self.dropped)
        line = QFrame(self)
        line.setProperty("line", "true")
        foot = QLabel(self.tr("All chats stay on this computer."), self)
        foot.setProperty("role", "faint")
        foot.setWordWrap(True)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(space(3), space(4), space(3), space(4))
        layout.setSpacing(space(3))
        layout.addWidget(self.new_button)
        layout.addWidget(self.search)
        layout.addWidget(self.empty)
        layout.addWidget(self.list, 1)
        layout.addWidget(line)
        layout.addWidget(foot)
        self._wait = QTimer(self)
        self._wait.setSingleShot(True)
        self._wait.setInterval(SEARCH_AFTER)
        self._wait.timeout.connect(self._search)
        theme.changed.connect(self.list.viewport().update)
        self._fill()
        self.refresh()

    # ---------------------------------------------------------------------------------------------- contents

    @Slot()
    def refresh(self) -> None:
        """Read the folder again, and search again where a search is shown. What was found comes by itself."""
        self._finder.list()
        if self._hits is not None:
            self._search()

    @Slot(object)
    def _listed(self, entries: list[ConversationEntry]) -> None:
        self._problem = ""
        if entries != self._entries:
            self._entries = entries
            if self._hits is None:
                self._fill()

    @Slot(str)
    def _failed(self, problem: str) -> None:
        self._problem = problem
        if self._entries is None:
            self._entries = []
        self._fill()

    def put_first(self, path: Path, title: str) -> None:
        """This conversation was just added to: it leads the list. Without reading the folder again."""
        entries = self._entries or []
        others = [entry for entry in entries if entry.path != path]
        now = max([entry.modified for entry in others[:1]] + [time.time()])
        self._entries = [ConversationEntry(path.stem, path, title, now), *others]
        leads = bool(entries) and (entries[0].path, entries[0].title) == (path, title)
        if self._hits is None and not (leads and date.fromtimestamp(entries[0].modified) == date.today()):
            self._fill()

    def set_title(self, path: Path, title: str) -> None:
        """Show another title at once."""
        self._change(path, lambda entry: ConversationEntry(entry.id, path, title, entry.modified, entry.problem))

    def _change(self, path: Path, change: Callable[[ConversationEntry], ConversationEntry]) -> None:
        self._entries = [change(entry) if entry.path == path else entry for entry in self._entries or ()]
        if self._hits is not None:
            self._hits = [
                Hit(change(hit.entry), hit.message, hit.snippet) if hit.entry.path == path else hit
                for hit in self._hits
            ]
        self._fill()

    def hide_entries(self, paths: frozenset[Path]) -> None:
        """Leave these out: they were deleted, for the time being."""
        if paths != self._hidden:
            self._hidden = paths
            self._fill()

    def set_writing(self, path: Path | None) -> None:
        """Mark the conversation that an answer is being written into."""
        before, self._writing = self._writing, path
        for place in {before, path} - {None}:
            if (row := self._row(place)) >= 0:
                self.list.item(row).setData(WRITING, place == path)

    def select(self, current: Path | None) -> None:
        """Mark the conversation on the screen; None marks none."""
        self._current = current
        self._delegate.current = str(current or "")
        row = self._row(current)
        if row >= 0:
            self.list.setCurrentRow(row)
        self.list.viewport().update()

    def _fill(self) -> None:
        """Make the rows anew; the place in the list and the keyboard's row stay. Not while a title is being typed."""
        if self.list.state() == QAbstractItemView.State.EditingState:
            self._unfilled = True
            return
        self._unfilled = False
        bar, focused = self.list.verticalScrollBar(), self.list.currentItem()
        place, at = bar.value(), Path(focused.data(PATH)) if focused is not None and focused.data(PATH) else None
        self.list.clear()
        if self._hits is not None:
            self._fill_hits(self._hits)
        else:
            self._fill_entries(self._entries or [])
        row = self._row(at if at is not None else self._current)
        if row >= 0:
            self.list.setCurrentRow(row)
        bar.setValue(place)
        self.empty.setText(self._nothing())
        nothing = self.list.count() == 0
        self.empty.setVisible(nothing and bool(self.empty.text()))
        self.list.setFocusPolicy(Qt.FocusPolicy.NoFocus if nothing else Qt.FocusPolicy.StrongFocus)

    @Slot()
    def _title_typed(self) -> None:
        """What came meanwhile is shown once the view is done with the editor, right after this."""
        if self._unfilled:
            QTimer.singleShot(0, self, self._fill)

    def _fill_entries(self, entries: list[ConversationEntry]) -> None:
        above, today = "", date.today()
        for entry in entries:
            if entry.path in self._hidden:
                continue
            when = heading(entry.modified, today, self)
            if when != above:
                above = when
                self.list.addItem(heading_item(when))
            self.list.addItem(entry_item(entry, entry.path == self._writing))

    def _fill_hits(self, hits: list[Hit]) -> None:
        hits = [hit for hit in hits if hit.entry.path not in self._hidden]
        if hits:
            count = self.tr("%1 conversations").replace("%1", str(len(hits)))
            self.list.addItem(heading_item(count if len(hits) != 1 else self.tr("1 conversation")))
        for hit in hits:
            self.list.addItem(entry_item(hit.entry, hit.entry.path == self._writing, hit))

    def _nothing(self) -> str:
        """What stands where there is nothing to list."""
        if self._problem:
            return self._problem
        if self._hits is not None:
            return self.tr("No conversation has all of these words. Parts of words will do.")
        if self._entries is None:
            return ""
        return self.tr("Your conversations will be listed here. Drop a session log on this column to import it.")

    def _row(self, path: Path | None) -> int:
        wanted = str(path or "")
        rows = range(self.list.count()) if wanted else ()
        return next((row for row in rows if self.list.item(row).data(PATH) == wanted), -1)

    # ------------------------------------------------------------------------------------------------ search

    def start_search(self) -> None:
        """Put the keyboard into the search field."""
        self.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.search.selectAll()

    @Slot()
    def _typed(self) -> None:
        if self.search.text().strip():
            self._wait.start()
            return
        self._wait.stop()
        self._finder.stop_search()
        if self._hits is not None:
            self._hits = None
            self._fill()

    @Slot()
    def _search(self) -> None:
        self._finder.search(self.search.text())

    @Slot(str, object)
    def _found(self, text: str, hits: list[Hit]) -> None:
        if text == self.search.text():
            self._hits = hits
            self._fill()

    def eventFilter(self, watched: QWidget, event: QEvent) -> bool:  # type: ignore[override]
        if event.type() == QEvent.Type.KeyPress:
            key = event.key()  # type: ignore[attr-defined]
            if key == Qt.Key.Key_Escape and self.list.state() != QAbstractItemView.State.EditingState:
                self.search.clear()
                self.left.emit()
                return True
            if watched is self.search and key == Qt.Key.Key_Down:
                self.list.step_in()
                return True
            if watched is self.search and key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                self._open_first()
                return True
        return super().eventFilter(watched, event)

    def _open_first(self) -> None:
        if self._hits:
            first = next((hit for hit in self._hits if hit.entry.path not in self._hidden), None)
            if first is not None:
                self.opened.emit(first.entry.path, first.message)

    # ------------------------------------------------------------------------------------------ one conversation

    @Slot(QListWidgetItem)
    def _open(self, item: QListWidgetItem) -> None:
        path, message = item.data(PATH), item.data(MESSAGE) or ""
        if path and (Path(path) != self._current or message):
            self.opened.emit(Path(path), message)

    def menu_for(self, item: QListWidgetItem) -> QMenu:
        """What can be done with a conversation."""
        path, title = Path(item.data(PATH)), item.text()
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        if not item.data(PROBLEM):
            rename = menu.addAction(self.tr("&Rename"), lambda: self._rename(path))
            rename.setShortcut(QKeySequence("F2"))
            menu.addAction(self.tr("D&uplicate"), lambda: self.duplicate_wanted.emit(path, title))
            menu.addAction(self.tr("&Export…"), lambda: self.export_wanted.emit(path, title))
            menu.addSeparator()
        menu.addAction(self.tr("&Delete"), lambda: self.delete_wanted.emit(path, title))
        return menu

    @Slot(QListWidgetItem, QPoint)
    def _show_menu(self, item: QListWidgetItem, place: QPoint) -> None:
        self.menu_for(item).popup(place)

    def _rename(self, path: Path) -> None:
        if (row := self._row(path)) >= 0:
            self.list.setCurrentRow(row)
            self.list.editItem(self.list.item(row))
