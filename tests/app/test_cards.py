"""What the user said is shown whatever it is and however long, at once, and is copied as it was typed."""

from __future__ import annotations

import time

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QPlainTextEdit, QWidget

from app.chat.cards import LINES, UserBubble
from app.chat.transcript import Transcript

FREEZE = 0.6  # seconds; a frame or two on a quiet machine, and it was a minute

LONG = {
    "one long word": "x" * 60_000,
    "one long word that is just short enough": "x" * 8_000,
    "no end of letters without a space": "字" * 100_000,
    "one long line": "word " * 50_000,
    "a file of 256 KB": "some words here and there in a line of it\n" * 6_200,
    "ten such files": "some words here and there in a line of it\n" * 62_000,
}


def wheel(transcript: Transcript, over: QWidget) -> None:
    place = over.mapTo(transcript, over.rect().center())
    QTest.wheelEvent(transcript.windowHandle(), place, QPoint(0, -240))


@pytest.mark.parametrize("name", LONG)
def test_a_message_of_any_length_is_shown_at_once(name: str, transcript: Transcript, qtbot) -> None:
    transcript.add_user("before")  # fonts are read with the first one
    qtbot.wait(1)
    began = time.thread_time()
    transcript.add_user(LONG[name])
    QApplication.processEvents()
    transcript.resize(700, 700)
    QApplication.processEvents()
    assert time.thread_time() - began < FREEZE


def test_what_is_copied_of_a_long_message_is_what_was_typed(transcript: Transcript) -> None:
    text = "x" * 20_000 + "\n\n" + "two words " * 3_000
    inside = transcript.add_user(text).findChild(QPlainTextEdit)
    assert inside is not None
    inside.selectAll()
    assert inside.createMimeDataFromSelection().text() == text


def test_a_long_message_scrolls_for_who_clicks_it_and_not_for_who_scrolls_past(transcript: Transcript, qtbot) -> None:
    text = "".join(f"line {number}\n" for number in range(4000))
    bubble = transcript.add_user(text)
    transcript.add_user("the next\n" * 60)
    transcript.reveal(bubble)
    inside = bubble.findChild(QPlainTextEdit)
    assert inside.toPlainText() == text
    assert bubble.height() < 2 * LINES * inside.fontMetrics().lineSpacing()
    before = transcript.verticalScrollBar().value()
    wheel(transcript, inside)
    assert inside.verticalScrollBar().value() == 0
    assert transcript.verticalScrollBar().value() > before
    transcript.verticalScrollBar().setValue(before)
    QTest.mouseClick(inside.viewport(), Qt.MouseButton.LeftButton)
    qtbot.waitUntil(inside.hasFocus)
    wheel(transcript, inside)
    assert inside.verticalScrollBar().value() > 0


def test_a_message_is_copied_as_it_was_typed(transcript: Transcript) -> None:
    text = "Qu'est\u00a0ça\u202f! \u202eabc \u2066x\u2069\u2028end"
    bubble = transcript.add_user(text)
    bubble.turn_actions.copy.click()
    assert QGuiApplication.clipboard().text() == text
    shown = bubble.findChild(type(bubble._text)).toPlainText()
    assert "⟨U+202E⟩" in shown  # what would turn the line round is named


def test_half_a_character_in_a_message_does_no_harm(transcript: Transcript) -> None:
    bubble = transcript.add_user("half \ud83d of it")
    assert isinstance(bubble, UserBubble)
    assert "⟨U+D83D⟩" in bubble._text.toPlainText()
