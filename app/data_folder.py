"""Moving the user's data to another folder so that nothing can be lost.

Copy, verify, switch, and keep the old until the user lets it go:

1. ``check`` refuses what cannot work: no room, a folder with other things in it, one inside the other.
2. ``copy`` brings every file over and reads it back. It can be stopped and run again: what is there is left alone.
3. When the program has closed its files, ``finish`` copies what changed meanwhile and only then writes down where the
   data are. Whatever is interrupted before that leaves the old folder in use, complete.

Plain functions and files, no widget.
"""

from __future__ import annotations

import filecmp
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from app.panels import format
from engine.errors import GreenroomError
from engine.paths import POINTER, Moved, default_dir, moved, note_move, set_from_outside

MARK = ".greenroom-move"  # in the new folder, until the move is over: a line for each file that it brought
COARSE = 2_000_000_000  # ns: some disks keep times no finer
ALWAYS_WRITTEN = ("logs", "search.sqlite", "search.sqlite-wal", "search.sqlite-shm")
RESERVE = 100_000_000  # bytes that stay free on the new disk
CHUNK = 1 << 20

Stopped: TypeAlias = Callable[[], bool]
Told: TypeAlias = Callable[[int, int], None]  # bytes done, bytes in all


class MoveRefused(GreenroomError):
    """The data stay where they are; the text says why."""


@dataclass(frozen=True, slots=True)
class Move:
    """From where to where."""

    old: Path
    new: Path


def check(move: Move) -> int:
    """The bytes to copy. Raises MoveRefused with a sentence when it cannot be done."""
    old, new = move.old.resolve(), move.new.resolve()
    if set_from_outside():
        raise MoveRefused("GREENROOM_DATA, or --data, says where the data are; change it there.")
    if old == new:
        raise MoveRefused("The data are in that folder already.")
    if new.is_relative_to(old) or old.is_relative_to(new):
        raise MoveRefused("One folder lies in the other. Choose one that is apart from the present one.")
    if new.exists() and not new.is_dir():
        raise MoveRefused(f"{new} is a file. Choose a folder.")
    try:
        if new.is_dir() and not set(_files(new, strict=True)) <= _brought(new):
            raise MoveRefused(f"{new} is not empty. Choose an empty folder, or make a new one in it.")
        size = sum(path.lstat().st_size for path in _files(old, strict=True))
    except OSError as error:
        raise MoveRefused(f"{error.filename or old} cannot be read: {error.strerror or error}.") from error
    there = next(folder for folder in (new, *new.parents) if folder.exists())
    try:
        free = shutil.disk_usage(there).free
        new.mkdir(parents=True, exist_ok=True)
        (new / MARK).touch()
    except OSError as error:
        raise MoveRefused(f"Nothing can be written to {new}: {error.strerror or error}.") from error
    present = sum(path.lstat().st_size for path in _files(new))
    if free + present < size + RESERVE:
        (new / MARK).unlink(missing_ok=True)
        short = format.size(size + RESERVE - free - present)
        raise MoveRefused(f"The data need {format.size(size)}, and {short} are missing on that disk.")
    return size


def copy(move: Move, stopped: Stopped, told: Told = lambda done, total: None) -> None:
    """Bring over what is not there yet or differs, and read each file back. Raises MoveRefused.

    Stopped half way, it leaves a folder with the mark in it, and the old one untouched.
    """
    try:
        files = sorted(_files(move.old, strict=True))
        total, done = sum(path.lstat().st_size for path in files), 0
        for path in files:
            if stopped():
                return
            target = move.new / path.relative_to(move.old)
            size = path.lstat().st_size
            if not _same(path, target):
                _note(move.new, target)
                _bring(path, target)
            done += size
            told(min(done, total), total)
        wanted = {move.new / path.relative_to(move.old) for path in files}
        for gone in _brought(move.new) - wanted:  # it was copied, and is gone from the old folder since
            gone.unlink(missing_ok=True)
    except OSError as error:
        where = error.filename or move.new
        raise MoveRefused(
            f"{where} could not be copied: {error.strerror or error}. The data stay where they are."
        ) from error


def finish(move: Move) -> None:
    """Copy what changed since ``copy``, then say where the data are from now on. Raises MoveRefused, OSError.

    Only when nothing writes to the old folder any more.
    """
    copy(move, lambda: False)
    files = _files(move.old, strict=True)
    missing = [path for path in files if not _same(path, move.new / path.relative_to(move.old))]
    if missing:
        raise MoveRefused(f"{missing[0].name} changed while it was copied. The data stay where they are; try again.")
    note_move(Moved(str(move.new.resolve()), str(move.old.resolve())))
    (move.new / MARK).unlink(missing_ok=True)


