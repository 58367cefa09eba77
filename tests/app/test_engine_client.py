"""The client's end of the queue: many events in, few signals out, nothing lost, order kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from PySide6.QtTest import QSignalSpy

from app.engine_client import BUSY_MS, IDLE_MS, EngineClient
from engine.messages import (
    CacheCounters,
    CacheSnapshot,
    Command,
    EngineReady,
    Event,
    ExpertSnapshot,
    Failed,
    Finished,
    Generate,
    LoadModel,
    MemorySnapshot,
    Progress,
    ShutDown,
    Started,
    Stopped,
    Timings,
    Token,
)
from tests.app.conftest import LOADED


class ScriptedService:
    """An engine thread that says what a test tells it to."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self.emit = emit
        self.sent: list[Command] = []
        self.stops = 0
        self.script: Callable[[], None] = lambda: None

    def start(self) -> None:
        thread = threading.Thread(target=self.script, daemon=True)
        thread.start()
        thread.join()  # all of the script is in the queue before the first tick

    def send(self, command: Command) -> None:
        self.sent.append(command)

    def stop(self) -> None:
        self.stops += 1

    def join(self, timeout: float | None = None) -> None:
        pass


def client_saying(events: list[Event]) -> tuple[EngineClient, ScriptedService]:
    made: list[ScriptedService] = []

    def make(emit: Callable[[Event], None]) -> ScriptedService:
        made.append(ScriptedService(emit))
        return made[0]

    client = EngineClient(make)
    made[0].script = lambda: [made[0].emit(event) for event in events][:0] or None
    return client, made[0]


def finished(request: str, text: str) -> Finished:
    return Finished(request, "end", text, Timings(answer_tokens=2), CacheCounters(), seed=1)


def snapshot(token: int) -> ExpertSnapshot:
    cells = np.zeros((2, 3), np.uint8)
    counts = np.zeros((2, 3), np.uint32)
    return ExpertSnapshot(cells, counts, counts, counts, "decode", token)


def test_tokens_of_a_tick_are_one_signal_and_nothing_is_lost(qtbot) -> None:
    words = [f"w{i} " for i in range(5000)]
    events: list[Event] = [Started("a", 3, 0), *(Token("a", word, i + 1) for i, word in enumerate(words))]
    client, _ = client_saying([*events, finished("a", "".join(words))])
    spy = QSignalSpy(client.tokens)
    with qtbot.waitSignal(client.finished):
        client.start()
    assert "".join(spy.at(i)[1] for i in range(spy.count())) == "".join(words)
    assert spy.count() <= 3
    assert spy.at(spy.count() - 1)[2] == 5000


def test_order_is_kept_between_kinds(qtbot) -> None:
    client, _ = client_saying(
        [
            EngineReady("greenroom", "torch", "CPU"),
            Progress("Loading", "a", 0.1),
            Progress("Loading", "b", 0.9),
            Started("a", 3, 0),
            Token("a", "Hel", 1),
            Token("a", "lo", 2),
            finished("a", "Hello"),
            Started("b", 3, 0),
            Token("b", "x", 1),
            Failed("generate", "no", "b"),
        ]
    )
    seen: list[str] = []
    client.ready.connect(lambda event: seen.append("ready"))
    client.progress.connect(lambda event: seen.append(f"progress {event.detail}"))
    client.started.connect(lambda event: seen.append(f"started {event.request_id}"))
    client.tokens.connect(lambda request, text, count: seen.append(f"{request}:{text}:{count}"))
    client.finished.connect(lambda event: seen.append(f"finished {event.request_id}"))
    client.failed.connect(lambda event: seen.append(f"failed {event.request_id}"))
    with qtbot.waitSignal(client.failed):
        client.start()
    assert seen == [
        "ready", "progress b", "started a", "a:Hello:2", "finished a", "started b", "b:x:1", "failed b"
    ]  # fmt: skip


def test_only_the_latest_snapshot_of_each_kind_is_shown(qtbot) -> None:
    events: list[Event] = []
    for token in range(50):
        events += [snapshot(token), MemorySnapshot(())]
    client, _ = client_saying(events)
    experts, memory = QSignalSpy(client.expert_snapshot), QSignalSpy(client.memory_snapshot)
    with qtbot.waitSignals([client.expert_snapshot, client.memory_snapshot]):
        client.start()
    assert (experts.count(), memory.count()) == (1, 1)
    assert experts.at(0)[0].token == 49


