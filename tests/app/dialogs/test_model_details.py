"""The right side of the picker: facts, the plan, the sliders, and what they make of the load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QComboBox, QLineEdit, QListView, QProgressBar, QSlider, QWidget
from pytestqt.qtbot import QtBot

from app.dialogs import verdict
from app.dialogs.model_list import status
from app.remembered import remember
from app.settings import Settings
from app.theme import Theme
from engine.messages import (
    POLICIES,
    PREDICTORS,
    PREFETCH,
    READ_MODES,
    EngineReady,
    Failed,
    LoadModel,
    ModelLoaded,
    ModelSummary,
    PlanMemory,
    Progress,
)
from tests.app.dialogs.stage import LONG, Stage, planned

Summary = Callable[..., ModelSummary]
QWEN = "Qwen/Qwen3-30B-A3B"
LOADED = ModelLoaded(
    "demo", "Demo", "qwen2_moe", "abc", 30, 32, 12, "CPU", "float32", "lru", 240, 960, 10**6, 10**8, 8192, True
)


@pytest.fixture
def ready(full: Stage) -> Stage:
    """The demo is selected, and its plan is there."""
    full.plan()
    return full


def load(stage: Stage) -> LoadModel:
    stage.picker.load_button.click()
    return stage.loads[-1]


# ---------------------------------------------------------------------------------------------- the plan


def test_facts_name_what_the_model_is(ready: Stage) -> None:
    facts = ready.picker.details.facts
    words = (
        "qwen2_moe · 30 layers × 32 experts, 12 per token · 0.69 GB · fp32 · apache-2.0 · chat template · never used"  # noqa: RUF001
    )
    assert facts.text() == words
    ready.picker._select(LONG)
    assert "no chat template" in facts.text()


def test_a_precision_that_is_computed_otherwise_is_told(ready: Stage) -> None:
    ready.plan(dtype="bfloat16")
    assert "fp32, computes in bf16" in ready.picker.details.facts.text()


def test_every_usable_model_is_asked_about_once(full: Stage) -> None:
    answered = 0
    while answered < len(full.questions()):
        full.plan(full.questions()[answered])
        answered += 1
    assert sorted(question.source for question in full.questions()) == sorted(["demo", QWEN, LONG])
    rows = full.picker.filtered
    said = [rows.index(row, 0).data(Qt.ItemDataRole.AccessibleTextRole) for row in range(4)]
    assert [text.rsplit(", ", 1)[1] for text in said] == ["fits", "fits", "fits", "cannot be used"]


def test_rows_say_the_verdict(summary: Summary) -> None:
    question = PlanMemory("demo")
    assert status(summary(), planned(question)) == "fits"
    assert status(summary(), planned(PlanMemory("demo", "25%"))) == "fits with disk"
    big = planned(question, verdict="too big", shortfall=1_230_000_000)
    assert status(summary(), big) == "too big: 1.2 GB short"
    assert status(replace(summary(problem="cut"), partial=True)) == "not complete"


def test_the_bars_are_the_plan(ready: Stage) -> None:
    ram, disk = ready.picker.details.bars.rows
    assert [(s.kind, s.amount) for s in ram.bar.segments][:3] == [
        ("dense", 200_000_000),
        ("experts", 960_000_000),
        ("kv", 81_920_000),
    ]
    assert ram.figure.text() == "5.4 of 16.0 GB"
    assert disk.figure.text() == "nothing"
    assert "experts 0.96 GB" in ready.picker.details.bars.legend.texts
    assert "free 10.6 GB" in ready.picker.details.bars.legend.texts
    assert ram.bar.accessibleName() == "RAM: 5.4 of 16.0 GB"


def test_sliders_ask_and_figures_follow(qtbot: QtBot, ready: Stage) -> None:
    details = ready.picker.details
    assert not details.experts.slider.isEnabled()
    assert details.experts.figure.text() == "0.96 GB · 960 of 960 · 100%"
    qtbot.mouseClick(details.experts.auto, Qt.MouseButton.LeftButton)
    assert details.experts.slider.isEnabled()
    assert (details.experts.slider.minimum(), details.experts.slider.maximum()) == (1, 960)
    details.experts.slider.setValue(240)
    assert details.experts.figure.text() == "0.24 GB · 240 of 960 · 25%"
    assert ready.questions()[-1] == PlanMemory("demo", "240 slots")
    assert details.plan is None, "the plan of before is no plan of this"
    ready.plan()
    assert details.bars.rows[1].figure.text() == "0.39 GB of 0.52 GB of experts"
    assert details.note.text.text().startswith("Fits with disk: 240 of 960 experts have a place in memory")
    qtbot.mouseClick(details.context.auto, Qt.MouseButton.LeftButton)
    details.context.slider.setValue(9)
    assert ready.questions()[-1] == PlanMemory("demo", "240 slots", 12288)
    ready.plan()
    assert details.context.figure.text() == "12,288 tokens · 0.12 GB"
    assert load(ready) == LoadModel("demo", "240 slots", context=12288)


def test_slots_are_shown_as_large_as_the_loaded_model_will_say(ready: Stage) -> None:
    """Stored half as large as they are computed: the picker's figure is the computed one."""
    ready.plan(slot_bytes=2_000_000, slots=960)
    assert ready.picker.details.experts.figure.text().startswith("1.9 GB")


