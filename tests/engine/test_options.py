"""No option is accepted and ignored: each moves a counter, on a real model with the real engine thread. And with any of
them, in any combination, the answer is the same and its log replays exactly."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.experts.foresight import COMPLETE, LEISURE
from engine.experts.records import Deed
from engine.experts.store import DiskStore
from engine.experts.transfer import READERS
from engine.hardware.plan import MemoryPlan
from engine.loading import load
from engine.messages import (
    POLICIES,
    PREDICTORS,
    CacheSnapshot,
    ChatMessage,
    Finished,
    Generate,
    LoadModel,
    ModelLoaded,
    Sampling,
)
from engine.prediction.prompter import Prompter
from engine.replay.live import replay_live
from engine.replay.trace import read_trace
from engine.sessions.log import SessionLog
from engine.sessions.reader import recount
from tests.engine.listening import Engine
from tests.families import make_tiny

SAMPLING = Sampling(temperature=1.0, top_p=1.0, seed=5, max_tokens=40)
ASK = "Hello there, how are you today?"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    changes = {"num_hidden_layers": 5}
    return make_tiny("qwen2_moe", tmp_path_factory.mktemp("options") / "model", tokenizer=True, changes=changes)


@pytest.fixture(autouse=True)
def answers_do_not_end_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.generation.generate.end_tokens", lambda loaded: set())


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as engine:
        yield engine


@pytest.fixture
def slow_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads take up to 2 ms, so they overtake each other, arrive early, late and in vain."""
    honest, source, over = DiskStore.read, random.Random(7), threading.Event()

    def slowly(self: DiskStore, *place: Any) -> int:
        over.wait(source.random() * 0.002)
        return honest(self, *place)

    monkeypatch.setattr(DiskStore, "read", slowly)


@dataclass
class Told:
    """An answer, and the events and log that came with it."""

    finished: Finished
    loaded: ModelLoaded
    snapshots: list[CacheSnapshot]
    log: Path

    @property
    def cache(self) -> Any:
        return self.finished.cache

    @property
    def verdict(self) -> str:
        state = self.snapshots[-1].prefetch
        assert state is not None
        return state.verdict


class Teller:
    """Loads with the options given and asks the same question."""

    def __init__(self, engine: Engine, model: Path, folder: Path) -> None:
        self._engine, self._model, self._folder = engine, model, folder
        self._asked = 0

    def load(self, **options: Any) -> ModelLoaded:
        command = LoadModel(str(self._model), **({"experts": "40%", "device": "cpu"} | options))
        self._engine.send(command)
        return self._engine.wait_for(ModelLoaded)

    def ask(self, loaded: ModelLoaded, text: str = ASK, log: Path | None = None, **sampling: Any) -> Told:
        self._asked += 1
        name = f"answer-{self._asked}"
        if log is None:
            log = self._folder / f"{name}.jsonl"
            SessionLog.create_at(log, "greenroom test").close()
        seen = len(self._engine.seen)
        messages = (ChatMessage("user", text),)
        self._engine.send(Generate(name, messages, replace(SAMPLING, **sampling), str(log), name, "question"))
        finished = self._engine.wait_for(Finished)
        assert finished.reason == "length", finished.error
        snapshots = [event for event in self._engine.seen[seen:] if isinstance(event, CacheSnapshot)]
        return Told(finished, loaded, snapshots, log)

    def tell(self, **options: Any) -> Told:
        return self.ask(self.load(**options))


@pytest.fixture
def teller(engine: Engine, model: Path, tmp_path: Path) -> Teller:
    return Teller(engine, model, tmp_path)


