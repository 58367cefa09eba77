"""No weight is overwritten while a kernel still reads it, none is read before it is there, and no byte gets lost."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from engine.experts.device import CudaDevice, Device, make_device
from engine.experts.host_tier import HostTier
from engine.experts.layout import expert_layout
from tests.gpu.check import Check

LONG = 200_000_000  # cycles a kernel holds the compute stream up: about a tenth of a second
ROUNDS = 20
WRITERS = 4
AHEAD = 64  # experts fetched ahead
PATIENCE = 15.0  # seconds for what takes a moment


class Slots:
    """An arena of plain blobs."""

    def __init__(self, device: Device, count: int, nbytes: int) -> None:
        self.memory = device.allocate(count * nbytes).view(count, nbytes)

    def blob(self, slot: int) -> torch.Tensor:
        return self.memory[slot]


def no_slot_is_overwritten_while_in_use(check: Check) -> dict[str, Any]:
    """A slow kernel stands before each read of a slot, and the refill is sent at once; the kernel must see the old
    bytes, and what is computed after the arrival the new ones. Then early fetches that nobody waits for, and many
    threads that refill many slots."""
    device = make_device(check.device)
    nbytes = (64 if check.small else 16_384) * 1024
    slots = Slots(device, 1, nbytes)
    slots.memory.fill_(255)
    stale = early = 0
    for value in range(1, ROUNDS + 1):
        before = int(slots.blob(0)[0])
        hold_up(device)
        reading = slots.blob(0).clone()
        device.reading_done(slots, np.array([0]))
        host = device.landing(slots, 0)
        host.fill_(value)
        arrival = device.deliver(host, slots, 0)
        if arrival is not None:
            arrival.wait()
        fresh = slots.blob(0).clone()
        device.synchronize()
        early += int((reading != before).sum())
        stale += int((fresh != value).sum())
    check.expect(early == 0, f"{early} bytes of a slot were overwritten while a kernel was to read them")
    check.expect(stale == 0, f"{stale} bytes of a slot were read before its expert had arrived")
    held_up = _nobody_waits(device)
    check.expect(not held_up, f"after {held_up} experts that nobody waited for yet, no other could be sent")
    wrong = 0 if held_up else _many_writers(device, nbytes // 16)  # they would stop for good
    check.expect(wrong == 0, f"{wrong} of the experts that several threads sent came out wrong")
    return {
        "overwritten_bytes": early,
        "stale_bytes": stale,
        "wrong_experts": wrong,
        "held_up_after": held_up,
        "rounds": ROUNDS,
    }


def _nobody_waits(device: Device) -> int:
    """How many experts could be sent before the device gave no more landing room; 0 when it never ended. Who is fetched
    ahead may be waited for late or never, and the next demand must find its way all the same."""
    slots = Slots(device, AHEAD, 4096)
    sent: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def send_all() -> None:
        try:
            for slot in range(AHEAD):
                sent.put(device.deliver(device.landing(slots, slot), slots, slot))
        except Exception as error:  # raised by whoever looks
            sent.put(error)

    sender = threading.Thread(target=send_all, daemon=True)
    sender.start()
    sender.join(PATIENCE)
    stuck_at = sent.qsize() if sender.is_alive() else 0
    for _ in range(AHEAD):  # let it go, so that the rest can be looked at
        arrival = sent.get(timeout=PATIENCE)
        if isinstance(arrival, Exception):
            raise arrival
        if arrival is not None:
            arrival.wait()
    return stuck_at


def _many_writers(device: Device, nbytes: int) -> int:
    """Experts that are not what was sent, of several threads, each with landing buffers of its own."""
    slots = Slots(device, 64, nbytes)
    slots.memory.zero_()
    sent = np.zeros(64, dtype=np.int64)
    wrong = 0
    with ThreadPoolExecutor(WRITERS) as pool:
        for wave in range(8):
            values = (np.arange(64) * 7 + wave * 31) % 251 + 1

            def send(slot: int, values: np.ndarray = values) -> Any:
                host = device.landing(slots, slot)
                host.fill_(int(values[slot]))
                return device.deliver(host, slots, slot)

            for arrival in pool.map(send, range(64)):
                if arrival is not None:
                    arrival.wait()
            sent[:] = values
            low, high = slots.memory.amin(dim=1).cpu().numpy(), slots.memory.amax(dim=1).cpu().numpy()
            wrong += int(((low != sent) | (high != sent)).sum())
            device.reading_done(slots, np.arange(64))
    return wrong


def hold_up(device: Device) -> None:
    """Keep the compute stream busy for a while."""
    if device.torch_device.type == "cuda":
        torch.cuda._sleep(LONG)


class _Numbers:
    """A store that makes its experts up."""

    def __init__(self) -> None:
        self.reads = 0
        self._counting = threading.Lock()

    def read(self, layer: int, expert: int, blob: torch.Tensor) -> int:
        with self._counting:
            self.reads += 1
        blob.fill_((layer * 37 + expert * 11) % 256)
        return blob.nbytes

    def describe(self) -> str:
        return "made up"

    def close(self) -> None: ...


def lends_pinned_memory_bit_for_bit(check: Check) -> dict[str, Any]:
    """The host tier really pins, and what the card copies straight out of it is what the store gave."""
    device = make_device(check.device)
    side = 64 if check.small else 1024
    layout = expert_layout({"gate_up_proj": (2 * side, side), "down_proj": (side, side)}, torch.bfloat16)
    on_card = device.torch_device.type == "cuda"
    told: list[str] = []
    store = _Numbers()
    pinner = device.pinner if isinstance(device, CudaDevice) else None
    tier = HostTier(store, [layout] * 2, 100 * layout.nbytes, pinner, cpus=device.cpus, tell=told.append)
    if tier._thread is not None:
        tier._thread.join()
    pinned = tier.pinned_bytes
    check.expect(not on_card or pinned == tier.nbytes, f"only {pinned} of {tier.nbytes} bytes were pinned: {told}")
    slot = device.allocate(layout.nbytes)
    wrong = 0
    for _ in range(2):
        for expert in range(50):
            for layer in range(2):
                lent = tier.lend(layer, expert)
                assert lent is not None
                check.expect(not on_card or lent.is_pinned(), f"torch does not see that expert {expert} is pinned")
                slot.copy_(lent, non_blocking=True)
                device.synchronize()
                tier.give_back(layer, expert)
                wrong += int((slot != (layer * 37 + expert * 11) % 256).sum())
    check.expect(wrong == 0, f"{wrong} bytes were not what the store gave")
    check.expect(store.reads == 100, f"the store was read {store.reads} times for 100 experts")
    tier.close()
    return {"pinned_bytes": pinned, "wrong_bytes": wrong, "store_reads": store.reads, "cpus_near": sorted(device.cpus)}
