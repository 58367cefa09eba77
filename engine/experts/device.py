"""The one small interface behind which CPU and card differ: memory for slots, and how an expert gets into one.

An expert is read on the host into ``landing(arena, slot)`` and then sent with ``deliver``. On a CPU the landing place
is the slot itself and there is nothing to send. On a card it is a pinned buffer (or, past ``landing``, the pinned
memory where the expert waits), and the copy runs on a stream of its own:

* the compute stream waits for a copy's event only when it is about to use that expert (``Arrival.wait``);
* before a slot is refilled, the copy stream waits for the event recorded after the slot's last reader
  (``reading_done``): else weights would be overwritten while still in use;
* before a landing buffer is used again, its reader thread waits for the copy out of it. Each reader has buffers of its
  own, so that no expert that nobody asks for holds up another's.
"""

from __future__ import annotations

import threading
from typing import Protocol

import numpy as np
import torch

from engine.errors import MemoryPlanError, OptionError
from engine.experts.card import Card, CudaCard, Event
from engine.experts.memory import host_memory
from engine.hardware.limits import ram

LANDINGS = 2  # buffers of each reader: one is read into while the other is copied from


class Arrival(Protocol):
    """An expert on its way."""

    def wait(self) -> None:
        """Make the compute that follows wait until the expert is in its slot; the caller goes on at once."""

    def synchronize(self) -> None:
        """The caller waits until it is there, and what it was copied from is free again."""


class Slots(Protocol):
    """An arena, as far as a device looks at it."""

    def blob(self, slot: int) -> torch.Tensor: ...


class Device(Protocol):
    """torch_device: where the slots are. on_card: it has memory of its own. cpus: processors near it, empty where that
    makes no difference. notes: what the user should know of it."""

    torch_device: torch.device
    on_card: bool
    cpus: frozenset[int]
    notes: list[str]

    def free(self) -> int:
        """Bytes of the device's memory that could be used now."""

    def allocate(self, nbytes: int) -> torch.Tensor:
        """uint8 ``[nbytes]`` on the device, aligned. Raises MemoryPlanError when there is not enough."""

    def prepare(self, nbytes: int) -> None:
        """Experts of at most ``nbytes`` will land: find out how, before the first one."""

    def landing(self, arena: Slots, slot: int) -> torch.Tensor:
        """Host memory, uint8, as long as the slot's blob, to read an expert into; the calling thread's own until it
        has asked LANDINGS times more."""

    def deliver(self, source: torch.Tensor, arena: Slots, slot: int) -> Arrival | None:
        """Send what ``landing`` gave this thread, or memory that stays as it is until then. None: it is there."""

    def reading_done(self, arena: Slots, slots: np.ndarray) -> None:
        """Everything queued so far is the last reader of these slots."""

    def release_unused(self) -> None:
        """Give what arenas gave back on to the system."""

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
    kind, _, number = name.partition(":")
    if kind != "cuda" or not (number.isdecimal() or name == "cuda"):
        raise OptionError(f"There is no device {name!r}; choose auto, cpu, cuda or cuda:N.")
    if not torch.cuda.is_available():
        raise OptionError("No usable graphics card was found, or this torch is a CPU build; choose device cpu.")
    index, count = int(number) if number else torch.cuda.current_device(), torch.cuda.device_count()
    if index >= count:
        there = "is one card, cuda:0" if count == 1 else f"are {count} cards, cuda:0 to cuda:{count - 1}"
        raise OptionError(f"There is no card {name}: there {there}.")
    return CudaDevice(CudaCard(torch.device("cuda", index)))


def release_unused() -> None:
    """Give memory that torch keeps for later on any card back to its driver."""
    torch.cuda.empty_cache()  # does nothing where no card was opened


