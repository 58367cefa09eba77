"""Cycles are collected, on the GUI thread only, and soon after a model has gone."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator

import pytest

from app import garbage
from app.garbage import GarbageCollector


class Cycle:
    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def collector(qapp, monkeypatch) -> Iterator[GarbageCollector]:
    monkeypatch.setattr(garbage, "INTERVAL_MS", 10)
    monkeypatch.setattr(garbage, "YOUNG", -1)
    collector = GarbageCollector(busy=lambda: True)
    yield collector
    collector.close()


def test_cycles_die_on_the_gui_thread(collector: GarbageCollector, qtbot) -> None:
    threads: list[threading.Thread] = []

    def make() -> None:
        for _ in range(20_000):
            weakref.finalize(Cycle(), lambda: threads.append(threading.current_thread()))

    maker = threading.Thread(target=make)
    maker.start()
    maker.join()
    qtbot.waitUntil(lambda: len(threads) == 20_000)
    assert set(threads) == {threading.main_thread()}


def test_a_model_that_was_let_go_is_collected_although_something_goes_on(
    collector: GarbageCollector, qtbot, monkeypatch
) -> None:
    monkeypatch.setattr(garbage, "YOUNG", 10**9)  # nothing else would start a collection
    collector.set_aside()
    cycle = Cycle()
    gone = weakref.ref(cycle)
    del cycle
    assert gone() is not None
    collector.collect_soon()
    qtbot.waitUntil(lambda: gone() is None)
