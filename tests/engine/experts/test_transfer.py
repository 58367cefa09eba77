"""The I/O threads: every fetch ends as a result or an error, and host buffers come home either way."""

from __future__ import annotations

import threading

import pytest
import torch

from engine.errors import ModelError
from engine.experts.arena import Arena
from engine.experts.device import CpuDevice, make_device
from engine.experts.layout import ALIGNMENT, expert_layout
from engine.experts.transfer import READERS, Transfer

LAYOUT = expert_layout({"up_proj": (5, 3), "down_proj": (3, 5), "bias": (7,)}, torch.float32)


class NumberStore:
    """An expert's bytes are all ``16 * layer + expert``; layer 9 cannot be read. Counts who reads at once."""

    def __init__(self) -> None:
        self.together = threading.Barrier(READERS)
        self.wait_for_company = False
        self.closed = False

    def read(self, layer: int, expert: int, blob: torch.Tensor) -> int:
        if layer == 9:
            raise ModelError("Layer 9 cannot be read.")
        if self.wait_for_company:
            self.together.wait(10)
        blob.fill_(16 * layer + expert)
        return blob.nbytes

    def close(self) -> None:
        self.closed = True


class StagedDevice(CpuDevice):
    """Lands experts in buffers of its own, as a graphics card's driver wants it; there are only two."""

    def __init__(self) -> None:
        self.free = [torch.empty(LAYOUT.nbytes, dtype=torch.uint8) for _ in range(2)]

    def landing(self, blob: torch.Tensor) -> torch.Tensor:
        return self.free.pop()

    def abandon(self, host: torch.Tensor) -> None:
        self.free.append(host)

    def deliver(self, host: torch.Tensor, blob: torch.Tensor) -> None:
        blob.copy_(host)
        self.free.append(host)


def test_every_expert_lands_in_its_own_slot() -> None:
    device = make_device("cpu")
    arena, transfer = Arena(LAYOUT, 6, device), Transfer(NumberStore(), device)
    futures = [transfer.demand(arena, 1, expert, slot) for expert, slot in enumerate((3, 0, 5, 1, 4, 2))]
    assert [future.result() for future in futures] == [(LAYOUT.nbytes, None)] * 6
    assert arena.blobs[:, 0].tolist() == [17, 19, 21, 16, 20, 18]
    assert (arena.blobs == arena.blobs[:, :1]).all()
    transfer.close()


def test_reads_overlap() -> None:
    store, device = NumberStore(), make_device("cpu")
    store.wait_for_company = True
    arena, transfer = Arena(LAYOUT, READERS, device), Transfer(store, device)
    for future in [transfer.demand(arena, 0, slot, slot) for slot in range(READERS)]:
        assert future.result(20)[0] == LAYOUT.nbytes  # each waited for the others to be reading too
    transfer.close()


def test_a_read_that_fails_is_told_and_gives_its_buffer_back() -> None:
    device = StagedDevice()
    arena, transfer = Arena(LAYOUT, 2, device), Transfer(NumberStore(), device)
    for _ in range(5):
        with pytest.raises(ModelError, match="Layer 9"):
            transfer.demand(arena, 9, 0, 0).result(10)
    assert transfer.demand(arena, 2, 3, 1).result(10)[0] == LAYOUT.nbytes
    assert arena.blobs[1, 0] == 35
    transfer.close()
    assert len(device.free) == 2


def test_closing_ends_the_threads_and_the_store() -> None:
    before = set(threading.enumerate())
    store, device = NumberStore(), make_device("cpu")
    arena, transfer = Arena(LAYOUT, 2, device), Transfer(store, device)
    future = transfer.demand(arena, 0, 1, 0)
    transfer.close()
    assert store.closed
    assert future.done()
    assert set(threading.enumerate()) <= before


def test_parameters_are_aligned_views_into_the_slot() -> None:
    arena = Arena(LAYOUT, 3, make_device("cpu"))
    assert arena.nbytes == 3 * LAYOUT.nbytes
    for slot, views in enumerate(arena.views):
        assert {name: tuple(view.shape) for name, view in views.items()} == {
            "up_proj": (5, 3),
            "down_proj": (3, 5),
            "bias": (7,),
        }
        for view in views.values():
            assert view.data_ptr() % ALIGNMENT == 0
            assert view.untyped_storage().data_ptr() == arena.blobs.untyped_storage().data_ptr()
            view.fill_(slot + 1)
    for slot, views in enumerate(arena.views):  # no slot reaches into another
        assert all((view == slot + 1).all() for view in views.values())
