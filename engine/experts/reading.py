"""Files of a checkpoint, read at a position by several threads at once, each in the way that system and disk allow."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from engine.errors import ModelError
from engine.hardware import disk

SLACK = 2 * disk.LARGEST_ALIGNMENT  # bytes of staging beside what is wanted: a direct read covers whole blocks


def checkpoint_file(path: Path, way: disk.Way, lands: int = 0) -> CheckpointFile:
    """The file, unopened, to be read in this way: ``direct`` only where ``disk.refuses_direct`` says no.

    lands: what ``disk.lands_anywhere`` says.
    """
    if not hasattr(os, "preadv"):
        return SeekingFile(path)
    return DirectFile(path, lands) if way == "direct" else PositionalFile(path, dropping=way == "dropping")


class _OneDescriptor(ABC):
    """A descriptor for all threads. Opened when first read, and anew when the file was replaced: a repaired or replaced
    one serves the read after a failure."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        self._doubtful = False  # a read failed: the next one looks whether the file was replaced
        self._retired: list[int] = []  # those that failed; another thread may still be reading there
        self._opening = threading.Lock()

    def close(self) -> None:
        with self._opening:
            for descriptor in (self._descriptor, *self._retired):
                if descriptor >= 0:
                    os.close(descriptor)
            self._descriptor = -1
            self._retired.clear()

    def _ready(self) -> int:
        descriptor = self._descriptor  # looked at once: another thread may retire it meanwhile
        if descriptor >= 0 and not self._doubtful:
            return descriptor
        with self._opening:
            if self._doubtful:
                self._doubtful = False
                if self._descriptor >= 0 and not _still_there(self._descriptor, self.path):
                    self._retired.append(self._descriptor)
                    self._descriptor = -1
            if self._descriptor < 0:
                self._descriptor = self._opened()
            return self._descriptor

    @abstractmethod
    def _opened(self) -> int:
        """A new descriptor. Raises OSError."""

    def _failed(self, error: OSError) -> ModelError:
        self._doubtful = True
        return _unreadable(self.path, error)


