"""Every preference does something, at once or at the next load, and is there again after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import QDialogButtonBox, QPushButton

from app.chat.cards import UserBubble
from app.data_folder import MARK
from app.dialogs.preferences import Preferences
from app.main_window import MainWindow
from app.messages import SmallDialog
from app.model_state import DEMO
from app.settings import Settings
from app.theme import BODY
from engine.messages import PREDICTORS, Failed, Finished, LoadModel
from tests.app.conftest import Bench


def opened(window: MainWindow) -> Preferences:
    QTest.keyClick(window, Qt.Key.Key_Comma, Qt.KeyboardModifier.ControlModifier)
    dialog = window.surfaces.preferences
    assert dialog is not None
    assert dialog.isVisible()
    return dialog


def choose(box, value) -> None:
    """As a user does: with the keys."""
    index = box.findData(value)
    assert index >= 0, value
    box.setFocus()
    while box.currentIndex() != index:
        QTest.keyClick(box, Qt.Key.Key_Down if box.currentIndex() < index else Qt.Key.Key_Up)


def loads(bench: Bench) -> list[LoadModel]:
    return [command for command in bench.engine.sent if isinstance(command, LoadModel)]


@pytest.fixture(autouse=True)
def same_size_afterwards(bench: Bench):
    yield
    bench.window.theme.set_font_size(BODY)


# --------------------------------------------------------------------------------------------------- the look


def test_theme(bench: Bench) -> None:
    dialog = opened(bench.start())
    choose(dialog.theme_choice, "dark")
    assert bench.window.theme.is_dark
    assert Settings(bench.data / "settings.json").theme == "dark"
    checked = [action.data() for action in bench.window.menus.themes.actions() if action.isChecked()]
    assert checked == ["dark"]  # the menu says the same
    choose(dialog.theme_choice, "light")
    assert not bench.window.theme.is_dark


def test_size_of_text_changes_every_letter_and_comes_back(bench: Bench, qtbot) -> None:
    window = bench.start()
    dialog = opened(window)
    window.send("Hello there, how are you, and what is new?")
    bench.engine.answer("Good day.")
    qtbot.waitUntil(lambda: not window.chat.busy)
    bubble = window.findChildren(UserBubble)[0].height()
    experts = window.panels.experts
    looks = [window.composer.input, window.top.pill, window.sidebar, dialog.close_button, *experts.switch.buttons()]
    before = [widget.font().pixelSize() for widget in looks]
    height, legend = window.composer.input.height(), experts.legend.height()
    dialog.font_size.setValue(20)
    for widget, size in zip(looks, before, strict=True):
        assert widget.font().pixelSize() == round(size * 20 / BODY), widget
    assert window.composer.input.height() > height
    assert experts.legend.height() > legend
    qtbot.waitUntil(lambda: [view.height() > bubble for view in window.transcript.column.widgets()][:1] == [True])
    assert window.panels.minimumWidth() > 280
    bench.window.theme.set_mode("dark")  # a new style sheet
    assert window.composer.input.font().pixelSize() == 20
    dialog.font_size.setValue(BODY)
    assert [widget.font().pixelSize() for widget in looks] == before
    assert Settings(bench.data / "settings.json").font_size == BODY


def test_columns_and_panels(bench: Bench) -> None:
    window = bench.start()
    dialog = opened(window)
    QTest.mouseClick(dialog.sidebar, Qt.MouseButton.LeftButton)
    assert not window.sidebar.isVisible()
    QTest.mouseClick(dialog.panels, Qt.MouseButton.LeftButton)
    assert not window.panels.isVisible()
    QTest.mouseClick(dialog.panels, Qt.MouseButton.LeftButton)
    assert window.panels.isVisible()
    QTest.mouseClick(dialog.each_panel["memory"], Qt.MouseButton.LeftButton)
    assert not window.panels.memory.isVisible()
    assert window.panels.cache.isVisible()
    window.panels.show_panel("memory", True)  # from elsewhere: the box follows
    assert dialog.each_panel["memory"].isChecked()


# ------------------------------------------------------------------------------------------------- the model


def test_no_model_at_the_start(bench: Bench, qtbot) -> None:
    bench.settings.startup = "none"
    window = bench.start()
    qtbot.waitUntil(lambda: window.state.engine is not None)
    assert loads(bench) == []
    assert window.empty.title.text() == "No model is loaded"
    assert window.empty.demo.isVisible()


def test_a_chosen_model_at_the_start(bench: Bench) -> None:
    bench.settings.last_source = "org/other"
    bench.settings.startup, bench.settings.startup_source = "chosen", "org/mine"
    bench.start()
    assert [command.source for command in loads(bench)] == ["org/mine"]


def test_the_loaded_model_can_be_made_the_one_of_every_start(bench: Bench) -> None:
    dialog = opened(bench.start())
    choose(dialog.startup, f"chosen {DEMO}")
    assert (bench.settings.startup, bench.settings.startup_source) == ("chosen", DEMO)
    choose(dialog.startup, "last")
    assert bench.settings.startup == "last"


def test_a_model_counts_as_safe_only_once_it_has_answered(bench: Bench, qtbot) -> None:
    window = bench.start("big")
    assert bench.settings.loading_source == "big"  # it is loaded, but may still take the program down
    window.send("Hello")
    bench.engine.answer("Good day.")
    qtbot.waitUntil(lambda: not window.chat.busy)
    assert Settings(bench.data / "settings.json").loading_source == ""


def test_the_last_word_of_the_model_before_says_nothing_of_the_one_that_is_loaded(bench: Bench, qtbot) -> None:
    window = bench.start("small")
    window.send("Hello")
    bench.engine.answer("Good day.")
    window.state.load(LoadModel("big"))  # before the window has heard of the answer's end
    with qtbot.waitSignal(window.state.loaded):
        pass
    assert not window.chat.busy
    assert bench.settings.loading_source == "big"


def test_a_model_that_never_answered_is_safe_when_the_program_closed_well(bench: Bench, qtbot) -> None:
    bench.start("big")
    bench.close()
    assert Settings(bench.data / "settings.json").loading_source == ""


def test_a_refused_model_is_no_crash(bench: Bench) -> None:
    bench.engine.refuse = Failed("load", "It is no model.")
    bench.start("big")
    assert bench.settings.loading_source == ""


# ------------------------------------------------------------------------------------------------- advanced


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("policy", "lru", "used longest ago"),
        ("predictor", "call-sheet", "before it starts"),
        ("prefetch", "off", "Never fetch ahead"),
        ("reads", "direct", "Past the system's file cache"),
    ],
)
def test_each_choice_says_what_it_does_and_reaches_the_engine(
    bench: Bench, name: str, value: str, sentence: str, qtbot
) -> None:
    dialog = opened(bench.start())
    assert not dialog.reload.isVisible()
    choose(getattr(dialog, name), value)
    assert sentence in dialog.sentences[name].text()
    assert "until it is loaded again" in dialog.reload_note.text()
    QTest.mouseClick(dialog.reload, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: len(loads(bench)) == 2)
    first, second = loads(bench)
    assert getattr(second, name) == value != getattr(first, name)
    assert second.source == first.source
    qtbot.waitUntil(lambda: not dialog.reload.isVisible())
    bench.window.load(LoadModel("another", policy=second.policy))  # as the picker does
    assert getattr(loads(bench)[-1], name) == value


def test_threads(bench: Bench) -> None:
    dialog = opened(bench.start())
    assert dialog.threads.text() == "all but one"
    dialog.threads.setValue(1)
    QTest.mouseClick(dialog.reload, Qt.MouseButton.LeftButton)
    assert [command.threads for command in loads(bench)] == [0, 1]


def test_the_picker_offers_the_preferred_policy(bench: Bench) -> None:
    window = bench.start()
    window.surfaces.open_picker()
    assert window.surfaces.picker is not None
    window.surfaces.picker.reject()
    choose(opened(window).policy, "eam")
    window.surfaces.open_picker()
    assert window.surfaces.picker.choice("demo").policy == "eam"
    window.surfaces.picker.reject()


def test_a_preference_is_used_by_the_real_engine(window: MainWindow, qtbot) -> None:
    finished: list[Finished] = []
    window.chat.finished.connect(finished.append)
    dialog = opened(window)
    choose(dialog.predictor, "none")
    choose(dialog.policy, "lfu")
    QTest.mouseClick(dialog.reload, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: window.state.model is not None and window.state.model.policy == "lfu", timeout=60_000)
    assert window.state.model is not None
    assert window.state.model.predictor == "none"
    assert set(PREDICTORS) == {dialog.predictor.itemData(at) for at in range(dialog.predictor.count())}


# ------------------------------------------------------------------------------------------------- the data


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data where they usually are, and the window's files among them."""
    monkeypatch.delenv("GREENROOM_DATA")
    monkeypatch.setattr("engine.paths.user_data_path", lambda *names, **options: tmp_path / "home")
    (tmp_path / "home" / "conversations").mkdir(parents=True)
    (tmp_path / "home" / "conversations" / "one.jsonl").write_text("words")
    return tmp_path / "home"


