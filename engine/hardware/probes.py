"""What this machine has and how full it is: ``limits`` for RAM, NVML for VRAM. A probe may find nothing."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType

from engine.hardware.limits import cores, ram
from engine.messages import MemoryBar, MemoryPart, MemorySnapshot

log = logging.getLogger("greenroom.hardware")


@dataclass(frozen=True, slots=True)
class Card:
    """A graphics card as NVML tells. Bytes."""

    name: str
    total: int
    used: int


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
    """The card that PyTorch calls ``cuda:index``, or None where there is none, no driver, or no NVIDIA."""
    nvml = _nvml()
    name = _visible(index)
    if nvml is None or name is None:
        return None
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdigit() else nvml.nvmlDeviceGetHandleByUUID(name)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        named = nvml.nvmlDeviceGetName(handle)
    except Exception as error:  # NVML raises kinds of its own
        log.debug("card %d tells nothing: %s", index, error)
        return None
    return Card(named if isinstance(named, str) else named.decode(), int(memory.total), int(memory.used))


def cards() -> list[Card | None]:
    """Every card in PyTorch's order; None for one that tells nothing."""
    nvml = _nvml()
    if nvml is None:
        return []
    try:
        count = int(nvml.nvmlDeviceGetCount())
    except Exception as error:
        log.debug("the cards cannot be counted: %s", error)
        return []
    return [card(index) for index in range(count) if _visible(index) is not None]


def _visible(index: int) -> str | None:
    """How NVML knows ``cuda:index``: a number or a UUID; None when CUDA_VISIBLE_DEVICES leaves it out."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return str(index)
    names = [name.strip() for name in allowed.split(",") if name.strip()]
    return names[index] if index < len(names) and names[index] != "-1" else None


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


def memory_snapshot(held: Mapping[str, Sequence[MemoryPart]]) -> MemorySnapshot:
    """Every card's memory and RAM, split by what holds them.

    held: what the model has on each device, "cpu", "cuda" or "cuda:1". The file cache is not counted as used: what is
    "available" leaves it out, and Greenroom maps no file, so nothing is counted twice. A model on a card that tells
    nothing is shown in no bar.
    """
    by_card: dict[int, Sequence[MemoryPart]] = {}
    in_ram: Sequence[MemoryPart] = ()
    for where, parts in held.items():
        kind, _, number = where.partition(":")
        if kind == "cuda":
            by_card[int(number or 0)] = parts
        else:
            in_ram = parts
    found = cards()
    several = len(found) > 1
    bars = []
    for index, graphics in enumerate(found):
        if graphics is not None:
            name = f"VRAM {index} · {graphics.name}" if several else f"VRAM · {graphics.name}"
            bars.append(_bar(name, graphics.total, graphics.used, by_card.get(index, ())))
    host = ram()
    bars.append(_bar(host.name, host.total, host.total - host.available, in_ram))
    return MemorySnapshot(tuple(bars))


def _bar(name: str, total: int, used: int, model: Sequence[MemoryPart]) -> MemoryBar:
    ours = sum(part.bytes for part in model)
    other = MemoryPart("other", max(0, used - ours))
    return MemoryBar(name, total, (*(part for part in model if part.bytes), other))