class PositionalFile(_OneDescriptor):
    """``preadv`` through the system's file cache. dropping: the cache gives up its copy after each read."""

    def __init__(self, path: Path, dropping: bool = False) -> None:
        super().__init__(path)
        self._dropping = dropping

    def fill(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Fill the buffers, one after the other, from ``offset`` on. Raises ModelError if it cannot."""
        try:
            descriptor = self._ready()
            wanted = sum(map(len, buffers))
            got = os.preadv(descriptor, buffers, offset)
            if got != wanted:
                self._fill_rest(descriptor, buffers, offset, got, wanted)
            if self._dropping:
                disk.drop(descriptor, offset, wanted)
        except OSError as error:
            raise self._failed(error) from error

    def stage(self, staging: memoryview, offset: int, nbytes: int) -> int:
        """As ``DirectFile.stage``; they begin at 0."""
        self.fill((staging[:nbytes],), offset)
        return 0

    def _opened(self) -> int:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        if self._dropping:  # no reading ahead into the next expert, which nobody would drop
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        return descriptor

    def _fill_rest(self, descriptor: int, buffers: Sequence[memoryview], offset: int, done: int, wanted: int) -> None:
        """A read may bring less than asked for: 2 GB at most, or up to a signal."""
        while done < wanted:
            got = os.preadv(descriptor, _after(buffers, done), offset + done)
            if got == 0:
                raise _shorter(wanted - done)
            done += got


class DirectFile(_OneDescriptor):
    """Past the file cache. The kernel wants offset and length aligned, and the address too unless the file ``lands``.

    lands: the alignment where only offset and length need any, else 0.
    """

    def __init__(self, path: Path, lands: int = 0) -> None:
        super().__init__(path)
        self.lands = lands
        self._block = lands or disk.PAGE

    def stage(self, staging: memoryview, offset: int, nbytes: int) -> int:
        """Bring ``nbytes`` from ``offset`` into ``staging``, which starts at a page and is ``SLACK`` longer.

        Returns where in ``staging`` they begin. Raises ModelError when the file lacks the bytes.
        """
        try:
            descriptor = self._ready()
            start = offset // self._block * self._block
            wanted = offset + nbytes - start
            self._fill(descriptor, [staging[: -(-wanted // self._block) * self._block]], start, wanted)
            return offset - start
        except OSError as error:
            raise self._failed(error) from error

    def land(self, buffers: Sequence[memoryview], start: int, wanted: int) -> None:
        """Fill the buffers, whole blocks each, from ``start``, a block's, on; the first ``wanted`` bytes must be there.

        Only where the file ``lands``. Raises ModelError when the file lacks the bytes.
        """
        try:
            self._fill(self._ready(), buffers, start, wanted)
        except OSError as error:
            raise self._failed(error) from error

    def _fill(self, descriptor: int, buffers: Sequence[memoryview], start: int, wanted: int) -> None:
        done = os.preadv(descriptor, buffers, start)
        while done < wanted:
            whole = done // self._block * self._block  # reads go on at a block; at the file's end with the same again
            got = os.preadv(descriptor, _after(buffers, whole), start + whole)
            if whole + got <= done:
                raise _shorter(wanted - done)
            done = whole + got

    def _opened(self) -> int:
        descriptor = disk.open_direct(self.path)
        self._block = disk.alignment(descriptor)
        return descriptor


class SeekingFile:
    """Where there is no ``preadv`` (Windows): a handle for each thread, ``seek`` and ``readinto``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handles: dict[int, BinaryIO] = {}  # by thread
        self._retired: list[BinaryIO] = []
        self._doubtful = False  # as above
        self._opening = threading.Lock()

    def fill(self, buffers: Sequence[memoryview], offset: int) -> None:
        """As ``PositionalFile.fill``."""
        try:
            if self._doubtful:
                self._retire()
            handle = self._handles.get(threading.get_ident()) or self._open()
            handle.seek(offset)
            for buffer in buffers:
                done = 0
                while done < len(buffer):
                    got = handle.readinto(buffer[done:])  # type: ignore[attr-defined]
                    if not got:
                        raise _shorter(len(buffer) - done)
                    done += got
        except OSError as error:
            self._doubtful = True
            raise _unreadable(self.path, error) from error

    def stage(self, staging: memoryview, offset: int, nbytes: int) -> int:
        """As ``DirectFile.stage``; they begin at 0."""
        self.fill((staging[:nbytes],), offset)
        return 0

    def close(self) -> None:
        with self._opening:
            for handle in (*self._handles.values(), *self._retired):
                handle.close()
            self._handles.clear()
            self._retired.clear()

    def _open(self) -> BinaryIO:
        with self._opening:
            handle = self._handles[threading.get_ident()] = self.path.open("rb", buffering=0)
            return handle

    def _retire(self) -> None:
        """Of every thread, those that the file's name does not stand for any more."""
        with self._opening:
            self._doubtful = False
            for thread, handle in list(self._handles.items()):
                if not _still_there(handle.fileno(), self.path):
                    self._retired.append(self._handles.pop(thread))


CheckpointFile = PositionalFile | DirectFile | SeekingFile


def _still_there(descriptor: int, path: Path) -> bool:
    """Whether what is open is what the path names now: else reads that fail again and again would open it each time."""
    try:
        ours, theirs = os.fstat(descriptor), path.stat()
    except OSError:
        return False
    return (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)


def _after(buffers: Sequence[memoryview], done: int) -> list[memoryview]:
    """What of the buffers is left when ``done`` bytes are in."""
    left = []
    for buffer in buffers:
        if done < len(buffer):
            left.append(buffer[done:])
        done = max(0, done - len(buffer))
    return left


def _shorter(missing: int) -> OSError:
    return OSError(None, f"it became shorter by {missing:,} bytes or more while it was in use")


def _unreadable(path: Path, error: OSError) -> ModelError:
    return ModelError(f"{path} cannot be read any more: {error.strerror or error}.")
