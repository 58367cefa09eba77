"""Without a mouse: Tab reaches everything in the order one reads in, one sees where one is, and Esc leads out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog, QPushButton, QWidget

from app.chat.answer import AnswerView
from app.main_window import MainWindow
from app.messages import SmallDialog, ask_to_open
from app.tab_order import stops
from tests.app.conftest import Bench

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints|raise\\(\\)")  # the offscreen platform says so of dialogs

ANSWER = "<think>hm</think>See [a page](https://example.com) and [more](https://example.org).\n\n```py\nx\n```\n\nEnd."
RING = 18  # px around a control in which its ring may stand: the message's is the composer's


@pytest.fixture(autouse=True)
def steady_caret(qapp) -> Iterator[None]:
    before = QApplication.cursorFlashTime()
    QApplication.setCursorFlashTime(0)
    yield
    QApplication.setCursorFlashTime(before)


def name(widget: QWidget) -> str:
    return widget.accessibleName() or getattr(widget, "text", str)()


def is_stop(widget: QWidget, top: QWidget) -> bool:
    return bool(
        widget.focusPolicy() & Qt.FocusPolicy.TabFocus
        and widget.focusProxy() is None
        and widget.isVisible()
        and widget.isEnabled()
        and widget.window() is top
    )


def activate(top: QWidget, qtbot) -> None:
    top.activateWindow()
    qtbot.waitUntil(top.isActiveWindow)


def walk(
    top: QWidget, key: Qt.Key = Qt.Key.Key_Tab, look: Callable[[QWidget], None] = lambda stop: None
) -> list[QWidget]:
    """Where Tab stops, from where the keyboard is until it is there again. A text with links is one stop."""
    focus = QApplication.focusWidget()
    assert focus is not None and focus.window() is top, focus
    seen = [focus]
    look(focus)
    for _ in range(200):
        QTest.keyClick(QApplication.focusWidget(), key)
        focus = QApplication.focusWidget()
        assert focus is not None, f"the keyboard is nowhere after {seen[-1]}"
        if focus is seen[0]:
            return seen
        if focus is not seen[-1]:
            assert focus not in seen, f"Tab goes round and round at {name(focus)}"
            seen.append(focus)
            look(focus)
    raise AssertionError("Tab never comes back")


def changed_pixels(top: QWidget, widget: QWidget) -> int:
    """How many pixels on and around a control look otherwise while the keyboard is on it."""
    QApplication.processEvents()
    with_focus = top.grab().toImage()
    widget.clearFocus()
    QApplication.processEvents()
    without = top.grab().toImage()
    widget.setFocus(Qt.FocusReason.TabFocusReason)
    place = QRect(widget.mapTo(top, QPoint()), widget.size()).adjusted(-RING, -RING, RING, RING) & top.rect()
    assert not place.isEmpty(), f"{name(widget)} is not on the screen"
    return sum(
        with_focus.pixel(x, y) != without.pixel(x, y)
        for x in range(place.left(), place.right() + 1)
        for y in range(place.top(), place.bottom() + 1)
    )


def check_all(top: QWidget) -> list[QWidget]:
    """Every control is a stop, has a name and looks otherwise while the keyboard is on it."""

    def look(stop: QWidget) -> None:
        assert name(stop).strip(), f"{stop} has no name for a screen reader"
        assert changed_pixels(top, stop) >= 20, f"one does not see that the keyboard is on {name(stop)}"

    seen = walk(top, look=look)
    missed = [name(w) for w in top.findChildren(QWidget) if is_stop(w, top) and w not in seen]
    assert missed == []
    return seen


def talk(bench: Bench, qtbot) -> MainWindow:
    window = bench.start()
    window.resize(1440, 900)
    QTest.keyClicks(window.composer.input, "One")
    QTest.keyClick(window.composer.input, Qt.Key.Key_Return)
    bench.engine.answer(ANSWER)
    qtbot.waitUntil(lambda: not window.chat.busy)
    qtbot.waitUntil(lambda: window.transcript.findChildren(AnswerView)[-1].text.endswith("End."))
    QTest.keyClicks(window.composer.input, "a draft")
    QApplication.processEvents()
    return window


def test_tab_goes_through_the_window_as_one_reads_it(bench: Bench, qtbot) -> None:
    window = talk(bench, qtbot)
    activate(window, qtbot)
    window.composer.input.setFocus()
    names = [name(widget) for widget in walk(window)]
    start = names.index(window.top.pill.accessibleName())
    assert names[start:] + names[:start] == [
        "Model: SmolLM2 demo  ·  experts 22 MB of 86 MB",
        "New chat",
        "Search all conversations",
        "Conversations",
        "Conversation",
        "Edit this message",
        "Copy this message",
        "Thought",
        "Text of the message",
        "Copy code",
        "Copy answer",
        "Show the answer as the model wrote it",
        "Regenerate this answer",
        "Message",
        "How answers are to be: as advised",
        "Attach text files",
        "Send",
        "Place of the panel “Experts”",
        "This token",
        "Expert heatmap",
        "Replay the last answer",
        "Token of the answer",
        "Place of the panel “Cache”",
        "Place of the panel “Speed”",
        "Place of the panel “Memory”",
    ]


def test_shift_tab_goes_the_same_way_back(bench: Bench, qtbot) -> None:
    window = talk(bench, qtbot)
    activate(window, qtbot)
    window.composer.input.setFocus()
    there = walk(window)
    back = walk(window, Qt.Key.Key_Backtab)
    assert back == [there[0], *reversed(there[1:])]


def test_tab_goes_on_from_a_text_that_was_clicked(bench: Bench, qtbot) -> None:
    window = talk(bench, qtbot)
    activate(window, qtbot)
    answer = window.transcript.findChildren(AnswerView)[-1]
    texts = [view for view in answer.body.findChildren(QWidget) if view.accessibleName() == "Text of the message"]
    last = max(texts, key=lambda view: view.mapTo(window, QPoint()).y())
    last.setFocus(Qt.FocusReason.MouseFocusReason)
    QTest.keyClick(last, Qt.Key.Key_Tab)
    assert name(QApplication.focusWidget()) == "Copy answer"


def test_one_sees_where_the_keyboard_is_in_the_window(bench: Bench, qtbot) -> None:
    window = talk(bench, qtbot)
    activate(window, qtbot)
    window.composer.input.setFocus()
    check_all(window)


def test_an_empty_list_is_no_stop_and_starters_are(bench: Bench, qtbot) -> None:
    window = bench.start()
    activate(window, qtbot)
    window.composer.input.setFocus()
    names = [name(widget) for widget in check_all(window)]
    assert "Conversations" not in names
    assert names.count("What is the capital of France?") == 1


def test_the_sheet_comes_after_the_message_and_hides_the_panels_from_the_keyboard(bench: Bench, qtbot) -> None:
    window = talk(bench, qtbot)
    activate(window, qtbot)
    window.composer.options.click()
    assert QApplication.focusWidget() is window.sheet.preset
    seen = walk(window)
    names = [name(widget) for widget in seen]
    assert not [each for each in names if "panel" in each]
    assert names[names.index("Send") + 1] == "Close"
    for widget in seen:
        if window.sheet.isAncestorOf(widget):
            widget.setFocus(Qt.FocusReason.TabFocusReason)
            assert changed_pixels(window, widget) >= 20, name(widget)
    QTest.keyClick(window.sheet.preset, Qt.Key.Key_Escape)
    assert not window.sheet.isVisible() and window.composer.input.hasFocus()


def surfaces(window: MainWindow) -> dict[str, Callable[[], object]]:
    show = window.surfaces
    return {
        "picker": show.open_picker,
        "preferences": show.open_preferences,
        "what if": show.open_what_if,
        "learnt": show.open_profile,
        "keys": show.show_keys,
        "about": show.show_about,
        "welcome": show.show_welcome,
        "link": lambda: ask_to_open(window, "https://example.com/a"),
    }


@pytest.mark.parametrize("surface", ["picker", "preferences", "what if", "learnt", "keys", "about", "welcome", "link"])
def test_dialogs_are_walked_seen_and_left_by_keyboard(surface: str, bench: Bench, qtbot) -> None:
    window = bench.start()
    surfaces(window)[surface]()
    dialog = next(dialog for dialog in window.findChildren(QDialog) if dialog.isVisible())
    activate(dialog, qtbot)
    assert QApplication.focusWidget() is not None, "a dialog opens with the keyboard in it"
    seen = check_all(dialog)
    read = stops([dialog])
    first = seen.index(read[0])
    assert [name(stop) for stop in seen[first:] + seen[:first]] == [name(stop) for stop in read]
    QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: window.findChildren(QDialog) == [] or not dialog.isVisible())


def test_another_theme_leaves_the_keyboard_where_it_is(bench: Bench, qtbot) -> None:
    window = bench.start()
    window.surfaces.show_about()
    sheet = next(dialog for dialog in window.findChildren(SmallDialog) if dialog.isVisible())
    activate(sheet, qtbot)
    before = QApplication.focusWidget()
    for mode in ("dark", "light"):
        window.set_theme(mode)
        QApplication.processEvents()
        assert QApplication.focusWidget() is before
    sheet.reject()


def test_the_download_is_walked_and_left_by_keyboard(bench: Bench, qtbot) -> None:
    window = bench.start()
    window.surfaces.open_picker()
    picker = window.surfaces.picker
    assert picker is not None
    picker.download_button.click()
    dialog = picker.download_dialog
    activate(dialog, qtbot)
    check_all(dialog)
    QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Escape)
    assert not dialog.isVisible() and picker.isVisible()
    picker.reject()


def test_enter_closes_a_sheet_that_is_only_read(bench: Bench, qtbot) -> None:
    window = bench.start()
    for show in (window.surfaces.show_keys, window.surfaces.show_about):
        show()
        sheet = next(dialog for dialog in window.findChildren(SmallDialog) if dialog.isVisible())
        activate(sheet, qtbot)
        assert name(QApplication.focusWidget()) == "Close"
        QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Return)
        assert not sheet.isVisible()


def test_what_goes_on_stands_on_the_right(bench: Bench, qtbot) -> None:
    window = bench.start()
    for dialog in (ask_to_open(window, "https://example.com/a"), window.surfaces.show_welcome() or None):
        shown = dialog or next(d for d in window.findChildren(SmallDialog) if d.isVisible())
        buttons = sorted(shown.findChildren(QPushButton), key=lambda button: button.mapTo(shown, QPoint()).x())
        assert buttons[-1].property("kind") == "primary", [button.text() for button in buttons]
        shown.reject()


def test_enter_in_a_number_takes_it_and_keeps_the_dialog(bench: Bench, qtbot) -> None:
    window = bench.start()
    window.surfaces.open_preferences()
    dialog = window.surfaces.preferences
    assert dialog is not None
    activate(dialog, qtbot)
    dialog.font_size.setFocus()
    dialog.font_size.selectAll()
    QTest.keyClicks(dialog.font_size, "16")
    QTest.keyClick(dialog.font_size, Qt.Key.Key_Return)
    assert dialog.isVisible() and window.theme.font_size == 16
    dialog.font_size.setValue(14)


def test_a_column_that_folds_gives_the_keyboard_to_the_message(bench: Bench, qtbot) -> None:
    window = talk(bench, qtbot)
    activate(window, qtbot)
    window.sidebar.search.setFocus()
    QTest.keyClick(window.sidebar.search, Qt.Key.Key_B, Qt.KeyboardModifier.ControlModifier)
    assert not window.sidebar.isVisible() and window.composer.input.hasFocus()
    window.panels.experts.player.play.setFocus()
    QTest.keyClick(window, Qt.Key.Key_J, Qt.KeyboardModifier.ControlModifier)
    assert not window.panels.isVisible() and window.composer.input.hasFocus()
