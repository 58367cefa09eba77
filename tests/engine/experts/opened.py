"""A store over a small model, and every way in which it may read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine.experts.layout import ExpertLayout, expert_layout
from engine.experts.store import DiskStore
from engine.hardware import disk
from engine.loading import Inspection, inspect
from engine.messages import ReadMode

WAYS = ("buffered", "direct", "landing", "dropping", "seeking")


class Opened:
    """A store and what it needs."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32, reads: ReadMode = "auto") -> None:
        self.found: Inspection = inspect(str(folder))
        self.layouts: list[ExpertLayout] = [expert_layout(m.parameters, dtype) for m in self.found.index.modules]
        self.store = DiskStore(self.found.index, self.layouts, self.found.model, reads)

    def read(self, layer: int, expert: int) -> dict[str, torch.Tensor]:
        blob = torch.full((self.layouts[layer].nbytes,), 0xAB, dtype=torch.uint8)
        self.store.read(layer, expert, blob)
        return self.layouts[layer].views(blob)

    def expected(self, model: PreTrainedModel, layer: int, expert: int) -> dict[str, torch.Tensor]:
        """The same expert in a model that transformers loaded whole."""
        module = model.get_submodule(self.found.index.modules[layer].path)
        return {name: getattr(module, name)[expert] for name in self.found.index.modules[layer].parameters}


def whole(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)


def forced(way: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ReadMode:
    """The mode that reads in this way from now on; what is not this system's own is forced."""
    (folder / "probe").write_bytes(bytes(disk.PAGE))
    if way == "direct" and disk.refuses_direct([folder / "probe"]):
        pytest.skip("this file system refuses direct reads")
    if way == "landing":
        monkeypatch.setattr(disk, "open_direct", lambda file: os.open(file, os.O_RDONLY))  # it minds no address
    if way == "dropping":
        monkeypatch.setattr(disk, "refuses_direct", lambda files: True)
    if way == "seeking":
        as_on_windows(monkeypatch)
    return "buffered" if way in ("buffered", "seeking") else "direct"


def as_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "preadv", raising=False)
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    monkeypatch.setattr(disk, "CAN_DROP", False)
    monkeypatch.setattr(disk, "_DIRECT_FLAG", 0)
