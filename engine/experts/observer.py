"""What happened to the experts: counted as the hook runs, read by panels, logs and predictors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from engine.experts.records import NO_EXPERT, Account, Note, PassRecord, Phase
from engine.messages import CacheCounters, Cell


class Follower(Protocol):
    """Who is told when answers and passes begin: the policies."""

    def begin_request(self) -> None: ...
    def begin_pass(self, phase: Phase, tokens: int) -> None: ...


@dataclass
class Totals:
    """Running sums behind ``CacheCounters``."""

    hits: dict[Phase, int] = field(default_factory=lambda: {"prefill": 0, "decode": 0})
    misses: dict[Phase, int] = field(default_factory=lambda: {"prefill": 0, "decode": 0})
    fetched_bytes: int = 0
    stall_seconds: float = 0.0
    hook_calls: int = 0
    used: int = 0
    late: int = 0
    wasted: int = 0
    early_bytes: int = 0
    wasted_bytes: int = 0
    computed_on_host: int = 0


class Observer:
    """Counts uses per expert and per pass. All arrays are ``[layers, experts]``; only the engine thread writes."""

    def __init__(self, layers: int, experts: int, top_k: int) -> None:
        self.shape = (layers, experts)
        self.top_k = top_k
        self.totals = Totals()
        self.answer = np.zeros(self.shape, np.uint32)
        self.chat = np.zeros(self.shape, np.uint32)
        self.total = np.zeros(self.shape, np.uint32)
        self.last: PassRecord = self._fresh("prefill", 0)
        self.in_pass = False
        self._now = self.last
        self._followers: list[Follower] = []

    def add_follower(self, follower: Follower) -> None:
        """Tell it from now on."""
        self._followers.append(follower)

    def begin_pass(self, phase: Phase, tokens: int) -> None:
        self.in_pass = True
        self._now = self._fresh(phase, tokens)
        for follower in self._followers:
            follower.begin_pass(phase, tokens)

    def used(self, layer: int, experts: np.ndarray, counts: np.ndarray, accounts: Sequence[Account]) -> None:
        """``experts`` (distinct ids) were chosen by ``counts`` tokens each; what serving them took, by device."""
        now, totals = self._now, self.totals
        now.counts[layer, experts] += counts
        misses = 0
        for account in accounts:
            if account.missed:
                now.missed[layer, account.missed] = True
                misses += len(account.missed)
            if account.early:
                now.early[layer, account.early] = True
                totals.used += len(account.early)
            if account.late:
                now.late[layer, account.late] = True
                totals.late += len(account.late)
            if account.on_host:
                now.on_host[layer, account.on_host] = True
                totals.computed_on_host += len(account.on_host)
            now.fetched_bytes += account.nbytes
            now.stall_seconds += account.stall_seconds
            totals.fetched_bytes += account.nbytes
            totals.stall_seconds += account.stall_seconds
        totals.misses[now.phase] += misses
        totals.hits[now.phase] += len(experts) - misses
        totals.hook_calls += 1

    def ahead(
        self,
        notes: Sequence[Note],
        found: Sequence[int],
        wasted: Sequence[int],
        wasted_bytes: int,
        early_bytes: int,
        seconds: float,
    ) -> None:
        """What was done ahead of demand in this pass. found: keys that were used after all, when they had been let go
        already. early_bytes: read for all of it since the model was loaded."""
        now, totals = self._now, self.totals
        now.early.reshape(-1)[list(found)] = True
        totals.used += len(found)
        now.notes, now.wasted, now.foresight_seconds = tuple(notes), tuple(wasted), seconds
        now.fetched_bytes += self.read_ahead(early_bytes)
        totals.wasted += len(wasted)
        totals.wasted_bytes += wasted_bytes

    def read_ahead(self, early_bytes: int) -> int:
        """So much was read ahead of demand since the model was loaded; how much of it was not counted yet."""
        fresh = early_bytes - self.totals.early_bytes
        self.totals.fetched_bytes += fresh
        self.totals.early_bytes = early_bytes
        return fresh

    def routed(self, layer: int, ids: list[int]) -> None:
        """The router's choice for the one token of this pass, best first."""
        if self._now.routed is not None and len(ids) <= self.top_k:
            self._now.routed[layer, : len(ids)] = ids

    def end_pass(self, seconds: float) -> PassRecord:
        """Close the pass and add it to the running counts; an unfinished pass (stopped) is closed the same way."""
        self.in_pass = False
        if self._now.routed is not None:  # a stop may fall between a layer's router and its experts
            self._now.routed[~self._now.counts.any(axis=1)] = NO_EXPERT
        self._now.seconds = seconds
        self.last = self._now
        for running in (self.answer, self.chat, self.total):
            running += self.last.counts
        return self.last

    def begin_answer(self, new_chat: bool) -> None:
        self.answer[:] = 0
        if new_chat:
            self.chat[:] = 0
        for follower in self._followers:
            follower.begin_request()

    def counters(self, evictions: int) -> CacheCounters:
        totals = self.totals
        return CacheCounters(
            totals.hits["prefill"],
            totals.misses["prefill"],
            totals.hits["decode"],
            totals.misses["decode"],
            evictions,
            totals.fetched_bytes,
            totals.stall_seconds,
            totals.hook_calls,
            totals.used,
            totals.late,
            totals.wasted,
            totals.early_bytes,
            totals.wasted_bytes,
            totals.computed_on_host,
        )

    def cells(self, resident: np.ndarray, predicted: np.ndarray) -> np.ndarray:
        """uint8 ``[layers, experts]`` of ``Cell`` bits about the latest pass. Bool, the same shape: who is in a slot,
        who is expected."""
        last = self.last
        wanted = last.counts > 0
        cells: np.ndarray = resident * np.uint8(Cell.RESIDENT) + wanted * np.uint8(Cell.ROUTED)
        cells += (wanted & ~last.missed) * np.uint8(Cell.HIT) + last.missed * np.uint8(Cell.MISS)
        cells += predicted * np.uint8(Cell.PREDICTED)
        cells += last.early * np.uint8(Cell.PREFETCHED) + last.late * np.uint8(Cell.LATE)
        if last.wasted:
            cells.reshape(-1)[list(last.wasted)] |= np.uint8(Cell.WASTED)
        return cells.astype(np.uint8)

    def _fresh(self, phase: Phase, tokens: int) -> PassRecord:
        routed = np.full((self.shape[0], self.top_k), NO_EXPERT, np.uint16) if tokens == 1 else None
        record = PassRecord(phase, tokens, np.zeros(self.shape, np.uint32), np.zeros(self.shape, bool), routed)
        record.early, record.late, record.on_host = (np.zeros(self.shape, bool) for _ in range(3))
        return record
