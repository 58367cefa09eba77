"""What this machine carries: cores, memory, the disk under the model, and on CUDA the link to the card."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch

from engine.bench.disk import Rate, drop_pages, read_rate
from engine.bench.ours import READERS, ExpertReader
from engine.hardware.disk import Span
from engine.loading import Inspection
from engine.messages import ReadMode

COPY_BYTES = 256_000_000  # larger than caches
DISK_BYTES = 1_000_000_000  # read at most, by each reader in each round
DISK_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class DiskFigures:
    """Bytes per second, medians over rounds. plain: one block at a time; in_flight: READERS at a time."""

    plain: float
    in_flight: float
    store: float
    block_bytes: int  # of one expert, as stored
    direct: bool
    way: str  # how the store reads, in words
    note: str

    @property
    def yardstick(self) -> float:
        """What the disk gives a plain reader, the better of one block at a time and several."""
        return max(self.plain, self.in_flight)


def memory_rate(rounds: int = 5) -> float:
    """Bytes copied per second from memory to memory, one thread, best of ``rounds``."""
    source = np.ones(COPY_BYTES, np.uint8)
    target = np.empty_like(source)
    target[:] = source  # memory is had at the first touch
    return COPY_BYTES / min(_seconds(lambda: np.copyto(target, source)) for _ in range(rounds))


def link_rate(device: torch.device, rounds: int = 5) -> float | None:
    """Bytes per second from pinned memory to the card, best of ``rounds``; None without CUDA."""
    if device.type != "cuda":
        return None
    with torch.cuda.device(device):  # pinning, too, opens the current card
        source = torch.empty(COPY_BYTES, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(COPY_BYTES, dtype=torch.uint8, device=device)

    def copy() -> None:
        target.copy_(source, non_blocking=True)
        torch.cuda.synchronize(device)

    copy()
    return COPY_BYTES / min(_seconds(copy) for _ in range(rounds))


def disk_figures(found: Inspection, dtype: torch.dtype, reads: ReadMode) -> DiskFigures:
    """How fast experts come from the model's own files: to a plain reader, and to the expert store.

    Each round reads the same random experts three times over, with cold pages, one kind of reader after the other.
    """
    experts = _some_experts(found)
    plain = PlainReader(found)
    one, several, store = [], [], []
    reader = ExpertReader(found, dtype, reads)
    try:
        for _ in range(DISK_ROUNDS):
            last = plain.read(1)
            one.append(last.bytes_per_second)
            several.append(plain.read(READERS).bytes_per_second)
            drop_pages(plain.files)
            store.append(reader.rate(experts))
    finally:
        reader.close()
    return DiskFigures(median(one), median(several), median(store), plain.block, last.direct, reader.way, last.note)


class PlainReader:
    """Reads some of a model's experts, always the same ones, from cold pages, and keeps nothing."""

    def __init__(self, found: Inspection) -> None:
        self._spans = [span for layer, expert in _some_experts(found) for span in _spans(found, layer, expert)]
        self.files = {span.file for span in self._spans}
        self.block = max(span.nbytes for span in self._spans)  # bytes of one expert, as stored

    def read(self, readers: int) -> Rate:
        """So many blocks at a time."""
        drop_pages(self.files)
        return read_rate(self._spans, readers)

    def rate(self) -> float:
        """Bytes per second that the disk gives just now, as ``DiskFigures.yardstick``."""
        return max(self.read(readers).bytes_per_second for readers in (1, READERS))


def expert_spans(found: Inspection) -> list[Span]:
    """Where all experts' bytes are."""
    return [span for layer, expert in _everyone(found) for span in _spans(found, layer, expert)]


def _everyone(found: Inspection) -> list[tuple[int, int]]:
    """(layer, expert) of all."""
    return [(layer, e) for layer, module in enumerate(found.index.modules) for e in range(module.num_experts)]


def _some_experts(found: Inspection) -> list[tuple[int, int]]:
    """(layer, expert), random and always the same ones, up to DISK_BYTES together."""
    everyone = _everyone(found)
    chosen, total = [], 0
    for place in np.random.default_rng(0).permutation(len(everyone)).tolist():
        layer, expert = everyone[place]
        total += sum(span.nbytes for span in _spans(found, layer, expert))
        chosen.append((layer, expert))
        if total >= DISK_BYTES:
            break
    return chosen


def _spans(found: Inspection, layer: int, expert: int) -> list[Span]:
    """Where an expert's bytes are; tensors that touch are one span."""
    pieces = sorted(
        (piece.file, piece.offset, piece.nbytes)
        for source in found.index.sources[layer][expert]
        for piece in source.pieces
    )
    joined: list[Span] = []
    for file, offset, nbytes in pieces:
        last = joined[-1] if joined else None
        if last and last.file == file and last.offset + last.nbytes == offset:
            joined[-1] = last._replace(nbytes=last.nbytes + nbytes)
        else:
            joined.append(Span(file, offset, nbytes))
    return joined


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
