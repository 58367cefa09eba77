"""`PlanMemory`: the verdict of `inspect` and of the load itself, at once for a slider, only the latest question."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median

import pytest

from engine.inspection import describe
from engine.messages import (
    EngineReady,
    Failed,
    ListModels,
    LoadModel,
    MemoryPlanned,
    MemorySnapshot,
    ModelList,
    ModelLoaded,
    PlanMemory,
)
from engine.planning import Planner, held_by_model
from tests.engine.listening import Engine
from tests.families import make_tiny
from tests.machine import free_ram

MB = 10**6


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as engine:
        yield engine


@pytest.fixture
def ram(monkeypatch: pytest.MonkeyPatch):
    return partial(free_ram, monkeypatch)


@pytest.mark.parametrize("free", [2000 * MB, 150 * MB, 201 * MB])
@pytest.mark.parametrize(("experts", "context"), [("auto", 0), ("25%", 100), ("5 slots", 256), ("24 slots", 64)])
def test_it_says_what_inspect_says(tiny_chat_model: Path, ram, experts: str, context: int, free: int) -> None:
    ram(free)
    source = str(tiny_chat_model)
    facts = describe(LoadModel(source, experts, context=context))
    answer = Planner().answer(PlanMemory(source, experts, context))
    assert (answer.verdict, answer.shortfall, answer.reason) == (
        facts["verdict"],
        facts["shortfall_bytes"],
        facts["reason"],
    )
    assert (answer.slot_bytes, answer.dense_bytes, answer.dtype) == (
        facts["slot_bytes"],
        facts["dense_bytes"],
        facts["dtype"],
    )
    for name in ("slots", "slots_at_full_context", "context", "kv_bytes", "workspace_bytes", "on_disk"):
        if facts["plan"]:
            assert getattr(answer, name) == facts["plan"][name], name


def test_the_bars_add_up_to_what_is_needed(tiny_chat_model: Path, ram) -> None:
    source = str(tiny_chat_model)
    for free in (2000 * MB, 150 * MB):
        ram(free)
        facts = describe(LoadModel(source))
        device, disk = Planner().answer(PlanMemory(source)).bars
        parts = {part.kind: part.bytes for part in device.parts}
        needed = facts["plan"]["needed_bytes"] if facts["plan"] else free + facts["shortfall_bytes"]
        assert sum(parts.values()) - parts["other"] == needed
        assert device.total - parts["other"] == free
        assert (disk.name, disk.total) == ("disk", facts["expert_bytes_stored"])


def test_what_is_promised_is_what_is_loaded(engine: Engine, tiny_chat_model: Path) -> None:
    question = PlanMemory(str(tiny_chat_model), "7 slots", 128)
    engine.wait_for(EngineReady)
    engine.send(question)
    plan = engine.wait_for(MemoryPlanned)
    engine.send(LoadModel(question.source, question.experts, context=question.context))
    loaded = engine.wait_for(ModelLoaded)
    for name in ("slots", "slot_bytes", "total_experts", "context", "dtype"):
        assert getattr(plan, name) == getattr(loaded, name), name
    assert plan.dense_bytes == pytest.approx(loaded.dense_bytes, rel=0.01)


def test_what_the_loaded_model_holds_counts_as_free(engine: Engine, tiny_chat_model: Path, ram) -> None:
    engine.wait_for(EngineReady)
    engine.send(LoadModel(str(tiny_chat_model)))
    engine.wait_for(ModelLoaded)
    held = held_by_model(engine.wait_for(MemorySnapshot))["RAM"]
    assert held > 0
    question = PlanMemory(str(tiny_chat_model), "24 slots", 256)
    ram(2000 * MB)
    bar = Planner().answer(question, {"RAM": held}).bars[0]
    other = {part.kind: part.bytes for part in bar.parts}["other"]
    assert bar.total - other == 2000 * MB + held
    engine.send(question)
    asked = engine.wait_for(MemoryPlanned).bars[0]
    assert {part.kind: part.bytes for part in asked.parts}["other"] == other


def test_only_the_latest_of_waiting_questions_is_answered(engine: Engine, tiny_chat_model: Path) -> None:
    source = str(tiny_chat_model)
    engine.wait_for(EngineReady)
    for slots in range(1, 24):
        engine.send(PlanMemory(source, f"{slots} slots"))
    engine.send(PlanMemory(source, "24 slots"))
    while engine.wait_for(MemoryPlanned).question.experts != "24 slots":
        pass
    assert len(engine.of(MemoryPlanned)) < 24


def test_a_folder_that_cannot_be_planned_is_a_sentence_about_that_folder(engine: Engine, tmp_path: Path) -> None:
    engine.send(PlanMemory(str(tmp_path)))
    failed = engine.wait_for(Failed, fail=False)
    assert (failed.doing, failed.request_id, failed.details) == ("plan", str(tmp_path), "")
    assert "no config.json" in failed.text


def test_a_changed_folder_is_read_anew_after_listing(engine: Engine, tmp_path: Path) -> None:
    folder = make_tiny("qwen2_moe", tmp_path / "model")
    engine.send(PlanMemory(str(folder)))
    assert engine.wait_for(MemoryPlanned).total_experts == 24
    (folder / "config.json").unlink()
    engine.send(ListModels((str(folder),)))
    engine.wait_for(ModelList)
    engine.send(PlanMemory(str(folder)))
    assert engine.wait_for(Failed, fail=False).doing == "plan"


def test_after_the_first_answer_a_slider_does_not_wait(tmp_path: Path) -> None:
    wide = make_tiny("qwen3_moe", tmp_path / "wide", changes={"num_hidden_layers": 24, "num_experts": 64})
    planner, times = Planner(), []
    planner.answer(PlanMemory(str(wide)))
    for slots in range(1, 40):
        began = time.thread_time()
        planner.answer(PlanMemory(str(wide), f"{slots} slots"))
        times.append(time.thread_time() - began)
    assert median(times) < 0.02