def test_shut_down_ends_with_stopped_even_when_the_engine_hangs(qtbot) -> None:
    client, service = client_saying([])
    client.start()
    with qtbot.waitSignal(client.stopped, timeout=2000):
        client.shut_down(0.05)
    assert service.stops == 1 and isinstance(service.sent[-1], ShutDown)
    assert not client.running and not client._timer.isActive()


def test_shut_down_ends_as_soon_as_the_engine_has(qtbot) -> None:
    client, service = client_saying([])
    client.start()
    with qtbot.waitSignal(client.stopped, timeout=2000):
        client.shut_down(60)
        service.emit(Stopped())


def test_timer_slows_down_when_nothing_goes_on(qtbot, monkeypatch) -> None:
    monkeypatch.setattr("app.engine_client.CALM_SECONDS", 0.05)
    client, service = client_saying([EngineReady("greenroom", "torch", "CPU")])
    client.start()
    assert client._timer.interval() == BUSY_MS
    qtbot.waitUntil(lambda: client._timer.interval() == IDLE_MS)
    service.emit(Token("a", "x", 1))
    qtbot.waitUntil(lambda: client._timer.interval() == BUSY_MS)


def test_the_last_word_of_one_request_does_not_slow_down_another(qtbot, monkeypatch) -> None:
    monkeypatch.setattr("app.engine_client.CALM_SECONDS", 0.0)
    client, service = client_saying([EngineReady("greenroom", "torch", "CPU")])
    client.start()
    client.send(Generate("a", ()))
    client.send(LoadModel("next"))
    for last, event in (
        (client.finished, finished("a", "")),
        (client.failed, Failed("memory", "Experts gave back 2 slots.")),
    ):
        with qtbot.waitSignal(last):
            service.emit(event)
        client._pace()
        assert client._timer.interval() == BUSY_MS
    with qtbot.waitSignal(client.model_loaded):
        service.emit(replace(LOADED, source="next"))
    client._pace()
    assert client._timer.interval() == IDLE_MS


# ------------------------------------------------------------------------------------------------ models


def cache_snapshot(misses: int) -> CacheSnapshot:
    return CacheSnapshot(CacheCounters(decode_misses=misses), 0.5, 1.0, 0.1, 9.0, 212, 212)


def test_a_load_takes_the_place_of_the_one_under_way(qtbot) -> None:
    client, service = client_saying([])
    client.start()
    loaded, failed = QSignalSpy(client.model_loaded), QSignalSpy(client.failed)
    told = QSignalSpy(client.progress)
    client.send(LoadModel("first"))
    assert service.stops == 0
    client.send(LoadModel("second"))
    assert service.stops == 1
    service.emit(Progress("Loading first", "", 0.5))
    service.emit(Failed("load", "Loading was stopped."))
    service.emit(Progress("Loading second", "", 0.5))
    service.emit(replace(LOADED, source="second"))
    qtbot.waitUntil(lambda: loaded.count() == 1)
    assert failed.count() == 0
    assert [told.at(number)[0].task for number in range(told.count())] == ["Loading second"]


def test_a_load_that_ended_before_it_could_be_stopped_is_not_told_either(qtbot) -> None:
    client, service = client_saying([])
    client.start()
    loaded = QSignalSpy(client.model_loaded)
    client.send(LoadModel("first"))
    service.emit(replace(LOADED, source="first"))
    client.send(LoadModel("second"))
    service.emit(cache_snapshot(1))
    service.emit(replace(LOADED, source="second"))
    service.emit(cache_snapshot(2))
    qtbot.waitUntil(lambda: loaded.count() == 1)
    assert loaded.at(0)[0].source == "second"
    assert client.latest(CacheSnapshot) == cache_snapshot(2)


def test_no_snapshot_outlives_its_model(qtbot) -> None:
    client, service = client_saying([])
    client.start()
    heard, failed = QSignalSpy(client.cache_snapshot), QSignalSpy(client.failed)
    service.emit(cache_snapshot(1))
    qtbot.waitUntil(lambda: heard.count() == 1)
    client.send(LoadModel("too big"))
    assert client.latest(CacheSnapshot) is None
    service.emit(cache_snapshot(2))  # the answer that was under way
    service.emit(Failed("load", "It does not fit."))
    qtbot.waitUntil(lambda: failed.count() == 1)
    assert heard.count() == 1
    assert client.latest(CacheSnapshot) is None