def button(dialog: SmallDialog, text: str) -> QPushButton:
    return next(one for one in dialog.findChildren(QPushButton) if one.text() == text)


def test_data_move_when_everything_is_copied_and_the_user_agrees(
    home: Path, bench: Bench, tmp_path: Path, qtbot
) -> None:
    dialog = opened(bench.start())
    dialog.data.begin(tmp_path / "new")
    qtbot.waitUntil(lambda: bool(dialog.findChildren(SmallDialog)))
    assert (tmp_path / "new" / "conversations" / "one.jsonl").read_text() == "words"
    with qtbot.waitSignal(bench.window.closed):
        QTest.mouseClick(button(dialog.findChildren(SmallDialog)[0], "Close and open again"), Qt.MouseButton.LeftButton)
    move = bench.window.surfaces.move
    assert move is not None
    assert (move.old, move.new) == (home, tmp_path / "new")


def test_not_now_removes_the_copy(home: Path, bench: Bench, tmp_path: Path, qtbot) -> None:
    dialog = opened(bench.start())
    dialog.data.begin(tmp_path / "new")
    qtbot.waitUntil(lambda: bool(dialog.findChildren(SmallDialog)))
    QTest.mouseClick(button(dialog.findChildren(SmallDialog)[0], "Not now"), Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: not (tmp_path / "new").exists())
    assert bench.window.surfaces.move is None
    assert (home / "conversations" / "one.jsonl").exists()


