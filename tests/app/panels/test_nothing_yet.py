"""Before there is anything to show, a panel says what will be there and when, and shows neither axes nor dashes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QColor, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel

from app.panels.parts import Panel
from app.panels_column import NAMES, PanelsColumn
from app.theme import BODY
from engine.messages import LoadModel, PrefillProgress, Started
from tests.app.conftest import Bench
from tests.app.panels.test_column import say_something

DASH = "–"  # noqa: RUF001


@pytest.fixture
def panels(bench: Bench) -> Iterator[PanelsColumn]:
    yield bench.start("demo").panels
    bench.window.theme.set_font_size(BODY)


def words(panel: Panel) -> list[str]:
    """What can be read below the heading."""
    labels = (label for label in panel.findChildren(QLabel) if label.isVisible() and label.text())
    return [label.text() for label in labels if label.text() != panel.heading.name]


def ask(bench: Bench) -> None:
    QTest.keyClicks(bench.window.composer.input, "Hello")
    QTest.keyClick(bench.window.composer.input, Qt.Key.Key_Return)
    bench.engine.emit(Started(bench.engine.asked.request_id, 10, 0))


def inked(image: QImage) -> QRect:
    """The part of an image that differs from its upper left corner."""
    ground = image.pixelColor(0, 0)
    found = [(x, y) for y in range(image.height()) for x in range(image.width()) if image.pixelColor(x, y) != ground]
    columns, rows = [x for x, _ in found], [y for _, y in found]
    return QRect(QPoint(min(columns), min(rows)), QPoint(max(columns), max(rows)))


def test_before_the_first_answer_they_say_what_will_be_there_and_when(panels: PanelsColumn) -> None:
    for panel in (panels.cache, panels.speed, panels.memory):
        [sentence] = words(panel)
        assert sentence.endswith(".") and "here" in sentence
    assert not panels.cache.line.isVisible() and not panels.speed.line.isVisible()


def test_the_sentence_goes_with_the_first_figures(bench: Bench, panels: PanelsColumn, qtbot) -> None:
    ask(bench)
    say_something(bench, 3)
    for panel in (panels.cache, panels.speed, panels.memory):
        qtbot.waitUntil(lambda panel=panel: panel.nothing.text() not in words(panel))
    assert panels.cache.line.isVisible() and panels.speed.line.isVisible()
    assert "50%" in words(panels.cache) and "13.0" in words(panels.speed)


def test_while_the_first_prompt_is_read_there_are_its_figures_and_no_axes(
    bench: Bench, panels: PanelsColumn, qtbot
) -> None:
    panels.history.clock = iter(range(100)).__next__
    ask(bench)
    request = bench.engine.asked.request_id
    bench.engine.emit(PrefillProgress(request, 5, 10))
    qtbot.waitUntil(lambda: panels.speed.prefill.isVisible())
    assert panels.speed.prefill.text() != f"prefill {DASH} / s"
    assert not panels.speed.line.isVisible() and panels.speed.nothing.text() not in words(panels.speed)


def test_another_model_begins_with_the_sentence_and_a_new_chat_keeps_the_figures(
    bench: Bench, panels: PanelsColumn, qtbot
) -> None:
    ask(bench)
    say_something(bench, 3)
    bench.engine.finish("Good day")
    qtbot.waitUntil(lambda: not bench.window.chat.busy)
    bench.window.new_chat()
    qtbot.waitUntil(lambda: panels.speed.listed() == [])
    assert panels.cache.line.isVisible() and panels.speed.line.isVisible(), "they are of the model, not of the chat"
    bench.window.load(LoadModel("demo"))
    qtbot.waitUntil(lambda: bench.window.state.model is not None)
    for panel in (panels.cache, panels.speed):
        qtbot.waitUntil(lambda panel=panel: words(panel) == [panel.nothing.text()])


def test_a_chat_of_another_day_has_its_answers_and_no_axes(bench: Bench, panels: PanelsColumn, qtbot) -> None:
    ask(bench)
    say_something(bench, 3)
    bench.engine.finish("Good day")
    qtbot.waitUntil(lambda: not bench.window.chat.busy)
    bench.window.load(LoadModel("demo"))
    qtbot.waitUntil(lambda: bench.window.state.model is not None)
    qtbot.waitUntil(lambda: not panels.speed.line.isVisible())
    assert len(panels.speed.listed()) == 1 and "2.0" in words(panels.speed)


@pytest.mark.parametrize("size", [BODY, 22])
@pytest.mark.parametrize("name", NAMES)
def test_it_stands_whole_and_in_the_middle_in_the_theme_s_muted_colour(
    bench: Bench, panels: PanelsColumn, qtbot, name: str, size: int
) -> None:
    bench.window.theme.set_font_size(size)
    bench.window.panels.set_model(None)
    panel = panels.panels[name]
    for window in (False, True):
        if window:
            panels.float_panel(name)
        qtbot.waitUntil(lambda: panel.nothing.height() >= panel.nothing.heightForWidth(panel.nothing.width()))
        place = panel if not window else panels.windows[name]
        image = panel.nothing.grab().toImage()
        ink, room = inked(image), image.rect()
        assert abs(ink.center().x() - room.center().x()) <= 2 and abs(ink.center().y() - room.center().y()) <= size / 2
        assert ink.left() > 0 and ink.right() < room.right()
        top = panel.heading.mapTo(place, QPoint(0, 0)).y()
        assert top <= 12, "the heading stays where it was"
        below = panel.nothing.mapTo(place, panel.nothing.rect().bottomLeft()).y()
        assert place.height() - below <= 20, "the room below the heading is all its own"
    color = QColor(bench.window.theme.colors.text_muted)
    assert panel.nothing.palette().color(panel.nothing.foregroundRole()) == color
