"""The real engine, a real answer: what the panels show is what the session log counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PySide6.QtWidgets import QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from app.engine_client import EngineClient
from app.panels.cache import CachePanel
from app.panels.cells import Mark
from app.panels.experts import ExpertsPanel
from app.panels.memory import MemoryPanel
from app.panels.moments import read_moment, read_recording
from app.theme import Theme
from engine.experts.prefetch import Prefetcher
from engine.messages import (
    Cell,
    ChatMessage,
    ExpertSnapshot,
    Fetched,
    Finished,
    Generate,
    LoadModel,
    ModelLoaded,
    Prefetch,
    Sampling,
)
from engine.sessions.log import SessionLog
from engine.sessions.reader import decode_pass, read_records, recount


@pytest.fixture
def slow_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every layer takes as long as the fetches ahead: a tiny model is through before a reader wakes."""
    before = Prefetcher.before

    def unhurried(self: Prefetcher, layer: int) -> None:
        for out in self._out:
            for early in out.values():
                early.fetch.wait()
        before(self, layer)

    monkeypatch.setattr(Prefetcher, "before", unhurried)


@pytest.mark.usefixtures("slow_layers")
@pytest.mark.parametrize("prefetch", ["off", "on"])
def test_counts_and_marks_equal_a_recount(
    qtbot: QtBot, dark: Theme, tiny_chat_model: Path, tmp_path: Path, prefetch: Prefetch
) -> None:
    client = EngineClient()
    window = QWidget()
    qtbot.addWidget(window)
    experts, cache, memory = ExpertsPanel(dark), CachePanel(dark), MemoryPanel(dark)
    column = QVBoxLayout(window)
    for panel in (experts, cache, memory):
        column.addWidget(panel)
    models: list[ModelLoaded] = []
    snapshots: list[ExpertSnapshot] = []
    answers: list[Finished] = []
    client.model_loaded.connect(models.append)
    client.model_loaded.connect(experts.set_model)
    client.model_loaded.connect(cache.set_model)
    client.expert_snapshot.connect(snapshots.append)
    client.expert_snapshot.connect(experts.show_snapshot)
    client.cache_snapshot.connect(cache.show_snapshot)
    client.memory_snapshot.connect(memory.show_snapshot)
    client.finished.connect(answers.append)
    log = tmp_path / "chat.jsonl"
    SessionLog.create_at(log, "test").close()
    window.show()
    client.start()
    try:
        with qtbot.waitSignal(client.model_loaded, timeout=120_000):
            client.send(LoadModel(str(tiny_chat_model), "50%", predictor="previous-token", prefetch=prefetch))
        with qtbot.waitSignal(client.finished, timeout=120_000):
            client.send(
                Generate(
                    "r1",
                    (ChatMessage("user", "Who waits in the green room?"),),
                    Sampling(temperature=0, max_tokens=24),
                    log=str(log),
                    answer_id="a1",
                )
            )
        counted = recount(log)
        qtbot.waitUntil(lambda: cache.shown_hits() == counted.decode_hits)
        qtbot.waitUntil(lambda: snapshots[-1].phase == "idle")
    finally:
        with qtbot.waitSignal(client.stopped, timeout=60_000):
            client.shut_down(30)

    assert answers[0].error == ""
    assert counted.decode_hits + counted.decode_misses > 0
    assert cache.shown_misses() == counted.decode_misses
    assert cache.shown_hits("prefill") == counted.prefill_hits
    assert cache.shown_misses("prefill") == counted.prefill_misses

    model = models[0]
    last = [record for record in read_records(log) if record["type"] == "pass"][-1]
    final = decode_pass(last, model.layers, model.experts, model.top_k)
    marks = experts.heatmap.states() >> 5 & 7
    assert np.array_equal((marks > 0) & (marks != Mark.WASTED), final.counts > 0), "chosen by the last pass"
    assert np.array_equal(snapshots[-1].cells & Cell.MISS > 0, final.missed)
    passes = [
        decode_pass(record, model.layers, model.experts, model.top_k)
        for record in read_records(log)
        if record["type"] == "pass"
    ]
    assert np.array_equal(snapshots[-1].answer, sum(one.counts for one in passes))

    recording = read_recording(log, "a1")
    assert recording.text == answers[0].text == "".join(recording.words(n)[1] for n in range(1, recording.moments + 1))
    assert len(recording.lengths) == answers[0].timings.answer_tokens
    decoded = [one for one in passes if one.phase == "decode"]
    assert recording.moments == len(decoded) + 1
    for moment, one in enumerate(decoded, start=2):
        cells = read_moment(recording, moment).cells
        assert np.array_equal(cells & Cell.ROUTED > 0, one.counts > 0)
        assert np.array_equal(cells & Cell.MISS > 0, one.missed)
        assert np.array_equal(cells & Cell.LATE > 0, one.late if one.late is not None else np.zeros_like(one.missed))
    told_live = Cell.ROUTED | Cell.HIT | Cell.MISS | Cell.PREFETCHED | Cell.LATE
    replayed = read_moment(recording, recording.moments).cells
    assert np.array_equal(replayed & told_live, snapshots[-1].cells & told_live), "replayed as it was seen live"
    in_time = sum(
        int(np.count_nonzero(read_moment(recording, n).cells & Cell.PREFETCHED))
        for n in range(1, recording.moments + 1)
    )
    assert in_time == answers[0].cache.prefetch_used
    assert (in_time > 0) == (prefetch == "on")
    fetched = snapshots[-1].fetched
    assert fetched is not None
    assert (fetched[final.missed] == Fetched.DEMAND).all()
    assert ((fetched == Fetched.IN_TIME).any()) == (prefetch == "on")

    assert memory.rows and memory.rows[-1].name.text() == "RAM"
