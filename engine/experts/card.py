"""What the engine asks of a graphics card's driver, and nothing else: memory, two streams, events.

Computing goes on the stream that torch computes on, copies on one of their own; each runs in order, and they wait for
each other by events alone. Whoever stands in for a card in a test answers to ``Card``. ROCm answers to the same names
as CUDA.
"""

from __future__ import annotations

from typing import Protocol

import torch


class Event(Protocol):
    """A moment on one of the card's streams."""

    def synchronize(self) -> None:
        """The calling thread sleeps until the card is that far."""


class Card(Protocol):
    """One card. Called by the engine thread and by every reader."""

    torch_device: torch.device

    def allocate(self, nbytes: int) -> torch.Tensor:
        """uint8 ``[nbytes]`` on the card, its old contents of no use to anybody. Raises torch.OutOfMemoryError."""

    def pin(self, nbytes: int) -> torch.Tensor:
        """uint8 ``[nbytes]`` of host memory that the card can read by itself. Raises RuntimeError when refused."""

    def memory(self) -> tuple[int, int]:
        """Bytes free and in all."""

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
        free, total = torch.cuda.mem_get_info(self.torch_device)
        return free, total

    def release_unused(self) -> None:
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
