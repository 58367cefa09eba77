"""The card device, over a stand-in whose copies come later and in order: nobody holds anybody up, no byte is lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from engine.errors import MemoryPlanError, OptionError
from engine.experts.arena import SEGMENTS, Arena
from engine.experts.device import LANDINGS, CpuDevice, CudaDevice, make_device
from engine.experts.layout import expert_layout
from engine.experts.transfer import READERS, Transfer
from tests.engine.experts.cards import PATIENCE, StandIn, stand_in
from tests.engine.experts.test_transfer import NumberStore

LAYOUT = expert_layout({"up_proj": (8, 8), "down_proj": (8, 8)}, torch.float32)


def sent(device: CudaDevice, arena: Arena, slot: int, value: int) -> object:
    landing = device.landing(arena, slot)
    landing.fill_(value)
    return device.deliver(landing, arena, slot)


def test_early_fetches_that_nobody_claims_hold_up_no_demand() -> None:
    device, _ = stand_in()
    arena, transfer = Arena(LAYOUT, 40, device), Transfer(NumberStore(), device)
    early = [transfer.ahead(arena, 1, expert, expert, 0.5) for expert in range(16)]
    for fetch in early:
        fetch.wait()  # read, and never asked for
    (wanted,) = transfer.demand(arena, 0, [7], [30])
    assert wanted._over.acquire(timeout=PATIENCE)
    wanted._over.release()
    wanted.result()
    assert (arena.blob(30) == 7).all()
    transfer.close()


def test_a_buffer_is_used_again_only_when_its_copy_is_over() -> None:
    device, card = stand_in()
    arena = Arena(LAYOUT, LANDINGS + 1, device)
    card.copies.hold()
    done = threading.Event()

    def send_all() -> None:
        for slot in range(LANDINGS + 1):
            sent(device, arena, slot, slot + 1)
        done.set()

    reader = threading.Thread(target=send_all)
    reader.start()
    assert not done.wait(0.1)  # the last one waits for a buffer
    card.copies.go_on()
    assert done.wait(PATIENCE)
    reader.join()
    device.synchronize()
    assert [int(arena.blob(slot)[0]) for slot in range(LANDINGS + 1)] == list(range(1, LANDINGS + 2))
    assert all((arena.blob(slot) == arena.blob(slot)[0]).all() for slot in range(LANDINGS + 1))


def test_each_reader_has_buffers_of_its_own() -> None:
    device, card = stand_in()
    arena = Arena(LAYOUT, 64, device)
    card.copies.hold()
    barrier = threading.Barrier(8)

    def send(first: int) -> set[int]:
        barrier.wait(PATIENCE)
        addresses = set()
        for slot in range(first, first + LANDINGS):
            landing = device.landing(arena, slot)
            addresses.add(landing.data_ptr())
            landing.fill_(slot)
            device.deliver(landing, arena, slot)
        return addresses

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(send, range(0, 8 * LANDINGS, LANDINGS)))
        card.copies.go_on()
        device.synchronize()
    assert len(set.union(*found)) == 8 * LANDINGS
    assert all((arena.blob(slot) == slot).all() for slot in range(8 * LANDINGS))


def test_no_slot_is_overwritten_while_a_kernel_is_to_read_it_and_none_is_read_before_it_is_there() -> None:
    device, card = stand_in(eager=False)
    arena = Arena(LAYOUT, 2, device)
    arena.blob(0).fill_(1)
    seen: list[torch.Tensor] = []
    card.compute.hold()
    card.compute.give(lambda: seen.append(arena.blob(0).clone()))
    device.reading_done(arena, np.array([0]))
    arrival = device.deliver(torch.full((LAYOUT.nbytes,), 2, dtype=torch.uint8), arena, 0)
    assert arrival is not None
    arrival.wait()
    card.compute.give(lambda: seen.append(arena.blob(0).clone()))
    assert (arena.blob(0) == 1).all()
    card.compute.go_on()
    device.synchronize()
    assert [(int(blob.min()), int(blob.max())) for blob in seen] == [(1, 1), (2, 2)]


def test_the_last_reader_of_a_slot_is_remembered_by_arena() -> None:
    device, card = stand_in(eager=False)
    one, other = Arena(LAYOUT, 1, device), Arena(LAYOUT, 1, device)
    card.compute.hold()
    device.reading_done(one, np.array([0]))
    arrival = device.deliver(torch.full((LAYOUT.nbytes,), 3, dtype=torch.uint8), other, 0)
    assert arrival is not None
    arrival.synchronize()  # nobody reads that one
    assert (other.blob(0) == 3).all()
    card.compute.go_on()


def test_the_link_is_busy_until_a_copy_is_over() -> None:
    device, card = stand_in()
    arena, transfer = Arena(LAYOUT, 2, device), Transfer(NumberStore(), device)
    card.copies.hold()
    (fetch,) = transfer.demand(arena, 0, [1], [0])
    fetch.wait()
    before = transfer.use()
    assert transfer.use().demand_seconds > before.demand_seconds
    card.copies.go_on()
    fetch.result()
    transfer.close()  # the readers went home: what they did is counted
    after = transfer.use()
    assert transfer.use() == after
    assert after.demand_bytes == LAYOUT.nbytes


@pytest.mark.parametrize("device", [CpuDevice(), stand_in()[0]], ids=["cpu", "card"])
def test_what_grows_inside_a_pass_can_be_written_outside_of_it(device: CpuDevice | CudaDevice) -> None:
    with torch.inference_mode():
        arena = Arena(LAYOUT, 2, device)
    (fetch,) = (transfer := Transfer(NumberStore(), device)).demand(arena, 0, [5], [1])
    fetch.result()
    assert (arena.blob(1) == 5).all()
    assert not any(view.is_inference() for view in arena.views[1].values())
    transfer.close()


def test_what_the_card_gives_is_taken_and_unused_memory_is_asked_for_first() -> None:
    device, card = stand_in(nbytes=10 * LAYOUT.nbytes)
    card.cached = 4 * LAYOUT.nbytes
    assert Arena(LAYOUT, 10, device).slots == 10
    card.allocated = 0
    assert Arena(LAYOUT, 2 * SEGMENTS, device).slots == 10
    card.allocated = 9 * LAYOUT.nbytes
    assert Arena(LAYOUT, 2 * SEGMENTS, device).slots == 1
    with pytest.raises(MemoryPlanError, match="VRAM ran out"):
        Arena(LAYOUT, 2, device)


def test_a_refused_pin_is_told_once_and_not_tried_again() -> None:
    device, card = stand_in(pins=False)
    device.prepare(LAYOUT.nbytes)
    arena = Arena(LAYOUT, 8, device)
    for slot in range(8):
        sent(device, arena, slot, slot)
    device.synchronize()
    assert all((arena.blob(slot) == slot).all() for slot in range(8))
    assert card.tries_to_pin == 1
    (note,) = device.notes
    assert "pins no more memory" in note


def test_closing_waits_for_the_card() -> None:
    device, card = stand_in()
    arena, transfer = Arena(LAYOUT, READERS, device), Transfer(NumberStore(), device)
    card.copies.hold()
    for fetch in transfer.demand(arena, 0, range(READERS), range(READERS)):
        fetch.wait()
    closing = threading.Thread(target=transfer.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    card.copies.go_on()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    assert card.copied == READERS


@pytest.mark.parametrize("name", ["cudax", "cuda:", "cuda:x", "cuda:-1", "tpu", ""])
def test_names_of_no_device_are_refused(name: str) -> None:
    with pytest.raises(OptionError, match="There is no device"):
        make_device(name)


def test_a_card_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for count, words in ((1, "there is one card"), (2, "there are 2 cards")):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        with pytest.raises(OptionError, match=words):
            make_device("cuda:9")


def test_a_card_is_known_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.experts import device as module

    made: list[torch.device] = []

    def note(device: torch.device) -> StandIn:
        made.append(device)
        return StandIn()

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    monkeypatch.setattr(module, "CudaCard", note)
    make_device("cuda")
    make_device("cuda:1")
    assert [device.index for device in made] == [2, 1]
