"""The Experts panel around the heatmap: heading, modes, legend, no model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.panels.cells import Mode
from app.panels.experts import ExpertsPanel
from app.theme import Theme
from engine.messages import Cell, ExpertSnapshot, ModelLoaded

Routed = Callable[..., ExpertSnapshot]
Loaded = Callable[..., ModelLoaded]


@pytest.fixture
def panel(qtbot: QtBot, dark: Theme) -> ExpertsPanel:
    made = ExpertsPanel(dark)
    qtbot.addWidget(made)
    made.resize(334, 520)
    with qtbot.waitExposed(made):
        made.show()
    return made


def visible_words(panel: ExpertsPanel) -> list[str]:
    return [label.text() for label in panel.findChildren(QLabel) if label.isVisible() and label.text()]


def test_without_a_model_it_says_when_there_will_be_experts(
    panel: ExpertsPanel, loaded: Loaded, routed: Routed
) -> None:
    nothing = "Once a model is loaded, its experts appear here."
    assert nothing in visible_words(panel)
    assert not panel.heatmap.isVisible()
    panel.set_model(loaded())
    assert panel.heatmap.isVisible()
    assert nothing not in visible_words(panel)
    panel.show_snapshot(routed())
    panel.set_model(None)
    assert not panel.heatmap.isVisible()
    assert panel.heading.note == ""


def test_a_snapshot_that_arrives_after_unloading_is_ignored(panel: ExpertsPanel, routed: Routed) -> None:
    panel.show_snapshot(routed())
    assert not panel.heatmap.isVisible()
    assert panel.heading.note == ""


@pytest.mark.parametrize(
    ("phase", "token", "note"),
    [
        ("decode", 1193, "token 1,193 · decode"),
        ("prefill", 0, "reading the prompt"),
        ("idle", 57, "token 57 · idle"),
        ("idle", 0, "idle"),
    ],
)
def test_the_heading_says_which_moment_is_shown(
    panel: ExpertsPanel, loaded: Loaded, routed: Routed, phase: str, token: int, note: str
) -> None:
    panel.set_model(loaded())
    panel.show_snapshot(replace(routed(), phase=phase, token=token))
    assert panel.heading.note == note


def test_the_switch_chooses_the_mode(qtbot: QtBot, panel: ExpertsPanel, loaded: Loaded, routed: Routed) -> None:
    panel.set_model(loaded())
    panel.show_snapshot(routed())
    seen = []
    for button in panel.switch.buttons():
        qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
        seen.append(panel.mode)
    assert seen == [Mode.TOKEN, Mode.ANSWER, Mode.CHAT, Mode.TOTAL]
    panel.switch.buttons()[3].setFocus()
    qtbot.keyClick(panel.switch.buttons()[3], Qt.Key.Key_Left)
    assert panel.mode is Mode.CHAT


def test_the_legend_explains_what_can_be_seen(panel: ExpertsPanel, loaded: Loaded, routed: Routed) -> None:
    panel.set_model(loaded())
    plain = routed()
    panel.show_snapshot(replace(plain, cells=plain.cells & np.uint8(15)))
    assert panel.legend.texts == ("routed", "missed", "on the device", "on disk")
    panel.show_snapshot(replace(plain, cells=plain.cells & np.uint8(15 | Cell.PREDICTED)))
    assert panel.legend.texts == ("routed", "missed", "predicted", "on the device", "on disk")
    panel.show_snapshot(routed())
    assert {"fetched ahead", "late", "wasted"} < set(panel.legend.texts)
    panel.set_mode(Mode.CHAT)
    assert panel.legend.texts == ("few to many uses", "on the device", "on disk")


@pytest.mark.parametrize("shape", [(30, 32), (48, 128), (96, 512), (32, 8), (61, 384)])
def test_all_layers_are_visible_without_scrolling(
    qtbot: QtBot, panel: ExpertsPanel, loaded: Loaded, routed: Routed, shape: tuple[int, int]
) -> None:
    panel.set_model(loaded(*shape))
    panel.show_snapshot(routed(*shape))
    panel.resize(334, 420)

    def fits() -> None:
        placed = panel.heatmap.placement()
        assert placed is not None
        assert placed.height <= panel.heatmap.height()
        assert placed.width <= panel.heatmap.width()
        bottom = panel.legend.mapTo(panel, panel.legend.rect().bottomLeft()).y()
        assert bottom < panel.height()
        assert panel.legend.y() >= panel.heatmap.used_height()

    qtbot.waitUntil(fits)


def test_another_model_starts_empty(panel: ExpertsPanel, loaded: Loaded, routed: Routed) -> None:
    panel.set_model(loaded(30, 32))
    panel.show_snapshot(routed(30, 32))
    panel.set_model(loaded(16, 64))
    assert panel.heatmap.states().shape == (16, 64)
    assert not panel.heatmap.states().any()
    assert panel.heading.note == "16 layers × 64 experts"  # noqa: RUF001


def test_beside_a_card_who_waits_may_wait_in_ram(panel: ExpertsPanel, loaded: Loaded, routed: Routed) -> None:
    model = loaded()
    panel.set_model(replace(model, device="NVIDIA H200"))
    snapshot = routed()
    panel.show_snapshot(replace(snapshot, cells=np.zeros_like(snapshot.cells)))
    panel.refresh()
    assert panel.legend.texts[-1] == "in RAM or on disk"
    assert "waiting in RAM or on disk" in panel.heatmap.describe(0, 0)
    panel.set_model(model)
    assert panel.legend.texts[-1] == "on disk"
