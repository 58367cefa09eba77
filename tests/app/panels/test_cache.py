"""The Cache panel shows the snapshot's own figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.panels.cache import CachePanel
from app.panels.sparkline import KEPT
from app.theme import Theme
from engine.messages import CacheCounters, CacheSnapshot, ModelLoaded

Cached = Callable[..., CacheSnapshot]


@pytest.fixture
def panel(qtbot: QtBot, dark: Theme, loaded: Callable[..., ModelLoaded]) -> CachePanel:
    made = CachePanel(dark)
    qtbot.addWidget(made)
    made.set_model(loaded())
    with qtbot.waitExposed(made):
        made.show()
    return made


def test_figures_equal_the_snapshot(panel: CachePanel, cached: Cached) -> None:
    panel.show_snapshot(cached())
    assert panel.heading.note == "lru · 240 of 960 slots"
    assert panel.rate.text() == "83%"
    assert panel.shown("fetched") == "61 MB"
    assert panel.shown("stall") == "0.7 ms"
    assert panel.shown("speed") == "14.2"
    assert panel.shown("evictions") == "4,000"


def test_counts_are_whole_and_phases_apart(panel: CachePanel, cached: Cached) -> None:
    panel.show_snapshot(cached(hits=1_234_567, misses=89))
    assert (panel.shown_hits(), panel.shown_misses()) == (1_234_567, 89)
    assert (panel.shown_hits("prefill"), panel.shown_misses("prefill")) == (20_312, 4_121)
    on_screen = [label.text() for label in panel.findChildren(QLabel) if label.isVisible()]
    assert {"1,234,567", "89", "20,312", "4,121"} <= set(on_screen)


def test_what_was_not_measured_is_a_dash(panel: CachePanel) -> None:
    assert panel.shown_hits() is None
    panel.show_snapshot(CacheSnapshot(CacheCounters(), None, None, None, None, 240, 0))
    dash = "–"  # noqa: RUF001
    assert panel.rate.text() == dash
    assert [panel.shown("fetched"), panel.shown("stall"), panel.shown("speed")] == [dash] * 3
    assert (panel.shown_hits(), panel.shown_misses()) == (0, 0), "counted, and none so far"


def test_the_line_has_a_point_for_each_step_with_tokens(panel: CachePanel, cached: Cached) -> None:
    panel.show_snapshot(cached(hits=100, rate=0.5))
    panel.show_snapshot(cached(hits=100, rate=0.5))  # the last one of an answer says nothing new
    panel.show_snapshot(cached(hits=150, rate=0.6))
    assert panel.line.values == (0.5, 0.6)
    for step in range(2 * KEPT):
        panel.show_snapshot(cached(hits=200 + step, rate=0.7))
    assert len(panel.line.values) == KEPT


def test_hidden_it_keeps_count_without_touching_a_label(panel: CachePanel, cached: Cached) -> None:
    panel.show_snapshot(cached(hits=100))
    panel.hide()
    before = panel.rate.text()
    panel.show_snapshot(cached(hits=200, rate=0.41))
    assert panel.rate.text() == before
    panel.show()
    assert panel.rate.text() == "41%"
    assert len(panel.line.values) == 2


def test_another_model_starts_anew(panel: CachePanel, cached: Cached, loaded: Callable[..., ModelLoaded]) -> None:
    panel.show_snapshot(cached())
    panel.set_model(replace(loaded(48, 128, slots=1536), policy="lfu"))
    assert panel.heading.note == "lfu · 1,536 of 6,144 slots"
    assert panel.shown_hits() is None
    assert panel.line.values == ()
    panel.set_model(None)
    assert panel.heading.note == ""


def test_a_gap_in_the_line_is_painted_as_a_gap(qtbot: QtBot, dark: Theme, cached: Cached) -> None:
    from app.panels.sparkline import Sparkline

    def column_heights(values: list[float | None]) -> list[bool]:
        line = Sparkline(dark)
        qtbot.addWidget(line)
        line.resize(241, line.height())
        for value in values:
            line.add(value)
        image = line.grab().toImage()
        empty = line.grab().toImage()
        blank = Sparkline(dark)
        qtbot.addWidget(blank)
        blank.resize(line.size())
        empty = blank.grab().toImage()
        return [
            any(image.pixel(x, y) != empty.pixel(x, y) for y in range(image.height())) for x in range(image.width())
        ]

    filled = column_heights([0.8] * 30 + [None] * 20 + [0.8] * 30)
    assert filled[10] and not filled[118] and filled[200]
