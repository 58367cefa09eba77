"""What every token of an answer asked of the experts, read back from the conversation's log.

An answer's passes are not kept: where each begins in the file is, and the running counts at every so many tokens. A
moment is read, decoded and counted up from the nearest of those, so that an answer of any length costs a few megabytes.
All of this is for a thread of its own (``app.background``); nothing here touches a widget.
"""

from __future__ import annotations

import bisect
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from engine.errors import SessionError
from engine.messages import Cell, ExpertSnapshot
from engine.sessions import appendfile
from engine.sessions.reader import Pass, decode_pass
from engine.sessions.records import PASS_PREFIX, lines_of, parse_record

MOST_MARKS = 64  # kept running counts of one answer
BROUGHT, DROPPED, LET_GO, TAKEN_BACK = 0, 1, 2, 4  # deeds of a pass (FORMAT.md, "What was done ahead of demand")


@dataclass(frozen=True, slots=True)
class _Place:
    """A pass in the file. waiting: sorted keys of the early fetches that nobody had used before it; after_all: of those
    that a pass before it had let go, and this one used."""

    start: int
    length: int
    decode: bool
    waiting: tuple[int, ...] = ()
    after_all: tuple[int, ...] = ()


@dataclass(slots=True)
class Recording:
    """One answer, ready to be read token by token. ``lengths``: characters of each token, empty when not known.

    Token n (from 1) was chosen by pass ``first + n - 1``; the passes before it read the prompt. A last pass that chose
    the end of the answer, or was stopped, counts as one more moment.
    """

    path: Path
    answer: str
    layers: int
    experts: int
    top_k: int
    text: str = ""
    lengths: tuple[int, ...] = ()
    places: list[_Place] = field(default_factory=list)
    first: int = 0  # index of the pass that chose the first token
    marks: dict[int, np.ndarray] = field(default_factory=dict)  # number of passes -> their counts, uint32

    @property
    def moments(self) -> int:
        return len(self.places) - self.first

    def token_at(self, character: int) -> int:
        """Moment (from 1) of the token that wrote this character of the text; 0 when that cannot be told."""
        ends = list(itertools.accumulate(self.lengths))
        number = bisect.bisect_right(ends, character) + 1
        return min(number, self.moments) if ends and character < ends[-1] else 0

    def words(self, moment: int) -> tuple[str, str, str]:
        """The text before the token of a moment, the token's own, and what follows; empty when not known."""
        if not 1 <= moment <= len(self.lengths):
            return ("", "", "") if not self.lengths else (self.text, "", "")
        start = sum(self.lengths[: moment - 1])
        end = start + self.lengths[moment - 1]
        return self.text[:start], self.text[start:end], self.text[end:]


def read_recording(path: Path, answer: str, stopped: Callable[[], bool] = lambda: False) -> Recording:
    """Find an answer's passes. SessionError when the log cannot be read or has none of it."""
    appendfile.flush_pending(path)
    shape: tuple[int, int, int] | None = None
    found: Recording | None = None
    text = ""
    lengths: tuple[int, ...] = ()
    mine = json.dumps(answer).encode()
    waiting: set[int] = set()
    spared: set[int] = set()  # brought and let go, and not used yet
    counts: np.ndarray | None = None
    try:
        with path.open("rb") as file:
            for start, line in _lines(file):
                if stopped():
                    break
                if line.startswith(PASS_PREFIX):
                    # the answer's id follows the type, as it was written; other answers are not even parsed
                    if shape is None or mine not in line[:200]:
                        continue
                    record = parse_record(line)
                    if record is None or record.get("answer") != answer:
                        continue
                    if found is None:
                        found = Recording(path, answer, *shape)
                        counts = np.zeros(shape[:2], np.uint32)
                    one = decode_pass(record, *shape)
                    after_all = _used_after_all(one, spared)
                    place = _Place(start, len(line), one.phase == "decode", tuple(sorted(waiting)), after_all)
                    found.places.append(place)
                    waiting = _left_waiting(one, waiting)
                    assert counts is not None
                    counts += one.counts
                    _keep(found, counts)
                    continue
                record = parse_record(line)
                if record is None:
                    continue
                if record["type"] == "model":
                    shape = _shape(record) or shape
                elif record["type"] == "start" and record.get("answer") == answer:
                    found, waiting, spared = None, set(), set()  # an answer that was begun twice: the last one counts
                elif record["type"] == "message" and record.get("id") == answer:
                    text, lengths = str(record.get("text", "")), _lengths(record)
    except OSError as error:
        raise appendfile.failure(path, error) from error
    if found is None:
        raise SessionError("The log of this conversation has no record of the experts that wrote this answer.")
    found.text, found.lengths = text, lengths
    found.first = max(0, sum(not place.decode for place in found.places) - 1)  # the prompt's last pass chose the first
    return found


def read_moment(recording: Recording, moment: int, stopped: Callable[[], bool] = lambda: False) -> ExpertSnapshot:
    """How the experts stood at the end of the pass of a moment, from 1, as a snapshot for the heatmap.

    ``answer`` counts this answer up to here; chat and total are the same, since the log cannot tell. Who else was
    resident is in no log either: every expert is shown as if it were; nor is whom an earlier answer had brought.
    SessionError when the file has changed.
    """
    index = recording.first + min(max(moment, 1), recording.moments) - 1
    try:
        with recording.path.open("rb") as file:
            counts = _counts_before(recording, file, index, stopped)
            place = recording.places[index]
            one = _read(recording, file, place)
    except OSError as error:
        raise appendfile.failure(recording.path, error) from error
    counts += one.counts
    cells = cells_of(one, place.waiting, place.after_all)
    for array in (cells, counts):
        array.flags.writeable = False
    phase = "prefill" if one.phase == "prefill" else "decode"
    return ExpertSnapshot(cells, counts, counts, counts, phase, moment)  # type: ignore[arg-type]


