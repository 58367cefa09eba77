"""A graphics card's stand-in: two streams, each a thread that works off its queue in order, and memory of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import torch

from engine.experts.card import Event
from engine.experts.device import CudaDevice

PATIENCE = 20.0  # seconds for what takes a moment


class Moment:
    """An event."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def synchronize(self) -> None:
        assert self.over.wait(PATIENCE), "the card never got that far"


class PinAll:
    """Fixes nothing, and remembers what it was given."""

    def __init__(self) -> None:
        self.pinned: list[torch.Tensor] = []

    def pin(self, memory: torch.Tensor) -> bool:
        self.pinned.append(memory)
        return True

    def unpin(self, memory: torch.Tensor) -> None:
        self.pinned = [other for other in self.pinned if other is not memory]


class _Stream:
    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._gate = threading.Event()
        self._gate.set()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def give(self, work: Callable[[], None]) -> Moment:
        moment = Moment()

        def run() -> None:
            work()
            moment.over.set()

        self._work.put(run)
        return moment

    def hold(self) -> None:
        self._gate.clear()

    def go_on(self) -> None:
        self._gate.set()

    def _run(self) -> None:
        while True:
            work = self._work.get()
            assert self._gate.wait(PATIENCE)
            work()


class StandIn:
    """Memory for ``nbytes`` on the card; what is copied there arrives when the copy stream comes to it.

    eager: the model computes on the CPU at once, as torch does there, so the thread that asks the compute stream to
    wait is the one that waits. Else work is given to ``compute``, and everything waits as on a card.
    """

    torch_device = torch.device("cpu")
    cpus: frozenset[int] = frozenset()

    def __init__(self, nbytes: int = 1 << 40, eager: bool = True, pins: bool = True) -> None:
        self.copies, self.compute = _Stream("card-copies"), _Stream("card-compute")
        self.nbytes, self.eager, self.pins = nbytes, eager, pins
        self.cached = 0  # bytes that torch keeps for later
        self.allocated = 0
        self.copied = 0
        self.marks = 0  # moments of the compute stream that were asked for
        self.synchronized = 0
        self.tries_to_pin = 0
        self.pinner = PinAll()

    def allocate(self, nbytes: int) -> torch.Tensor:
        if self.allocated + self.cached + nbytes > self.nbytes:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        self.allocated += nbytes
        return torch.empty(nbytes, dtype=torch.uint8)

    def pin(self, nbytes: int) -> torch.Tensor:
        self.tries_to_pin += 1
        if not self.pins:
            raise RuntimeError("CUDA error: out of memory")
        return torch.empty(nbytes, dtype=torch.uint8)

    def memory(self) -> tuple[int, int]:
        return self.nbytes - self.allocated - self.cached, self.nbytes

    def release_unused(self) -> None:
        self.cached = 0

    def copy(self, source: torch.Tensor, target: torch.Tensor, after: Event | None) -> Moment:
        def work() -> None:
            if after is not None:
                after.synchronize()
            target.copy_(source)
            self.copied += 1

        return self.copies.give(work)

    def computed(self) -> Moment:
        self.marks += 1
        return self.compute.give(lambda: None)

    def compute_after(self, event: Event) -> None:
        if self.eager:
            event.synchronize()
        else:
            self.compute.give(event.synchronize)

    def synchronize(self) -> None:
        self.synchronized += 1
        self.copies.give(lambda: None).synchronize()
        self.compute.give(lambda: None).synchronize()


def stand_in(nbytes: int = 1 << 40, eager: bool = True, pins: bool = True) -> tuple[CudaDevice, StandIn]:
    """The engine's own card device over a stand-in."""
    card = StandIn(nbytes, eager, pins)
    return CudaDevice(card), card
