"""A click on the shown text finds the character that the model wrote."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QPlainTextEdit, QTextBrowser, QWidget

from app.chat.answer import AnswerView
from app.chat.pointing import character_under
from app.selftest import SAMPLE
from app.theme import Theme


@pytest.mark.parametrize(
    ("source", "seen", "at", "found"),
    [
        ("some **bold** words", "some bold words", 5, 7),
        ("some **bold** words", "some bold words", 12, 16),
        ("[a label](https://a.label/words) and words", "a label and words", 12, 37),
        ("half**ly** bold", "halfly bold", 7, 11),
        ("- one\n- two", "one\ntwo", 5, 9),
        ("日本語 の 文", "日本語 の 文", 1, 1),
        ("$x^2$ is it", "\ufffc is it", 5, 9),
    ],
)
def test_words_are_found_again_behind_their_marks(source: str, seen: str, at: int, found: int) -> None:
    assert character_under(source, seen, at) == found


def test_what_is_nowhere_in_the_text_is_found_nowhere() -> None:
    assert character_under("entirely different", "what is this", 3) is None


def views(answer: AnswerView) -> list[QTextBrowser | QPlainTextEdit]:
    found = [w for w in answer.findChildren(QWidget) if isinstance(w, QTextBrowser | QPlainTextEdit)]
    return [view for view in found if view.isVisible()]


def click(qtbot, answer: AnswerView, word: str) -> None:
    """Click into the middle of the first ``word`` that is shown."""
    for view in views(answer):
        cursor = view.document().find(word)
        if not cursor.isNull():
            middle = QTextCursor(view.document())
            middle.setPosition(cursor.selectionStart() + len(word) // 2)
            box = view.cursorRect(middle)
            qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(box.left() + 2, box.center().y()))
            return
    raise AssertionError(f"{word} is not shown")


@pytest.fixture
def answer(qtbot):
    view = AnswerView(Theme("light"))
    qtbot.addWidget(view)
    view.show_answer(f"<think>A thought about sorting.</think>\n\n{SAMPLE}", "end", None, None)
    view.resize(700, view.fit(700))
    with qtbot.waitExposed(view):
        view.show()
    qtbot.waitUntil(lambda: view.settled)
    view.resize(700, view.fit(700))
    return view


@pytest.mark.parametrize("word", ["smaller", "merge", "append", "library", "inputs", "sorted(a", "Equal", "easy"])
def test_a_click_in_prose_code_tables_and_lists_tells_the_character(qtbot, answer: AnswerView, word: str) -> None:
    told: list[int] = []
    answer.pointed.connect(told.append)
    click(qtbot, answer, word)
    assert len(told) == 1
    start = max(0, told[0] - len(word))
    assert word in answer.text[start : told[0] + len(word)]


def test_a_drag_a_double_click_and_the_empty_room_beside_a_line_tell_nothing(qtbot, answer: AnswerView) -> None:
    told: list[int] = []
    answer.pointed.connect(told.append)
    view = views(answer)[0]
    right = QPoint(view.viewport().width() - 3, 8)
    last = views(answer)[-1]
    qtbot.mouseClick(last.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(last.viewport().width() - 3, 8))
    qtbot.mousePress(view.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(5, 8))
    qtbot.mouseMove(view.viewport(), right)
    qtbot.mouseRelease(view.viewport(), Qt.MouseButton.LeftButton, pos=right)
    assert told == []