def test_data_stay_while_an_answer_is_under_way_or_where_they_cannot_go(
    home: Path, bench: Bench, tmp_path: Path, qtbot
) -> None:
    window = bench.start()
    dialog = opened(window)
    window.send("Hello")
    assert window.chat.busy
    dialog.data.begin(tmp_path / "new")
    assert "when it is done" in dialog.data.note.text()
    assert not (tmp_path / "new").exists()
    bench.engine.answer("Yes.")
    qtbot.waitUntil(lambda: not window.chat.busy)
    dialog.data.begin(home / "inside")
    assert "apart from the present one" in dialog.data.note.text()
    assert not (home / MARK).exists()


def test_where_data_are_is_told_and_fixed_when_it_comes_from_outside(bench: Bench, tmp_path: Path) -> None:
    dialog = opened(bench.start())
    assert dialog.data.folder.text() == str(tmp_path / "greenroom-data")
    assert not dialog.data.move_button.isEnabled()
    assert "GREENROOM_DATA" in dialog.data.note.text()


def test_controls_have_names_and_the_keys_reach_them(bench: Bench) -> None:
    dialog = opened(bench.start())
    for control in (dialog.theme_choice, dialog.font_size, dialog.startup, dialog.threads, dialog.policy, dialog.reads):
        assert control.accessibleName()
        assert control.focusPolicy() & Qt.FocusPolicy.TabFocus
    assert dialog.findChildren(QDialogButtonBox) == []
    QTest.keyClick(dialog, Qt.Key.Key_Escape)
    assert not dialog.isVisible()


def test_a_load_under_way_refreshes_nothing_that_is_hidden_and_closes_no_list(bench: Bench, qtbot) -> None:
    window = bench.start("demo")
    window.surfaces.open_preferences()
    preferences = window.surfaces.preferences
    assert preferences is not None
    rows = preferences.startup.model()
    removed, changed = QSignalSpy(rows.rowsRemoved), QSignalSpy(rows.modelReset)
    for _ in range(3):
        window.state.changed.emit()
    assert removed.count() == changed.count() == 0
    preferences.accept()
    refreshed: list[int] = []
    preferences._show_reload = lambda: refreshed.append(1)  # type: ignore[method-assign]
    window.state.changed.emit()
    window.panels.changed.emit()
    assert refreshed == []
