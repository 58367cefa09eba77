"""The picker: what it lists, what it says, what it asks the engine to load."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.dialogs.model_list import second_line, status
from app.settings import Settings
from app.theme import Theme
from engine.messages import Failed, InspectModel, ListModels, ModelSummary
from tests.app.dialogs.stage import LONG, Stage

Summary = Callable[..., ModelSummary]


# ---------------------------------------------------------------------------------------------- the list


def test_it_asks_for_models_in_the_remembered_folders(qtbot: QtBot, theme: Theme) -> None:
    settings = Settings(None)
    settings.model_folders = ("/models", "/more")
    stage = Stage(qtbot, theme, settings)
    assert stage.sent == [ListModels(("/models", "/more"))]
    assert "Looking for models…" in stage.words()
    assert not stage.picker.load_button.isEnabled()


def test_the_demo_comes_first_and_what_cannot_be_used_last(full: Stage) -> None:
    assert full.names() == ["Demo", "Qwen3-30B-A3B", "mixtral", "broken"]
    assert full.chosen() == "demo"


def test_rows_say_shape_size_and_status(summary: Summary) -> None:
    assert second_line(summary()) == "30 × 32 · 0.69 GB · fp32"  # noqa: RUF001
    assert status(summary()) == "ready"
    unbuilt = ModelSummary("demo", "Demo", built=False)
    assert status(unbuilt) == "not built yet"
    broken = summary(problem="There is no\nconfig.json.")
    assert (second_line(broken), status(broken)) == ("There is no config.json.", "cannot be used")


def test_the_model_of_last_time_is_selected(qtbot: QtBot, theme: Theme, summary: Summary) -> None:
    settings = Settings(None)
    settings.last_source = "Qwen/Qwen3-30B-A3B"
    stage = Stage(qtbot, theme, settings)
    stage.answer(summary(), summary("Qwen/Qwen3-30B-A3B", "Qwen3-30B-A3B"))
    assert stage.chosen() == "Qwen/Qwen3-30B-A3B"


def test_nothing_found(stage: Stage) -> None:
    stage.answer()
    assert "No models found. Add a folder that holds one." in stage.words()
    assert not stage.picker.load_button.isEnabled()


def test_trouble_while_looking_is_told(stage: Stage) -> None:
    stage.client.failed.emit(Failed("generate", "Something else went wrong."))
    assert "Looking for models…" in stage.words()
    stage.client.failed.emit(Failed("list", "The folder /models cannot be read."))
    assert "The folder /models cannot be read." in stage.words()
    assert stage.picker.refresh_button.isEnabled()


def test_refresh_asks_again_and_keeps_the_choice(qtbot: QtBot, full: Stage, summary: Summary) -> None:
    full.picker._select(LONG)
    full.sent.clear()
    qtbot.mouseClick(full.picker.refresh_button, Qt.MouseButton.LeftButton)
    assert full.sent == [ListModels(())]
    assert len(full.names()) == 4, "what is listed stays meanwhile"
    full.answer(summary(), summary(LONG, "mixtral"))
    assert full.names() == ["Demo", "mixtral"]
    assert full.chosen() == LONG


# ---------------------------------------------------------------------------------------------- filter and keys


def test_typing_filters_by_name_path_and_family(qtbot: QtBot, full: Stage) -> None:
    assert full.picker.filter.hasFocus()
    qtbot.keyClicks(full.picker.filter, "QWEN3 a3b")
    assert full.names() == ["Qwen3-30B-A3B"]
    assert full.chosen() == "Qwen/Qwen3-30B-A3B", "the chosen one is always a visible one"
    full.picker.filter.setText("模型")
    assert full.names() == ["mixtral"]
    full.picker.filter.setText("zzz")
    assert full.names() == []
    assert "Nothing matches “zzz”" in full.words()
    assert not full.picker.load_button.isEnabled()
    full.picker.filter.clear()
    assert len(full.names()) == 4
    assert full.picker.load_button.isEnabled()


def test_arrows_in_the_filter_move_through_the_list_and_enter_loads_once(qtbot: QtBot, full: Stage) -> None:
    qtbot.keyClick(full.picker.filter, Qt.Key.Key_Down)
    assert full.chosen() == "Qwen/Qwen3-30B-A3B"
    qtbot.keyClick(full.picker.filter, Qt.Key.Key_Return)
    assert [load.source for load in full.loads] == ["Qwen/Qwen3-30B-A3B"]


def test_enter_in_the_list_loads_once(qtbot: QtBot, full: Stage) -> None:
    full.picker.list.setFocus()
    qtbot.keyClick(full.picker.list, Qt.Key.Key_Return)
    assert [load.source for load in full.loads] == ["demo"]


def test_typing_in_the_list_goes_to_the_filter(qtbot: QtBot, full: Stage) -> None:
    full.picker.list.setFocus()
    qtbot.keyClicks(full.picker.list, "m")
    assert full.picker.filter.text() == "m"
    assert full.picker.filter.hasFocus()


def test_a_double_click_loads_once(qtbot: QtBot, full: Stage) -> None:
    at = full.picker.list.visualRect(full.picker.filtered.index(2, 0)).center()
    viewport = full.picker.list.viewport()
    qtbot.mouseClick(viewport, Qt.MouseButton.LeftButton, pos=at)
    qtbot.mouseDClick(viewport, Qt.MouseButton.LeftButton, pos=at)
    assert [load.source for load in full.loads] == [LONG]


def test_escape_loads_nothing(qtbot: QtBot, full: Stage) -> None:
    qtbot.keyClick(full.picker.filter, Qt.Key.Key_Escape)
    assert not full.picker.isVisible()
    assert full.loads == []


# ---------------------------------------------------------------------------------------------- details and options


def test_what_cannot_be_used_cannot_be_loaded(qtbot: QtBot, full: Stage) -> None:
    full.picker._select("/models/broken")
    assert "The download is incomplete: model-00002.safetensors is missing." in full.words()
    assert not full.picker.load_button.isEnabled()
    qtbot.keyClick(full.picker.filter, Qt.Key.Key_Return)
    full.picker.list.setFocus()
    qtbot.keyClick(full.picker.list, Qt.Key.Key_Return)
    assert full.loads == []
    assert full.picker.isVisible()
    full.picker._select("demo")
    assert full.picker.load_button.isEnabled()


# ---------------------------------------------------------------------------------------------- hostile names


def test_names_are_never_markup(stage: Stage, summary: Summary) -> None:
    name = "<b>x</b><img src=x>"
    stage.answer(summary(f"/models/{name}", name), summary("/models/<i>y</i>", "<i>y</i>", "<u>Not</u> a model."))
    for label in stage.picker.findChildren(QLabel):
        assert label.textFormat() == Qt.TextFormat.PlainText, label.text()
    assert stage.picker.details.name.text() == name
    tip = stage.picker.filtered.index(0, 0).data(Qt.ItemDataRole.ToolTipRole)
    assert tip == "<span>/models/&lt;b&gt;x&lt;/b&gt;&lt;img src=x&gt;</span>"
    stage.picker._select("/models/<i>y</i>")
    assert "<u>Not</u> a model." in stage.words()


def test_long_paths_lose_their_middle_and_keep_it_in_the_tooltip(full: Stage) -> None:
    width = full.picker.width()
    full.picker._select(LONG)
    source = full.picker.details.source
    assert full.picker.width() == width
    assert "…" in source.shown()
    assert source.shown().startswith("/home/ä/模型/🎭") and source.shown().endswith("mixtral")
    assert LONG in source.toolTip()


def test_names_of_any_length_are_drawn_inside_their_row(stage: Stage, summary: Summary) -> None:
    stage.answer(summary("/m/a", "很长的名字🎭" * 60), summary("/m/b", "two\nlines\tand a tab"))
    stage.picker.grab()
    assert stage.picker.details.name.text() == "很长的名字🎭" * 60
    stage.picker._select("/m/b")
    assert stage.picker.details.name.text() == "two lines and a tab"


# ---------------------------------------------------------------------------------------------- folders


def test_an_added_folder_is_remembered_and_what_it_holds_selected(full: Stage, summary: Summary) -> None:
    full.sent.clear()
    full.picker.add_folder("/new")
    assert full.settings.model_folders == ("/new",)
    assert full.sent == [ListModels(("/new",))]
    full.answer(summary(), summary("/newer/a", "no"), summary("/new/b", "yes"))
    assert full.chosen() == "/new/b"
    full.picker.add_folder("/new")
    assert full.settings.model_folders == ("/new",), "once is enough"


def test_an_added_folder_that_holds_nothing_is_asked_why(full: Stage, summary: Summary) -> None:
    full.picker.add_folder("/empty")
    full.answer(summary())
    assert full.sent[-1] == InspectModel("/empty")
    full.answer(summary("/empty", "empty", "There is no config.json in /empty: this folder is not a model."))
    assert full.names() == ["Demo", "empty"]
    assert full.chosen() == "/empty"
    assert "There is no config.json in /empty: this folder is not a model." in full.words()
    assert not full.picker.load_button.isEnabled()


def test_an_answer_to_someone_else_changes_nothing(full: Stage, summary: Summary) -> None:
    full.answer(summary("/other", "other"))
    assert len(full.names()) == 4


def test_a_folder_can_be_forgotten(full: Stage) -> None:
    full.settings.model_folders = ("/a", "/b")
    full.picker.forget_folder("/a")
    assert full.settings.model_folders == ("/b",)
    assert full.sent[-1] == ListModels(("/b",))
