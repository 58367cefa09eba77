"""How one expert is read: worked out once, so that a read is a few system calls and a few copies and nothing else.

Pieces that lie side by side in a file become one run. Where file and target hold the same bytes, a run is read straight
into place; where numbers must be converted, or direct reads want aligned memory, it is read into staging and moved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from engine.experts.reading import SLACK, CheckpointFile, DirectFile, PositionalFile, SeekingFile
from engine.hardware.disk import BLOCK, LANDING, aligned_buffer
from engine.models.index import Piece

MOST_VIEWS = 256  # experts alike have few; those of direct reads begin anywhere in a page


class Staging:
    """One thread's memory between file and target."""

    def __init__(self) -> None:
        self.memory = aligned_buffer(BLOCK + SLACK)
        self.bytes: np.ndarray = np.frombuffer(self.memory, np.uint8)
        self._tensor = torch.from_numpy(self.bytes)
        self._numbers: dict[tuple[int, int, torch.dtype], torch.Tensor] = {}

    def numbers(self, start: int, nbytes: int, dtype: torch.dtype) -> torch.Tensor:
        """What lies there as a flat tensor; a view where that is possible."""
        key = (start, nbytes, dtype)
        found = self._numbers.get(key)
        if found is None:
            raw = self._tensor[start : start + nbytes]
            if start % dtype.itemsize:  # a file whose tensors begin at odd places
                return raw.clone().view(dtype)
            if len(self._numbers) >= MOST_VIEWS:
                self._numbers.clear()
            found = self._numbers[key] = raw.view(dtype)
        return found