def cells_of(one: Pass, waiting: tuple[int, ...], after_all: tuple[int, ...] = ()) -> np.ndarray:
    """uint8 ``[layers, experts]`` of Cell bits of one pass. ``waiting``, ``after_all``: as in its place."""
    wanted = one.counts > 0
    late = one.late if one.late is not None else np.zeros_like(wanted)
    in_time, vain = _fates(one, set(waiting))
    cells: np.ndarray = np.full(wanted.shape, int(Cell.RESIDENT), np.uint8)
    cells[wanted] |= np.uint8(Cell.ROUTED)
    cells[wanted & ~one.missed] |= np.uint8(Cell.HIT)
    cells[one.missed] |= np.uint8(Cell.MISS)
    cells[late] |= np.uint8(Cell.LATE)
    flat = cells.reshape(-1)
    flat[sorted(in_time.union(after_all))] |= np.uint8(Cell.PREFETCHED)
    flat[sorted(vain)] |= np.uint8(Cell.WASTED)
    return cells


def _fates(one: Pass, waiting: set[int]) -> tuple[set[int], set[int]]:
    """Keys that were used in time, and those whose layer had its turn without them. ``waiting`` is brought up to date.

    Deeds are told layer by layer: what ends happens right before a layer's experts are leased, what is brought right
    after.
    """
    layers, experts = one.counts.shape
    in_time: set[int] = set()
    vain: set[int] = set()
    deeds = one.ahead.tolist() if one.ahead is not None else []
    late = one.late
    position = 0
    for layer in range(-1, layers + 1):
        here = []
        while position < len(deeds) and deeds[position][0] <= layer:
            here.append(deeds[position])
            position += 1
        for _, deed, key, _ in here:
            if deed in (DROPPED, LET_GO) and key in waiting:
                waiting.discard(key)
                vain.add(key)
            elif deed == TAKEN_BACK:  # nothing was read
                waiting.discard(key)
        if 0 <= layer < layers:
            for key in [key for key in waiting if key // experts == layer]:
                if one.counts[layer, key % experts]:
                    waiting.discard(key)
                    if not (late is not None and late[layer, key % experts]) and not one.missed[layer, key % experts]:
                        in_time.add(key)
        waiting.update(key for _, deed, key, _ in here if deed == BROUGHT)
    return in_time, vain


def _used_after_all(one: Pass, spared: set[int]) -> tuple[int, ...]:
    """Of those that were let go, sorted keys of the ones that this pass found in their slots. ``spared`` is brought up
    to date; who had to be fetched again was evicted meanwhile."""
    deeds = one.ahead.tolist() if one.ahead is not None else []
    if not deeds and not spared:
        return ()
    experts = one.counts.shape[1]
    later: list[int] = []
    for layer, deed, key, _ in deeds:
        if deed == BROUGHT:
            spared.discard(key)
        elif deed == LET_GO:  # mostly when its layer had its turn
            later.append(key) if layer > key // experts else spared.add(key)
    counts, missed = one.counts.reshape(-1), one.missed.reshape(-1)
    used = sorted(key for key in spared if counts[key])
    spared.difference_update(used)
    spared.update(later)
    return tuple(key for key in used if not missed[key])


def _left_waiting(one: Pass, waiting: set[int]) -> set[int]:
    if one.ahead is None and not waiting:
        return waiting
    _fates(one, waiting)
    return waiting


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    start = file.tell()
    for line in lines_of(file):
        yield start, line
        start = file.tell()


def _read(recording: Recording, file: BinaryIO, place: _Place) -> Pass:
    file.seek(place.start)
    record = parse_record(file.read(place.length))
    if record is None or record.get("answer") != recording.answer:
        raise SessionError("The conversation's file has changed; open it again.")
    return decode_pass(record, recording.layers, recording.experts, recording.top_k)


def _counts_before(recording: Recording, file: BinaryIO, index: int, stopped: Callable[[], bool]) -> np.ndarray:
    """Uses in the passes before number ``index``."""
    known = max((mark for mark in recording.marks if mark <= index), default=0)
    counts = recording.marks[known].copy() if known else np.zeros((recording.layers, recording.experts), np.uint32)
    for place in recording.places[known:index]:
        if stopped():
            break
        counts += _read(recording, file, place).counts
    return counts


def _keep(recording: Recording, counts: np.ndarray) -> None:
    """Keep the running counts now and then: at most so many, evenly spread over what there is so far."""
    passes, marks = len(recording.places), recording.marks
    step = 16
    while passes // step >= MOST_MARKS:
        step *= 2
    if passes % step == 0:
        marks[passes] = counts.copy()
        for mark in [mark for mark in marks if mark % step]:
            del marks[mark]


def _shape(record: dict[str, Any]) -> tuple[int, int, int] | None:
    layers, experts, top_k = (record.get(key) for key in ("layers", "experts", "top_k"))
    if isinstance(layers, int) and isinstance(experts, int) and isinstance(top_k, int):
        return layers, experts, top_k
    return None


def _lengths(record: dict[str, Any]) -> tuple[int, ...]:
    """A damaged list is as good as none."""
    lengths = record.get("token_lengths")
    if not isinstance(lengths, list) or not all(type(length) is int and length >= 0 for length in lengths):
        return ()
    return tuple(lengths) if sum(lengths) == len(str(record.get("text", ""))) else ()
