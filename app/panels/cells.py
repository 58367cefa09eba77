"""What each cell of the heatmap says, worked out from a snapshot: one number per expert, no drawing.

A state is ``predicted << 8 | mark << 5 | resident << 4 | level``: level 0 is an expert without use, 1..15 rise with the
logarithm of its uses. Layers and experts are numbered from 0, as in the session log and in transformers.
"""

from __future__ import annotations

from enum import Enum, IntEnum

import numpy as np

from engine.messages import Cell, ExpertSnapshot

LEVELS = 16
STATES = 512

_MOST = LEVELS - 1
_FAINTEST_RESIDENT = 3  # in Mode.TOKEN an unused expert on the device still stands out from one that waits
_CALM_TOP = 8  # counts below this do not reach full brightness: the first tokens of an answer do not flash
_RANGE = 64.0  # the ramp spans counts from 1/64 of the largest up to the largest


class Mode(Enum):
    """Which uses the heatmap shows."""

    TOKEN = "token"  # the latest forward pass, with marks; brightness is use in this answer
    ANSWER = "answer"
    CHAT = "chat"
    TOTAL = "total"


class Mark(IntEnum):
    """What happened to the expert in the latest forward pass."""

    NONE = 0
    HIT = 1
    MISS = 2
    EARLY = 3  # chosen, and there in time because it was fetched ahead
    LATE = 4  # chosen while its early fetch was still under way
    WASTED = 5  # fetched ahead for nothing


PREDICTED = 256  # bit of a state: expected next


def _mark(cell: int) -> Mark:
    if cell & Cell.MISS:
        return Mark.MISS
    if cell & Cell.LATE:
        return Mark.LATE
    if cell & Cell.PREFETCHED:
        return Mark.EARLY
    if cell & (Cell.ROUTED | Cell.HIT):
        return Mark.HIT
    return Mark.WASTED if cell & Cell.WASTED else Mark.NONE


# From the bits of a Cell to a state without its level.
_BASE = np.array(
    [
        (PREDICTED if cell & Cell.PREDICTED else 0) | _mark(cell) << 5 | (16 if cell & Cell.RESIDENT else 0)
        for cell in range(256)
    ],
    np.uint16,
)
_BASE_UNMARKED = _BASE & 16


def counts(snapshot: ExpertSnapshot, mode: Mode) -> np.ndarray:
    """The uses ``[layers, experts]`` that ``mode`` is about; in Mode.TOKEN those of the answer."""
    return {
        Mode.TOKEN: snapshot.answer,
        Mode.ANSWER: snapshot.answer,
        Mode.CHAT: snapshot.chat,
        Mode.TOTAL: snapshot.total,
    }[mode]


def levels(uses: np.ndarray, lowest: int = 1) -> np.ndarray:
    """Brightness of each count, uint8: 0 where it is 0, else ``lowest``..15 on a logarithmic scale."""
    top = float(max(int(uses.max(initial=0)), _CALM_TOP))
    floor = max(1.0, top / _RANGE)
    logs = np.log2(np.maximum(uses, 1).astype(np.float32) / np.float32(floor))
    np.clip(logs, 0.0, None, out=logs)
    logs *= (_MOST - lowest) / np.log2(top / floor)
    logs += lowest + 0.5
    result = logs.astype(np.uint8)
    result *= uses > 0
    return result


def states(snapshot: ExpertSnapshot, mode: Mode) -> np.ndarray:
    """One state per expert, uint16 ``[layers, experts]``."""
    cells = snapshot.cells
    if mode is not Mode.TOKEN:
        return _BASE_UNMARKED.take(cells) | levels(counts(snapshot, mode))
    base = _BASE.take(cells)
    shade = np.maximum(levels(snapshot.answer, _FAINTEST_RESIDENT), _FAINTEST_RESIDENT)
    shade *= (base & 16) > 0  # who waits is dark, however often it was used
    return base | shade


def split(state: int) -> tuple[Mark, bool, bool, int]:
    """A state's mark, whether the expert is predicted, whether it is resident, and its level."""
    return Mark(state >> 5 & 7), bool(state & PREDICTED), bool(state & 16), state & 15
