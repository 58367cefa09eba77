"""Qt's offscreen platform, and models that nobody has to download."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pytestqt.qtbot import QtBot

from app.theme import Theme
from engine.messages import ModelSummary
from tests.app.dialogs.stage import LONG, Stage

Summary = Callable[..., ModelSummary]


@pytest.fixture
def summary() -> Callable[..., ModelSummary]:
    def make(source: str = "demo", name: str = "Demo", problem: str = "", **changes: object) -> ModelSummary:
        known: dict[str, object] = {
            "family": "qwen2_moe",
            "layers": 30,
            "experts": 32,
            "top_k": 12,
            "dtype": "float32",
            "total_bytes": 690_000_000,
            "expert_bytes": 520_000_000,
            "license": "apache-2.0",
            "has_template": True,
        }
        known.update(changes)
        return ModelSummary(source, name, problem, **({} if problem else known))  # type: ignore[arg-type]

    return make


@pytest.fixture
def stage(qtbot: QtBot, theme: Theme) -> Stage:
    return Stage(qtbot, theme)


@pytest.fixture
def full(stage: Stage, summary: Summary) -> Stage:
    stage.answer(
        summary("/models/broken", "broken", "The download is incomplete: model-00002.safetensors is missing."),
        summary("Qwen/Qwen3-30B-A3B", "Qwen3-30B-A3B", layers=48, experts=128, top_k=8, expert_bytes=58 * 10**9),
        summary(LONG, "mixtral", has_template=False),
        summary(),
    )
    return stage