class CpuDevice:
    """The stage is RAM: experts are read straight into their slots."""

    torch_device = torch.device("cpu")
    on_card = False
    cpus: frozenset[int] = frozenset()

    def __init__(self) -> None:
        self.notes: list[str] = []

    def free(self) -> int:
        return ram().available

    def allocate(self, nbytes: int) -> torch.Tensor:
        try:
            with torch.inference_mode(False):  # arenas grow inside a pass, and readers write outside of it
                return host_memory(nbytes)
        except OSError as error:
            raise MemoryPlanError(
                f"RAM ran out: {nbytes / 1e9:.1f} GB for expert slots could not be had. Give experts less memory."
            ) from error

    def prepare(self, nbytes: int) -> None:
        return None

    def landing(self, arena: Slots, slot: int) -> torch.Tensor:
        return arena.blob(slot)

    def deliver(self, source: torch.Tensor, arena: Slots, slot: int) -> Arrival | None:
        return None

    def reading_done(self, arena: Slots, slots: np.ndarray) -> None:
        return None

    def release_unused(self) -> None:
        return None

    def synchronize(self) -> None:
        return None


class _Ring(threading.local):
    """One reader's landing buffers, taken in turn, and the copies out of them."""

    def __init__(self) -> None:
        self.turn = 0
        self.buffers: list[torch.Tensor | None] = [None] * LANDINGS
        self.copied: list[Event | None] = [None] * LANDINGS


class CudaDevice:
    """The stage is VRAM: experts land in a few pinned buffers and are copied on a stream of their own."""

    on_card = True

    def __init__(self, card: Card) -> None:
        self.torch_device = card.torch_device
        self.cpus = card.cpus
        self.pinner = card.pinner
        self.notes: list[str] = []
        self._card = card
        self._ring = _Ring()
        self._pins = True  # until the system refuses once
        self._last_reader: dict[tuple[int, int], Event] = {}  # by arena's id and slot

    def free(self) -> int:
        return self._card.memory()[0]

    def allocate(self, nbytes: int) -> torch.Tensor:
        with torch.inference_mode(False):  # arenas grow inside a pass, and readers write outside of it
            try:
                return self._card.allocate(nbytes)
            except torch.OutOfMemoryError:
                self._card.release_unused()
            try:
                return self._card.allocate(nbytes)
            except torch.OutOfMemoryError as error:
                free, total = self._card.memory()
                raise MemoryPlanError(
                    f"VRAM ran out: {nbytes / 1e9:.1f} GB for expert slots could not be had, {free / 1e9:.1f} of "
                    f"{total / 1e9:.1f} GB are free. Give experts less memory."
                ) from error

    def prepare(self, nbytes: int) -> None:
        self._host_buffer(nbytes)  # torch keeps it for the first reader

    def landing(self, arena: Slots, slot: int) -> torch.Tensor:
        nbytes, ring = arena.blob(slot).nbytes, self._ring
        turn = ring.turn = (ring.turn + 1) % LANDINGS
        copied = ring.copied[turn]
        if copied is not None:
            copied.synchronize()
            ring.copied[turn] = None
        buffer = ring.buffers[turn]
        if buffer is None or buffer.nbytes < nbytes:
            buffer = ring.buffers[turn] = self._host_buffer(nbytes)
        return buffer[:nbytes]

    def deliver(self, source: torch.Tensor, arena: Slots, slot: int) -> Arrival | None:
        reader = self._last_reader.pop((id(arena), slot), None)
        copied = self._card.copy(source, arena.blob(slot), reader)
        self._ring.copied[self._ring.turn] = copied  # of the buffer, or of a later copy, which is as good
        return _CardArrival(self._card, copied)

    def reading_done(self, arena: Slots, slots: np.ndarray) -> None:
        event, key = self._card.computed(), id(arena)
        for slot in slots.tolist():
            self._last_reader[key, slot] = event

    def release_unused(self) -> None:
        self._card.release_unused()

    def synchronize(self) -> None:
        self._card.synchronize()

    def _host_buffer(self, nbytes: int) -> torch.Tensor:
        """Pinned where the system gives it, pageable where it does not (Windows and WSL pin only about half of RAM)."""
        if self._pins:
            try:
                return self._card.pin(nbytes)
            except RuntimeError:
                self._pins = False  # who was refused once is refused again, and each try takes time
                self.notes.append(
                    "The system pins no more memory for the graphics card, so experts take longer to reach it."
                )
        return torch.empty(nbytes, dtype=torch.uint8)


class _CardArrival:
    def __init__(self, card: Card, copied: Event) -> None:
        self._card, self._copied = card, copied

    def wait(self) -> None:
        self._card.compute_after(self._copied)

    def synchronize(self) -> None:
        self._copied.synchronize()
