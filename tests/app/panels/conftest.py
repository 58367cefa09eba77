"""A theme, and snapshots of a machine that never was."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from pytestqt.qtbot import QtBot

from app.panels.parts import Panel
from app.theme import Theme
from engine.messages import CacheCounters, CacheSnapshot, Cell, ExpertSnapshot, ModelLoaded


@pytest.fixture(autouse=True)
def words_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures change at once here; in the window they wait for an eye to read them."""
    monkeypatch.setattr(Panel, "pace", 0.0)


@pytest.fixture(params=["dark", "light"])
def theme(qtbot: QtBot, request: pytest.FixtureRequest) -> Theme:
    return Theme(request.param)


@pytest.fixture
def dark(qtbot: QtBot) -> Theme:
    return Theme("dark")


@pytest.fixture
def loaded() -> Callable[..., ModelLoaded]:
    def make(layers: int = 30, experts: int = 32, slots: int = 240) -> ModelLoaded:
        return ModelLoaded(
            source="demo",
            name="Demo",
            family="qwen2_moe",
            signature="abc",
            layers=layers,
            experts=experts,
            top_k=4,
            device="CPU",
            dtype="float32",
            policy="lru",
            slots=slots,
            total_experts=layers * experts,
            slot_bytes=550_000,
            dense_bytes=200_000_000,
            context=8192,
            has_template=True,
        )

    return make


@pytest.fixture
def routed() -> Callable[..., ExpertSnapshot]:
    """Experts in every state that an engine can report, at random places."""
    legal = np.array(
        [
            0,
            Cell.RESIDENT,
            Cell.RESIDENT | Cell.ROUTED | Cell.HIT,
            Cell.RESIDENT | Cell.ROUTED | Cell.MISS,
            Cell.ROUTED | Cell.MISS,
            Cell.PREDICTED,
            Cell.RESIDENT | Cell.PREDICTED,
            Cell.RESIDENT | Cell.ROUTED | Cell.HIT | Cell.PREDICTED,
            Cell.RESIDENT | Cell.ROUTED | Cell.MISS | Cell.PREDICTED,
            Cell.RESIDENT | Cell.ROUTED | Cell.HIT | Cell.PREFETCHED,
            Cell.RESIDENT | Cell.ROUTED | Cell.HIT | Cell.LATE | Cell.PREDICTED,
            Cell.WASTED,
        ],
        np.uint8,
    )

    def make(layers: int = 30, experts: int = 32, seed: int = 1) -> ExpertSnapshot:
        random = np.random.default_rng(seed)
        shape = (layers, experts)
        answer = random.poisson(random.exponential(3, shape)).astype(np.uint32)
        chat = answer + random.poisson(random.exponential(20, shape)).astype(np.uint32)
        total = chat + random.poisson(random.exponential(400, shape)).astype(np.uint32)
        return ExpertSnapshot(random.choice(legal, shape), answer, chat, total, "decode", 193)

    return make


@pytest.fixture
def cached() -> Callable[..., CacheSnapshot]:
    def make(hits: int = 1234, misses: int = 567, rate: float | None = 0.83) -> CacheSnapshot:
        counters = CacheCounters(
            prefill_hits=20_312,
            prefill_misses=4_121,
            decode_hits=hits,
            decode_misses=misses,
            evictions=4_000,
            fetched_bytes=10**9,
            stall_seconds=1.5,
            hook_calls=3000,
        )
        return CacheSnapshot(counters, rate, 61e6, 0.0007, 14.2, 240, 240)

    return make
