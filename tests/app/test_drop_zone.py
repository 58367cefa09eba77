"""Files can be dropped anywhere on the chat, and it says so while they are held over it."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDragLeaveEvent, QDragMoveEvent, QDropEvent, QGuiApplication, QWindow
from PySide6.QtWidgets import QApplication, QWidget

from app.chat.answer import AnswerView
from app.chat.cards import UserBubble
from app.chat.composer import Chip
from app.drop_zone import DropZone
from app.main_window import MainWindow
from app.theme import BODY, Theme
from tests.app.conftest import Bench

LEFT, NO_KEY = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
COPY, MOVE = Qt.DropAction.CopyAction, Qt.DropAction.MoveAction


class Drag:
    """Something is held over the window, as the system tells it: Qt finds out what lies under the pointer.

    It has to be dropped or to leave: else the next one is told to whom this was last over, though that be gone.
    """

    def __init__(self, window: QWidget, data: QMimeData, actions: Qt.DropAction = COPY) -> None:
        self._window, self._data, self._actions = window, data, actions
        self._inside = False
        self.place = QPoint()

    @property
    def _handle(self) -> QWindow:
        handle = self._window.window().windowHandle()
        assert handle is not None
        return handle

    def over(self, widget: QWidget, place: QPoint | None = None) -> bool:
        """Move it here, to the middle if no place is given; whether it could be dropped."""
        self.place = widget.mapTo(self._window.window(), widget.rect().center() if place is None else place)
        kind = QDragMoveEvent if self._inside else QDragEnterEvent
        event = kind(self.place, self._actions, self._data, LEFT, NO_KEY)
        self._inside = True
        event.ignore()
        QApplication.sendEvent(self._handle, event)
        return event.isAccepted()

    def leave(self) -> None:
        self._inside = False
        QApplication.sendEvent(self._handle, QDragLeaveEvent())

    def drop(self) -> QDropEvent:
        event = QDropEvent(QPointF(self.place), self._actions, self._data, LEFT, NO_KEY)
        event.ignore()
        QApplication.sendEvent(self._handle, event)
        return event


def files(*paths: Path) -> QMimeData:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    return data


def drop(target: QWidget, *paths: Path) -> None:
    """Drop these files where ``target`` is in its window."""
    drag = Drag(target, files(*paths))
    assert drag.over(target)
    assert drag.drop().isAccepted()


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text("The rent is due on Friday.")
    return path


def attached(window: MainWindow) -> list[str]:
    return [attachment.name for attachment in window.composer.attachments]


def zone(window: MainWindow) -> DropZone:
    return window.columns.drop_zone


def talk(bench: Bench, qtbot) -> MainWindow:
    window = bench.start()
    window.send("When is the rent due?")
    bench.engine.answer("A paragraph.\n\n```py\nx = 1\n```\n\n| a | b |\n| - | - |\n| 1 | 2 |\n\n$$x^2$$\n\nThe end.")
    qtbot.waitUntil(lambda: not window.chat.busy)
    return window


def test_a_file_dropped_on_the_welcome_page_goes_along(bench: Bench, notes: Path, qtbot) -> None:
    window = bench.start()
    for target in (window.empty, window.empty.prompts[0], window.empty.title, window.composer, window.composer.meter):
        drop(target, notes)
        assert attached(window) == ["notes.txt"], target
        assert zone(window).isHidden() and window.composer.input.hasFocus()
        window.composer.findChildren(Chip)[0].click()
        assert attached(window) == []
    margin = QPoint(3, window.columns.middle.height() - 3)  # below the composer, and beside it
    drag = Drag(window, files(notes))
    assert drag.over(window.columns.middle, margin) and drag.drop().isAccepted()
    assert attached(window) == ["notes.txt"]


def test_a_file_dropped_anywhere_on_the_transcript_goes_along(bench: Bench, notes: Path, qtbot) -> None:
    window = talk(bench, qtbot)
    answer = window.transcript.findChildren(AnswerView)[0]
    bubble = window.transcript.findChildren(UserBubble)[0]
    inside = [child for view in (answer, bubble) for child in view.findChildren(QWidget) if child.isVisible()]
    assert len(inside) > 8
    for target in (window.transcript, answer, bubble, *inside):
        if not target.visibleRegion().isEmpty():
            drop(target, notes)
            assert attached(window) == ["notes.txt"], target
            window.composer.set_draft("")


def test_a_file_dropped_on_an_edit_goes_along_with_the_message_and_leaves_the_edit(bench: Bench, notes, qtbot) -> None:
    window = talk(bench, qtbot)
    window.transcript.findChildren(UserBubble)[0].turn_actions.edit.click()
    editor = window.transcript.column.widgets()[0]
    drop(editor.input, notes)
    assert attached(window) == ["notes.txt"]
    assert editor.text == "When is the rent due?" and window.composer.text == ""


def test_a_file_pasted_into_an_edit_goes_where_one_that_is_dropped_there_does(bench: Bench, notes, qtbot) -> None:
    window = talk(bench, qtbot)
    window.transcript.findChildren(UserBubble)[0].turn_actions.edit.click()
    editor = window.transcript.column.widgets()[0]
    QGuiApplication.clipboard().setMimeData(files(notes))
    editor.input.paste()
    assert attached(window) == ["notes.txt"] and editor.text == "When is the rent due?"


def test_the_hint_covers_the_chat_while_files_are_held_over_it_and_no_longer(bench: Bench, notes, qtbot) -> None:
    window = bench.start()
    hint, middle = zone(window), window.columns.middle
    drag = Drag(window, files(notes))
    assert drag.over(window.empty) and hint.isVisible()
    assert hint.rect() == middle.rect() and middle.childAt(middle.rect().center()) is not hint
    assert "Drop text files" in hint.label.text() and hint.rect().contains(hint.label.geometry())
    assert drag.over(window.composer.input.viewport()) and hint.isVisible()
    assert drag.over(window.empty.prompts[1]) and hint.isVisible()
    window.resize(1000, 640)
    qtbot.waitUntil(lambda: hint.size() == middle.size())
    assert hint.geometry().contains(hint.label.geometry())
    assert not drag.over(window.panels) and hint.isHidden()
    assert drag.over(window.sidebar.list) and hint.isHidden() and window.sidebar.drop_zone.isVisible()
    assert drag.over(window.empty) and hint.isVisible() and window.sidebar.drop_zone.isHidden()
    drag.leave()
    assert hint.isHidden() and attached(window) == []


def test_the_hint_leaves_out_what_the_sheet_lies_on(bench: Bench, notes: Path, qtbot) -> None:
    window = bench.start()
    window.columns.toggle_panels()
    window.sheet.toggle()
    qtbot.waitUntil(lambda: window.composer.geometry().right() < window.sheet.geometry().left())
    drag = Drag(window, files(notes))
    assert drag.over(window.empty)
    left = window.sheet.mapToGlobal(window.sheet.rect().topLeft()).x()
    assert zone(window).mapToGlobal(zone(window).rect().topRight()).x() < left
    drag.leave()


def test_a_drag_without_files_gets_no_hint_and_text_still_goes_into_the_message(bench: Bench, qtbot) -> None:
    window = bench.start()
    web, text = QMimeData(), QMimeData()
    web.setUrls([QUrl("https://example.com/notes.txt")])
    text.setText("a sentence")
    for data in (web, text):
        drag = Drag(window, data)
        assert not drag.over(window.empty) and zone(window).isHidden()
        drag.leave()
    drag = Drag(window, text)
    assert drag.over(window.composer.input.viewport()) and zone(window).isHidden()
    drag.drop()
    assert window.composer.text == "a sentence" and attached(window) == []


def test_what_cannot_go_along_is_refused_in_the_words_of_the_message_box(bench: Bench, tmp_path: Path, notes) -> None:
    window = bench.start()
    picture = tmp_path / "cat.png"
    picture.write_bytes(b"\x89PNG\0")
    window.composer.attach([picture, tmp_path])
    said = window.composer.note.text()
    window.composer.set_draft("")
    drop(window.empty, picture, tmp_path)
    assert window.composer.note.text() == said and "cat.png" in said and "folder" in said
    drop(window.empty, picture, notes)
    assert attached(window) == ["notes.txt"] and "cat.png" in window.composer.note.text()


def test_files_are_taken_before_a_model_is_ready_and_wait_for_it(bench: Bench, notes: Path, qtbot) -> None:
    window = bench.window
    window.resize(1280, 800)
    window.show()
    assert window.state.model is None
    drop(window.empty, notes)
    assert attached(window) == ["notes.txt"] and not window.composer.action.isEnabled()
    bench.start()
    assert attached(window) == ["notes.txt"] and window.composer.action.isEnabled()


def test_a_dropped_file_is_copied_where_a_move_was_proposed(bench: Bench, notes: Path) -> None:
    window = bench.start()
    drag = Drag(window, files(notes), COPY | MOVE)
    assert drag.over(window.empty)
    assert drag.drop().dropAction() == COPY and notes.exists()


@pytest.mark.parametrize("width", [120, 240, 900])
@pytest.mark.parametrize("size", [BODY, 2 * BODY])
def test_the_words_are_whole_at_any_size(qtbot, notes: Path, width: int, size: int) -> None:
    theme = Theme("dark")
    theme.set_font_size(size)
    try:
        room = QWidget()
        qtbot.addWidget(room)
        room.resize(width, 600)
        hint = DropZone(theme, room, "Drop text files to attach them to your message")
        room.show()
        drag = Drag(room, files(notes))
        drag.over(room)
        label = hint.label
        assert hint.isVisible() and hint.rect().contains(label.geometry())
        assert label.height() >= label.heightForWidth(label.width())
        assert abs(label.geometry().center().y() - hint.rect().center().y()) <= 1
        drag.leave()
    finally:
        theme.set_font_size(BODY)