def test_auto_stays_auto(ready: Stage) -> None:
    ready.picker.details.experts.slider.setValue(17)
    assert load(ready) == LoadModel("demo")


def test_too_big_says_by_how_much_and_cannot_be_loaded(qtbot: QtBot, ready: Stage) -> None:
    details = ready.picker.details
    ready.plan(verdict="too big", shortfall=2_000_000_000, reason="Not enough RAM. Give experts at most 1.00 GB.")
    assert details.note.text.text() == "Too big by 2.0 GB. Not enough RAM. Give experts at most 1.00 GB."
    assert not ready.picker.load_button.isEnabled()
    qtbot.keyClick(ready.picker.filter, Qt.Key.Key_Return)
    assert ready.loads == []
    details.experts.auto.setChecked(False)
    details.experts.slider.setValue(100)
    ready.plan()
    assert ready.picker.load_button.isEnabled()


def test_a_model_that_cannot_be_planned_says_why(full: Stage) -> None:
    full.client.failed.emit(Failed("plan", "config.json is not valid.", "demo"))
    assert "config.json is not valid." in full.words()
    assert full.chosen() == "demo"
    assert not full.picker.load_button.isEnabled()


def test_a_budget_too_small_for_lru_is_told(ready: Stage) -> None:
    details = ready.picker.details
    details.experts.auto.setChecked(False)
    details.advanced.policy.box.setCurrentText("lru")
    details.experts.slider.setValue(359)
    ready.plan()
    assert "lru throws out just what comes next" in details.note.text.text()
    details.advanced.policy.box.setCurrentText("lfu")
    assert "lru throws out" not in details.note.text.text()


def test_the_plans_notes_are_read_out(ready: Stage) -> None:
    ready.plan(notes=("Of 960 expert slots 12 are given back as the conversation grows to 8,192 tokens.",))
    assert "12 are given back" in ready.picker.details.note.text.text()


def test_the_demo_before_its_first_load(qtbot: QtBot, stage: Stage) -> None:
    stage.answer(ModelSummary("demo", "Greenroom demo", built=False))
    details = stage.picker.details
    assert "Not built yet" in details.note.text.text()
    assert not details.experts.isVisible()
    assert stage.questions() == []
    qtbot.keyClick(stage.picker.filter, Qt.Key.Key_Return)
    assert stage.loads == [LoadModel("demo")]


# ---------------------------------------------------------------------------------------------- choices


