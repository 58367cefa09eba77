"""Compute on miss: a missing expert is fetched to the card, or computed by the processor where its weights wait.

At decode the link moves all of an expert's bytes to the card for one row of numbers, while the processor could read
the same bytes from RAM. Both can work at once: of the experts that one dispatch misses, some travel and some are
computed where they are, so that link and processor finish at about the same time (Fiddler, arXiv 2402.07033, decides
for each expert alone; here the two queues are weighed together).

Off until ``calibrate`` has measured both ways on this machine. The processor rounds otherwise than the card does, so
that an answer's last bits depend on who was missing: whoever switches this on must say so. An expert computed here does
not enter the cache either; among equals, the one the cache wants least is left to the processor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.experts.cache import ExpertCache
from engine.experts.host_tier import HostTier
from engine.experts.layout import ExpertLayout, Parameters

MARGIN = 0.9  # of the time that the link alone would take: less is won than a measurement is off by
ROWS = (1, 2, 4, 8, 16, 64)  # tokens that chose one expert, in the calibration
REPEATS = 3  # of each measurement; the fastest counts, others were disturbed


@dataclass(frozen=True, slots=True)
class Calibration:
    """What one missing expert costs on this machine. Seconds.

    rows, computing: one expert on the processor, for so many rows of one dispatch; rows ascending, from 1.
    """

    rows: tuple[int, ...]
    computing: tuple[float, ...]
    fetching: float  # one more expert over the link, while it is busy
    fetch_latency: float  # of the first
    handing_over: float  # one dispatch's rows to the host, and their results back

    def on_processor(self, rows: np.ndarray) -> np.ndarray:
        """Seconds for experts with so many rows each, ``[n]`` -> float64 ``[n]``; beyond the table in proportion."""
        known, seconds = np.array(self.rows, dtype=float), np.array(self.computing)
        beyond = np.maximum(np.asarray(rows) / known[-1], 1.0)
        return np.interp(rows, known, seconds) * beyond

    @property
    def pays(self) -> bool:
        """Of two experts missing at decode, is one done sooner by the processor than second in the link's queue?"""
        return len(split(self, np.ones(2, dtype=np.int64)).processor) > 0

    def describe(self) -> str:
        """One sentence for the user."""
        there, here = self.fetching * 1e3, float(self.on_processor(np.ones(1))[0]) * 1e3
        times = f"{here:.2f} ms an expert against {there:.2f} ms to fetch it"
        if self.pays:
            return f"The processor helps with experts that are missing ({times}); last digits may differ."
        return f"Missing experts are fetched: the processor would be slower ({times})."


class Helper:
    """The processor's share of what one cache misses at decode, out of the host tier. Only the engine thread calls."""

    def __init__(self, calibration: Calibration, tier: HostTier) -> None:
        self._calibration, self._tier = calibration, tier

    def lend(self, cache: ExpertCache, layer: int, wanted: np.ndarray, counts: np.ndarray) -> dict[int, torch.Tensor]:
        """Who of ``wanted`` (as for ``ExpertCache.waves``) is to be computed, and where his weights wait: uint8
        ``[layout.nbytes]`` in RAM, until ``give_back``."""
        absent = cache.absent(wanted + layer * cache.experts)
        if np.count_nonzero(absent) == 0:
            return {}
        missing = wanted[absent]
        in_ram = np.array([self._tier.holds(layer, expert) for expert in missing.tolist()], dtype=bool)
        priority = cache.policy.priority[layer, missing]
        shared = split(self._calibration, counts[absent], in_ram=in_ram, wanted_again=priority)
        # a reader may have sent one away meanwhile: then he is fetched like the others
        lent = {expert: self._tier.lend_here(layer, expert) for expert in missing[shared.processor].tolist()}
        return {expert: memory for expert, memory in lent.items() if memory is not None}

    def give_back(self, layer: int, experts: Iterable[int]) -> None:
        """What was lent has been computed."""
        for expert in experts:
            self._tier.give_back(layer, expert)


@dataclass(frozen=True, slots=True)
class Split:
    """Who does what: positions in the list of missing experts, ascending."""

    link: np.ndarray
    processor: np.ndarray
    seconds: float  # until both are done, as calibrated


