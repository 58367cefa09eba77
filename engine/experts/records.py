"""What is written down about a pass: who was wanted, what serving them cost, and what was done ahead of demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

import numpy as np

NO_EXPERT = 65535  # in ``PassRecord.routed``: this place chose nobody

Phase = Literal["prefill", "decode"]

_NONE = np.zeros((0, 0), dtype=bool)


class Deed(IntEnum):
    """What was done with an early expert, as a log writes it."""

    BRING = 0  # it took the slot of another, or an empty one
    DROP = 1  # its fetch failed, or was taken back and nobody had left for it; the slot is empty
    LET_GO = 2  # its layer had its turn without it; it may leave from here on
    RESIZE = 3  # the arena number ``key`` has ``leaving`` slots from here on; before the first layer
    TAKE_BACK = 4  # its fetch had not begun: ``leaving``, who had left for it, is in the slot again


@dataclass(frozen=True, slots=True)
class Note:
    """Before the experts of ``layer`` are leased (DROP, LET_GO, TAKE_BACK) or right after (BRING). layer -1: before the
    first; the number of layers: after the last. leaving: whose slot it took, -1 for an empty one."""

    layer: int
    deed: Deed
    key: int
    leaving: int = -1


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of fetches ahead that were still out when an answer ended. fetched_bytes: read for them since the
    last pass."""

    notes: Sequence[Note]
    fetched_bytes: int


@dataclass(slots=True)
class Account:
    """What a dispatch cost. missed, early, late: expert ids; early: fetched ahead and there; late: still on the way.

    on_host: those of the missed that were computed by the processor. nbytes: read for demands; what was fetched ahead
    is counted by the transfer.
    """

    missed: list[int] = field(default_factory=list)
    early: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    on_host: list[int] = field(default_factory=list)
    nbytes: int = 0
    stall_seconds: float = 0.0


@dataclass
class PassRecord:
    """One forward pass: who was wanted and who had to be fetched.

    counts: uint32 ``[layers, experts]``, how many tokens chose the expert. Bool, the same shape: missed (in no slot
    when it was wanted), early (fetched ahead, and there in time), late (fetched ahead, and still on the way), on_host
    (missed, and computed by the processor where it waited: it took no slot).
    routed: uint16 ``[layers, top_k]`` in the router's order when the pass had one token, else None.
    notes: what was done ahead of demand, in order. wasted: keys that were fetched ahead and evicted unused meanwhile.
    fetched_bytes: of everything read during the pass. foresight_seconds: spent on predicting.
    """

    phase: Phase
    tokens: int
    counts: np.ndarray
    missed: np.ndarray
    routed: np.ndarray | None
    fetched_bytes: int = 0
    stall_seconds: float = 0.0
    seconds: float = 0.0
    early: np.ndarray = field(default_factory=lambda: _NONE)
    late: np.ndarray = field(default_factory=lambda: _NONE)
    on_host: np.ndarray = field(default_factory=lambda: _NONE)
    notes: Sequence[Note] = ()
    wasted: Sequence[int] = ()
    foresight_seconds: float = 0.0

    @property
    def hits(self) -> int:
        return int((self.counts > 0).sum()) - self.misses

    @property
    def misses(self) -> int:
        return int(self.missed.sum())