def test_advanced_is_folded_and_its_choices_reach_the_load(qtbot: QtBot, ready: Stage) -> None:
    advanced = ready.picker.details.advanced
    assert not advanced.policy.isVisible()
    advanced.fold.click()
    assert advanced.policy.isVisible()
    for option, known, name in (
        (advanced.policy, POLICIES, "lfu"),
        (advanced.predictor, PREDICTORS, "blend"),
        (advanced.prefetch, PREFETCH, "off"),
        (advanced.reads, READ_MODES, "direct"),
    ):
        assert [option.box.itemText(index) for index in range(option.box.count())] == list(known)
        option.box.setCurrentText(name)
        assert option.sentence.text() == known[name]  # type: ignore[index]
    assert load(ready) == LoadModel("demo", policy="lfu", predictor="blend", prefetch="off", reads="direct")


def test_what_computes_and_how_exactly(qtbot: QtBot, ready: Stage) -> None:
    advanced = ready.picker.details.advanced
    advanced.fold.click()
    assert advanced.dtype.isVisible()
    assert not advanced.device.isVisible()  # without a card there is nothing to choose
    ready.client.ready.emit(EngineReady("greenroom", "torch", "A", ("A", "B")))
    assert [advanced.device.box.itemText(n) for n in range(advanced.device.box.count())] == [
        "auto",
        "cpu",
        "cuda:0",
        "cuda:1",
        "cuda:0,cuda:1",
    ]
    advanced.device.box.setCurrentText("cuda:1")
    assert advanced.device.sentence.text().startswith("B.")
    advanced.dtype.box.setCurrentText("bfloat16")
    advanced.compute_on_miss.box.setCurrentText("calibrated")
    assert (ready.questions()[-1].device, ready.questions()[-1].dtype) == ("cuda:1", "bfloat16")
    ready.plan()
    assert load(ready) == LoadModel("demo", device="cuda:1", dtype="bfloat16", compute_on_miss="calibrated")


def test_a_card_that_is_gone_is_no_choice(qtbot: QtBot, theme: Theme, summary: Summary) -> None:
    settings = Settings(None)
    remember(settings, LoadModel("demo", device="cuda:1", compute_on_miss="calibrated"))
    stage = Stage(qtbot, theme, settings)
    stage.answer(summary())
    assert load(stage) == LoadModel("demo", compute_on_miss="calibrated")


def test_choices_are_kept_for_each_model(ready: Stage) -> None:
    details = ready.picker.details
    details.experts.auto.setChecked(False)
    details.experts.slider.setValue(480)
    details.advanced.policy.box.setCurrentText("lfu")
    ready.picker._select(QWEN)
    assert (details.choice.experts, details.choice.policy) == ("auto", "next-use")
    ready.picker._select("demo")
    assert (details.choice.experts, details.choice.policy) == ("480 slots", "lfu")
    assert details.advanced.policy.box.currentText() == "lfu"


def test_the_choice_of_the_last_load_is_the_start(qtbot: QtBot, theme: Theme, summary: Summary) -> None:
    settings = Settings(None)
    remember(settings, LoadModel("demo", "25%", "lfu", 4096, prefetch="off", reads="direct"))
    stage = Stage(qtbot, theme, settings)
    stage.answer(summary())
    assert stage.questions()[0] == PlanMemory("demo", "25%", 4096)
    stage.plan()
    details = stage.picker.details
    assert not details.experts.auto.isChecked()
    assert details.experts.slider.value() == 240
    assert "used today" in details.facts.text()
    assert load(stage) == LoadModel("demo", "25%", "lfu", 4096, prefetch="off", reads="direct")


def test_what_an_older_version_stored_still_counts(qtbot: QtBot, theme: Theme, summary: Summary) -> None:
    settings = Settings(None)
    settings.last_source, settings.last_experts, settings.last_policy = "demo", "25%", "lfu"
    stage = Stage(qtbot, theme, settings)
    stage.answer(summary())
    assert load(stage) == LoadModel("demo", "25%", "lfu")


