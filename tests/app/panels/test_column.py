"""Panels can be hidden, moved, torn off and brought back; hidden, nothing reaches them; all of it is remembered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QEvent, QObject, QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget

from app.main_window import MainWindow
from app.panels.cells import Mode
from app.panels_column import NAMES, PanelsColumn
from app.settings import Settings
from engine.messages import (
    CacheCounters,
    CacheSnapshot,
    ExpertSnapshot,
    LoadModel,
    MemoryBar,
    MemorySnapshot,
    PrefillProgress,
    Started,
)
from tests.app.conftest import Bench


def say_something(bench: Bench, number: int) -> None:
    """One of each kind of snapshot."""
    cells = np.zeros((30, 32), np.uint8)
    counts = np.full((30, 32), number, np.uint32)
    bench.engine.emit(ExpertSnapshot(cells, counts, counts, counts, "decode", number))
    counters = CacheCounters(decode_hits=10 * number, decode_misses=number)
    bench.engine.emit(CacheSnapshot(counters, 0.5 + number / 1000, 1e6, 0.001, 10.0 + number, 240, 240))
    bench.engine.emit(MemorySnapshot((MemoryBar("RAM", 10**9 + number, ()),)))


def heard(bench: Bench, number: int) -> bool:
    """The window has these snapshots."""
    latest = bench.client.latest(CacheSnapshot)
    return isinstance(latest, CacheSnapshot) and latest.counters.decode_misses == number


class Events(QObject):
    """Counts every event of a widget and of all it holds."""

    def __init__(self, widget: QWidget) -> None:
        super().__init__()
        self.seen: list[QEvent.Type] = []
        for each in (widget, *widget.findChildren(QWidget)):
            each.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        self.seen.append(event.type())
        return False


@pytest.fixture
def panels(bench: Bench) -> PanelsColumn:
    return bench.start("demo").panels


def spy_on_slots(panels: PanelsColumn, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    called: list[str] = []
    for name, panel in panels.panels.items():
        original = panel.show_now

        def show_now(name: str = name, original: Callable[[], None] = original) -> None:
            called.append(name)
            original()

        monkeypatch.setattr(panel, "show_now", show_now)
    return called


@pytest.mark.parametrize("name", NAMES)
def test_a_hidden_panel_costs_nothing_and_shows_the_latest_when_it_comes_back(
    bench: Bench, panels: PanelsColumn, qtbot, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    called = spy_on_slots(panels, monkeypatch)
    panels.show_panel(name, False)
    panel = panels.panels[name]
    assert not panel.listening
    qtbot.wait(1)
    events = Events(panel)
    called.clear()
    for number in range(1, 4):
        say_something(bench, number)
        qtbot.waitUntil(lambda number=number: heard(bench, number))
    assert name not in called and set(called) == set(NAMES) - {name}
    assert [kind for kind in events.seen if kind not in (QEvent.Type.DeferredDelete,)] == []
    panels.show_panel(name, True)
    assert panel.listening and name in called
    shown = {
        "experts": lambda: int(panels.experts.heatmap.describe(0, 0).split(" times")[0].split()[-1]),
        "cache": lambda: panels.cache.shown_misses(),
        "speed": lambda: int(float(panels.speed.rate.text())) - 10,
        "memory": lambda: 3 * (panels.memory.rows[0].name.text() == "RAM"),
    }
    assert shown[name]() == 3


def test_with_the_column_folded_no_panel_hears_anything_and_the_lines_still_have_a_past(
    bench: Bench, panels: PanelsColumn, qtbot, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = spy_on_slots(panels, monkeypatch)
    QTest.keyClick(bench.window, Qt.Key.Key_J, Qt.KeyboardModifier.ControlModifier)
    assert not any(panel.listening for panel in panels.panels.values())
    called.clear()
    for number in range(1, 4):
        say_something(bench, number)
        qtbot.waitUntil(lambda number=number: heard(bench, number))
    assert called == []
    QTest.keyClick(bench.window, Qt.Key.Key_J, Qt.KeyboardModifier.ControlModifier)
    assert panels.cache.line.values[-1] == pytest.approx(0.503)
    assert panels.speed.line.values[-1] == pytest.approx(13.0)


def test_the_view_menu_hides_panels_and_an_empty_column_folds(bench: Bench, panels: PanelsColumn) -> None:
    menus = [action.menu() for action in bench.window.top.menus.actions()]
    [shown] = [
        action.menu() for menu in menus for action in menu.actions() if action.menu() and "shown" in action.text()
    ]
    for action in shown.actions():
        assert action.isChecked()
        action.trigger()
        assert not action.isChecked()
    assert panels.empty and not panels.isVisible()
    QTest.keyClick(bench.window, Qt.Key.Key_J, Qt.KeyboardModifier.ControlModifier)
    assert panels.isVisible() and all(panel.isVisible() for panel in panels.panels.values())
    assert all(action.isChecked() for action in shown.actions())


def docked(panels: PanelsColumn) -> list[str]:
    """Names from top to bottom as they lie on the screen."""
    shown = [name for name in NAMES if panels.panels[name].isVisible() and name not in panels.windows]
    return sorted(shown, key=lambda name: panels.panels[name].mapTo(panels.widget(), QPoint(0, 0)).y())


def test_panels_are_moved_by_menu_and_by_dragging(bench: Bench, panels: PanelsColumn, qtbot) -> None:
    menu = panels.menu("speed")
    next(action for action in menu.actions() if "up" in action.text()).trigger()
    qtbot.waitUntil(lambda: docked(panels) == ["experts", "speed", "cache", "memory"])
    heading = panels.memory.heading
    grip = QPoint(30, 8)
    qtbot.mousePress(heading, Qt.MouseButton.LeftButton, pos=grip)
    top = panels.widget().mapToGlobal(QPoint(40, 5))
    for _ in range(4):
        qtbot.mouseMove(heading, heading.mapFromGlobal(top))
    qtbot.mouseRelease(heading, Qt.MouseButton.LeftButton, pos=heading.mapFromGlobal(top))
    qtbot.waitUntil(lambda: docked(panels) == ["memory", "experts", "speed", "cache"])


def test_a_panel_torn_off_is_a_window_that_goes_on_hearing_and_comes_back_when_closed(
    bench: Bench, panels: PanelsColumn, qtbot
) -> None:
    heading = panels.cache.heading
    qtbot.mousePress(heading, Qt.MouseButton.LeftButton, pos=QPoint(30, 8))
    far = panels.mapToGlobal(QPoint(-300, 100))
    qtbot.mouseMove(heading, heading.mapFromGlobal(far))
    qtbot.mouseRelease(heading, Qt.MouseButton.LeftButton, pos=heading.mapFromGlobal(far))
    window = panels.windows["cache"]
    assert window.isVisible() and panels.cache.isVisible() and panels.cache.window() is window
    say_something(bench, 7)
    qtbot.waitUntil(lambda: panels.cache.shown_misses() == 7)
    window.close()
    assert "cache" not in panels.windows
    qtbot.waitUntil(lambda: docked(panels) == list(NAMES))
    say_something(bench, 8)
    qtbot.waitUntil(lambda: panels.cache.shown_misses() == 8)


def test_a_torn_off_panel_can_be_hidden_and_comes_back_as_a_window(panels: PanelsColumn) -> None:
    panels.float_panel("memory")
    panels.show_panel("memory", False)
    assert not panels.memory.isVisible() and panels.windows == {}
    panels.show_panel("memory", True)
    assert panels.windows["memory"].isVisible() and panels.memory.isVisible()


def test_where_everything_is_is_remembered(bench: Bench, panels: PanelsColumn, qtbot) -> None:
    panels.move_panel("memory", -1)
    panels.show_panel("speed", False)
    panels.float_panel("cache")
    panels.windows["cache"].resize(511, 433)
    bench.window.close()
    again = MainWindow(
        bench.client, bench.window.theme, Settings(bench.data / "settings.json"), bench.data / "conversations", "test"
    )
    qtbot.addWidget(again)
    again.show()
    assert again.panels.order == panels.order == ("experts", "cache", "memory", "speed")
    assert [name for name in NAMES if again.panels.is_shown(name)] == ["experts", "cache", "memory"]
    window = again.panels.windows["cache"]
    assert window.isVisible() and (window.width(), window.height()) == (511, 433)


@pytest.mark.parametrize(
    "stored", [{"experts": {"shown": 3}}, {"nobody": {"shown": False}}, {"cache": {"place": 5, "window": "x"}}]
)
def test_nonsense_in_the_settings_is_the_default(tmp_path: Path, qtbot, stored: dict) -> None:
    bench = Bench(tmp_path, qtbot)
    bench.settings.panels = stored
    window = MainWindow(bench.client, bench.window.theme, bench.settings, tmp_path / "conversations", "test")
    qtbot.addWidget(window)
    assert set(window.panels.order) == set(NAMES)
    assert all(window.panels.is_shown(name) for name in NAMES) and window.panels.windows == {}


def test_speed_lists_the_answers_of_the_chat(bench: Bench, panels: PanelsColumn, qtbot) -> None:
    assert panels.speed.listed() == []
    for number in (1, 2):
        QTest.keyClicks(bench.window.composer.input, "Hello")
        QTest.keyClick(bench.window.composer.input, Qt.Key.Key_Return)
        request = bench.engine.asked.request_id
        bench.engine.emit(Started(request, 10, 0))
        bench.engine.emit(PrefillProgress(request, 10, 10))
        bench.engine.finish("Good day")
        qtbot.waitUntil(lambda: not bench.window.chat.busy)
        qtbot.waitUntil(lambda number=number: len(panels.speed.listed()) == number)
    assert panels.speed.listed()[0] == ["2", "3", "25.0", "2.0", "500 ms"]
    assert panels.speed.heading.note == "2 answers"
    # the two events come in one tick: what lies between them is no time; the engine has measured it
    assert panels.speed.prefill.text() == "prefill 25.0 / s"
    bench.window.new_chat()
    assert panels.speed.listed() == []


def test_what_another_chat_asked_of_the_experts_is_told_to_be_its(bench: Bench, panels: PanelsColumn, qtbot) -> None:
    QTest.keyClicks(bench.window.composer.input, "Hello")
    QTest.keyClick(bench.window.composer.input, Qt.Key.Key_Return)
    bench.engine.emit(Started(bench.engine.asked.request_id, 10, 0))
    say_something(bench, 3)
    bench.engine.finish("Good day")
    qtbot.waitUntil(lambda: not bench.window.chat.busy)
    first = bench.window.chat.session.path
    assert first is not None
    qtbot.waitUntil(lambda: panels.experts.heading.note == "token 3 · decode")
    panels.experts.set_mode(Mode.CHAT)
    assert "used 3 times in this chat" in panels.experts.heatmap.describe(0, 0)
    bench.window.new_chat()
    assert panels.experts.heading.note == "another chat · token 3 · decode"
    assert "used 3 times in the other chat" in panels.experts.heatmap.describe(0, 0)
    bench.window.open_conversation(first)
    qtbot.waitUntil(lambda: panels.experts.heading.note == "token 3 · decode")
    bench.window.new_chat()
    bench.window.load(LoadModel("demo"))
    qtbot.waitUntil(lambda: bench.window.state.model is not None)
    assert "another chat" not in panels.experts.heading.note


def test_the_bar_above_tells_how_much_the_experts_have_left(bench: Bench, panels: PanelsColumn, qtbot) -> None:
    bar = bench.window.top.pill
    assert "experts 22 MB of 86 MB" in bar.accessibleName()
    bench.engine.emit(CacheSnapshot(CacheCounters(), None, None, None, None, 120, 120))
    qtbot.waitUntil(lambda: "experts 11 MB of 86 MB" in bar.accessibleName())
    bench.window.load(LoadModel("demo"))
    qtbot.waitUntil(lambda: "experts 22 MB of 86 MB" in bar.accessibleName())
