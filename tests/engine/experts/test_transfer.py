"""The I/O threads: demands first, and every fetch ends as a result, an error or taken back."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from engine.errors import ModelError
from engine.experts.arena import SEGMENTS, Arena
from engine.experts.device import make_device
from engine.experts.layout import ALIGNMENT, expert_layout
from engine.experts.transfer import READERS, SLOW, Transfer
from tests.engine.experts.cards import stand_in

LAYOUT = expert_layout({"up_proj": (5, 3), "down_proj": (3, 5), "bias": (7,)}, torch.float32)


class NumberStore:
    """An expert's bytes are all ``16 * layer + expert``; layer 9 cannot be read. Reads wait until ``gate`` is open."""

    quick = False

    def __init__(self) -> None:
        self.together = threading.Barrier(READERS)
        self.wait_for_company = False
        self.gate = threading.Event()
        self.gate.set()
        self.begun: list[int] = []
        self.reading = threading.Semaphore(0)
        self.closed = False

    def read(self, layer: int, expert: int, blob: torch.Tensor) -> int:
        self.begun.append(expert)
        self.reading.release()
        assert self.gate.wait(20)
        if layer == 9:
            raise ModelError("Layer 9 cannot be read.")
        if self.wait_for_company:
            self.together.wait(10)
        blob.fill_(16 * layer + expert)
        return blob.nbytes

    def describe(self) -> str:
        return "made up"

    def close(self) -> None:
        self.closed = True


def test_every_expert_lands_in_its_own_slot() -> None:
    device = make_device("cpu")
    arena, transfer = Arena(LAYOUT, 6, device), Transfer(NumberStore(), device)
    fetches = transfer.demand(arena, 1, (3, 0, 5, 1, 4, 2), range(6))
    assert [fetch.result() for fetch in fetches] == [LAYOUT.nbytes] * 6
    blobs = [arena.blob(slot) for slot in range(6)]
    assert [int(blob[0]) for blob in blobs] == [19, 16, 21, 17, 20, 18]
    assert all((blob == blob[0]).all() for blob in blobs)
    transfer.close()


def test_reads_overlap() -> None:
    store, device = NumberStore(), make_device("cpu")
    store.wait_for_company = True
    arena, transfer = Arena(LAYOUT, READERS, device), Transfer(store, device)
    for fetch in transfer.demand(arena, 0, range(READERS), range(READERS)):
        assert fetch.result() == LAYOUT.nbytes  # each waited for the others to be reading too
    transfer.close()


def test_demands_come_before_what_is_fetched_ahead_and_that_most_wanted_first() -> None:
    store, device = NumberStore(), make_device("cpu")
    store.gate.clear()
    arena, transfer = Arena(LAYOUT, 9, device), Transfer(store, device)
    first = transfer.demand(arena, 0, range(READERS), range(READERS))  # every reader is busy from here on
    for _ in first:
        assert store.reading.acquire(timeout=10)
    early = [transfer.ahead(arena, 1, expert, 2 + n, worth) for n, (expert, worth) in enumerate([(5, 0.2), (6, 0.9)])]
    wanted = transfer.demand(arena, 0, (7, 8), (6, 7))
    store.gate.set()
    for fetch in (*first, *wanted, *early):
        assert fetch.result() == LAYOUT.nbytes
    assert set(store.begun[READERS : READERS + 2]) == {7, 8}
    assert store.begun[READERS + 2 :] == [6, 5]
    use = transfer.use()
    assert (use.demand_bytes, use.early_bytes) == ((READERS + 2) * LAYOUT.nbytes, 2 * LAYOUT.nbytes)
    assert 0 < use.demand_seconds <= use.busy_seconds
    transfer.close()


class QuickStore(NumberStore):
    """Small experts that the file cache holds, or (``slow``) does not. Remembers who read."""

    quick = True
    slow = False

    def __init__(self) -> None:
        super().__init__()
        self.readers: list[threading.Thread] = []

    def read(self, layer: int, expert: int, blob: torch.Tensor) -> int:
        self.readers.append(threading.current_thread())
        if self.slow:
            time.sleep(2 * SLOW)
        return super().read(layer, expert, blob)


def test_small_experts_are_read_by_whoever_wants_them_while_that_is_quick() -> None:
    store, device, here = QuickStore(), make_device("cpu"), threading.current_thread()
    arena, transfer = Arena(LAYOUT, 8, device), Transfer(store, device)
    for fetch in transfer.demand(arena, 1, range(4), range(4)):
        assert fetch.arrived  # nothing to wait for
    assert store.readers == [here] * 4
    (failed,) = transfer.demand(arena, 9, [0], [0])
    with pytest.raises(ModelError, match="Layer 9"):
        failed.result()
    store.slow = True
    for _ in range(40):
        for fetch in transfer.demand(arena, 1, [5], [5]):
            fetch.result()
    assert store.readers[-1] is not here  # the readers took over
    store.slow = False
    while store.readers[-1] is not here:  # and it is tried again
        for fetch in transfer.demand(arena, 1, range(8), range(8)):
            fetch.result()
    assert transfer.use().demand_bytes == LAYOUT.nbytes * (len(store.readers) - 1)
    transfer.close()


