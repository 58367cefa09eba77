"""The real window and engine: a token is clicked and its experts light up; an answer is replayed."""

from __future__ import annotations

import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QTextCursor
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QTextBrowser

from app.chat.answer import AnswerView
from app.main_window import MainWindow
from engine.messages import Cell
from engine.sessions.reader import Pass, decode_pass, read_records
from tests.app.test_with_engine import ask


def click_word(view: AnswerView, number: int) -> int:
    """Click the word with this number; the position in the answer where it begins."""
    prose = view.body.findChildren(QTextBrowser)[0]
    cursor = QTextCursor(prose.document())
    for _ in range(number):
        cursor.movePosition(QTextCursor.MoveOperation.NextWord)
    box = prose.cursorRect(cursor)
    QTest.mouseClick(prose.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(box.left() + 2, box.center().y()))
    return cursor.position()


@pytest.fixture
def answered(endless: None, window: MainWindow, qtbot) -> tuple[MainWindow, AnswerView, list[Pass]]:
    view = ask(window, "Hello there")
    qtbot.waitUntil(lambda: not window.chat.busy, timeout=60_000)
    qtbot.waitUntil(lambda: view.settled and view.body.isVisible())
    path, model = window.chat.session.path, window.state.model
    assert path is not None and model is not None
    passes = [
        decode_pass(record, model.layers, model.experts, model.top_k)
        for record in read_records(path)
        if record["type"] == "pass"
    ]
    prompt = sum(one.phase == "prefill" for one in passes)
    return window, view, passes[prompt - 1 :]


def shown_is(window: MainWindow, one: Pass) -> bool:
    states = window.panels.experts.heatmap.states()
    return np.array_equal(states >> 5 & 7 > 0, one.counts > 0)


def test_a_clicked_token_lights_up_its_experts(answered: tuple[MainWindow, AnswerView, list[Pass]], qtbot) -> None:
    window, view, passes = answered
    panel = window.panels.experts
    clicked: list[int] = []
    window.chat.token_clicked.connect(lambda answer, character: clicked.append(character))
    for word in (0, 3):
        click_word(view, word)
        assert clicked, "the click told nothing"
        recording = window.panels.replay.recording
        qtbot.waitUntil(lambda: window.panels.replay.active)
        recording = window.panels.replay.recording
        assert recording is not None and recording.lengths
        moment = recording.token_at(clicked[-1])
        assert moment > 0
        qtbot.waitUntil(lambda moment=moment: panel.heading.note.startswith(f"token {moment} of"))
        assert panel.player.moment == moment
        qtbot.waitUntil(lambda moment=moment: shown_is(window, passes[moment - 1]))
        start = sum(recording.lengths[: moment - 1])
        assert start <= clicked[-1] < start + recording.lengths[moment - 1]
    QTest.mouseClick(panel.player.now, Qt.MouseButton.LeftButton)
    assert not panel.replaying and shown_is(window, passes[-1])


def test_an_answer_is_replayed_token_by_token_and_what_comes_now_ends_it(
    answered: tuple[MainWindow, AnswerView, list[Pass]], qtbot
) -> None:
    window, _, passes = answered
    panel, player = window.panels.experts, window.panels.experts.player
    seen: list[int] = []
    original = panel.show_moment

    def show_moment(snapshot, moments) -> None:  # type: ignore[no-untyped-def]
        original(snapshot, moments)
        seen.append(snapshot.token)
        assert np.array_equal(snapshot.cells & Cell.ROUTED > 0, passes[snapshot.token - 1].counts > 0)

    panel.show_moment = show_moment  # type: ignore[method-assign]
    player._timer.setInterval(5)
    QTest.mouseClick(player.play, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: bool(seen) and seen[-1] == len(passes), timeout=30_000)
    assert seen == sorted(seen) and seen[0] == 1
    qtbot.waitUntil(lambda: not player.playing)
    QTest.keyClick(player.slider, Qt.Key.Key_Home)
    qtbot.waitUntil(lambda: seen[-1] == 1)
    assert not panel.switch.buttons()[2].isEnabled(), "a log knows nothing of all time"
    ask(window, "Again")
    qtbot.waitUntil(lambda: not panel.replaying, timeout=30_000)
    assert panel.switch.buttons()[2].isEnabled() and not player.play.isEnabled()
    qtbot.waitUntil(lambda: not window.chat.busy, timeout=60_000)
    assert player.play.isEnabled()


def test_another_conversation_and_a_hidden_panel_end_a_replay(
    answered: tuple[MainWindow, AnswerView, list[Pass]], qtbot
) -> None:
    window, view, _ = answered
    panels = window.panels
    click_word(view, 1)
    qtbot.waitUntil(lambda: panels.replay.active)
    panels.show_panel("experts", False)
    assert not panels.replay.active
    click_word(view, 2)
    qtbot.wait(1)
    assert not panels.replay.active, "nobody would see it"
    panels.show_panel("experts", True)
    click_word(view, 2)
    qtbot.waitUntil(lambda: panels.replay.active)
    window.new_chat()
    assert not panels.replay.active and not panels.experts.player.play.isEnabled()
