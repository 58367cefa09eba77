"""The one small interface behind which CPU and CUDA differ: memory for slots, and how an expert gets into one.

An expert is read on the host into ``landing(slot)`` and then sent with ``deliver``. On a CPU the landing place is the
slot itself and there is nothing to send. On CUDA it is a pinned buffer, and the copy runs on a stream of its own:

* the compute stream waits for a copy's event only when it is about to use that expert (``Arrival.wait``);
* before a slot is refilled, the copy stream waits for the event recorded after the slot's last reader
  (``reading_done``): else weights would be overwritten while still in use.

ROCm answers to the same names.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Protocol

import numpy as np
import torch

from engine.errors import MemoryPlanError, OptionError
from engine.experts.layout import ALIGNMENT


class Arrival(Protocol):
    """An expert on its way."""

    def wait(self) -> None:
        """Make the compute that follows wait until the expert is in its slot."""


class Slots(Protocol):
    """An arena, as far as a device looks at it."""

    def blob(self, slot: int) -> torch.Tensor: ...


class Device(Protocol):
    torch_device: torch.device

    def allocate(self, nbytes: int) -> torch.Tensor:
        """uint8 ``[nbytes]`` on the device, aligned. Raises MemoryPlanError when there is not enough."""

    def landing(self, blob: torch.Tensor) -> torch.Tensor:
        """Host memory, uint8, as long as ``blob``, to read an expert into. May wait for one to become free."""

    def abandon(self, host: torch.Tensor) -> None:
        """Take back what ``landing`` gave; the read failed."""

    def deliver(self, host: torch.Tensor, blob: torch.Tensor) -> Arrival | None:
        """Send what ``landing`` gave. None: it is there already."""

    def reading_done(self, arena: Slots, slots: np.ndarray) -> None:
        """Everything queued so far is the last reader of these slots."""

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""


def make_devices(names: str) -> list[Device]:
    """Names with commas between; the first one holds the dense weights, all share the experts. Raises OptionError."""
    return [make_device(name.strip()) for name in names.split(",")]


def make_device(name: str) -> Device:
    """ "auto", "cpu", "cuda", "cuda:1". Raises OptionError when there is no such device here."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return CpuDevice()
    if name.startswith("cuda"):
        if not torch.cuda.is_available():
            raise OptionError("No usable graphics card was found, or this torch is a CPU build; choose device cpu.")
        return CudaDevice(torch.device(name))
    raise OptionError(f"There is no device {name!r}; choose auto, cpu, cuda or cuda:N.")


class CpuDevice:
    """The stage is RAM: experts are read straight into their slots."""

    torch_device = torch.device("cpu")

    def allocate(self, nbytes: int) -> torch.Tensor:
        try:
            raw = torch.empty(nbytes + ALIGNMENT, dtype=torch.uint8)
        except RuntimeError as error:
            raise MemoryPlanError(
                f"RAM ran out: {nbytes / 1e9:.1f} GB for expert slots could not be had. Give experts less memory."
            ) from error
        start = -raw.data_ptr() % ALIGNMENT
        return raw[start : start + nbytes]

    def landing(self, blob: torch.Tensor) -> torch.Tensor:
        return blob

    def abandon(self, host: torch.Tensor) -> None:
        return None

    def deliver(self, host: torch.Tensor, blob: torch.Tensor) -> None:
        return None

    def reading_done(self, arena: Slots, slots: np.ndarray) -> None:
        return None

    def synchronize(self) -> None:
        return None


class CudaDevice:
    """The stage is VRAM: experts land in a few pinned buffers and are copied on a stream of their own."""

    LANDINGS = 8  # buffers in flight; each as large as one expert

    def __init__(self, device: torch.device) -> None:
        self.torch_device = device
        self._copy_stream = torch.cuda.Stream(device)
        self._lock = threading.Lock()
        self._free: list[torch.Tensor] = []
        self._flying: deque[tuple[torch.cuda.Event, torch.Tensor]] = deque()  # copies given to the card, oldest first
        self._made = 0
        self._last_reader: dict[int, torch.cuda.Event] = {}  # by blob address

    def allocate(self, nbytes: int) -> torch.Tensor:
        try:
            return torch.empty(nbytes, dtype=torch.uint8, device=self.torch_device)
        except torch.OutOfMemoryError as error:
            free, total = torch.cuda.mem_get_info(self.torch_device)
            raise MemoryPlanError(
                f"VRAM ran out: expert slots need {nbytes / 1e9:.1f} GB and {free / 1e9:.1f} of {total / 1e9:.1f} GB "
                f"are free. Give experts {max(0.0, (nbytes - free) / 1e9):.1f} GB less."
            ) from error

    def landing(self, blob: torch.Tensor) -> torch.Tensor:
        buffer = self._buffer()
        return buffer if buffer is not None and buffer.nbytes >= blob.nbytes else _host_buffer(blob.nbytes)

    def abandon(self, host: torch.Tensor) -> None:
        with self._lock:
            self._free.append(host)

    def _buffer(self) -> torch.Tensor | None:
        """One whose copy is over: nobody has to ask for the expert first, who may be one that was fetched ahead and is
        never wanted. None: make another."""
        with self._lock:
            if self._free:
                return self._free.pop()
            if self._made < self.LANDINGS or not self._flying:
                self._made += 1
                return None
            copied, buffer = self._flying.popleft()
        copied.synchronize()
        return buffer

    def deliver(self, host: torch.Tensor, blob: torch.Tensor) -> Arrival:
        with torch.cuda.stream(self._copy_stream):
            reader = self._last_reader.pop(blob.data_ptr(), None)
            if reader is not None:
                self._copy_stream.wait_event(reader)
            blob.copy_(host[: blob.nbytes], non_blocking=True)
            copied = torch.cuda.Event()
            copied.record(self._copy_stream)
        with self._lock:
            self._flying.append((copied, host))
        return _CudaArrival(copied, self.torch_device)

    def reading_done(self, arena: Slots, slots: np.ndarray) -> None:
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.torch_device))
        for slot in slots.tolist():
            self._last_reader[arena.blob(slot).data_ptr()] = event

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)


class _CudaArrival:
    def __init__(self, copied: torch.cuda.Event, device: torch.device) -> None:
        self._copied = copied
        self._device = device

    def wait(self) -> None:
        torch.cuda.current_stream(self._device).wait_event(self._copied)


def _host_buffer(nbytes: int) -> torch.Tensor:
    """Pinned where the system gives it, pageable where it does not (Windows and WSL pin only about half of RAM)."""
    try:
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
    except RuntimeError:
        return torch.empty(nbytes, dtype=torch.uint8)
