"""Experts come off the disk as transformers itself would load them, whatever their layout, format and place."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from transformers.core_model_loading import Concatenate, WeightConverter

from engine.errors import MemoryPlanError, ModelError
from engine.experts import store
from engine.hardware import disk
from engine.messages import READ_MODES, ReadMode
from engine.models import index
from tests.engine.experts.opened import Opened, as_on_windows, whole
from tests.families import EXPERTS, make_tiny

# one tensor for each expert and projection; fused, transposed, with biases; fused under other names; interleaved,
# which only transformers' own operations undo
LAYOUTS = ["qwen2_moe", "gpt_oss", "granitemoe", "inkling2_text"]


@pytest.fixture
def opened(tmp_path: Path, reads: ReadMode) -> Iterator[Opened]:
    """A small qwen2_moe in one file."""
    result = Opened(make_tiny("qwen2_moe", tmp_path / "model"), reads=reads)
    yield result
    result.store.close()


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("family", LAYOUTS)
def test_every_expert_as_transformers_loads_it(family: str, shards: int, reads: ReadMode, tmp_path: Path) -> None:
    folder = make_tiny(family, tmp_path, shards=shards)
    opened, model = Opened(folder, reads=reads), whole(folder, torch.float32)
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
    family: str, stored: torch.dtype, wanted: torch.dtype, reads: ReadMode, tmp_path: Path
) -> None:
    folder = make_tiny(family, tmp_path, dtype=stored)
    opened, model = Opened(folder, wanted, reads), whole(folder, stored)
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
def test_many_threads_at_once(family: str, reads: ReadMode, tmp_path: Path) -> None:
    opened = Opened(make_tiny(family, tmp_path), reads=reads)
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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_reads_that_fail_again_and_again_pile_up_no_descriptors(opened: Opened) -> None:
    file = next(iter(opened.store._files))
    whole_size = file.stat().st_size
    opened.read(0, 0)
    os.truncate(file, whole_size // 2)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        with pytest.raises(ModelError, match="shorter"):
            for layer in range(opened.found.layers):
                for expert in range(EXPERTS):
                    opened.read(layer, expert)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1


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


def test_closing_gives_the_files_back(reads: ReadMode, tmp_path: Path) -> None:
    opened = Opened(make_tiny("qwen2_moe", tmp_path, shards=3), reads=reads)
    for expert in range(EXPERTS):
        opened.read(0, expert)

    def held() -> list[str]:
        return [file.path for file in psutil.Process().open_files() if file.path.startswith(str(tmp_path))]

    assert len(held()) == 3
    opened.store.close()
    assert held() == []


def test_nothing_is_mapped(opened: Opened, tmp_path: Path) -> None:
    """Page faults would wait where nobody counts them."""
    opened.read(0, 0)
    maps = psutil.Process().memory_maps()
    assert not any(str(tmp_path) in entry.path for entry in maps)


# ---------------------------------------------------------------------------------------------------- conversions


@pytest.fixture
def converting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    """A model whose gate and up projections, two pieces, only transformers' own operations put together."""
    monkeypatch.setattr(index, "is_plain", lambda converter: converter is None)
    result = Opened(make_tiny("qwen2_moe", tmp_path / "model"))
    (source,) = [source for source in result.found.index.sources[0][0] if len(source.pieces) > 1]
    assert source.converter is not None
    yield result
    result.store.close()


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (ValueError("no such piece"), ModelError, r"gate_up_proj could not be converted: no such piece \(ValueError\)"),
        (MemoryError(), MemoryPlanError, "RAM ran out while an expert was converted. Give experts less memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to"), MemoryPlanError, "RAM ran out"),
    ],
)
def test_a_conversion_that_breaks_between_two_pieces_leaves_nothing_for_the_next_expert(
    converting: Opened,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Exception,
    error: type[Exception],
    words: str,
) -> None:
    model = whole(tmp_path / "model", torch.float32)
    honest, calls = store._ready, [0]

    def breaks(tensor: torch.Tensor) -> object:
        calls[0] += 1
        if calls[0] == 2:
            raise fault
        return honest(tensor)

    monkeypatch.setattr(store, "_ready", breaks)
    with pytest.raises(error, match=words):
        converting.read(0, 3)
    for expert in (3, 5):
        got, expected = converting.read(0, expert), converting.expected(model, 0, expert)
        assert all(torch.equal(got[name], expected[name]) for name in got)


