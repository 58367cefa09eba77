"""An expert is read in as few reads and copies as its place in the files allows."""

from __future__ import annotations

import errno
import json
import os
import struct
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.errors import ModelError
from engine.experts import read_plan
from engine.hardware import disk
from engine.messages import ReadMode
from tests.engine.experts.opened import Opened, whole
from tests.families import EXPERTS, make_tiny


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offset of every positional read from now on."""
    seen: list[int] = []
    real = os.preadv

    def preadv(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        seen.append(offset)
        return real(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    return seen


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_an_expert_in_one_place_is_one_read(
    stored: torch.dtype, reads: ReadMode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three tensors side by side, whether they can be read straight into the slot or not."""
    if not hasattr(os, "preadv"):
        pytest.skip("without positional reads each place is a read of its own")
    opened = Opened(make_tiny("qwen2_moe", tmp_path, dtype=stored), reads=reads)
    calls = counted(monkeypatch)
    opened.read(1, 3)
    assert len(calls) == 1
    opened.store.close()


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="this system has no positional reads")
def test_where_direct_reads_may_land_anywhere_only_the_edges_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Experts of several blocks, their tensors in other places of the slot than of the file."""
    monkeypatch.setattr(disk, "open_direct", lambda file: os.open(file, os.O_RDONLY))
    folder = make_tiny("qwen2_moe", tmp_path, changes={"hidden_size": 192, "moe_intermediate_size": 44})
    opened, model = Opened(folder, reads="direct"), whole(folder, torch.float32)
    assert opened.store.describe().startswith("direct, past the file cache and straight into place")
    landed: list[int] = []
    real = os.preadv

    def preadv(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        landed.extend(len(buffer) for buffer in buffers if len(buffer) > disk.PAGE)
        return real(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    for expert in range(EXPERTS):
        got, expected = opened.read(1, expert), opened.expected(model, 1, expert)
        assert all(torch.equal(got[name], expected[name]) for name in got)
    assert sum(landed) > EXPERTS * (opened.layouts[1].nbytes - 4 * disk.PAGE)
    opened.store.close()


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="this system has no positional reads")
def test_where_direct_reads_want_aligned_memory_they_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.preadv

    def preadv(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        if any(np.frombuffer(buffer, np.uint8).ctypes.data % 512 for buffer in buffers):
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(descriptor, buffers, offset)

    monkeypatch.setattr(disk, "open_direct", lambda file: os.open(file, os.O_RDONLY))
    monkeypatch.setattr(os, "preadv", preadv)
    folder = make_tiny("qwen2_moe", tmp_path)
    opened, model = Opened(folder, reads="direct"), whole(folder, torch.float32)
    got, expected = opened.read(1, 3), opened.expected(model, 1, 3)
    assert all(torch.equal(got[name], expected[name]) for name in got)
    assert opened.store.way == "direct"
    assert "straight" not in opened.store.describe()
    opened.store.close()


@pytest.mark.parametrize("block", [64, 1000, 5000])
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_experts_larger_than_a_block_are_read_in_several(
    block: int, stored: torch.dtype, reads: ReadMode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_plan, "BLOCK", block)
    folder = make_tiny("qwen2_moe", tmp_path, dtype=stored)
    opened, model = Opened(folder, reads=reads), whole(folder, stored)
    for expert in range(EXPERTS):
        got, expected = opened.read(0, expert), opened.expected(model, 0, expert)
        assert all(torch.equal(got[name], expected[name].float()) for name in got)
    opened.store.close()


@pytest.mark.parametrize("left", [3000, 50_000, 80_000])
def test_a_fault_in_the_middle_of_an_expert_leaves_nothing_behind(
    left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks that were being read ahead do not end up in the next expert."""
    monkeypatch.setattr(read_plan, "BLOCK", 1000)
    folder = make_tiny("qwen2_moe", tmp_path, dtype=torch.bfloat16)
    file = folder / "model.safetensors"
    opened, model, good = Opened(folder), whole(folder, torch.bfloat16), file.read_bytes()
    for _ in range(20):
        os.truncate(file, left)
        with pytest.raises(ModelError, match="became shorter"):
            for layer, expert in product(range(opened.found.layers), range(EXPERTS)):
                opened.read(layer, expert)
        file.write_bytes(good)
        got, expected = opened.read(0, 1), opened.expected(model, 0, 1)
        assert all(torch.equal(got[name], expected[name].float()) for name in got)
    opened.store.close()


@pytest.mark.parametrize("wanted", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("odd", [1, 2, 3])
def test_tensors_at_odd_places_of_the_file(odd: int, wanted: torch.dtype, reads: ReadMode, tmp_path: Path) -> None:
    """Older checkpoints do not pad their headers."""
    folder = make_tiny("qwen2_moe", tmp_path, dtype=torch.bfloat16)
    model = whole(folder, torch.bfloat16)
    lengthen_header(folder / "model.safetensors", odd)
    opened = Opened(folder, wanted, reads)
    for expert in range(EXPERTS):
        got, expected = opened.read(2, expert), opened.expected(model, 2, expert)
        assert all(torch.equal(got[name], expected[name].to(wanted)) for name in got)
    opened.store.close()


def lengthen_header(file: Path, more: int) -> None:
    raw = file.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.dumps(json.loads(raw[8 : 8 + length])).encode()
    header += b" " * (-len(header) % 8 + more)
    file.write_bytes(struct.pack("<Q", len(header)) + header + raw[8 + length :])
