"""Whole conversations in the real window with the real engine: branches, continuing, deleting, finding, copies."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QFileDialog, QLineEdit, QListWidgetItem, QPushButton

from app.chat.answer import AnswerView
from app.chat.cards import UserBubble
from app.chat.editor import MessageEditor
from app.engine_client import EngineClient
from app.main_window import MainWindow
from app.settings import Settings
from app.sidebar.rows import PATH, SNIPPET
from app.theme import Theme
from engine.messages import LoadModel
from engine.sessions import copying
from engine.sessions.conversation import Conversation
from engine.sessions.log import SessionLog
from engine.sessions.reader import read_conversation, recount
from tests.app.conftest import Pause
from tests.app.test_drop_zone import drop

ANSWER_MS = 60_000


def views(window: MainWindow, kind: type) -> list:
    return [view for view in window.transcript.column.widgets() if isinstance(view, kind) and not view.isHidden()]


def texts(window: MainWindow) -> list[str]:
    """What is to be read in the transcript, from top to bottom."""
    return [view.text for view in window.transcript.column.widgets() if isinstance(view, UserBubble | AnswerView)]


def click(button: QPushButton) -> None:
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)


def send(window: MainWindow, text: str) -> None:
    window.composer.set_text(text)
    QTest.keyClick(window.composer.input, Qt.Key.Key_Return)
    assert window.chat.busy


def wait(window: MainWindow, qtbot) -> None:
    qtbot.waitUntil(lambda: not window.chat.busy, timeout=ANSWER_MS)


def ask(window: MainWindow, text: str, qtbot) -> AnswerView:
    send(window, text)
    wait(window, qtbot)
    return views(window, AnswerView)[-1]


def path_of(window: MainWindow) -> Path:
    assert window.chat.session.path is not None
    return window.chat.session.path


def saved(window: MainWindow) -> Conversation:
    return read_conversation(path_of(window))


def rows(window: MainWindow) -> list[QListWidgetItem]:
    column = window.sidebar.list
    return [column.item(row) for row in range(column.count()) if column.item(row).data(PATH)]


def titles(window: MainWindow) -> list[str]:
    return [item.text() for item in rows(window)]


def talk(window: MainWindow, *said: str) -> Path:
    """A saved conversation that the window did not make."""
    folder = Path(window.settings._path or "").parent / "conversations"
    with SessionLog.create(folder, "test") as log:
        parent = None
        for number, text in enumerate(said):
            log.append_message(f"m{number}", parent, ("user", "assistant")[number % 2], text, reason="end")
            parent = f"m{number}"
    window.sidebar.refresh()
    return log.path


# ------------------------------------------------------------------------------------------------ branches


def test_regenerate_keeps_both_answers_and_one_can_step_between_them(window: MainWindow, qtbot) -> None:
    window.settings.preset = "creative"
    first = ask(window, "Hello there", qtbot)
    first_text = first.text
    assert first.turn_actions.versions is None
    click(first.turn_actions.again)
    wait(window, qtbot)
    [second] = views(window, AnswerView)
    second_text = second.text
    assert second.turn_actions.versions.label.text() == "2 of 2"
    assert [m.text for m in saved(window).messages.values()] == ["Hello there", first_text, second_text]
    click(second.turn_actions.versions.previous)
    assert texts(window) == ["Hello there", first_text]
    [shown] = views(window, AnswerView)
    assert shown.turn_actions.versions.label.text() == "1 of 2"
    assert not shown.turn_actions.versions.previous.isEnabled()
    path = path_of(window)
    window.new_chat()
    window.open_conversation(path)  # the choice is remembered
    qtbot.waitUntil(lambda: texts(window) == ["Hello there", first_text])
    click(views(window, AnswerView)[0].turn_actions.versions.next)
    assert texts(window) == ["Hello there", second_text]


def test_an_edited_question_begins_a_branch_and_the_other_can_be_returned_to(window: MainWindow, qtbot) -> None:
    ask(window, "One", qtbot)
    ask(window, "Two", qtbot)
    before = texts(window)
    click(views(window, UserBubble)[0].turn_actions.edit)
    [editor] = views(window, MessageEditor)
    assert editor.input.hasFocus() or editor.input is window.focusWidget()
    QTest.keyClicks(editor.input, " and a half")
    QTest.keyClick(editor.input, Qt.Key.Key_Return)
    wait(window, qtbot)
    assert texts(window)[0] == "One and a half" and len(texts(window)) == 2
    assert not views(window, MessageEditor)
    conversation = saved(window)
    assert [m.text for m in conversation.children(None)] == ["One", "One and a half"]
    assert conversation.title == "One"
    versions = views(window, UserBubble)[0].turn_actions.versions
    assert versions.label.text() == "2 of 2"
    click(versions.previous)
    assert texts(window) == before
    ask(window, "Three", qtbot)  # goes on in the branch that is shown
    assert [m.text for m in saved(window).path_to(saved(window).chosen_leaf().id)][::2] == ["One", "Two", "Three"]


def test_an_edit_that_is_cancelled_changes_nothing(window: MainWindow, qtbot) -> None:
    ask(window, "One", qtbot)
    before = texts(window)
    click(views(window, UserBubble)[0].turn_actions.edit)
    QTest.keyClicks(views(window, MessageEditor)[0].input, "!!")
    QTest.keyClick(views(window, MessageEditor)[0].input, Qt.Key.Key_Escape)
    assert not views(window, MessageEditor)
    assert texts(window) == before and len(views(window, UserBubble)) == 1
    assert len(saved(window).messages) == 2


def test_what_the_engine_refuses_brings_back_what_stood_there(window: MainWindow, tmp_path, qtbot) -> None:
    answer = ask(window, "One", qtbot)
    before = texts(window)
    (tmp_path / "no model").mkdir()
    window.load(LoadModel(str(tmp_path / "no model")))
    qtbot.waitUntil(lambda: bool(window.state.problem), timeout=20_000)
    assert not answer.turn_actions.again.isEnabled()
    window.chat.sampling = lambda: window.style_of_answers.style.sampling  # as if the model had gone just now
    window.chat.regenerate(window.chat.session.turns[-1].id)
    assert window.chat.busy
    wait(window, qtbot)
    assert texts(window) == before


# ---------------------------------------------------------------------------------------------- continuing


def test_an_answer_cut_at_the_limit_goes_on_where_it_ended(endless: None, window: MainWindow, qtbot) -> None:
    answer = ask(window, "Tell me", qtbot)
    cut = answer.text
    assert answer.turn_actions.more.isVisible()
    click(answer.turn_actions.more)
    wait(window, qtbot)
    [whole] = views(window, AnswerView)
    assert whole.text.startswith(cut) and len(whole.text) > len(cut)
    turn = window.chat.session.turns[-1]
    assert turn.timings is not None and turn.timings.answer_tokens == 48
    assert "48\u00a0tokens" in whole.footer.label.text()
    conversation = saved(window)
    assert [m.role for m in conversation.messages.values()] == ["user", "assistant", "assistant"]
    counts = [recount(path_of(window), m.id) for m in turn.messages]
    assert turn.cache is not None and turn.cache.decode_hits == sum(count.decode_hits for count in counts)
    path = path_of(window)
    window.new_chat()
    window.open_conversation(path)
    qtbot.waitUntil(lambda: texts(window) == ["Tell me", whole.text])


def test_a_stopped_answer_goes_on_and_an_answer_that_ended_offers_nothing(
    endless: None, pause: Pause, window: MainWindow, qtbot
) -> None:
    pause.after(6)
    send(window, "Tell me")
    qtbot.waitUntil(lambda: bool(views(window, AnswerView)[0].shown_text), timeout=ANSWER_MS)
    window.stop()
    pause.go()
    wait(window, qtbot)
    stopped = views(window, AnswerView)[0]
    text = stopped.text
    assert "stopped" in stopped.footer.label.text() and stopped.turn_actions.more.isVisible()
    click(stopped.turn_actions.more)
    wait(window, qtbot)
    assert texts(window)[1].startswith(text) and len(texts(window)[1]) > len(text)
    ask(window, "And now?", qtbot)
    earlier, _ = views(window, AnswerView)
    assert not earlier.turn_actions.more.isVisible()
    window.open_conversation(talk(window, "Question", "An answer that ended."))
    qtbot.waitUntil(lambda: texts(window)[-1:] == ["An answer that ended."])
    assert not views(window, AnswerView)[0].turn_actions.more.isVisible()


# ----------------------------------------------------------------------------- other chats while one streams


def test_an_answer_goes_on_in_its_own_log_while_another_chat_is_read(
    endless: None, pause: Pause, window: MainWindow, qtbot
) -> None:
    other = talk(window, "Older question", "Older answer")
    pause.after(6)
    send(window, "New question")
    path = path_of(window)
    qtbot.waitUntil(lambda: bool(views(window, AnswerView)[0].shown_text), timeout=ANSWER_MS)
    window.open_conversation(other)
    qtbot.waitUntil(lambda: texts(window) == ["Older question", "Older answer"])
    window.composer.set_text("typed meanwhile")
    QTest.keyClick(window.composer.input, Qt.Key.Key_Return)
    assert window.composer.text == "typed meanwhile"  # one answer at a time: it stays until it can be sent
    assert not views(window, AnswerView)[0].turn_actions.again.isEnabled()
    pause.go()
    wait(window, qtbot)
    assert texts(window) == ["Older question", "Older answer"]
    answered = read_conversation(path)
    assert [m.role for m in answered.messages.values()] == ["user", "assistant"]
    assert answered.chosen_leaf().reason == "length"
    assert len(read_conversation(other).messages) == 2
    QTest.keyClick(window.composer.input, Qt.Key.Key_Return)
    wait(window, qtbot)
    assert [m.text for m in read_conversation(other).messages.values()][2] == "typed meanwhile"
    window.open_conversation(path)
    qtbot.waitUntil(lambda: texts(window) == [m.text for m in answered.messages.values()])


def test_coming_back_to_a_chat_finds_its_answer_as_it_stands(
    endless: None, pause: Pause, window: MainWindow, qtbot
) -> None:
    other = talk(window, "Older question", "Older answer")
    pause.after(6)
    send(window, "New question")
    path = path_of(window)
    qtbot.waitUntil(lambda: bool(views(window, AnswerView)[0].shown_text), timeout=ANSWER_MS)
    window.open_conversation(other)
    window.open_conversation(path)
    qtbot.waitUntil(lambda: bool(views(window, AnswerView)) and bool(views(window, AnswerView)[0].shown_text))
    half = views(window, AnswerView)[0].shown_text
    pause.go()
    wait(window, qtbot)
    assert texts(window)[1].startswith(half) and len(texts(window)[1]) > len(half)
    assert texts(window) == [m.text for m in saved(window).messages.values()]


def test_deleting_a_chat_stops_its_answer_first_and_undo_brings_back_what_there_was(
    endless: None, pause: Pause, window: MainWindow, qtbot
) -> None:
    pause.after(6)
    send(window, "Hello")
    path = path_of(window)
    qtbot.waitUntil(lambda: bool(views(window, AnswerView)[0].shown_text), timeout=ANSWER_MS)
    half = views(window, AnswerView)[0].shown_text
    window.conversations.delete(path, "Hello")
    assert window.transcript.empty and titles(window) == []
    assert window.chat.busy and path.exists()
    pause.go()
    wait(window, qtbot)
    qtbot.waitUntil(lambda: not path.exists())
    click(window.undo_toast.button)
    qtbot.waitUntil(lambda: titles(window) == ["Hello"])
    qtbot.waitUntil(lambda: len(texts(window)) == 2)
    assert texts(window)[1].startswith(half)
    assert saved(window).chosen_leaf().reason == "stopped"


def test_undo_while_the_answer_is_still_being_stopped(endless: None, pause: Pause, window: MainWindow, qtbot) -> None:
    pause.after(6)
    send(window, "Hello")
    path = path_of(window)
    qtbot.waitUntil(lambda: bool(views(window, AnswerView)[0].shown_text), timeout=ANSWER_MS)
    window.conversations.delete(path, "Hello")
    window.conversations.undo()
    pause.go()
    wait(window, qtbot)
    qtbot.waitUntil(lambda: len(texts(window)) == 2)
    assert path.exists() and titles(window) == ["Hello"]
    assert len(list(path.parent.glob("**/*.jsonl"))) == 1


# ------------------------------------------------------------------------------------------ delete and undo


def test_delete_can_be_undone_and_is_final_only_when_the_undo_is_gone(window: MainWindow, qtbot) -> None:
    ask(window, "Precious", qtbot)
    path, before = path_of(window), path_of(window).read_bytes()
    window.composer.set_text("half a thought")
    qtbot.waitUntil(lambda: titles(window) == ["Precious"])
    menu = window.sidebar.menu_for(rows(window)[0])
    next(action for action in menu.actions() if action.text() == "&Delete").trigger()
    assert titles(window) == [] and not path.exists() and window.transcript.empty
    assert window.undo_toast.isVisible() and "Precious" in window.undo_toast.label.text()
    assert any(file.read_bytes() == before for file in path.parent.glob("deleted/*"))
    click(window.undo_toast.button)
    qtbot.waitUntil(lambda: titles(window) == ["Precious"] and len(texts(window)) == 2)
    assert path.read_bytes() == before and window.composer.text == "half a thought"
    window.conversations.delete(path, "Precious")
    click(window.undo_toast.close_button)
    assert list(path.parent.glob("**/*.jsonl")) == []
    assert list((path.parent.parent / "drafts").glob("*.txt")) == []
    window.conversations.undo()
    assert not path.exists()


def test_several_deletions_are_undone_together(window: MainWindow, qtbot) -> None:
    paths = [talk(window, f"talk {number}") for number in range(3)]
    qtbot.waitUntil(lambda: len(titles(window)) == 3)
    for path in paths:
        window.conversations.delete(path, path.stem)
    assert "3 conversations" in window.undo_toast.label.text() and titles(window) == []
    window.menus.undo.trigger()
    qtbot.waitUntil(lambda: len(titles(window)) == 3)
    assert all(path.exists() for path in paths)


def test_no_single_key_deletes(window: MainWindow, qtbot) -> None:
    path = talk(window, "Precious")
    qtbot.waitUntil(lambda: titles(window) == ["Precious"])
    window.sidebar.list.setFocus()
    window.sidebar.list.setCurrentItem(rows(window)[0])
    for key in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace, Qt.Key.Key_D, Qt.Key.Key_Space, Qt.Key.Key_Escape):
        QTest.keyClick(window.sidebar.list, key)
    assert path.exists() and titles(window) == ["Precious"]


def test_closing_the_window_ends_the_undo(window: MainWindow, qtbot) -> None:
    path = talk(window, "Unwanted")
    window.conversations.delete(path, "Unwanted")
    with qtbot.waitSignal(window.closed, timeout=10_000):
        window.close()
    assert list(path.parent.glob("**/*.jsonl")) == []


# ------------------------------------------------------------------------- finding, renaming, copies, drafts


def test_search_finds_words_anywhere_and_opens_the_branch_they_are_in(window: MainWindow, qtbot) -> None:
    path = talk(window, "About ships", "The Hanseatic League traded in cogs.", "Thanks")
    with SessionLog.open(path) as log:
        log.append_message("other", "m0", "assistant", "They float, mostly.", reason="end")
    talk(window, "About bread", "Flour and water.")
    QTest.keyClick(window, Qt.Key.Key_K, Qt.KeyboardModifier.ControlModifier)
    window.search()  # the same action: offscreen the window may not be active
    QTest.keyClicks(window.sidebar.search, "hanse COGS")
    qtbot.waitUntil(lambda: titles(window) == ["About ships"])
    assert "Hanseatic" in rows(window)[0].data(SNIPPET).text
    QTest.keyClick(window.sidebar.search, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: len(texts(window)) == 3)
    assert texts(window) == ["About ships", "The Hanseatic League traded in cogs.", "Thanks"]
    window.sidebar.search.setText("nothing like that")
    qtbot.waitUntil(lambda: titles(window) == [] and window.sidebar.empty.isVisible())
    QTest.keyClick(window.sidebar.search, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: len(titles(window)) == 2)
    assert window.sidebar.search.text() == ""


def test_the_list_is_walked_and_opened_by_keyboard_alone(window: MainWindow, qtbot) -> None:
    talk(window, "First", "one")
    talk(window, "Second", "two")
    qtbot.waitUntil(lambda: len(titles(window)) == 2)
    window.search()
    QTest.keyClick(window.sidebar.search, Qt.Key.Key_Down)
    QTest.keyClick(window.sidebar.list, Qt.Key.Key_Down)
    wanted = titles(window)[1]
    QTest.keyClick(window.sidebar.list, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: texts(window)[:1] == [wanted])


def test_rename_in_place_is_saved_and_an_empty_title_brings_back_the_first_message(window: MainWindow, qtbot) -> None:
    ask(window, "Hello there", qtbot)
    qtbot.waitUntil(lambda: titles(window) == ["Hello there"])

    def rename(title: str) -> None:
        window.sidebar.list.setCurrentItem(rows(window)[0])
        QTest.keyClick(window.sidebar.list, Qt.Key.Key_F2)
        field = window.sidebar.list.findChild(QLineEdit)
        assert field is not None
        field.setText(title)
        QTest.keyClick(field, Qt.Key.Key_Return)

    rename("  A better\ttitle ")
    qtbot.waitUntil(lambda: titles(window) == ["A better title"])
    assert window.windowTitle().startswith("A better title")
    assert saved(window).title == "A better title"
    ask(window, "More", qtbot)
    assert titles(window) == ["A better title"]
    rename("")
    qtbot.waitUntil(lambda: titles(window) == ["Hello there"])


def test_a_duplicate_is_a_conversation_of_its_own(window: MainWindow, qtbot) -> None:
    ask(window, "Hello", qtbot)
    path, before = path_of(window), texts(window)
    menu = window.sidebar.menu_for(rows(window)[0])
    next(action for action in menu.actions() if action.text() == "D&uplicate").trigger()
    qtbot.waitUntil(lambda: path_of(window) != path)
    assert texts(window) == before and window.chat.session.title == "Hello (copy)"
    ask(window, "More", qtbot)
    assert len(read_conversation(path).messages) == 2
    qtbot.waitUntil(lambda: sorted(titles(window)) == ["Hello", "Hello (copy)"])


def test_drafts_stay_with_their_conversation_over_a_restart(window: MainWindow, tmp_path, qtbot) -> None:
    first, second = talk(window, "First"), talk(window, "Second")
    window.composer.set_text("for a new chat")
    window.open_conversation(first)
    assert window.composer.text == ""
    window.composer.set_text("for the first\nin two lines")
    window.open_conversation(second)
    window.composer.set_text("for the second")
    window.new_chat()
    assert window.composer.text == "for a new chat"
    with qtbot.waitSignal(window.closed, timeout=10_000):
        window.close()
    settings = Settings(tmp_path / "settings.json")
    again = MainWindow(EngineClient(), Theme("dark"), settings, tmp_path / "conversations", "greenroom test")
    qtbot.addWidget(again)
    assert again.composer.text == "for a new chat"
    again.open_conversation(second)
    assert again.composer.text == "for the second"
    again.open_conversation(first)
    assert again.composer.text == "for the first\nin two lines"
    again.close()


def test_what_was_sent_is_no_draft_any_more(window: MainWindow, tmp_path, qtbot) -> None:
    window.composer.set_text("Hello")
    window.drafts.save()
    ask(window, "Hello", qtbot)
    window.new_chat()
    assert window.composer.text == ""
    assert list((tmp_path / "drafts").glob("*.txt")) == []


# ------------------------------------------------------------------------------------------ export and import


def test_an_exported_log_dropped_on_the_list_is_the_same_conversation(window: MainWindow, tmp_path, qtbot) -> None:
    window.settings.preset = "creative"
    answer = ask(window, "Hello", qtbot)
    click(answer.turn_actions.again)
    wait(window, qtbot)
    source, exported, before = path_of(window), tmp_path / "out" / "talk.jsonl", texts(window)
    exported.parent.mkdir()
    _export(window, exported, "Session log", qtbot)
    drop(window.sidebar.list.viewport(), exported)
    qtbot.waitUntil(lambda: path_of(window) != source)
    assert texts(window) == before and path_of(window).parent == source.parent
    assert saved(window).messages == read_conversation(source).messages
    assert recount(path_of(window)) == recount(source)
    ask(window, "More", qtbot)
    assert len(read_conversation(exported).messages) == 3


def test_exports_to_read_show_the_branch_that_is_seen_or_all(window: MainWindow, tmp_path, qtbot) -> None:
    ask(window, "First version", qtbot)
    click(views(window, UserBubble)[0].turn_actions.edit)
    views(window, MessageEditor)[0].input.setPlainText("Second version")
    click(views(window, MessageEditor)[0].send)
    wait(window, qtbot)
    for kind, name in (("Markdown", "a.md"), ("Web page", "a.html")):
        _export(window, tmp_path / name, f"{kind}, to be read", qtbot)
        text = (tmp_path / name).read_text("utf-8")
        assert "Second version" in text and text.count("First version") <= 2  # as the conversation's title
        _export(window, tmp_path / f"all {name}", f"{kind} with all branches", qtbot)
        assert "In place of “Second version”" in (tmp_path / f"all {name}").read_text("utf-8")
    window.menus.copy_all.trigger()
    copied, exported = QGuiApplication.clipboard().text(), (tmp_path / "a.md").read_text("utf-8")
    assert copied[copied.index("## You") :] == exported[exported.index("## You") :]


def _export(window: MainWindow, target: Path, wanted: str, qtbot) -> None:
    """As from the file dialog, with this target and this kind chosen."""

    def choose(parent, title, suggested, kinds, first) -> tuple[str, str]:
        return str(target), next(kind for kind in kinds.split(";;") if kind.startswith(wanted))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QFileDialog, "getSaveFileName", choose)
        window.toast.dismiss()
        window.menus.export.trigger()
        qtbot.waitUntil(lambda: window.toast.isVisible())
    assert str(target) in window.toast.label.text()
    assert window.exporter.dialog is None
    assert target.exists()


def test_a_file_that_is_no_log_is_refused_in_a_sentence_and_leaves_nothing(window: MainWindow, tmp_path, qtbot) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"\xff\xd8\xff\xe0 no log")
    window.conversations.import_files([tmp_path / "holiday.jpg"])
    qtbot.waitUntil(window.toast.isVisible)
    assert "holiday.jpg" in window.toast.label.text() and "not a Greenroom" in window.toast.label.text()
    assert window.transcript.empty and list((tmp_path / "conversations").glob("**/*.jsonl")) == []


def test_what_came_in_before_something_broke_is_listed_all_the_same(window: MainWindow, tmp_path, qtbot) -> None:
    with SessionLog.create(tmp_path / "elsewhere", "test") as good:
        good.append_message("u", None, "user", "From elsewhere")
    import_one = copying.import_log

    def breaks(source: Path, folder: Path) -> Path:
        if source.name == "odd.jsonl":
            raise MemoryError
        return import_one(source, folder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.conversations.import_log", breaks)
        window.conversations.import_files([good.path, tmp_path / "odd.jsonl"])
        qtbot.waitUntil(window.toast.isVisible)
    assert "Memory ran out" in window.toast.label.text()
    qtbot.waitUntil(lambda: titles(window) == ["From elsewhere"])


def test_a_message_is_copied_from_its_bubble(window: MainWindow, qtbot) -> None:
    ask(window, "Copy *this*", qtbot)
    bubble = views(window, UserBubble)[0]
    QTest.mouseMove(bubble, QPoint(5, 5))
    click(bubble.turn_actions.copy)
    assert QGuiApplication.clipboard().text() == "Copy *this*"


@pytest.mark.parametrize("width", [560, 1280])
def test_what_can_be_done_with_a_message_covers_no_other(window: MainWindow, width: int, qtbot) -> None:
    window.panels.hide()
    window.resize(width, 700)
    ask(window, "a message of some length " * 3, qtbot)
    click(views(window, UserBubble)[0].turn_actions.edit)
    click(views(window, MessageEditor)[0].send)
    wait(window, qtbot)
    bubble, answer = views(window, UserBubble)[0], views(window, AnswerView)[0]
    row = bubble.turn_actions
    assert row.versions is not None and row.versions.label.text() == "2 of 2"
    assert row.geometry().left() >= 0 and row.geometry().right() < bubble.width()
    assert row.geometry().bottom() < bubble.height() and bubble.geometry().bottom() < answer.y()
    assert not row.geometry().intersects(bubble._text.geometry())
