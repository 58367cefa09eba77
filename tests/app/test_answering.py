"""An answer whose reader comes and goes, and questions that got none."""

from __future__ import annotations

import json
from pathlib import Path

from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QWidget

from app.chat import answer as answer_module
from app.chat import live as live_module
from app.chat.answer import AnswerView
from app.chat.cards import Card, Label, UserBubble
from app.main_window import MainWindow
from app.theme import Theme
from engine.messages import Failed, Started, Token
from engine.sessions.reader import read_conversation
from tests.app.conftest import Bench
from tests.app.test_conversations import talk, titles


def views(window: MainWindow, kind: type[QWidget]) -> list:
    return [view for view in window.transcript.column.widgets() if isinstance(view, kind) and not view.isHidden()]


def say(window: MainWindow, text: str) -> Path:
    window.send(text)
    assert window.chat.session.path is not None
    return window.chat.session.path


class Clock:
    """Time that a test lets pass."""

    def __init__(self, monkeypatch) -> None:
        self.now = 1000.0
        for module in (answer_module, live_module):
            monkeypatch.setattr(module.time, "monotonic", lambda: self.now)


def test_a_thought_took_as_long_for_who_went_away_and_came_back(bench: Bench, qtbot, monkeypatch) -> None:
    window = bench.start()
    path = say(window, "Think")
    clock = Clock(monkeypatch)
    request = bench.engine.asked.request_id
    bench.engine.emit(Started(request, 10, 0))
    bench.engine.emit(Token(request, "<think>Hm", 1))
    qtbot.waitUntil(lambda: views(window, AnswerView)[-1].fold is not None)
    clock.now += 20
    window.new_chat()
    window.open_conversation(path)
    clock.now += 10
    bench.engine.emit(Token(request, " more", 2))
    view = views(window, AnswerView)[-1]
    qtbot.waitUntil(lambda: view.shown_text.endswith("more"))
    assert "30 s" in view.fold.button.text() and "Thinking" in view.fold.button.text()
    bench.engine.emit(Token(request, "</think>Done", 3))
    qtbot.waitUntil(lambda: view.shown_text.endswith("Done"))
    assert "Thought for 30 s" in view.fold.button.text()
    clock.now += 5
    window.new_chat()
    window.open_conversation(path)
    view = views(window, AnswerView)[-1]
    assert "Thought for about" in view.fold.button.text()
    bench.engine.finish("<think>Hm more</think>Done")
    qtbot.waitUntil(lambda: not window.chat.busy)


def test_what_was_noted_of_an_answer_is_there_for_who_comes_back(bench: Bench, qtbot) -> None:
    window = bench.start()
    path = say(window, "Hello")
    request = bench.engine.asked.request_id
    bench.engine.emit(Started(request, 10, 0, ("The first is left out.", "So is the second.")))
    bench.engine.emit(Token(request, "Hello", 1))
    qtbot.waitUntil(lambda: views(window, AnswerView)[-1].shown_text == "Hello")

    def notes() -> list[str]:
        return [label.text() for label in views(window, AnswerView)[-1].widgets() if isinstance(label, Label)]

    for _ in range(2):
        assert notes() == ["The first is left out.", "So is the second."]
        window.new_chat()
        window.open_conversation(path)
    bench.engine.finish("Hello")
    qtbot.waitUntil(lambda: not window.chat.busy)
    made_again = window.chat.views.maker(window.chat.session.turns[-1])()  # as for who scrolls back to it
    qtbot.addWidget(made_again)
    assert made_again.notes == ["The first is left out.", "So is the second."]


def test_notes_stand_above_the_thought_and_the_thought_above_the_answer(qtbot) -> None:
    view = AnswerView(Theme("light"))
    qtbot.addWidget(view)
    view.add_note("note")
    view.feed("I think.\n</think>\nIt is 4.")
    kinds = [type(widget).__name__ for widget in view.widgets()]
    assert kinds == ["Label", "Fold", "MarkdownBody", "Footer"]


def test_a_new_title_of_a_chat_that_is_answered_elsewhere_stays(bench: Bench, qtbot) -> None:
    window = bench.start()
    path = say(window, "Old words")
    bench.engine.emit(Started(bench.engine.asked.request_id, 10, 0))
    window.new_chat()
    window.conversations.rename(path, "New words")
    window.open_conversation(path)
    assert window.chat.session.title == "New words" and window.windowTitle().startswith("New words")
    bench.engine.finish("Yes")
    qtbot.waitUntil(lambda: not window.chat.busy)
    window.send("More")
    bench.engine.answer("Yes")
    qtbot.waitUntil(lambda: not window.chat.busy)
    assert titles(window)[0] == "New words"
    assert read_conversation(path).title == "New words"