def give_up(move: Move) -> None:
    """Remove what was copied, and nothing else, unless it is in use by now."""
    if (move.new / MARK).exists():
        _empty(move.new, _brought(move.new))


def old_copy() -> Path | None:
    """The folder that the data were moved from, while it is still there."""
    note = moved()
    if note is None or not note.old or set_from_outside():
        return None
    return Path(note.old) if any(_files(Path(note.old))) else None


def delete_old_copy(stopped: Stopped = lambda: False) -> None:
    """Let go of it. The note that says where the data are stays. Raises MoveRefused."""
    note, old = moved(), old_copy()
    if note is None or old is None:
        return
    if old.resolve() == Path(note.folder).resolve():
        raise MoveRefused("That folder is in use.")
    try:
        later = _changed_since_the_move(old)
        if later is not None:
            raise MoveRefused(
                f"{later} was changed after the move: another window of Greenroom may still use that folder. Close it, "
                "bring over what is missing, then delete the folder yourself."
            )
        _empty(old, set(_files(old)))
    except OSError as error:
        raise MoveRefused(f"{error.filename or old} could not be deleted: {error.strerror or error}.") from error
    note_move(Moved(note.folder))


def size_of(folder: Path) -> int:
    """Bytes of the files in it."""
    return sum(path.lstat().st_size for path in _files(folder))


def _changed_since_the_move(old: Path) -> Path | None:
    """A file that somebody has written there after everything was copied."""
    noted = (default_dir() / POINTER).stat().st_mtime_ns
    for path in _files(old):
        if path.relative_to(old).parts[0] not in ALWAYS_WRITTEN and path.lstat().st_mtime_ns > noted:
            return path
    return None


def _brought(new: Path) -> set[Path]:
    """What a move, perhaps one that broke off, has brought into the folder, half files included."""
    try:
        lines = (new / MARK).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return set()
    brought = {new / name for name in map(_noted, lines) if name}
    return brought | {path for path in _files(new) if path.name.endswith(MARK)}


def _noted(line: str) -> str:
    """The name that ``_note`` wrote, below the new folder; "" where it wrote no such line to its end."""
    try:
        name = json.loads(line)
    except ValueError:
        return ""
    safe = isinstance(name, str) and not Path(name).is_absolute() and ".." not in Path(name).parts
    return name if safe else ""


def _note(new: Path, target: Path) -> None:
    """This file is the move's, from before it is there."""
    with (new / MARK).open("a", encoding="utf-8") as mark:
        mark.write(json.dumps(str(target.relative_to(new))) + "\n")


def _files(folder: Path, strict: bool = False) -> Iterator[Path]:
    """All that is data, links included; folders are made as they are needed. strict: OSError where one may not look."""

    def troubled(error: OSError) -> None:
        if strict:
            raise error

    for place, folders, names in os.walk(folder, onerror=troubled):
        here = Path(place)
        for name in names + [name for name in folders if (here / name).is_symlink()]:
            if not (here == folder and name in (MARK, POINTER)):
                yield here / name


def _empty(folder: Path, files: set[Path]) -> None:
    """Delete these files of it, the mark, and folders with nothing in them."""
    for path in files:
        path.unlink(missing_ok=True)
    (folder / MARK).unlink(missing_ok=True)
    inside = [path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink()]
    for inner in [*sorted(inside, key=lambda path: -len(path.parts)), folder]:
        if not any(inner.iterdir()):
            inner.rmdir()


def _same(path: Path, copied: Path) -> bool:
    """Same size and time of change, or as good a time as a coarse disk keeps and the same content; links: the same
    target. Content is compared when it is copied."""
    if path.is_symlink():
        return copied.is_symlink() and path.readlink() == copied.readlink()
    try:
        first, second = path.stat(), copied.stat()
    except FileNotFoundError:
        return False
    apart = abs(first.st_mtime_ns - second.st_mtime_ns)
    if first.st_size != second.st_size or apart > COARSE:
        return False
    return not apart or filecmp.cmp(path, copied, shallow=False)


def _bring(path: Path, target: Path) -> None:
    """One file, whole or not at all. OSError when it does not read back as it was written."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        target.unlink(missing_ok=True)
        target.symlink_to(path.readlink())
        return
    draft = target.with_name(f"{target.name}{MARK}")
    try:
        before = path.stat()
        with path.open("rb") as source, draft.open("wb") as copied:
            digest = hashlib.sha256()
            while piece := source.read(CHUNK):
                digest.update(piece)
                copied.write(piece)
            copied.flush()
            os.fsync(copied.fileno())
        with draft.open("rb") as copied:
            if hashlib.file_digest(copied, "sha256").digest() != digest.digest():
                raise OSError(None, "the disk gave back something else than was written", str(target))
        shutil.copystat(path, draft)
        os.utime(draft, ns=(before.st_atime_ns, before.st_mtime_ns))
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
