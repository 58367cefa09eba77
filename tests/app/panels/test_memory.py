"""The Memory panel: bars in true proportion, sizes in words, no colour needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from pytestqt.qtbot import QtBot

from app.panels.area import MemoryHistory
from app.panels.bars import Segment, SegmentedBar
from app.panels.history import MEMORY_SECONDS, History
from app.panels.memory import MemoryPanel
from app.theme import Theme
from engine.messages import CacheSnapshot, MemoryBar, MemoryPart, MemorySnapshot, ModelLoaded

GB = 1_000_000_000
VRAM = MemoryBar(
    "VRAM · RTX 4070",
    12 * GB,
    (
        MemoryPart("dense", 2 * GB),
        MemoryPart("experts", 7 * GB),
        MemoryPart("kv", GB),
        MemoryPart("other", GB // 2),
    ),
)
RAM = MemoryBar("RAM", 64 * GB, (MemoryPart("experts", 30 * GB), MemoryPart("other", 11 * GB)))


@pytest.fixture
def panel(qtbot: QtBot, theme: Theme) -> MemoryPanel:
    made = MemoryPanel(theme)
    qtbot.addWidget(made)
    made.resize(334, 200)
    with qtbot.waitExposed(made):
        made.show()
    return made


def test_each_memory_has_its_row_in_order(panel: MemoryPanel) -> None:
    panel.show_snapshot(MemorySnapshot((VRAM, RAM)))
    assert [(row.name.text(), row.used.text()) for row in panel.rows] == [
        ("VRAM · RTX 4070", "10.5 / 12.0 GB"),
        ("RAM", "41.0 / 64.0 GB"),
    ]
    panel.show_snapshot(MemorySnapshot((RAM,)))
    assert [row.name.text() for row in panel.rows] == ["RAM"]


def test_the_legend_names_every_part_and_what_is_free(panel: MemoryPanel) -> None:
    panel.show_snapshot(MemorySnapshot((VRAM,)))
    assert panel.rows[0].legend.texts == ("dense 2.0 GB", "experts 7.0 GB", "KV 1.0 GB", "other 0.50 GB", "free 1.5 GB")


def test_lengths_are_proportional(qtbot: QtBot, panel: MemoryPanel) -> None:
    panel.show_snapshot(MemorySnapshot((VRAM,)))
    bar = panel.rows[0].bar
    qtbot.waitUntil(lambda: bar.width() > 200)
    spans = bar.spans()
    assert [segment.kind for segment, *_ in spans] == ["dense", "experts", "kv", "other"]
    for (_, left, width), part in zip(spans, VRAM.parts, strict=True):
        assert width == pytest.approx(bar.width() * part.bytes / VRAM.total, abs=0.01)
        assert left + width <= bar.width()


def test_a_memory_that_is_overfull_stays_inside_its_bar(qtbot: QtBot, dark: Theme) -> None:
    bar = SegmentedBar(dark)
    qtbot.addWidget(bar)
    bar.resize(300, bar.height())
    bar.show_segments([Segment("experts", 90), Segment("other", 30)], 100)
    (_, _, first), (_, left, second) = bar.spans()
    assert (first, left + second) == (pytest.approx(225), pytest.approx(300))
    bar.show_segments([Segment("experts", 1)], 0)
    assert bar.spans() == []
    bar.grab()


def test_the_smallest_part_can_still_be_seen(qtbot: QtBot, dark: Theme) -> None:
    bar = SegmentedBar(dark)
    qtbot.addWidget(bar)
    bar.resize(300, bar.height())
    bar.show_segments([Segment("kv", 1), Segment("experts", 0), Segment("other", 500)], 1_000_000)
    assert [(segment.kind, width) for segment, _, width in bar.spans()] == [("kv", 2.0), ("other", 2.0)]


def test_kinds_differ_by_pattern_not_only_by_colour(qtbot: QtBot, theme: Theme) -> None:
    bar = SegmentedBar(theme)
    qtbot.addWidget(bar)
    bar.resize(200, bar.height())

    def contrasts(kind: str) -> tuple[int, ...]:
        """Which pixels of a stretch differ from the most frequent one: the pattern without the colour."""
        bar.show_segments([Segment(kind, 100)], 100)
        image = bar.grab().toImage()
        values = [image.pixelColor(x, y).lightness() for y in range(2, 12) for x in range(50, 90)]
        usual = max(set(values), key=values.count)
        return tuple(int(abs(value - usual) > 4) for value in values)

    patterns = [contrasts(kind) for kind in ("dense", "experts", "kv", "other")]
    assert len(set(patterns)) == 4
    assert not any(patterns[1]), "experts are plain"


def test_hidden_it_builds_no_rows(qtbot: QtBot, dark: Theme) -> None:
    panel = MemoryPanel(dark)
    qtbot.addWidget(panel)
    panel.show_snapshot(MemorySnapshot((VRAM, RAM)))
    assert panel.rows == []
    panel.show()
    assert len(panel.rows) == 2


def test_a_name_that_looks_like_markup_is_shown_as_it_is(panel: MemoryPanel) -> None:
    panel.show_snapshot(MemorySnapshot((MemoryBar("<b>RAM</b>", GB, ()),)))
    assert panel.rows[0].name.shown() == "<b>RAM</b>"
    assert panel.rows[0].name.toolTip() == "<span>&lt;b&gt;RAM&lt;/b&gt;</span>"


def test_the_past_is_drawn_in_steps_with_now_on_the_right(qtbot: QtBot, dark: Theme) -> None:
    now = 1000.0
    history = History(clock=lambda: now)
    for at, experts in ((600.0, 9), (900.0, 7), (990.0, 4)):
        now = at
        parts = (MemoryPart("dense", GB), MemoryPart("experts", experts * GB))
        history.add_memory(MemorySnapshot((MemoryBar("RAM", 20 * GB, parts),)))
    now = 1000.0
    past = MemoryHistory(dark, history.memory, history.clock)
    qtbot.addWidget(past)
    past.show_memory("RAM")
    edge = [(round(x), round(y)) for x, y in past.layers(300, 100)["experts"]]
    assert edge == [(0, 50), (200, 50), (200, 60), (290, 60), (290, 75), (300, 75)]
    assert past.layers(300, 100)["dense"][-1] == (300, 95)
    past.grab()


def test_the_past_is_kept_for_five_minutes_and_one_before(dark: Theme) -> None:
    now = 0.0
    history = History(clock=lambda: now)
    for second in range(1000):
        now = float(second)
        history.add_memory(MemorySnapshot((RAM,)))
    assert len(history.memory) == MEMORY_SECONDS + 2


def test_slots_given_back_to_the_conversation_are_told(
    panel: MemoryPanel, loaded: Callable[..., ModelLoaded], cached: Callable[..., CacheSnapshot]
) -> None:
    panel.set_model(loaded(slots=240))
    panel.show_snapshot(MemorySnapshot((RAM,)))
    panel.show_slots(cached())
    assert not panel.given_back.isVisible()
    panel.show_slots(replace(cached(), slots=212))
    assert panel.given_back.text() == "28 of 240 slots (15 MB) were given back to the conversation"
    assert panel.given_back.isVisible()
    panel.show_slots(cached())
    assert not panel.given_back.isVisible()