def test_a_long_file_that_cannot_be_read_is_told_where_one_looks(bench: Bench, qtbot) -> None:
    window = bench.start()
    path = talk(window, "first", "answer " * 60_000)
    header, _, rest = path.read_bytes().partition(b"\n")
    path.write_bytes(json.dumps({**json.loads(header), "version": 99}).encode() + b"\n" + rest)
    window.open_conversation(path)
    qtbot.waitUntil(lambda: bool(views(window, Card)))
    assert "newer Greenroom" in views(window, Card)[0].text.text()
    assert views(window, Card)[0].isVisible()


def refuse(bench: Bench, window: MainWindow, qtbot) -> None:
    bench.engine.emit(Failed("generate", "There is no room for it.", bench.engine.asked.request_id))
    qtbot.waitUntil(lambda: not window.chat.busy)


def test_a_question_without_an_answer_can_be_asked_again(bench: Bench, qtbot) -> None:
    window = bench.start()
    path = say(window, "Hello")
    again = views(window, UserBubble)[0].turn_actions.again
    assert not again.isVisible()
    refuse(bench, window, qtbot)
    assert again.isVisible() and again.isEnabled()
    assert [card.text.text() for card in views(window, Card)] == ["There is no room for it."]
    again.click()
    assert not again.isVisible() and not views(window, Card)
    bench.engine.answer("Now there is.")
    qtbot.waitUntil(lambda: not window.chat.busy)
    assert not again.isVisible()
    assert [view.text for view in views(window, AnswerView)] == ["Now there is."]
    assert [message.text for message in window.chat.session.messages] == ["Hello", "Now there is."]
    assert [message.role for message in read_conversation(path).messages.values()] == ["user"]  # no engine, no answer


def test_after_a_crash_the_question_can_be_asked_again(bench: Bench, qtbot) -> None:
    window = bench.start()
    path = talk(window, "first", "answer", "second")
    window.open_conversation(path)
    first, second = views(window, UserBubble)
    assert second.turn_actions.again.isVisible() and not first.turn_actions.again.isVisible()
    second.turn_actions.again.click()
    assert [message.text for message in bench.engine.asked.messages] == ["first", "answer", "second"]
    bench.engine.answer("Here it is.")
    qtbot.waitUntil(lambda: not window.chat.busy)


def test_why_there_is_no_answer_is_told_to_who_was_elsewhere(bench: Bench, qtbot) -> None:
    window = bench.start()
    path = say(window, "Hello")
    window.new_chat()
    refuse(bench, window, qtbot)
    assert not views(window, Card)
    window.open_conversation(path)
    assert [card.text.text() for card in views(window, Card)] == ["There is no room for it."]
    window.new_chat()
    window.open_conversation(path)
    assert not views(window, Card)


def test_all_that_is_copied_has_its_thoughts_folded(bench: Bench, qtbot) -> None:
    window = bench.start()
    say(window, "Hello")
    bench.engine.answer("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.")
    qtbot.waitUntil(lambda: not window.chat.busy)
    window.conversations.copy_all()
    text = QGuiApplication.clipboard().text()
    assert "<summary>Thought</summary>\n\nHm.\n" in text and "\n\nYes.\n" in text and "<|" not in text


def test_deleted_again_while_its_answer_is_being_stopped_a_chat_is_not_shown(bench: Bench, qtbot) -> None:
    window = bench.start()
    path = say(window, "Hello")
    bench.engine.emit(Started(bench.engine.asked.request_id, 10, 0))
    window.conversations.delete(path, "Hello")
    window.conversations.undo()
    window.conversations.delete(path, "Hello")
    bench.engine.finish("Hel", "stopped")
    qtbot.waitUntil(lambda: not path.exists())
    assert window.chat.session.path is None and not views(window, UserBubble)
    window.conversations.undo()
    assert path.exists()


def test_a_refusal_at_the_start_of_a_long_chat_makes_no_more_than_is_seen(bench: Bench, qtbot) -> None:
    window = bench.start()
    path = talk(window, *(f"{'question' if n % 2 == 0 else 'answer'} {n}" for n in range(600)))
    window.open_conversation(path, "m1")
    qtbot.waitUntil(lambda: window.chat.session.path == path)
    window.chat.regenerate("m1")
    assert len(window.transcript.column) == 2
    refuse(bench, window, qtbot)
    assert len(window.transcript.column) == 601  # and a card
    assert len(window.transcript.column.widgets()) < 100
    assert "answer 1" in [view.text for view in views(window, AnswerView)]
    assert [turn.text for turn in window.chat.session.turns][-1] == "answer 599"
