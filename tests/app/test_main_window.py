"""The window as a user meets it: keys, states, conversations, refusals, closing."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QInputMethodEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog, QFileDialog, QLabel, QPushButton

from app.chat.answer import AnswerView
from app.chat.cards import Card, UserBubble
from app.main_window import MainWindow
from engine.messages import ChatMessage, Failed, LoadModel, PrefillProgress, Started, Token
from engine.sessions.conversation import Conversation
from engine.sessions.log import SessionLog
from engine.sessions.reader import read_conversation
from tests.app.conftest import Bench


def ask(window: MainWindow, text: str) -> None:
    QTest.keyClicks(window.composer.input, text)
    QTest.keyClick(window.composer.input, Qt.Key.Key_Return)


def answers(window: MainWindow) -> list[AnswerView]:
    return [w for w in window.transcript.column.widgets() if isinstance(w, AnswerView)]


def cards(window: MainWindow) -> list[Card]:
    return [w for w in window.transcript.column.widgets() if isinstance(w, Card)]


# ------------------------------------------------------------------------------------------------ asking


def test_question_is_on_disk_before_it_is_sent_and_the_answer_is_shown(bench: Bench, qtbot) -> None:
    window = bench.start()
    ask(window, "Hello there")
    question = bench.engine.asked
    saved = read_conversation(Path(question.log))
    assert [m.text for m in saved.messages.values()] == ["Hello there"]
    assert next(iter(saved.messages)) == question.parent_id
    assert question.messages == (ChatMessage("user", "Hello there"),)
    assert window.composer.text == ""
    assert window.composer.action.text() == "Stop"
    bench.engine.answer("Good *day*.")
    qtbot.waitUntil(lambda: not window.chat.busy)
    assert answers(window)[0].text == "Good *day*."
    assert "3\u00a0tokens" in answers(window)[0].footer.label.text()
    assert window.composer.action.text() == "Send"


def test_next_question_carries_the_history_without_thoughts(bench: Bench, qtbot) -> None:
    window = bench.start()
    ask(window, "One")
    bench.engine.answer("<think>hm</think>\n\nFirst")
    qtbot.waitUntil(lambda: not window.chat.busy)
    ask(window, "Two")
    assert bench.engine.asked.messages == (
        ChatMessage("user", "One"),
        ChatMessage("assistant", "First"),
        ChatMessage("user", "Two"),
    )


def test_enter_sends_shift_enter_breaks_and_input_methods_keep_their_enter(bench: Bench) -> None:
    window = bench.start()
    field = window.composer.input
    QTest.keyClicks(field, "a")
    QTest.keyClick(field, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    QTest.keyClicks(field, "b")
    assert field.toPlainText() == "a\nb"
    QApplication.sendEvent(field, QInputMethodEvent("にほん", []))
    QTest.keyClick(field, Qt.Key.Key_Return)
    assert not window.chat.busy
    QApplication.sendEvent(field, QInputMethodEvent("", []))
    QTest.keyClick(field, Qt.Key.Key_Return)
    assert window.chat.busy


def test_composer_grows_to_eight_lines(bench: Bench) -> None:
    window = bench.start()
    field = window.composer.input
    one = field.height()
    heights = []
    for _ in range(12):
        QTest.keyClick(field, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
        heights.append(field.height())
    assert heights[0] > one
    assert heights[7:] == [heights[7]] * 5


def test_typing_goes_on_while_an_answer_streams(bench: Bench, qtbot) -> None:
    window = bench.start()
    ask(window, "One")
    ask(window, "Two")
    assert window.composer.text == "Two"
    assert bench.engine.asked.messages[-1].text == "One"
    bench.engine.answer("First")
    qtbot.waitUntil(lambda: not window.chat.busy)
    assert window.composer.text == "Two"
    QTest.keyClick(window.composer.input, Qt.Key.Key_Return)
    assert bench.engine.asked.messages[-1].text == "Two"


def test_escape_stops_and_keeps_the_text(bench: Bench, qtbot) -> None:
    window = bench.start()
    ask(window, "One")
    request = bench.engine.asked.request_id
    bench.engine.emit(Started(request, 10, 0))
    bench.engine.emit(PrefillProgress(request, 5, 10))
    qtbot.waitUntil(lambda: "5 of 10" in answers(window)[0].footer.label.text())
    bench.engine.emit(Token(request, "Half an", 2))
    qtbot.waitUntil(lambda: answers(window)[0].shown_text == "Half an")
    QTest.keyClick(window.composer.input, Qt.Key.Key_Escape)
    assert bench.engine.stops == 1
    bench.engine.finish("Half an", "stopped")
    qtbot.waitUntil(lambda: not window.chat.busy)
    assert answers(window)[0].text == "Half an"
    assert "stopped" in answers(window)[0].footer.label.text()


# ----------------------------------------------------------------------------------------------- trouble


def test_refused_answer_is_a_card_and_the_question_stays(bench: Bench, qtbot) -> None:
    window = bench.start()
    ask(window, "One")
    bench.engine.emit(Failed("generate", "The prompt is longer than the context.", bench.engine.asked.request_id))
    qtbot.waitUntil(lambda: not window.chat.busy)
    assert [card.text.text() for card in cards(window)] == ["The prompt is longer than the context."]
    assert answers(window) == []
    ask(window, "Two")
    assert bench.engine.asked.messages == (ChatMessage("user", "One\n\nTwo"),)


def test_answer_that_breaks_off_keeps_its_text(bench: Bench, qtbot) -> None:
    window = bench.start()
    ask(window, "One")
    bench.engine.answer("Half", "error", "RAM ran out: 2 GB short.")
    qtbot.waitUntil(lambda: not window.chat.busy)
    assert answers(window)[0].text == "Half"
    assert cards(window)[0].text.text() == "RAM ran out: 2 GB short."


def test_message_that_cannot_be_saved_is_not_sent_and_not_lost(bench: Bench) -> None:
    (bench.data / "conversations").write_text("a file where the folder should be")
    window = bench.start()
    ask(window, "Precious")
    assert not any(hasattr(command, "messages") for command in bench.engine.sent)
    assert window.composer.text == "Precious"
    assert len(cards(window)) == 1
    assert window.transcript.isVisible()


def test_refused_model_is_told_and_another_can_be_chosen(bench: Bench, qtbot) -> None:
    bench.engine.refuse = Failed("load", "“x” is no model: it has no config.json.")
    window = bench.start("x")
    assert window.empty.isVisible()
    assert window.empty.text.text() == "“x” is no model: it has no config.json."
    assert window.top.pill.accessibleName() == "Model: No model"
    assert window.empty.choose.isVisible() and window.empty.demo.isVisible()
    bench.engine.refuse = None
    QTest.mouseClick(window.empty.demo, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: window.state.model is not None)
    assert "SmolLM2 demo" in window.top.pill.accessibleName()


def test_model_that_took_the_program_down_is_not_loaded_again(bench: Bench) -> None:
    bench.settings.last_source = "big"
    bench.settings.loading_source = "big"
    window = bench.start()
    assert not any(type(command).__name__ == "LoadModel" for command in bench.engine.sent)
    assert "big" in window.state.problem
    assert bench.settings.loading_source == ""


def test_last_model_is_loaded_with_its_options(bench: Bench, tmp_path: Path) -> None:
    bench.settings.last_source, bench.settings.last_experts, bench.settings.last_policy = "org/model", "25%", "lfu"
    bench.start()
    command = bench.engine.sent[0]
    assert (command.source, command.experts, command.policy) == ("org/model", "25%", "lfu")  # type: ignore[union-attr]


def loads(bench: Bench) -> list[LoadModel]:
    return [command for command in bench.engine.sent if isinstance(command, LoadModel)]


def test_the_model_chosen_for_every_start_is_loaded_as_it_was_the_last_time(bench: Bench) -> None:
    settings = bench.settings
    settings.last_source, settings.last_policy = "org/another", "lfu"
    settings.startup, settings.startup_source = "chosen", "org/model"
    settings.model_loads = {"org/model": {"experts": "25%", "context": 2048}}
    bench.start()
    command = loads(bench)[0]
    assert (command.source, command.experts, command.context) == ("org/model", "25%", 2048)
    assert command.policy == "lfu"


def test_the_demo_is_loaded_with_the_policy_of_the_preferences(bench: Bench, qtbot) -> None:
    window = bench.start("demo")
    bench.settings.last_policy = "lfu"
    window.surfaces.load_demo()
    assert (loads(bench)[-1].policy, loads(bench)[-1].experts) == ("lfu", "50%")


def test_a_model_asked_for_twice_before_the_engine_is_there_is_loaded_once(bench: Bench, qtbot) -> None:
    window = bench.window
    window.show()
    window.begin(None)
    window.surfaces.load_demo()
    assert window.state.problem == "", "the middle of the window says that it starts"
    window.surfaces.load_demo()
    qtbot.waitUntil(lambda: window.state.model is not None)
    assert len(loads(bench)) == 1


def test_a_replay_that_cannot_be_is_told(bench: Bench, qtbot) -> None:
    window = bench.start()
    ask(window, "Hello")
    bench.engine.answer("Good day")  # this engine logs no passes
    qtbot.waitUntil(lambda: not window.chat.busy)
    window.panels.experts.player.play.click()
    qtbot.waitUntil(window.toast.isVisible)
    assert "no record of the experts" in window.toast.label.text()


# ------------------------------------------------------------------------------------------ conversations


def test_conversation_is_listed_and_opens_again(bench: Bench, qtbot) -> None:
    window = bench.start()
    ask(window, "What is a green room?")
    bench.engine.answer("A waiting room.")
    qtbot.waitUntil(lambda: not window.chat.busy)
    assert window.windowTitle().startswith("What is a green room?")
    window.new_chat()
    assert window.transcript.empty and window.windowTitle() == "Greenroom"
    sidebar = window.sidebar.list
    row = next(r for r in range(sidebar.count()) if sidebar.item(r).text() == "What is a green room?")
    place = sidebar.visualItemRect(sidebar.item(row)).center()
    QTest.mouseClick(sidebar.viewport(), Qt.MouseButton.LeftButton, pos=place)
    qtbot.waitUntil(lambda: len(window.transcript.column.widgets()) == 1)  # the answer is the engine's to write
    bubble = window.transcript.column.widgets()[0]
    assert isinstance(bubble, UserBubble) and bubble.text == "What is a green room?"


def test_empty_chat_leaves_no_file(bench: Bench) -> None:
    window = bench.start()
    window.new_chat()
    window.new_chat()
    assert not (bench.data / "conversations").exists()


def test_answer_goes_on_in_its_own_chat_while_another_is_read(bench: Bench, qtbot) -> None:
    with SessionLog.create(bench.data / "conversations", "test") as log:
        log.append_message("m1", None, "user", "Older question")
    window = bench.start()
    ask(window, "New question")
    path = Path(bench.engine.asked.log)
    request = bench.engine.asked.request_id
    bench.engine.emit(Started(request, 10, 0))
    bench.engine.emit(Token(request, "First half", 2))
    qtbot.waitUntil(lambda: answers(window)[0].shown_text == "First half")
    window.open_conversation(log.path)
    assert answers(window) == []
    QTest.keyClicks(window.composer.input, "wait")
    QTest.keyClick(window.composer.input, Qt.Key.Key_Return)
    assert window.composer.text == "wait"
    bench.engine.emit(Token(request, ", second", 3))
    qtbot.wait(80)
    window.open_conversation(path)
    qtbot.waitUntil(lambda: bool(answers(window)) and answers(window)[0].shown_text == "First half, second")
    bench.engine.finish("First half, second half")
    qtbot.waitUntil(lambda: not window.chat.busy)
    assert answers(window)[0].text == "First half, second half"


def test_damaged_conversation_is_told_and_the_rest_works(bench: Bench, qtbot) -> None:
    folder = bench.data / "conversations"
    folder.mkdir()
    (folder / "bad.jsonl").write_bytes(b"\x00\xffnot a log\n")
    window = bench.start()
    window.open_conversation(folder / "bad.jsonl")
    assert len(cards(window)) == 1
    window.new_chat()
    ask(window, "Still here?")
    assert bench.engine.asked.messages[-1].text == "Still here?"


# --------------------------------------------------------------------------------------------- the window


def test_columns_fold_and_come_back_folded(bench: Bench, tmp_path: Path, qtbot) -> None:
    window = bench.start()
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow)
    QTest.keyClick(window, Qt.Key.Key_B, Qt.KeyboardModifier.ControlModifier)
    QTest.keyClick(window, Qt.Key.Key_J, Qt.KeyboardModifier.ControlModifier)
    assert not window.sidebar.isVisible() and not window.panels.isVisible()
    assert (bench.settings.sidebar_open, bench.settings.panels_open) == (False, False)
    again = Bench(tmp_path, qtbot)
    again.start()
    assert not again.window.sidebar.isVisible()
    again.close()


def test_everything_that_acts_has_a_name_for_a_screen_reader(bench: Bench, qtbot) -> None:
    window = bench.start()
    ask(window, "One")
    bench.engine.answer("```py\nx\n```\n")
    qtbot.waitUntil(lambda: not window.chat.busy)
    for button in window.findChildren(QPushButton):
        assert button.accessibleName() or button.text(), button
    for field in (window.composer.input, window.sidebar.list, window.transcript, window.top.pill):
        assert field.accessibleName()


def test_tab_goes_from_the_message_to_its_buttons(bench: Bench, qtbot) -> None:
    window = bench.start()
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow)
    QTest.keyClicks(window.composer.input, "text")
    assert QApplication.focusWidget() is window.composer.input
    QTest.keyClick(window.composer.input, Qt.Key.Key_Tab)
    assert QApplication.focusWidget() is window.composer.options
    QTest.keyClick(window.composer.options, Qt.Key.Key_Tab)
    assert QApplication.focusWidget() is window.composer.files
    QTest.keyClick(window.composer.files, Qt.Key.Key_Tab)
    assert QApplication.focusWidget() is window.composer.action


@pytest.mark.qt_log_ignore("propagateSizeHints")  # the offscreen platform says so of every dialog
def test_link_is_opened_only_after_its_address_was_shown(bench: Bench, qtbot, monkeypatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("app.messages.QDesktopServices.openUrl", lambda url: opened.append(url.toString()))
    window = bench.start()
    window.transcript.link_clicked.emit("https://example.com/a")
    dialog = window.findChild(QDialog)
    assert isinstance(dialog, QDialog) and opened == []
    QTest.keyClick(dialog, Qt.Key.Key_Return)  # Enter is Cancel
    assert opened == []
    window.transcript.link_clicked.emit("https://example.com/a")
    dialog = next(d for d in window.findChildren(QDialog) if d.isVisible())
    button = next(b for b in dialog.findChildren(QPushButton) if b.text() == "Open")
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)
    assert opened == ["https://example.com/a"]


@pytest.mark.qt_log_ignore("propagateSizeHints")
@pytest.mark.parametrize(
    ("address", "server", "seen"),
    [
        ("https://example.com/" + "x" * 3000 + "?end", "example.com", "2,000 more characters"),
        ("https://example.com%2F" + "x" * 3000 + "@elsewhere.test/", "elsewhere.test", "more characters"),
        ("https://exаmple.com/", "xn--exmple-4nf.com", "https://exаmple.com/"),  # noqa: RUF001
        ("https://example.com/\u202egpj.exe", "example.com", "⟨U+202E⟩"),
    ],
)
def test_no_address_hides_where_it_leads(bench: Bench, address: str, server: str, seen: str) -> None:
    window = bench.start()
    window.transcript.link_clicked.emit(address)
    dialog = next(d for d in window.findChildren(QDialog) if d.isVisible())
    words = [text.text() for text in dialog.findChildren(QLabel)]
    assert f"It is on the server {server}" in words
    assert any(seen in text for text in words)


def test_closing_while_an_answer_streams_stops_it_and_leaves_a_readable_log(bench: Bench, qtbot) -> None:
    window = bench.start()
    ask(window, "One")
    bench.engine.emit(Started(bench.engine.asked.request_id, 10, 0))
    bench.engine.emit(Token(bench.engine.asked.request_id, "Half", 1))
    with qtbot.waitSignal(window.closed, timeout=6000):
        window.close()
        assert not window.isVisible()
    assert bench.engine.stops == 1
    saved = read_conversation(Path(bench.engine.asked.log))
    assert [m.text for m in saved.messages.values()] == ["One"]


@pytest.mark.parametrize("size", [(520, 420), (900, 600), (2560, 1400)])
def test_composer_is_as_wide_as_the_text_at_every_size(bench: Bench, qtbot, size: tuple[int, int]) -> None:
    window = bench.start()
    window.panels.hide()
    window.resize(*size)
    ask(window, "word " * 300)
    bench.engine.answer("word " * 800)
    qtbot.waitUntil(lambda: not window.chat.busy)
    view = answers(window)[0]
    qtbot.waitUntil(
        lambda: (
            view.mapTo(window, QPoint(0, 0)).x() == window.composer.mapTo(window, QPoint(0, 0)).x()
            and abs(view.width() - window.composer.width()) <= 1
        )
    )


def test_narrow_window_folds_its_columns_and_a_wide_one_has_them_back(bench: Bench, qtbot) -> None:
    window = bench.start()
    window.resize(800, 600)
    assert window.sidebar.isVisible() and not window.panels.isVisible()
    window.resize(540, 420)
    assert not window.sidebar.isVisible()
    assert window.composer.action.mapTo(window, QPoint(0, 0)).x() + window.composer.action.width() <= 540
    window.resize(1280, 800)
    assert window.sidebar.isVisible() and window.panels.isVisible()
    assert (bench.settings.sidebar_open, bench.settings.panels_open) == (True, True)


def test_conversation_that_is_added_to_leads_the_list(bench: Bench, qtbot) -> None:
    window = bench.start()
    for text in ("First", "Second", "Third"):
        window.new_chat()
        ask(window, text)
        bench.engine.answer("ok")
        qtbot.waitUntil(lambda: not window.chat.busy)
    titles = [window.sidebar.list.item(row).text() for row in range(window.sidebar.list.count())]
    assert titles == ["Today", "Third", "Second", "First"]
    first = next(p for p in (bench.data / "conversations").iterdir() if "First" in p.read_text("utf-8"))
    window.open_conversation(first)
    ask(window, "More")
    titles = [window.sidebar.list.item(row).text() for row in range(window.sidebar.list.count())]
    assert titles == ["Today", "First", "Third", "Second"]
    assert window.sidebar.list.currentItem().text() == "First"
    window.sidebar.refresh()
    assert window.sidebar.list.currentItem().text() == "First"


def test_lines_that_cannot_be_read_are_told(bench: Bench, qtbot) -> None:
    with SessionLog.create(bench.data / "conversations", "test") as log:
        log.append_message("m1", None, "user", "Question")
    with log.path.open("ab") as file:
        file.write(b"garbage\n")
    window = bench.start()
    window.open_conversation(log.path)
    assert [card.kind for card in cards(window)] == ["note"]
    assert "A line of its file" in cards(window)[0].text.text()


def long_log(bench: Bench, question: str) -> Path:
    """A conversation that takes longer to read than a frame on the screen."""
    with SessionLog.create(bench.data / "conversations", "test") as log:
        log.append_message("m1", None, "user", question)
        log.append_message("m2", "m1", "assistant", "word " * 60_000, reason="end")
    return log.path


def test_a_long_conversation_is_read_in_the_background(bench: Bench, qtbot, monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[threading.Thread] = []

    def reading(path: Path) -> Conversation:
        readers.append(threading.current_thread())
        return read_conversation(path)

    monkeypatch.setattr("app.chat.session.read_conversation", reading)
    path = long_log(bench, "A question")
    window = bench.start()
    window.open_conversation(path)
    qtbot.waitUntil(lambda: window.chat.session.path == path)
    assert [turn.role for turn in window.chat.session.turns] == ["user", "assistant"]
    assert len(readers) == 1 and readers[0] is not threading.main_thread()


def test_who_wants_another_chat_meanwhile_gets_that(bench: Bench, qtbot) -> None:
    one, other = long_log(bench, "One"), long_log(bench, "Other")
    window = bench.start()
    window.open_conversation(one)
    window.open_conversation(other)
    qtbot.waitUntil(lambda: window.chat.session.path == other)
    window.open_conversation(one)
    window.new_chat()
    qtbot.waitUntil(lambda: not window.background.busy)
    assert window.chat.session.path is None
    assert window.transcript.empty


def test_a_long_file_that_is_no_log_is_told(bench: Bench, qtbot) -> None:
    folder = bench.data / "conversations"
    folder.mkdir()
    (folder / "bad.jsonl").write_bytes(b"\x00\xffnot a log\n" * 40_000)
    window = bench.start()
    window.open_conversation(folder / "bad.jsonl")
    qtbot.waitUntil(lambda: len(cards(window)) == 1)
    assert "cannot be opened" in cards(window)[0].title.text()


def test_an_export_that_fails_says_why_and_is_written_off_the_gui_thread(
    bench: Bench, qtbot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = bench.start()
    ask(window, "Hello")
    bench.engine.answer("ok")
    qtbot.waitUntil(lambda: not window.chat.busy)
    (tmp_path / "a folder.html").mkdir()
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *a: (str(tmp_path / "a folder.html"), ""))
    window.menus.export.trigger()
    qtbot.waitUntil(lambda: window.exporter.dialog is not None)
    writers: list[threading.Thread] = []
    monkeypatch.setattr("app.export.export_markdown", lambda *a: writers.append(threading.current_thread()))
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *a: (str(tmp_path / "a.md"), ""))
    window.menus.export.trigger()
    qtbot.waitUntil(lambda: bool(writers))
    assert writers[0] is not threading.main_thread()


def test_an_export_is_offered_where_the_last_one_went_and_at_home_before_the_first(
    bench: Bench, qtbot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in the folder that the program happened to be started in."""
    window = bench.start()
    ask(window, "Hello")
    bench.engine.answer("ok")
    qtbot.waitUntil(lambda: not window.chat.busy)
    offered: list[Path] = []

    def choose(parent: object, caption: str, suggested: str, *rest: object) -> tuple[str, str]:
        offered.append(Path(suggested).parent)
        return str(tmp_path / "a.md"), ""

    monkeypatch.setattr(QFileDialog, "getSaveFileName", choose)
    for number in (1, 2):
        window.menus.export.trigger()
        qtbot.waitUntil(lambda number=number: len(offered) == number and (tmp_path / "a.md").exists())
    assert offered == [Path.home(), tmp_path]


