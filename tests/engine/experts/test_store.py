"""Experts come off the disk as transformers itself would load them, whatever their layout, format and place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine.errors import ModelError
from engine.experts.layout import ExpertLayout, expert_layout
from engine.experts.store import DiskStore
from engine.loading import Inspection, inspect
from tests.families import EXPERTS, make_tiny

# one tensor for each expert and projection; fused, transposed, with biases; fused under other names; interleaved,
# which only transformers' own operations undo
LAYOUTS = ["qwen2_moe", "gpt_oss", "granitemoe", "inkling2_text"]


class Opened:
    """A store and what it needs."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32) -> None:
        self.found: Inspection = inspect(str(folder))
        self.layouts: list[ExpertLayout] = [expert_layout(m.parameters, dtype) for m in self.found.index.modules]
        self.store = DiskStore(self.found.index, self.layouts, self.found.model)

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


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """A small qwen2_moe in one file."""
    result = Opened(make_tiny("qwen2_moe", tmp_path / "model"))
    yield result
    result.store.close()


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("family", LAYOUTS)
def test_every_expert_as_transformers_loads_it(family: str, shards: int, tmp_path: Path) -> None:
    folder = make_tiny(family, tmp_path, shards=shards)
    opened, model = Opened(folder), whole(folder, torch.float32)
    for layer in range(opened.found.layers):
        for expert in range(EXPERTS):
            expected = opened.expected(model, layer, expert)
            got = opened.read(layer, expert)
            assert got.keys() == expected.keys()
            assert all(torch.equal(got[name], expected[name]) for name in got)
    opened.store.close()


@pytest.mark.parametrize("family", LAYOUTS)
@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.bfloat16),
        (torch.bfloat16, torch.bfloat16),
    ],
)
def test_number_formats_convert_as_torch_converts_them(
    family: str, stored: torch.dtype, wanted: torch.dtype, tmp_path: Path
) -> None:
    folder = make_tiny(family, tmp_path, dtype=stored)
    opened, model = Opened(folder, wanted), whole(folder, stored)
    expected = opened.expected(model, 1, 5)
    assert {tensor.dtype for tensor in expected.values()} == {stored}
    got = opened.read(1, 5)
    assert all(torch.equal(got[name], expected[name].to(wanted)) for name in got)
    opened.store.close()


def test_it_says_how_many_bytes_it_fetched(tmp_path: Path) -> None:
    """Of the file, not of the slot: half as many where the checkpoint is bf16 and the slot float32."""
    for dtype in (torch.float32, torch.bfloat16):
        opened = Opened(make_tiny("qwen2_moe", tmp_path / str(dtype), dtype=dtype))
        blob = torch.empty(opened.layouts[0].nbytes, dtype=torch.uint8)
        assert opened.store.read(0, 0, blob) == 3 * 32 * 16 * dtype.itemsize
        opened.store.close()


@pytest.mark.parametrize("family", LAYOUTS)
def test_many_threads_at_once(family: str, tmp_path: Path) -> None:
    opened = Opened(make_tiny(family, tmp_path))
    keys = [(layer, expert) for layer in range(opened.found.layers) for expert in range(EXPERTS)] * 6
    alone = {key: opened.read(*key) for key in set(keys)}
    with ThreadPoolExecutor(8) as pool:
        for key, got in zip(keys, pool.map(lambda key: opened.read(*key), keys), strict=True):
            assert all(torch.equal(got[name], alone[key][name]) for name in got)
    opened.store.close()


def test_a_file_cut_short_while_in_use_and_repaired(opened: Opened, tmp_path: Path) -> None:
    file = tmp_path / "model" / "model.safetensors"
    good, before = file.read_bytes(), opened.read(2, 7)
    os.truncate(file, 3000)
    with pytest.raises(ModelError, match=r"model\.safetensors cannot be read any more: it became shorter"):
        opened.read(2, 7)
    file.write_bytes(good)
    after = opened.read(2, 7)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_file_replaced_by_a_whole_one(opened: Opened, tmp_path: Path) -> None:
    """As a second download does it: under a new inode, which the old handle does not see."""
    file = tmp_path / "model" / "model.safetensors"
    before = opened.read(2, 7)
    shutil.copy(file, tmp_path / "again")
    os.truncate(file, 3000)
    with pytest.raises(ModelError):
        opened.read(2, 7)
    (tmp_path / "again").replace(file)
    after = opened.read(2, 7)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_file_gone_before_its_first_read(opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "model" / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="No such file"):
        opened.read(0, 0)


def test_closing_gives_the_files_back(tmp_path: Path) -> None:
    opened = Opened(make_tiny("qwen2_moe", tmp_path, shards=3))
    for expert in range(EXPERTS):
        opened.read(0, expert)

    def held() -> list[str]:
        return [file.path for file in psutil.Process().open_files() if Path(file.path).parent == tmp_path]

    assert len(held()) == 3
    opened.store.close()
    assert held() == []


def test_nothing_is_mapped(opened: Opened, tmp_path: Path) -> None:
    """Page faults would wait where nobody counts them."""
    opened.read(0, 0)
    maps = psutil.Process().memory_maps()
    assert not any(str(tmp_path) in entry.path for entry in maps)
