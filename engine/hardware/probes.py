"""What this machine has and how full it is: psutil for RAM, NVML for VRAM. A probe may find nothing."""

from __future__ import annotations

import logging
import os
import platform
from dataclasses import dataclass
from functools import cache
from types import ModuleType

import psutil

from engine.messages import MemoryBar, MemoryPart, MemorySnapshot

log = logging.getLogger("greenroom.hardware")


@dataclass(frozen=True, slots=True)
class Card:
    """A graphics card as NVML tells. Bytes."""

    name: str
    total: int
    used: int


def cores() -> int:
    """Cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return psutil.cpu_count() or 1


def computing_threads() -> int:
    """Cores to compute on unless the user says otherwise: all but one.

    The last one is for the window, the reading of experts, and other programs: where every core computes and something
    else wants one as well, OpenMP's threads wait for each other at every step. On 2 busy cores that cost a factor of
    twenty (0.6 against 11.4 tokens/s); on 2 quiet ones the second thread gains a third.
    """
    return max(1, cores() - 1)


def processor_name() -> str:
    """ "CPU, 2 cores" """
    count = cores()
    return f"CPU ({platform.machine()}), {count} core{'s' if count != 1 else ''}"


def card(index: int = 0) -> Card | None:
    """The graphics card, or None where there is none, no driver, or no NVIDIA."""
    nvml = _nvml()
    if nvml is None:
        return None
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        name = nvml.nvmlDeviceGetName(handle)
    except Exception as error:  # NVML raises kinds of its own
        log.debug("card %d tells nothing: %s", index, error)
        return None
    return Card(name if isinstance(name, str) else name.decode(), int(memory.total), int(memory.used))


@cache
def _nvml() -> ModuleType | None:
    """NVIDIA's library, opened once; None where it is missing or does not start."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # kinds of its own, and OSError where the library is missing
        log.info("no NVIDIA card: %s", error)
        return None
    return pynvml


def memory_snapshot(dense: int, experts: int, kv: int, on_card: bool) -> MemorySnapshot:
    """VRAM (when there is a card) and RAM, split by what holds them.

    dense, experts, kv: bytes of the model on its device. The page cache is not counted as used: psutil's "available"
    leaves it out, and Greenroom maps no file, so nothing is counted twice.
    """
    model = (MemoryPart("dense", dense), MemoryPart("experts", experts), MemoryPart("kv", kv))
    bars = []
    graphics = card()
    if graphics:
        bars.append(_bar(f"VRAM · {graphics.name}", graphics.total, graphics.used, model if on_card else ()))
    ram = psutil.virtual_memory()
    bars.append(_bar("RAM", ram.total, ram.total - ram.available, () if graphics and on_card else model))
    return MemorySnapshot(tuple(bars))


def _bar(name: str, total: int, used: int, model: tuple[MemoryPart, ...]) -> MemoryBar:
    ours = sum(part.bytes for part in model)
    other = MemoryPart("other", max(0, used - ours))
    return MemoryBar(name, total, (*(part for part in model if part.bytes), other))
