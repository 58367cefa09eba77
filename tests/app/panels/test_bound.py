"""Belady's bound is asked for when an answer ends, shown when it comes, and called off for the next answer."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from engine.messages import (
    CacheCounters,
    CacheSnapshot,
    Failed,
    Started,
    StopWhatIf,
    WhatIf,
    WhatIfLine,
    WhatIfPoint,
    WhatIfResult,
)
from tests.app.conftest import LOADED, Bench


def ask(bench: Bench) -> None:
    QTest.keyClicks(bench.window.composer.input, "Hello")
    QTest.keyClick(bench.window.composer.input, Qt.Key.Key_Return)


def answer(bench: Bench, qtbot) -> WhatIf:
    """Ask, have it answered, and wait for the question about the bound."""
    ask(bench)
    before = len(questions(bench))
    bench.engine.emit(CacheSnapshot(CacheCounters(), 0.5, 1.0, 0.1, 9.0, 212, 212))
    bench.engine.answer("Good day")
    qtbot.waitUntil(lambda: len(questions(bench)) > before)
    return questions(bench)[-1]


def questions(bench: Bench) -> list[WhatIf]:
    return [command for command in bench.engine.sent if isinstance(command, WhatIf)]


def result(question: WhatIf, rate: float | None, signature: str = LOADED.signature) -> WhatIfResult:
    line = WhatIfLine("belady", (WhatIfPoint("212 slots", 212, rate, 1.0),))
    return WhatIfResult(question.request_id, (line,), (), "m", signature, 960, 1, 10, 3, 1, "lru", 212, "none", 0.5)


def test_asked_with_the_present_slots_and_shown(bench: Bench, qtbot) -> None:
    cache = bench.start("demo").panels.cache
    question = answer(bench, qtbot)
    assert question.logs == (str(bench.window.chat.session.path),)
    assert (question.policies, question.budgets) == ((), ("212 slots",))
    bench.engine.emit(result(question, 0.92))
    qtbot.waitUntil(lambda: cache.best.text() == "best on demand 92%")
    bench.window.new_chat()
    qtbot.waitUntil(lambda: cache.best.text() == "best on demand –")  # noqa: RUF001


def test_called_off_when_the_next_answer_begins(bench: Bench, qtbot) -> None:
    bench.start("demo")
    question = answer(bench, qtbot)
    ask(bench)
    bench.engine.emit(Started(bench.engine.asked.request_id, 10, 0))
    qtbot.waitUntil(lambda: StopWhatIf(question.request_id) in bench.engine.sent)
    bench.engine.finish("Again")
    qtbot.waitUntil(lambda: len(questions(bench)) == 2)
    qtbot.wait(1)
    assert len(questions(bench)) == 2, "once for each answer"


def test_what_cannot_be_replayed_leaves_a_dash(bench: Bench, qtbot) -> None:
    cache = bench.start("demo").panels.cache
    question = answer(bench, qtbot)
    bench.engine.emit(result(question, 0.92))
    qtbot.waitUntil(lambda: cache.best.text() == "best on demand 92%")
    question = answer(bench, qtbot)
    bench.engine.emit(Failed("what if", "Two models wrote this chat.", question.request_id))
    qtbot.waitUntil(lambda: cache.best.text() == "best on demand –")  # noqa: RUF001


def test_nobody_asks_while_the_panel_is_hidden(bench: Bench, qtbot) -> None:
    window = bench.start("demo")
    window.panels.show_panel("cache", False)
    ask(bench)
    bench.engine.emit(CacheSnapshot(CacheCounters(), 0.5, 1.0, 0.1, 9.0, 212, 212))
    bench.engine.answer("Good day")
    qtbot.waitUntil(lambda: not window.chat.busy)
    assert questions(bench) == []
    window.panels.show_panel("cache", True)
    assert len(questions(bench)) == 1


def test_what_another_model_was_asked_for_is_no_bound_for_this_one(bench: Bench, qtbot) -> None:
    cache = bench.start("demo").panels.cache
    question = answer(bench, qtbot)
    bench.engine.emit(result(question, 0.92, "another model's"))
    qtbot.wait(100)
    assert cache.best.text() == "best on demand –"  # noqa: RUF001