def test_what_goes_wrong_beside_an_answer_is_told_and_the_answer_goes_on(bench: Bench, qtbot) -> None:
    window = bench.start()
    ask(window, "Hello there")
    bench.engine.emit(Failed("log", "The disk is full, so “chat.jsonl” could not be saved. Free some space."))
    qtbot.waitUntil(window.toast.isVisible)
    assert window.toast.label.text().startswith("The disk is full")
    assert window.chat.busy
    bench.engine.answer("Good day.")
    qtbot.waitUntil(lambda: not window.chat.busy)
    assert answers(window)[0].text == "Good day."


def test_an_export_whose_name_was_completed_asks_before_it_writes_over_a_file(
    bench: Bench, qtbot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file dialog has asked about the name that was typed, and that is another one."""
    window = bench.start()
    ask(window, "Hello")
    bench.engine.answer("Good day")
    qtbot.waitUntil(lambda: not window.chat.busy)
    notes = tmp_path / "notes.md"
    notes.write_text("mine")
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *a: (str(tmp_path / "notes"), ""))
    for press, expected in (("Keep it", "mine"), ("Replace", "Hello")):
        window.exporter.dialog = None
        window.menus.export.trigger()
        qtbot.waitUntil(lambda: window.exporter.dialog is not None)
        dialog = window.exporter.dialog
        assert dialog is not None and notes.read_text() == "mine"
        next(b for b in dialog.findChildren(QPushButton) if b.text() == press).click()
        qtbot.waitUntil(lambda expected=expected: expected in notes.read_text())
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *a: (str(tmp_path / "PAGE.HTML"), ""))
    window.menus.export.trigger()
    qtbot.waitUntil((tmp_path / "PAGE.HTML").exists)
    assert "<html" in (tmp_path / "PAGE.HTML").read_text()


def test_a_window_without_an_engine_closes_and_says_so(bench: Bench, qtbot) -> None:
    bench.window.show()
    with qtbot.waitSignal(bench.window.closed, timeout=1000):
        bench.window.close()