@pytest.fixture(scope="module")
def plain(model: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The answer with every expert there and nothing foreseen."""
    with pytest.MonkeyPatch.context() as patch, Engine() as engine:
        patch.setenv("GREENROOM_DATA", str(tmp_path_factory.mktemp("data")))
        patch.setattr("engine.generation.generate.end_tokens", lambda loaded: set())
        teller = Teller(engine, model, tmp_path_factory.mktemp("plain"))
        return teller.tell(experts="100%", predictor="none", prefetch="off").finished.text


def replayed(log: Path) -> None:
    live = replay_live(read_trace([log]))
    assert live.exact, live.reason
    assert live.passes > 3


# -------------------------------------------------------------------------------------------- who is expected


@pytest.mark.usefixtures("slow_reads")
def test_every_predictor_fetches_ahead_the_answer_is_the_same_and_the_log_replays(teller: Teller, plain: str) -> None:
    spent: dict[str, tuple[int, ...]] = {}
    policies = list(POLICIES)
    for number, name in enumerate(PREDICTORS):
        policy = policies[number % len(policies)]
        loaded = teller.load(predictor=name, prefetch="on", policy=policy, experts="20%")
        assert (loaded.predictor, loaded.prefetch) == (name, "on")
        if name in ("gate-fitted", "call-sheet", "blend"):  # they have seen nothing before
            teller.ask(loaded, max_tokens=90)
        told = teller.ask(loaded)
        assert told.finished.text == plain, name
        cache = told.cache
        early = cache.prefetch_used, cache.prefetch_late, cache.prefetch_wasted
        if name == "none":
            assert cache.prefetch_bytes == sum(early) == 0
        else:
            assert cache.prefetch_bytes > 0, name
            assert sum(early) > 0, name
            assert cache.prefetch_bytes % loaded.slot_bytes == 0
            assert cache.prefetch_wasted_bytes == cache.prefetch_wasted * loaded.slot_bytes
        spent[name] = (cache.prefetch_bytes, *early)
        counted = recount(told.log)
        assert (counted.decode_hits, counted.decode_misses) == (cache.decode_hits, cache.decode_misses)
        assert counted.fetched_bytes == cache.fetched_bytes
        replayed(told.log)
    assert len(set(spent.values())) > len(spent) // 2  # they are not one and the same


@pytest.mark.usefixtures("slow_reads")
def test_prefetch_on_off_and_auto(teller: Teller, plain: str) -> None:
    off = teller.tell(predictor="previous-token", prefetch="off")
    on = teller.tell(predictor="previous-token", prefetch="on")
    loaded = teller.load(predictor="previous-token", prefetch="auto")
    auto = teller.ask(loaded)
    assert off.cache.prefetch_bytes == 0
    assert on.cache.prefetch_bytes > auto.cache.prefetch_bytes > 0  # half of its windows are without
    assert [told.verdict.split(",")[0].split(":")[0] for told in (off, on)] == [
        "Experts are not fetched ahead",
        "Experts are fetched ahead",
    ]
    assert auto.verdict.startswith("Fetching ahead is o")
    state = auto.snapshots[-1].prefetch
    assert state is not None
    assert state.cost_with is not None
    assert {told.finished.text for told in (off, on, auto)} == {plain}
    for told in (off, on, auto):
        replayed(told.log)


def test_where_everybody_is_in_a_slot_nobody_is_asked_whom_to_fetch(teller: Teller, plain: str) -> None:
    asked, heard = [], []
    with pytest.MonkeyPatch.context() as patch:
        ahead, router = Prompter.ahead, Prompter.router
        patch.setattr(Prompter, "ahead", lambda self, layer: asked.append(layer) or ahead(self, layer))
        patch.setattr(Prompter, "router", lambda self, *told: heard.append(told[0]) or router(self, *told))
        loaded = teller.load(predictor="gate-fitted", prefetch="on", experts="100%")
        teller.ask(loaded)  # until all have been called
        full = teller.ask(loaded, max_tokens=90)
        assert full.snapshots[-1].resident == loaded.total_experts, "this chat called everybody"
        asked.clear()
        heard.clear()
        again = teller.ask(loaded)
    assert asked == []
    decoded = again.finished.timings.answer_tokens
    assert 0 < heard.count(0) <= 1 + 2 * -(-decoded // LEISURE), "the prompt, and a token now and then"
    assert again.finished.text == plain
    assert again.verdict == COMPLETE
    assert again.cache.decode_misses == again.cache.prefetch_bytes == 0


# --------------------------------------------------------------------------------------------- who leaves, where


def test_every_policy_evicts_in_its_own_way(teller: Teller, plain: str) -> None:
    misses = {}
    for policy in POLICIES:
        told = teller.tell(policy=policy, predictor="none")
        assert told.finished.text == plain
        misses[policy] = (told.cache.decode_misses, told.cache.evictions)
        assert told.cache.evictions > 0
    assert len(set(misses.values())) > 2


def test_experts_and_context_are_taken(teller: Teller) -> None:
    small, large = (teller.tell(experts=amount, predictor="none") for amount in ("20%", "60%"))
    assert (small.loaded.slots, large.loaded.slots) == (8, 24)
    assert small.cache.decode_misses > large.cache.decode_misses
    assert teller.load(context=90).context == 90
    assert teller.load(context=120).context == 120


def test_threads_are_taken(model: Path) -> None:
    """torch keeps their number for each thread: the one that loads is the one that computes."""
    before = torch.get_num_threads()
    try:
        for threads in (2, 1):
            load(LoadModel(str(model), threads=threads)).close()
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


@pytest.mark.usefixtures("slow_reads")
@pytest.mark.parametrize("devices", ["cpu,cpu", "cpu,cpu,cpu"])
def test_several_devices_share_the_experts_and_change_no_bit(
    teller: Teller, plain: str, devices: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.experts import transfer

    made: list[transfer.Transfer] = []
    ours = transfer.Transfer.__init__

    def noted(self: transfer.Transfer, *place: Any, **named: Any) -> None:
        ours(self, *place, **named)
        made.append(self)

    monkeypatch.setattr(transfer.Transfer, "__init__", noted)
    loaded = teller.load(device=devices, predictor="previous-token", prefetch="on")
    told = teller.ask(loaded)
    assert told.finished.text == plain
    assert len(made) == devices.count(",") + 1
    assert all(one.use().demand_bytes > 0 and one.use().early_bytes > 0 for one in made)
    assert told.cache.fetched_bytes == sum(one.use().demand_bytes + one.use().early_bytes for one in made)
    assert told.cache.prefetch_bytes == sum(one.use().early_bytes for one in made)
    assert len({thread.name for one in made for thread in one._threads}) == READERS * len(made)
    assert loaded.slots == 16
    replayed(told.log)


# ----------------------------------------------------------------------------------------- a growing conversation


@pytest.mark.usefixtures("slow_reads")
def test_slots_go_as_the_conversation_grows_and_come_back(
    teller: Teller, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory for 20 experts and a few tokens: experts give back what a longer chat needs, and get it in the next."""
    import engine.hardware.plan
    import engine.loading

    honest = engine.loading.plan_memory
    plans: list[MemoryPlan] = []

    def tight(demand: Any, experts: str, context: int = 0) -> MemoryPlan:
        free = demand.dense_bytes + demand.workspace_bytes + 20 * demand.slot_bytes + 40 * demand.token_bytes
        plans.append(honest(replace(demand, free=free), experts, context))
        return plans[-1]

    whole = teller.ask(teller.load(experts="100%"), max_tokens=120).finished.text
    monkeypatch.setattr(engine.hardware.plan, "FIRST_CONTEXT", 32)
    monkeypatch.setattr(engine.loading, "plan_memory", tight)
    loaded = teller.load(experts="20 slots", context=200, predictor="previous-token", prefetch="on")
    assert loaded.slots == plans[-1].slots == 20
    long = teller.ask(loaded, max_tokens=120)
    assert long.finished.text == whole
    held = long.finished.timings.prompt_tokens + 119
    shown = [snapshot.slots for snapshot in long.snapshots]
    assert shown[-1] <= max(plans[-1].slots_at(held), 2)
    assert shown[-1] < 20
    assert shown == sorted(shown, reverse=True)
    again = teller.ask(loaded, "Another chat.", log=long.log, max_tokens=8)
    assert again.snapshots[-1].slots > shown[-1]
    assert again.snapshots[-1].slots == 20
    replayed(long.log)
    steps = read_trace([long.log]).steps
    sizes = [int(leaving) for step in steps for _, deed, _, leaving in step.ahead.tolist() if deed == Deed.RESIZE]
    assert sizes[-1] == 20
    assert sizes[:-1] == sorted(sizes[:-1], reverse=True)
    assert len(sizes) > 3
    assert np.all(np.array(sizes) >= 1)