class Move(NamedTuple):
    """Numbers that lie side by side in a file and in the target. All but the formats in bytes."""

    start: int  # in the file, or in the run it is part of
    nbytes: int  # stored
    offset: int  # in the target
    filled: int  # in the target
    stored: torch.dtype
    wanted: torch.dtype

    def follows(self, before: Move) -> bool:
        same = (self.stored, self.wanted) == (before.stored, before.wanted)
        return same and self.start == before.start + before.nbytes and self.offset == before.offset + before.filled

    def first(self, nbytes: int) -> Move:
        return self._replace(nbytes=nbytes, filled=nbytes // self.stored.itemsize * self.wanted.itemsize)

    def after(self, part: Move) -> Move:
        """What is left when ``part`` is taken off the front."""
        return self._replace(
            start=self.start + part.nbytes,
            nbytes=self.nbytes - part.nbytes,
            offset=self.offset + part.filled,
            filled=self.filled - part.filled,
        )


@dataclass(frozen=True, slots=True)
class Straight:
    """A run of a file that is read into place: ``targets`` are slices of the target, in the file's order."""

    file: PositionalFile | SeekingFile
    offset: int
    nbytes: int
    targets: tuple[slice, ...]

    def read(self, target: torch.Tensor) -> None:
        memory = memoryview(cast(Any, target.numpy()))
        self.file.fill([memory[place] for place in self.targets], self.offset)


@dataclass(frozen=True, slots=True)
class Staged:
    """A run of a file that is read into staging and moved from there. At most BLOCK long."""

    file: CheckpointFile
    offset: int
    nbytes: int
    moves: tuple[Move, ...]  # start: from the run's first byte

    def stage(self, staging: Staging) -> int:
        """Read; returns where in ``staging`` the run begins."""
        return self.file.stage(staging.memory, self.offset, self.nbytes)

    def move(self, begins: int, target: torch.Tensor, staging: Staging) -> None:
        """From ``staging``, where the run begins at ``begins``, to its places in the target."""
        for start, nbytes, offset, filled, stored, wanted in self.moves:
            start += begins
            if stored == wanted:
                np.copyto(target.numpy()[offset : offset + filled], staging.bytes[start : start + nbytes])
            else:
                place = target if filled == target.nbytes else target[offset : offset + filled]
                place.view(wanted).copy_(staging.numbers(start, nbytes, stored))


@dataclass(frozen=True, slots=True)
class Landed:
    """A run of a file that a direct read brings into place, but for the blocks at the edges of what is wanted."""

    file: DirectFile
    start: int  # of its first block
    wanted: int  # bytes from there to the run's end
    buffers: tuple[tuple[bool, slice], ...]  # in the file's order; whether it is of the target, or else of staging
    edges: tuple[tuple[slice, slice], ...]  # of staging, of the target

    def read(self, target: torch.Tensor, staging: Staging) -> None:
        memory = memoryview(cast(Any, target.numpy()))
        buffers = [(memory if landed else staging.memory)[place] for landed, place in self.buffers]
        self.file.land(buffers, self.start, self.wanted)
        for source, place in self.edges:
            memory[place] = staging.memory[source]


Run = Straight | Staged | Landed


def read_runs(runs: Sequence[Run], target: torch.Tensor, staging: Sequence[Staging], helper: Executor) -> None:
    """Read every run into its place in ``target``. Raises ModelError.

    staging: two of this thread's own. helper: reads blocks of a large expert ahead while this thread moves others.
    """
    staged: list[Staged] = []
    for run in runs:
        if isinstance(run, Straight):
            run.read(target)
        elif isinstance(run, Landed):
            run.read(target, staging[0])
        else:
            staged.append(run)
    if len(staged) == 1:
        staged[0].move(staged[0].stage(staging[0]), target, staging[0])
    elif staged:
        _read_ahead(staged, target, staging, helper)


def _read_ahead(runs: Sequence[Staged], target: torch.Tensor, staging: Sequence[Staging], helper: Executor) -> None:
    """Move each run while the next is under way, and the one after it as soon as there is staging: the disk never waits
    for a copy."""
    under_way = deque([helper.submit(runs[1].stage, staging[1])])
    try:
        begins = runs[0].stage(staging[0])
        for number, run in enumerate(runs):
            here = staging[number % 2]
            run.move(begins, target, here)
            if number + 2 < len(runs):
                under_way.append(helper.submit(runs[number + 2].stage, here))
            if under_way:
                begins = under_way.popleft().result()
    finally:
        wait(under_way)  # after a fault: nobody else may write into staging when the next read begins


def plan_runs(
    pieces: Iterable[tuple[Piece, int, torch.dtype]], open_file: Callable[[Path], CheckpointFile]
) -> tuple[Run, ...]:
    """The runs that bring every piece to its offset (bytes) in the target, in its wanted format."""
    by_file: dict[Path, list[Move]] = {}
    for piece, offset, wanted in pieces:
        filled = piece.nbytes // piece.dtype.itemsize * wanted.itemsize
        move = Move(piece.offset, piece.nbytes, offset, filled, piece.dtype, wanted)
        by_file.setdefault(piece.file, []).append(move)
    runs: list[Run] = []
    for path in sorted(by_file):
        file = open_file(path)
        for group in _side_by_side(_joined(sorted(by_file[path], key=lambda move: move.start))):
            landed = _landed(file, group) if isinstance(file, DirectFile) else None
            if landed:
                runs.append(landed)
            elif isinstance(file, DirectFile) or any(move.stored != move.wanted for move in group):
                runs += _staged(file, group)
            else:
                targets = tuple(slice(move.offset, move.offset + move.filled) for move in group)
                runs.append(Straight(file, group[0].start, sum(move.nbytes for move in group), targets))
    return tuple(runs)


def _joined(moves: Sequence[Move]) -> list[Move]:
    """Moves that follow each other in file and target become one."""
    joined: list[Move] = []
    for move in moves:
        if joined and move.follows(joined[-1]):
            last = joined.pop()
            move = last._replace(nbytes=last.nbytes + move.nbytes, filled=last.filled + move.filled)
        joined.append(move)
    return joined


def _side_by_side(moves: Sequence[Move]) -> list[list[Move]]:
    """Groups without a gap in the file, whose moves all convert or all do not."""
    groups: list[list[Move]] = []
    for move in moves:
        last = groups[-1][-1] if groups else None
        converts = move.stored != move.wanted
        if last and last.start + last.nbytes == move.start and converts == (last.stored != last.wanted):
            groups[-1].append(move)
        else:
            groups.append([move])
    return groups


def _landed(file: DirectFile, group: Sequence[Move]) -> Landed | None:
    """The run of a group of moves, where their file and their places allow it."""
    block = file.lands
    if not block or any(move.stored != move.wanted or (move.offset - move.start) % LANDING for move in group):
        return None
    start, end = group[0].start // block * block, group[-1].start + group[-1].nbytes
    buffers: list[tuple[bool, slice]] = []
    edges: list[tuple[slice, slice]] = []
    position, staged = start, 0

    def stage(until: int) -> None:
        """The blocks from ``position`` on belong to no move alone."""
        nonlocal staged
        buffers.append((False, slice(staged, staged + until - position)))
        for move in group:
            low, high = max(position, move.start), min(until, move.start + move.nbytes)
            if low < high:
                here, there = staged - position, move.offset - move.start
                edges.append((slice(low + here, high + here), slice(low + there, high + there)))
        staged += until - position

    for move in group:
        first, last = -(-move.start // block) * block, (move.start + move.nbytes) // block * block
        if first < last:
            if position < first:
                stage(first)
            shift = move.offset - move.start
            buffers.append((True, slice(first + shift, last + shift)))
            position = last
    if position < end:
        stage(-(-end // block) * block)
    if staged > BLOCK:
        return None
    return Landed(file, start, end - start, tuple(buffers), tuple(edges))


def _staged(file: CheckpointFile, group: Sequence[Move]) -> list[Staged]:
    """Runs of at most BLOCK bytes."""
    runs: list[Staged] = []
    for move in group:
        while move.nbytes:
            last = runs[-1] if runs else None
            room = BLOCK - last.nbytes if last else 0
            if last is None or room < move.stored.itemsize or last.nbytes % move.stored.itemsize:
                last = Staged(file, move.start, 0, ())
                runs.append(last)
                room = BLOCK
            part = move.first(min(move.nbytes, room // move.stored.itemsize * move.stored.itemsize))
            placed = part._replace(start=part.start - last.offset)
            runs[-1] = replace(last, nbytes=last.nbytes + part.nbytes, moves=(*last.moves, placed))
            move = move.after(part)
    return runs
