"""What was typed and attached, and not sent, is never lost to something else that is done."""

from __future__ import annotations

from pathlib import Path

from app.chat.cards import UserBubble
from app.chat.composer import Composer
from app.chat.editor import MessageEditor
from app.main_window import MainWindow
from app.theme import Theme
from engine.messages import TokenCount
from tests.app.conftest import Bench
from tests.app.test_conversations import talk


def file(tmp_path: Path, name: str, data: bytes = b"text") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def names(window: MainWindow) -> list[str]:
    return [attachment.name for attachment in window.composer.attachments]


def test_a_prompt_that_is_offered_leaves_the_draft_alone(bench: Bench, tmp_path: Path) -> None:
    window = bench.start()
    window.composer.set_text("half a thought")
    window.composer.attach([file(tmp_path, "notes.txt")])
    window.empty.prompts[0].click()
    assert bench.engine.asked.messages[-1].text == window.empty.prompts[0].text()
    assert window.composer.text == "half a thought" and names(window) == ["notes.txt"]
    bench.engine.answer("Paris.")


def test_files_stay_with_the_conversation_they_were_attached_in(bench: Bench, tmp_path: Path) -> None:
    window = bench.start()
    first, second = talk(window, "first", "answer"), talk(window, "second", "answer")
    window.open_conversation(first)
    window.composer.set_text("about this")
    window.composer.attach([file(tmp_path, "secret.txt")])
    window.open_conversation(second)
    assert names(window) == [] and window.composer.chips.isHidden()
    window.composer.attach([file(tmp_path, "other.txt")])
    window.new_chat()
    assert names(window) == []
    window.open_conversation(first)
    assert names(window) == ["secret.txt"] and window.composer.text == "about this"
    window.open_conversation(second)
    assert names(window) == ["other.txt"]


def test_why_a_file_was_refused_is_still_read_when_the_tokens_are_counted(qtbot, tmp_path: Path) -> None:
    composer = Composer(Theme("light"))
    qtbot.addWidget(composer)
    composer.show()
    composer.set_state(True, False, "")
    composer.set_text("What is this?")
    composer.attach([file(tmp_path, "thing.png", b"\x89PNG\0")])
    composer.show_count(TokenCount("x", 10, 0, 100))
    assert "thing.png" in composer.note.text() and composer.note.isVisible()
    composer.show_count(TokenCount("x", 90, 3, 100))
    assert "thing.png" in composer.note.text() and "oldest 3" in composer.note.text()


def test_what_was_said_of_a_draft_goes_with_it(qtbot) -> None:
    composer = Composer(Theme("light"))
    qtbot.addWidget(composer)
    composer.show()
    composer.set_text("long")
    composer.show_count(TokenCount("x", 90, 3, 100))
    assert composer.note.isVisible()
    composer.input.clear()
    composer.show_count(None)
    assert not composer.note.isVisible()


def edit(window: MainWindow) -> MessageEditor:
    bubble = next(w for w in window.transcript.column.widgets() if isinstance(w, UserBubble))
    bubble.turn_actions.edit.click()
    return next(w for w in window.transcript.column.widgets() if isinstance(w, MessageEditor))


def test_an_edit_waits_for_who_went_to_do_something_else(bench: Bench, qtbot) -> None:
    window = bench.start()
    first, second = talk(window, "first", "answer"), talk(window, "second", "answer")
    window.open_conversation(first)
    edit(window).input.setPlainText("said much better")
    window.open_conversation(second)
    assert edit(window).text == "second"
    window.open_conversation(first)
    editor = edit(window)
    assert editor.text == "said much better"
    window.send("something else meanwhile")
    bench.engine.answer("Yes.")
    qtbot.waitUntil(lambda: not window.chat.busy)
    editor = edit(window)
    assert editor.text == "said much better"
    editor.send.click()
    assert bench.engine.asked.messages[-1].text == "said much better"
    bench.engine.answer("Yes.")
    qtbot.waitUntil(lambda: not window.chat.busy)
    editor = edit(window)
    assert editor.text == "said much better"  # it is what was said now
    editor.input.setPlainText("or not")
    editor.cancel.click()
    assert edit(window).text == "said much better"