@pytest.mark.parametrize(
    "stored",
    [
        {"policy": "none such", "predictor": 3, "prefetch": None, "reads": []},
        {"experts": "much", "context": -1, "device": 7, "source": "other", "unknown": 1, "used": 5},
        {"context": True, "dtype": "int3", "compute_on_miss": "often"},
    ],
)
def test_stored_nonsense_is_left_at_its_default(
    qtbot: QtBot, theme: Theme, summary: Summary, stored: dict[str, object]
) -> None:
    settings = Settings(None)
    settings.model_loads = {"demo": stored}
    stage = Stage(qtbot, theme, settings)
    stage.answer(summary())
    assert load(stage) == LoadModel("demo")


def test_last_used_in_words() -> None:
    now = datetime(2026, 3, 10, 0, 30).astimezone()
    assert verdict.used_when(None, now) == "never used"
    assert verdict.used_when(now, now) == "used today"
    assert verdict.used_when(now - timedelta(hours=1), now) == "used yesterday"
    assert verdict.used_when(now - timedelta(days=9), now) == "used 9 days ago"


# ---------------------------------------------------------------------------------------------- loading


def test_a_load_shows_how_far_it_is_and_closes_the_picker(ready: Stage) -> None:
    load(ready)
    row = ready.picker.loading
    assert row.isVisible()
    assert not ready.picker.load_button.isEnabled()
    ready.client.progress.emit(Progress("Loading Demo", "reading dense weights", 0.4))
    assert (row.text.text(), row.bar.value(), row.bar.maximum()) == ("Loading Demo: reading dense weights", 400, 1000)
    ready.client.model_loaded.emit(LOADED)
    assert not ready.picker.isVisible()


def test_cancel_stops_the_load_and_leaves_the_picker(qtbot: QtBot, ready: Stage) -> None:
    load(ready)
    assert ready.picker.cancel_button.text() == "Stop loading"
    with qtbot.waitSignal(ready.picker.stop_requested):
        qtbot.mouseClick(ready.picker.cancel_button, Qt.MouseButton.LeftButton)
    assert not ready.picker.cancel_button.isEnabled()
    ready.client.failed.emit(Failed("load", "Loading was stopped."))
    assert ready.picker.isVisible()
    assert "Loading was stopped." in ready.words()
    assert ready.picker.load_button.isEnabled()
    assert ready.picker.cancel_button.text() == "Cancel"


# ---------------------------------------------------------------------------------------------- by keyboard


def test_all_can_be_reached_and_worked_by_keyboard(qtbot: QtBot, ready: Stage) -> None:
    picker, details = ready.picker, ready.picker.details
    ready.client.ready.emit(EngineReady("greenroom", "torch", "A", ("A",)))
    details.advanced.fold.setChecked(True)
    picker.activateWindow()
    seen: list[QWidget] = []
    picker.filter.setFocus()
    for _ in range(60):
        seen.append(picker.focusWidget())
        if not picker.focusNextChild():
            break
    wanted = [details.experts.auto, details.context.auto, details.advanced.fold, picker.load_button]
    wanted += [option.box for option in details.advanced.options.values()]
    wanted += [picker.add_button, picker.download_button, picker.refresh_button, picker.cancel_button]
    assert [widget for widget in wanted if widget not in seen] == []
    details.experts.auto.setFocus()
    qtbot.keyClick(details.experts.auto, Qt.Key.Key_Space)
    details.experts.slider.setFocus()
    qtbot.keyClick(details.experts.slider, Qt.Key.Key_Left)
    assert details.choice.experts == "951 slots"


def test_everything_one_can_use_has_a_name(ready: Stage) -> None:
    for dialog in (ready.picker, ready.picker.download_dialog):
        for kind in (QAbstractButton, QComboBox, QListView, QSlider, QProgressBar, QLineEdit):
            for widget in dialog.findChildren(kind):
                named = widget.accessibleName() or getattr(widget, "text", str)()
                # the arrow of a line edit's clear button and a combo box's own list are Qt's
                assert named or isinstance(widget.parent(), QLineEdit) or widget.window() is not dialog, widget