def test_neither_a_wait_now_and_then_nor_slow_memory_wakes_the_readers() -> None:
    """The window holds Python's lock for some milliseconds at a time; that says nothing about the disk."""

    class Hindered(QuickStore):
        def read(self, layer: int, expert: int, blob: torch.Tensor) -> int:
            if len(self.readers) % 8 == 7:
                time.sleep(0.02)
            until = time.thread_time() + 2 * SLOW
            while time.thread_time() < until:
                pass
            return super().read(layer, expert, blob)

    store, device = Hindered(), make_device("cpu")
    arena, transfer = Arena(LAYOUT, 8, device), Transfer(store, device)
    for _ in range(200):
        for fetch in transfer.demand(arena, 1, [5], [5]):
            fetch.result()
    assert set(store.readers) == {threading.current_thread()}
    transfer.close()


def test_a_reader_is_always_left_for_demands() -> None:
    store, device = NumberStore(), make_device("cpu")
    store.gate.clear()
    arena, transfer = Arena(LAYOUT, 9, device), Transfer(store, device)
    early = [transfer.ahead(arena, 1, expert, expert, 0.5) for expert in range(4)]
    for _ in range(READERS - 1):
        assert store.reading.acquire(timeout=10)
    (wanted,) = transfer.demand(arena, 0, [7], [8])
    assert store.reading.acquire(timeout=10)
    assert store.begun[-1] == 7  # though no early read is over
    store.gate.set()
    assert [fetch.result() for fetch in (*early, wanted)] == [LAYOUT.nbytes] * 5
    transfer.close()


def test_an_early_fetch_that_is_wanted_now_overtakes_the_others_and_one_that_waits_can_be_taken_back() -> None:
    store, device = NumberStore(), make_device("cpu")
    store.gate.clear()
    arena, transfer = Arena(LAYOUT, 9, device), Transfer(store, device)
    running = transfer.demand(arena, 0, range(READERS), range(READERS))
    for _ in running:
        assert store.reading.acquire(timeout=10)
    likely, unlikely, unwanted = (transfer.ahead(arena, 1, e, e, w) for e, w in ((4, 0.9), (5, 0.1), (6, 0.5)))
    transfer.hurry(unlikely)
    assert transfer.cancel(unwanted)
    assert not transfer.cancel(running[0])
    store.gate.set()
    for fetch in (*running, unlikely, likely):
        assert fetch.result() == LAYOUT.nbytes
    assert store.begun[READERS:] == [5, 4]
    assert unwanted.over
    assert not unwanted.arrived
    with pytest.raises(RuntimeError, match="taken back"):
        unwanted.result()
    transfer.close()


def test_a_read_that_fails_is_told_and_holds_up_no_other() -> None:
    device, _ = stand_in()
    arena, transfer = Arena(LAYOUT, 2, device), Transfer(NumberStore(), device)
    for _ in range(5):
        (fetch,) = transfer.demand(arena, 9, [0], [0])
        with pytest.raises(ModelError, match="Layer 9"):
            fetch.result()
        assert not fetch.arrived
    assert transfer.demand(arena, 2, [3], [1])[0].result() == LAYOUT.nbytes
    assert arena.blob(1)[0] == 35
    transfer.close()


def test_closing_ends_the_threads_and_the_store() -> None:
    before = set(threading.enumerate())
    store, device = NumberStore(), make_device("cpu")
    arena, transfer = Arena(LAYOUT, 2, device), Transfer(store, device)
    (fetch,) = transfer.demand(arena, 0, [1], [0])
    transfer.close()
    assert store.closed
    assert fetch.over
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
            assert view.untyped_storage().data_ptr() == arena.blob(slot).untyped_storage().data_ptr()
            view.fill_(slot + 1)
    for slot, views in enumerate(arena.views):  # no slot reaches into another
        assert all((view == slot + 1).all() for view in views.values())


def test_memory_goes_back_in_pieces_and_what_stays_stays_where_it_is() -> None:
    arena = Arena(LAYOUT, 5 * SEGMENTS, make_device("cpu"))
    whole, address = arena.nbytes, arena.blob(3).data_ptr()
    arena.blob(3).fill_(7)
    assert arena.piece == 5
    assert arena.fitting(13) == 10
    arena.resize(10)
    assert (arena.slots, arena.nbytes, len(arena.views)) == (10, 10 * LAYOUT.nbytes, 10)
    arena.resize(5 * SEGMENTS)
    assert arena.nbytes == whole
    assert arena.blob(3).data_ptr() == address
    assert (arena.blob(3) == 7).all()
