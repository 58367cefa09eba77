"""The self-test's steps about conversations: branches, continuing, search, rename, delete and undo, drop."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDragLeaveEvent, QEnterEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QLineEdit, QListWidgetItem, QWidget

from app.chat.answer import AnswerView
from app.chat.cards import UserBubble
from app.selftest_tools import check, until
from app.sidebar.rows import PATH
from engine.sessions.conversation import new_id
from engine.sessions.log import SessionLog

if TYPE_CHECKING:
    from app.main_window import MainWindow

TALKS = (
    ("Why do bicycles stay upright?", 1),
    ("Letter to the landlord about the window in the kitchen that no longer closes", 1),
    ("Notes on the Hanseatic League", 4),
    ("Packing for a week at sea", 4),
    ("Bread without kneading", 40),
    ("Which knots hold when they are wet?", 70),
)


class ConversationSteps:
    """To be mixed in with ``SelfTest``, which has what is declared here."""

    window: MainWindow
    data: Path

    def shot(self, name: str, widget: QWidget | None = None) -> None: ...

    def _rows(self) -> list[QListWidgetItem]:
        rows = self.window.sidebar.list
        return [rows.item(row) for row in range(rows.count()) if rows.item(row).data(PATH)]

    def click_row(self, path: Path) -> None:
        """Open a conversation from the list."""
        until(lambda: any(item.data(PATH) == str(path) for item in self._rows()), 10, "the conversation in the list")
        rows = self.window.sidebar.list
        item = next(item for item in self._rows() if item.data(PATH) == str(path))
        QTest.mouseClick(rows.viewport(), Qt.MouseButton.LeftButton, pos=rows.visualItemRect(item).center())

    def _views(self, kind: type[QWidget]) -> list[QWidget]:
        return [view for view in self.window.transcript.column.widgets() if isinstance(view, kind)]

    def _answered(self) -> None:
        until(lambda: not self.window.chat.busy, 600, "the end of the answer")

    def step_branches(self) -> str:
        """Another answer, another question, and back."""
        window = self.window
        answer = self._views(AnswerView)[-1]
        assert isinstance(answer, AnswerView)
        QTest.mouseClick(answer.turn_actions.again, Qt.MouseButton.LeftButton)
        check(window.chat.busy, "Regenerate asked for nothing")
        self._answered()
        bubble = self._views(UserBubble)[0]
        assert isinstance(bubble, UserBubble)
        bubble.enterEvent(QEnterEvent(QPointF(), QPointF(), QPointF()))
        self.shot("13-versions")
        QTest.mouseClick(bubble.turn_actions.edit, Qt.MouseButton.LeftButton)
        self.shot("14-editing")
        editor = window.focusWidget()
        assert editor is not None
        QTest.keyClicks(editor, " And of Italy?")
        QTest.keyClick(editor, Qt.Key.Key_Return)
        check(window.chat.busy, "the new version was not asked")
        self._answered()
        steppers = [button for button in window.transcript.findChildren(QAbstractButton) if button.isVisible()]
        back = next(b for b in steppers if b.accessibleName() == "Previous version" and b.isEnabled())
        QTest.mouseClick(back, Qt.MouseButton.LeftButton)
        shown = self._views(UserBubble)[0]
        came_back = isinstance(shown, UserBubble) and not shown.text.endswith("Italy?")
        check(came_back, "the first version did not come back")
        self.shot("15-branches")
        return f"{len(window.chat.session.conversation.messages)} messages in the tree"

    def step_go_on(self) -> str:
        """The answer that was stopped goes on."""
        view = self._views(AnswerView)[-1]
        assert isinstance(view, AnswerView)
        before = view.text
        QTest.mouseClick(view.turn_actions.more, Qt.MouseButton.LeftButton)
        check(self.window.chat.busy, "Continue asked for nothing")
        until(lambda: len(self._text()) > len(before) + 20 or not self.window.chat.busy, 300, "more of the answer")
        self.window.chat.stop()
        self._answered()
        check(self._text().startswith(before) and len(self._text()) > len(before), "the answer did not go on")
        return f"{len(before)} characters, then {len(self._text())}"

    def _text(self) -> str:
        view = self._views(AnswerView)[-1]
        return view.shown_text if isinstance(view, AnswerView) else ""

    def step_search(self) -> str:
        self._fill_the_list()
        window, sidebar = self.window, self.window.sidebar
        sidebar.refresh()
        until(lambda: len(self._rows()) > len(TALKS), 10, "the list")
        self.shot("16-list")
        window.search()
        QTest.keyClicks(sidebar.search, "hanseatic trade")
        until(lambda: len(self._rows()) == 1, 10, "the one conversation with these words")
        self.shot("17-found")
        sidebar.search.setText("words that nobody said")
        until(lambda: not self._rows() and sidebar.empty.isVisible(), 10, "nothing to be found")
        self.shot("18-nothing-found")
        QTest.keyClick(sidebar.search, Qt.Key.Key_Escape)
        until(lambda: len(self._rows()) > len(TALKS), 10, "the list to come back")
        return f"{len(self._rows())} conversations"

    def _fill_the_list(self) -> None:
        for title, days in TALKS:
            when = (datetime.now(UTC) - timedelta(days=days)).isoformat()
            with SessionLog.create(self.data / "conversations", "greenroom self-test") as log:
                question = new_id()
                log.append_message(question, None, "user", title, time=when)
                text = f"{title}: that is a long story, and a good one to tell by the fire. " * 2
                text += "The towns lived on trade, and kept good books." if "Hanseatic" in title else ""
                log.append_message(new_id(), question, "assistant", text, reason="end", time=when)

    def step_rename(self) -> None:
        rows = self.window.sidebar.list
        rows.setFocus()
        rows.setCurrentItem(self._rows()[0])
        QTest.keyClick(rows, Qt.Key.Key_F2)
        field = rows.findChild(QLineEdit)
        assert field is not None
        self.shot("19-rename")
        QTest.keyClicks(field, "A better title")
        QTest.keyClick(field, Qt.Key.Key_Return)
        until(lambda: any(item.text() == "A better title" for item in self._rows()), 10, "the new title")

    def step_delete(self) -> None:
        """Deleted from its menu, brought back with the toast."""
        window = self.window
        item = next(item for item in self._rows() if item.text().startswith("Packing"))
        path, title = item.data(PATH), item.text()
        menu = window.sidebar.menu_for(item)
        menu.popup(window.mapToGlobal(window.rect().topLeft()))
        self.shot("20-conversation-menu", menu)
        menu.close()
        window.conversations.delete(Path(path), title)
        until(lambda: all(item.data(PATH) != path for item in self._rows()), 5, "the conversation to go")
        check(window.undo_toast.isVisible(), "nothing offers to undo")
        self.shot("21-deleted")
        QTest.mouseClick(window.undo_toast.button, Qt.MouseButton.LeftButton)
        until(lambda: any(item.data(PATH) == path for item in self._rows()), 10, "the conversation to come back")
        check(Path(path).exists(), "its file is not there")

    def step_drop(self) -> None:
        """A file is dragged over the list; one that is no log is refused in a sentence."""
        window = self.window
        foreign = self.data / "holiday.jpg"
        foreign.write_bytes(b"no log")
        mime = QMimeData()
        mime.setUrls([QUrl.fromLocalFile(str(foreign))])
        left, none = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
        place = window.sidebar.rect().center()
        QApplication.sendEvent(window.sidebar, QDragEnterEvent(place, Qt.DropAction.CopyAction, mime, left, none))
        check(window.sidebar.drop_zone.isVisible(), "nothing says that files can be dropped")
        self.shot("22-drop")
        QApplication.sendEvent(window.sidebar, QDragLeaveEvent())
        window.conversations.import_files([foreign])
        until(window.toast.isVisible, 10, "the refusal")
        check("holiday.jpg" in window.toast.label.text(), window.toast.label.text())
        self.shot("23-refused-import")
        window.toast.dismiss()
