"""What loading promises beyond exactness (which the families' tests show)."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import torch

from engine import loading
from engine.errors import Cancelled, MemoryPlanError
from engine.experts.store import DiskStore
from engine.loading import load
from engine.messages import LoadModel
from tests.machine import free_ram


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_no_weight_stays_mapped_from_the_file(tiny_chat_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "only here"  # other tests map theirs
    shutil.copytree(tiny_chat_model, folder)
    loaded = load(LoadModel(str(folder), experts="25%"))
    try:
        mapped = [line for line in Path("/proc/self/maps").read_text("utf-8").splitlines() if str(folder) in line]
        assert mapped == []
    finally:
        loaded.close()


def test_slots_and_bytes_are_what_was_asked_for(tiny_chat_model: Path) -> None:
    loaded = load(LoadModel(str(tiny_chat_model), experts="50%"))
    try:
        assert loaded.info.slots == 12
        assert loaded.runtime.arena_bytes == 12 * loaded.info.slot_bytes
        dense = sum(p.nbytes for p in loaded.model.parameters())
        assert loaded.info.dense_bytes >= dense > 0
    finally:
        loaded.close()


def test_a_budget_beyond_the_memory_is_refused_in_words(tiny_chat_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free_ram(monkeypatch, 50_000_000)
    with pytest.raises(MemoryPlanError, match=r"Not enough RAM.*GB are missing"):
        load(LoadModel(str(tiny_chat_model), experts="100%"))


@pytest.mark.parametrize("step", ["attach", "load_tokenizer", "ModelLoaded"])
def test_a_fault_after_the_slots_are_made_closes_what_was_opened(
    tiny_chat_model: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    closed: list[DiskStore] = []
    honest = DiskStore.close
    monkeypatch.setattr(DiskStore, "close", lambda self: closed.append(self) or honest(self))

    def fails(*arguments: object, **named: object) -> None:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(loading, step, fails)
    with pytest.raises(RuntimeError, match="no such thing"):
        load(LoadModel(str(tiny_chat_model), experts="50%"))
    assert len(closed) == 1


def test_cancel_before_the_last_step_closes_what_was_opened(
    tiny_chat_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[DiskStore] = []
    honest = DiskStore.close
    monkeypatch.setattr(DiskStore, "close", lambda self: closed.append(self) or honest(self))
    said: list[str] = []
    with pytest.raises(Cancelled):
        load(
            LoadModel(str(tiny_chat_model), experts="25%"),
            lambda detail, fraction: said.append(detail),
            lambda: said[-1:] == ["making room for experts"],
        )
    assert len(closed) == 1


def test_cancel_ends_loading_at_the_next_step(tiny_chat_model: Path) -> None:
    steps: list[str] = []
    with pytest.raises(Cancelled):
        load(LoadModel(str(tiny_chat_model)), lambda detail, _: steps.append(detail), lambda: len(steps) >= 2)
    assert len(steps) == 2


def test_computing_precision_can_be_chosen(tiny_chat_model: Path) -> None:
    loaded = load(LoadModel(str(tiny_chat_model), dtype="bfloat16"))
    try:
        assert loaded.info.dtype == "bfloat16"
        assert next(loaded.model.parameters()).dtype == torch.bfloat16
    finally:
        loaded.close()