def test_an_operation_that_breaks_is_told_in_words_and_the_next_expert_comes(
    converting: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(self: Concatenate, *arguments: object, **options: object) -> dict[str, torch.Tensor]:
        raise IndexError("list index out of range")

    with monkeypatch.context() as patch:
        patch.setattr(Concatenate, "convert", breaks)
        with pytest.raises(ModelError, match=r"could not be converted: list index out of range \(IndexError\)\. Down"):
            converting.read(1, 3)
    model = whole(tmp_path / "model", torch.float32)
    got, expected = converting.read(1, 4), converting.expected(model, 1, 4)
    assert all(torch.equal(got[name], expected[name]) for name in got)


@pytest.mark.parametrize("second", ["model.layers.1.mlp.experts.down_proj", "model.layers.1.mlp.experts.surprise"])
def test_what_comes_out_wrong_is_refused_before_any_of_it_is_written(
    converting: Opened, monkeypatch: pytest.MonkeyPatch, second: str
) -> None:
    honest = WeightConverter.convert

    def one_too_many(self: WeightConverter, *arguments: Any, **options: Any) -> dict[str, Any]:
        made = honest(self, *arguments, **options)
        return made | {second: torch.zeros(3)} if any("gate_up_proj" in name for name in made) else {}

    monkeypatch.setattr(WeightConverter, "convert", one_too_many)
    layout = converting.layouts[1]
    blob = torch.full((layout.nbytes,), 0xAB, dtype=torch.uint8)
    with pytest.raises(ModelError, match=r"one expert came out as \[3\] where .* is wanted"):
        converting.store.read(1, 3, blob)
    (gate_up,) = [parameter for parameter in layout.parameters if parameter.name == "gate_up_proj"]
    assert (blob[gate_up.offset : gate_up.offset + gate_up.nbytes] == 0xAB).all()


def test_a_conversion_that_makes_something_else_is_refused_when_the_folder_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def another(self: Concatenate, given: dict[str, Any], **options: object) -> dict[str, torch.Tensor]:
        return {"mlp.experts.surprise": torch.empty(3, device="meta")}

    monkeypatch.setattr(index, "is_plain", lambda converter: converter is None)
    monkeypatch.setattr(Concatenate, "convert", another)
    with pytest.raises(ModelError, match=r"comes out as .*surprise, and the model wants gate_up_proj"):
        Opened(make_tiny("qwen2_moe", tmp_path / "model"))


# ------------------------------------------------------------------------------------------------- ways to read


def cached_pages(file: Path) -> set[int]:
    """Pages of the file that the system's file cache holds."""
    pages = -(-file.stat().st_size // disk.PAGE)
    resident = (ctypes.c_ubyte * pages)()
    with file.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        address = np.frombuffer(mapped, np.uint8).ctypes.data
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(mapped)), resident) == 0
    return {page for page in range(pages) if resident[page] & 1}


@pytest.fixture
def uncached(tmp_path: Path) -> Callable[[], Path]:
    """Empties the file cache of the model's file and returns it."""
    file = make_tiny("qwen2_moe", tmp_path / "model") / "model.safetensors"

    def empty() -> Path:
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
            disk.drop(handle.fileno(), 0, file.stat().st_size)
        return file

    if sys.platform != "linux":
        pytest.skip("this system does not show its file cache")
    if cached_pages(empty()):
        pytest.skip("this file system is itself in memory")
    return empty


@pytest.mark.parametrize("mode", READ_MODES)
@pytest.mark.parametrize("size", ["small", "large"])
def test_what_the_file_cache_holds_after_a_read(
    size: str, mode: ReadMode, uncached: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second copy only where the user asked for it or experts are small; and the store says which."""
    if size == "large":
        monkeypatch.setattr(store, "SMALL", 1)
    opened = Opened(uncached().parent, reads=mode)
    assert opened.store.rate > 0
    file = uncached()
    for expert in range(EXPERTS):
        opened.read(1, expert)
    held = cached_pages(file)
    assert bool(held) == opened.store.describe().startswith("buffered: ")
    assert bool(held) == (mode == "buffered" or (mode == "auto" and size == "small"))
    opened.store.close()


def test_dropping_leaves_no_copy_and_reads_nothing_ahead(
    uncached: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "refuses_direct", lambda files: True)
    opened = Opened(uncached().parent, reads="direct")
    file = uncached()
    for expert in range(EXPERTS):
        opened.read(1, expert)
    assert cached_pages(file) == set()
    assert "direct reads are not to be had here" in opened.store.describe()
    opened.store.close()


@pytest.mark.parametrize(("direct", "dropping"), [(2e9, 1e9), (1e9, 2e9)])
def test_auto_takes_what_measured_faster(
    direct: float, dropping: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SMALL", 1)
    monkeypatch.setattr(disk, "refuses_direct", lambda files: False)
    monkeypatch.setattr(disk, "measure", lambda *_, **__: {"direct": direct, "dropping": dropping})
    opened = Opened(make_tiny("qwen2_moe", tmp_path))
    assert opened.store.way == ("direct" if direct > dropping else "dropping")
    assert opened.store.rate == 2e9
    assert opened.store.describe().endswith("2.0 GB/s")
    opened.store.close()


def test_without_direct_reads_and_without_dropping_it_says_that_copies_may_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_on_windows(monkeypatch)
    opened = Opened(make_tiny("qwen2_moe", tmp_path), reads="direct")
    opened.read(0, 0)
    assert opened.store.describe().startswith(
        "buffered: the system's file cache may keep copies in free memory; direct"
    )
    opened.store.close()
