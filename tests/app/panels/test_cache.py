"""The Cache panel shows the snapshot's own figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.panels.cache import CachePanel
from app.panels.history import POINTS, History
from app.panels.sparkline import Sparkline, round_above
from app.theme import Theme
from engine.messages import CacheCounters, CacheSnapshot, ModelLoaded, PrefetchState, Started

Cached = Callable[..., CacheSnapshot]


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def panel(qtbot: QtBot, dark: Theme, loaded: Callable[..., ModelLoaded], history: History) -> CachePanel:
    made = CachePanel(dark, history)
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
    assert panel.evictions.text() == "4,000"


def test_the_fates_of_what_was_fetched_ahead_are_shares(panel: CachePanel, cached: Cached) -> None:
    counters = replace(cached().counters, prefetch_used=75, prefetch_late=20, prefetch_wasted=5)
    panel.show_snapshot(replace(cached(), counters=counters))
    assert [panel.shown(name) for name in ("used", "late", "wasted")] == ["75%", "20%", "5%"]


def test_the_verdict_about_fetching_ahead_stands_there_in_words(panel: CachePanel, cached: Cached) -> None:
    panel.show_snapshot(cached())
    assert not panel.verdict.isVisible() and not panel.accuracy.isVisible()
    state = PrefetchState(False, "Fetching ahead costs 2 ms per token; it is off.", 0.012, 0.010, (0.904, None, 0.865))
    panel.show_snapshot(replace(cached(), prefetch=state))
    assert panel.verdict.text() == state.verdict and panel.verdict.isVisible()
    assert panel.accuracy.text().endswith("1: 90% · 3: 86%")


def test_the_bound_is_a_dash_until_it_is_known_and_then_a_line(panel: CachePanel, cached: Cached) -> None:
    panel.show_snapshot(cached())
    assert panel.best.text() == "best on demand –"  # noqa: RUF001
    before = panel.line.grab().toImage()
    panel.show_best(0.92)
    assert panel.best.text() == "best on demand 92%"
    assert panel.line.grab().toImage() != before


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
    assert [panel.shown(name) for name in ("fetched", "stall", "used", "late", "wasted")] == [dash] * 5
    assert (panel.shown_hits(), panel.shown_misses()) == (0, 0), "counted, and none so far"


def test_a_dash_is_no_louder_than_the_words_around_it(panel: CachePanel, cached: Cached, dark: Theme) -> None:
    def look() -> tuple[str, int]:
        return panel.rate.palette().color(QPalette.ColorRole.WindowText).name(), panel.rate.font().pixelSize()

    panel.refresh()
    assert panel.rate.text() == "–" and look() == (dark.colors.text_faint, 22)  # noqa: RUF001
    panel.show_snapshot(cached())
    panel.refresh()
    assert panel.rate.text() == "83%" and look() == (dark.colors.text, 22)


def test_the_line_has_a_point_for_each_step_with_tokens_and_a_gap_between_answers(
    panel: CachePanel, history: History, cached: Cached
) -> None:
    history.add_cache(cached(hits=100, rate=0.5))
    history.add_cache(cached(hits=100, rate=0.5))  # the last one of an answer says nothing new
    history.started(Started("r2", 10, 0))
    history.add_cache(cached(hits=150, rate=0.6))
    assert panel.line.values == (0.5, None, 0.6)
    for step in range(2 * POINTS):
        history.add_cache(cached(hits=200 + step, rate=0.7))
    assert len(panel.line.values) == POINTS


def test_hidden_it_touches_no_label_and_shown_it_has_the_latest(panel: CachePanel, cached: Cached) -> None:
    panel.show_snapshot(cached(hits=100))
    panel.hide()
    before = panel.rate.text()
    panel.show_snapshot(cached(hits=200, rate=0.41))
    assert panel.rate.text() == before
    panel.show()
    assert panel.rate.text() == "41%"


def test_another_model_starts_anew(panel: CachePanel, cached: Cached, loaded: Callable[..., ModelLoaded]) -> None:
    panel.show_snapshot(cached())
    panel.set_model(replace(loaded(48, 128, slots=1536), policy="lfu"))
    assert panel.heading.note == "lfu · 1,536 of 6,144 slots"
    assert panel.shown_hits() is None
    panel.set_model(None)
    assert panel.heading.note == ""


def test_a_gap_in_the_line_is_painted_as_a_gap(qtbot: QtBot, dark: Theme, cached: Cached) -> None:
    def column_heights(values: list[float | None]) -> list[bool]:
        line = Sparkline(dark, values)
        qtbot.addWidget(line)
        line.resize(241 + 30, line.height())
        image = line.grab().toImage()
        blank = Sparkline(dark, [])
        qtbot.addWidget(blank)
        blank.resize(line.size())
        empty = blank.grab().toImage()
        return [
            any(image.pixel(x, y) != empty.pixel(x, y) for y in range(image.height())) for x in range(image.width())
        ]

    filled = column_heights([0.8] * 30 + [None] * 20 + [0.8] * 30)
    assert filled[10] and not filled[118] and filled[200]


@pytest.mark.parametrize(("value", "top"), [(0, 1), (0.03, 0.05), (1, 1), (14.2, 20), (21, 50), (501, 1000)])
def test_the_upper_line_is_a_round_number_above_all(value: float, top: float) -> None:
    assert round_above(value) == pytest.approx(top)


def test_figures_change_no_faster_than_one_reads_and_the_last_one_is_shown(
    qtbot: QtBot, panel: CachePanel, cached: Cached, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CachePanel, "pace", 0.05)
    panel.show_snapshot(cached(rate=0.50))
    shown = []
    original = panel.show_now
    monkeypatch.setattr(panel, "show_now", lambda: (original(), shown.append(panel.rate.text())))
    for number in range(51, 61):
        panel.show_snapshot(cached(rate=number / 100))
    assert shown == []
    qtbot.waitUntil(lambda: bool(shown))
    assert shown == ["60%"]
