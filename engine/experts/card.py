"""What the engine asks of a graphics card's driver, and nothing else: memory, two streams, events.

Computing goes on the stream that torch computes on, copies on one of their own; each runs in order, and they wait for
each other by events alone. Whoever stands in for a card in a test answers to ``Card``. ROCm answers to the same names
as CUDA.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch

from engine.hardware.numa import cpus_near


class Event(Protocol):
    """A moment on one of the card's streams."""

    def synchronize(self) -> None:
        """The calling thread sleeps until the card is that far."""


class Pinner(Protocol):
    """Fixes memory in place, so that a card can read it by itself."""

    def pin(self, memory: torch.Tensor) -> bool:
        """False: the system does not allow more."""

    def unpin(self, memory: torch.Tensor) -> None: ...


class CudaPinner:
    """CUDA, or ROCm, which answers to the same names.

    A failed registration leaves an error behind that the next check on the same thread would take for its own: so pin
    on a thread that does nothing else with the card. Every call is made with the card as the current one: a thread
    begins with cuda:0, and the driver would take a few hundred MB there for a card that nobody uses.
    """

    PORTABLE = 1  # pinned for every card, not only the current one

    def __init__(self, device: torch.device) -> None:
        """device: the card, with its number."""
        self._device = device

    def pin(self, memory: torch.Tensor) -> bool:
        with torch.cuda.device(self._device):
            return int(torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), memory.nbytes, self.PORTABLE)) == 0

    def unpin(self, memory: torch.Tensor) -> None:
        with torch.cuda.device(self._device):
            torch.cuda.synchronize()  # a copy may still read it
            torch.cuda.cudart().cudaHostUnregister(memory.data_ptr())


class Card(Protocol):
    """One card. Called by the engine thread and by every reader. cpus: processors on its side of the machine; empty
    where that makes no difference."""

    torch_device: torch.device
    pinner: Pinner
    cpus: frozenset[int]

    def allocate(self, nbytes: int) -> torch.Tensor:
        """uint8 ``[nbytes]`` on the card, its old contents of no use to anybody. Raises torch.OutOfMemoryError."""

    def pin(self, nbytes: int) -> torch.Tensor:
        """uint8 ``[nbytes]`` of host memory that the card can read by itself. Raises RuntimeError when refused."""

    def memory(self) -> tuple[int, int]:
        """Bytes that this process may still take, and those it may have in all."""

    def release_unused(self) -> None:
        """Give memory that torch keeps for later back to the driver."""

    def copy(self, source: torch.Tensor, target: torch.Tensor, after: Event | None) -> Event:
        """Queue a copy from host to card behind the earlier ones and behind ``after``; the event: it is done."""

    def computed(self) -> Event:
        """Everything given to the compute stream so far is done."""

    def compute_after(self, event: Event) -> None:
        """What is given to the compute stream from here on begins after ``event``."""

    def synchronize(self) -> None:
        """The calling thread sleeps until the card has done all it was given."""


class CudaCard:
    """CUDA, or ROCm."""

    def __init__(self, device: torch.device) -> None:
        """device: with its number."""
        self.torch_device = device
        self.pinner: Pinner = CudaPinner(device)
        self.cpus = cpus_near_card(device)
        with torch.cuda.device(device):
            self._copies = torch.cuda.Stream(device)

    def allocate(self, nbytes: int) -> torch.Tensor:
        with torch.cuda.device(self.torch_device):
            memory = torch.empty(nbytes, dtype=torch.uint8, device=self.torch_device)
            # the block may come from work still queued on the compute stream: no copy may overtake that
            self._copies.wait_stream(torch.cuda.current_stream(self.torch_device))
        return memory

    def pin(self, nbytes: int) -> torch.Tensor:
        with torch.cuda.device(self.torch_device):
            return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)

    def memory(self) -> tuple[int, int]:
        free, total = torch.cuda.mem_get_info(self.torch_device)  # of the MIG instance, where the card is divided
        allowed = int(total * torch.cuda.get_per_process_memory_fraction(self.torch_device))
        return max(0, min(free, allowed - torch.cuda.memory_reserved(self.torch_device))), min(total, allowed)

    def release_unused(self) -> None:
        with torch.cuda.device(self.torch_device):
            torch.cuda.empty_cache()

    def copy(self, source: torch.Tensor, target: torch.Tensor, after: Event | None) -> Event:
        with torch.cuda.device(self.torch_device), torch.cuda.stream(self._copies):
            if after is not None:
                self._copies.wait_event(after)  # type: ignore[arg-type]
            target.copy_(source, non_blocking=True)
            copied = torch.cuda.Event(blocking=True)
            copied.record(self._copies)
        return copied

    def computed(self) -> Event:
        with torch.cuda.device(self.torch_device):
            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream(self.torch_device))
        return event

    def compute_after(self, event: Event) -> None:
        torch.cuda.current_stream(self.torch_device).wait_event(event)  # type: ignore[arg-type]

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)


def cpus_near_card(device: torch.device) -> frozenset[int]:
    """Processors on the card's side of the machine; empty where that makes no difference or nobody tells."""
    card: Any = torch.cuda.get_device_properties(device)
    try:
        return cpus_near(f"{card.pci_domain_id:04x}:{card.pci_bus_id:02x}:{card.pci_device_id:02x}.0")
    except AttributeError:  # an older torch
        return frozenset()