def split(
    calibration: Calibration | None,
    rows: np.ndarray,
    *,
    in_ram: np.ndarray | None = None,
    wanted_again: np.ndarray | None = None,
    link_queue: int = 0,
    processor_busy: float = 0.0,
) -> Split:
    """Share out the experts that a dispatch misses, so that the later of link and processor is done as early as can be.

    rows: int64 ``[n]``, tokens that chose each. in_ram: bool ``[n]``, whose weights are in RAM (default: all); the
    others are fetched whatever it costs. wanted_again: float64 ``[n]``, the cache's priority; among experts with equal
    rows the lowest is computed rather than fetched. link_queue: fetches ahead of these. processor_busy: seconds until
    the processor is free. calibration None: everything is fetched.

    Every fetch takes the same time, so the processor's share is always those that are cheapest for it, and trying each
    size of that share finds the best split there is.
    """
    count = len(rows)
    everyone = np.arange(count)
    if calibration is None or count == 0:
        return Split(everyone, everyone[:0], 0.0)
    may = everyone if in_ram is None else np.flatnonzero(in_ram)
    worth = np.zeros(count) if wanted_again is None else wanted_again
    may = may[np.lexsort((worth[may], rows[may]))]
    shares = np.arange(len(may) + 1)  # experts left to the processor
    processor = np.concatenate([[0.0], np.cumsum(calibration.on_processor(rows[may]))])
    processor[1:] += processor_busy + calibration.handing_over
    fetched = count - shares
    link = np.where(fetched > 0, calibration.fetch_latency + calibration.fetching * (link_queue + fetched), 0.0)
    done = np.maximum(link, processor)
    best = int(done.argmin())
    if done[best] > MARGIN * done[0]:
        best = 0
    chosen = np.sort(may[:best])
    return Split(np.setdiff1d(everyone, chosen), chosen, float(done[best]))


def calibrate(
    layout: ExpertLayout,
    waiting: Sequence[torch.Tensor],
    slots: Sequence[torch.Tensor],
    compute: Callable[[Parameters, torch.Tensor], torch.Tensor],
    hidden: int,
    rows: Sequence[int] = ROWS,
) -> Calibration:
    """Measure both ways, with the real shapes.

    waiting: experts in host memory as they wait there (pinned, on a card's machine), uint8 ``[layout.nbytes]``; enough
    of them that they do not stay in the processor's cache. slots: the same on the device, one for each; overwritten.
    compute: one expert's parameters and rows ``[n, hidden]`` -> ``[n, hidden]``, on the processor.

    Takes about a second for a dozen experts of 10 MB.
    """
    experts = [layout.views(blob) for blob in waiting]
    device = slots[0].device
    inputs = {count: torch.randn(count, hidden).to(layout.dtype) for count in rows}

    def computing(count: int) -> None:
        for parameters in experts:
            compute(parameters, inputs[count])

    def fetching(count: int) -> None:
        for source, slot in zip(waiting[:count], slots[:count], strict=True):
            slot.copy_(source, non_blocking=True)
        _synchronize(device)

    there = inputs[rows[0]].to(device)

    def handing_over() -> None:
        there.copy_(there.cpu(), non_blocking=True)
        _synchronize(device)

    with torch.inference_mode():
        per_rows = [_fastest(lambda count=count: computing(count)) / len(experts) for count in rows]  # type: ignore[misc]
        one, all_of_them = _fastest(lambda: fetching(1)), _fastest(lambda: fetching(len(waiting)))
        hand_over = _fastest(handing_over)
    each = (all_of_them - one) / (len(waiting) - 1) if len(waiting) > 1 else one
    each = max(
        each, all_of_them / len(waiting) / 2
    )  # a first copy that was slow by accident must not make the rest free
    return Calibration(tuple(rows), tuple(per_rows), each, max(0.0, one - each), hand_over)


def _fastest(work: Callable[[], None]) -> float:
    """Seconds of the fastest of a few runs, after one that does not count."""
    work()
    best = float("inf")
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best


def _synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.cuda.synchronize(device)
