"""What was typed and attached, and not sent, is never lost to something else that is done."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

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


# --------------------------------------------------------------------------------------------- the next start


@pytest.fixture
def starts(tmp_path: Path, qtbot):
    """Quits the program that was started last, and starts it again on the same data."""
    benches: list[Bench] = []

    def start() -> MainWindow:
        if benches:
            benches[-1].close()
        benches.append(Bench(tmp_path, qtbot))
        return benches[-1].start()

    yield start
    benches[-1].close()


Start = Callable[[], MainWindow]


def drafts(tmp_path: Path) -> list[str]:
    folder = tmp_path / "drafts"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_files_and_edits_are_there_again_at_the_next_start(starts: Start, tmp_path: Path) -> None:
    window = starts()
    first, second = talk(window, "first", "answer"), talk(window, "second", "answer")
    one, two = file(tmp_path, "one.txt", b"1\r\n"), file(tmp_path, "two 世.txt", "2".encode("utf-16"))
    window.open_conversation(first)
    window.composer.set_text("about these")
    window.composer.attach([one, two])
    edit(window).input.setPlainText("said “much” better\nin two lines")
    window.open_conversation(second)
    window.new_chat()
    window.composer.attach([two])
    again = starts()
    assert names(again) == ["two 世.txt"] and again.composer.text == ""
    again.open_conversation(second)
    assert names(again) == [] and edit(again).text == "second"
    again.open_conversation(first)
    assert names(again) == ["one.txt", "two 世.txt"] and again.composer.text == "about these"
    assert again.composer.chips.isVisible() and again.composer.note.isHidden()
    assert again.composer.message.startswith("one.txt:\n```txt\n1\n```")
    editor = edit(again)
    assert editor.text == "said “much” better\nin two lines"
    editor.send.click()
    assert again.chat.session.turns[-1].text == "said “much” better\nin two lines"


def test_an_edit_that_is_open_when_the_program_quits_is_kept(starts: Start, tmp_path: Path) -> None:
    window = starts()
    path = talk(window, "first", "answer")
    window.open_conversation(path)
    edit(window).input.setPlainText("nearly sent")
    again = starts()
    again.open_conversation(path)
    edit(again).cancel.click()
    third = starts()
    third.open_conversation(path)
    assert edit(third).text == "first"
    assert drafts(tmp_path) == []


def test_edits_and_files_are_written_down_while_one_works(bench: Bench, tmp_path: Path, qtbot) -> None:
    window = bench.start()
    path = talk(window, "first", "answer")
    window.open_conversation(path)
    kept = tmp_path / "drafts" / f"{path.stem}.json"
    edit(window).input.setPlainText("nearly sent")
    qtbot.waitUntil(lambda: kept.exists() and "nearly sent" in kept.read_text("utf-8"))
    window.composer.attach([file(tmp_path, "notes.txt")])
    qtbot.waitUntil(lambda: "notes.txt" in kept.read_text("utf-8"))
    assert "nearly sent" in kept.read_text("utf-8")
    editor = next(w for w in window.transcript.column.widgets() if isinstance(w, MessageEditor))
    editor.send.click()
    qtbot.waitUntil(lambda: "nearly sent" not in kept.read_text("utf-8"))
    bench.engine.answer("Yes.")
    qtbot.waitUntil(lambda: not window.chat.busy)
    window.composer.action.click()
    qtbot.waitUntil(lambda: not kept.exists())
    bench.engine.answer("Yes.")


def test_files_that_are_gone_or_changed_are_named_and_nothing_else_is_lost(starts: Start, tmp_path: Path) -> None:
    window = starts()
    path = talk(window, "first", "answer")
    window.open_conversation(path)
    gone, changed, emptied, same, touched = (
        file(tmp_path, f"{n}.txt") for n in ("gone", "changed", "empty", "same", "touched")
    )
    window.composer.set_text("about these")
    window.composer.attach([gone, changed, emptied, same, touched])
    edit(window).input.setPlainText("better")
    window.new_chat()
    window.composer.attach([gone])
    window.drafts.save()
    gone.unlink()
    changed.write_text("other words")
    emptied.write_text("")
    touched.write_text("text")
    again = starts()
    assert names(again) == [] and "“gone.txt” was attached here and is not there" in again.composer.note.text()
    again.open_conversation(path)
    assert names(again) == ["same.txt", "touched.txt"] and again.composer.text == "about these"
    said = again.composer.note.text()
    assert again.composer.note.isVisible()
    assert "“gone.txt” was" in said and "“changed.txt” has changed" in said and "“empty.txt” is empty" in said
    assert "same.txt" not in said and "touched.txt" not in said
    assert edit(again).text == "better"
    third = starts()
    third.open_conversation(path)
    assert names(third) == ["same.txt", "touched.txt"] and third.composer.note.isHidden()  # said once
    assert edit(third).text == "better"


DAMAGED = [
    b"",
    b"{",
    b"[" * 100_000,
    b"\xff\xfe\x00",
    b"[1]",
    b"null",
    b'{"files": 3, "edits": [1]}',
    b'{"files": [1, {}, {"path": 2, "sha256": "x"}, {"path": "/a\\u0000b", "sha256": "x"}], "edits": {"a": 1}}',
    b'{"files": [{"path": "/a\\ud800b", "sha256": "x"}], "edits": {"a": "\\ud800"}}',
]


@pytest.mark.parametrize("damage", DAMAGED, ids=lambda damage: repr(damage[:24]))
def test_a_damaged_draft_stops_nothing(starts: Start, tmp_path: Path, damage: bytes) -> None:
    window = starts()
    path = talk(window, "first", "answer")
    window.open_conversation(path)
    window.composer.set_text("about this")
    window.new_chat()
    window.composer.set_text("something new")
    window.drafts.save()
    beside = [tmp_path / "drafts" / f"{name}.json" for name in ("new", path.stem)]
    window.close()
    for kept in beside:
        kept.write_bytes(damage)
    again = starts()
    assert again.composer.text == "something new" and names(again) == [] and again.composer.note.isHidden()
    again.open_conversation(path)
    assert again.composer.text == "about this" and names(again) == []
    assert edit(again).text == "first"
    again.composer.attach([file(tmp_path, "notes.txt")])
    third = starts()
    third.open_conversation(path)
    assert names(third) == ["notes.txt"]


def unsent(window: MainWindow, folder: Path) -> Path:
    """A conversation with a file that is to go along and an edit under way."""
    path = talk(window, "first", "answer")
    window.open_conversation(path)
    window.composer.attach([file(folder, "notes.txt")])
    edit(window).input.setPlainText("better")
    return path


def test_of_a_half_damaged_draft_what_makes_sense_is_kept(starts: Start, tmp_path: Path) -> None:
    window = starts()
    path = unsent(window, tmp_path)
    window.close()
    kept = tmp_path / "drafts" / f"{path.stem}.json"
    record = json.loads(kept.read_text("utf-8"))
    record["files"].insert(0, {"path": None})
    record["edits"]["other"] = 3
    kept.write_text(json.dumps(record), "utf-8")
    again = starts()
    again.open_conversation(path)
    assert names(again) == ["notes.txt"] and edit(again).text == "better"


def test_what_goes_with_a_deleted_conversation_goes_with_its_draft(starts: Start, tmp_path: Path) -> None:
    window = starts()
    path = unsent(window, tmp_path)
    window.conversations.delete(path, "first")
    assert window.conversations.can_undo
    window.undo_toast.button.click()
    window.open_conversation(path)
    assert names(window) == ["notes.txt"] and edit(window).text == "better"
    window.conversations.delete(path, "first")
    starts()
    assert drafts(tmp_path) == []
