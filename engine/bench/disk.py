"""What a disk gives a plain reader, and keeping a file out of the system's file cache.

The plain reader is the yardstick for the expert store: blocks of one size from given places, past the file cache
(O_DIRECT), into one buffer per reader, and nothing done with them.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

PAGE = 4096  # what O_DIRECT wants places, lengths and memory to be multiples of


@dataclass(frozen=True, slots=True)
class Rate:
    """bytes per second, and whether the file cache was passed by; ``note``: why not, a sentence."""

    bytes_per_second: float
    direct: bool
    note: str = ""


def read_rate(blocks: Sequence[tuple[Path, int, int]], readers: int) -> Rate:
    """Read ``blocks`` (file, offset, bytes), so many at a time, and say how fast. Rounds them outwards to pages.

    Where the system or the file system has no direct reads, the file's cached pages are dropped first and reads go
    through the cache; where that cannot be had either, the note says that the figure may be the cache's.
    """
    direct, note = _directness(blocks[0][0])
    files = {file for file, _, _ in blocks}
    if not direct:
        dropped = drop_pages(files)
        note += "" if dropped else " Pages in the file cache could not be dropped: the figure may be the cache's."
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | (os.O_DIRECT if direct else 0)
    handles = {file: os.open(file, flags) for file in files}
    try:
        places = [(handles[file], offset, nbytes) for file, offset, nbytes in blocks]
        began = time.perf_counter()
        with ThreadPoolExecutor(readers) as pool:
            read = sum(pool.map(_read_all, [places[first::readers] for first in range(readers)]))
        return Rate(read / (time.perf_counter() - began), direct, note)
    finally:
        for handle in handles.values():
            os.close(handle)


def _directness(file: Path) -> tuple[bool, str]:
    if not hasattr(os, "O_DIRECT") or not hasattr(os, "preadv"):
        return False, "This system has no reads past the file cache, so the plain reader read through it."
    try:
        handle = os.open(file, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return False, f"The file system of {file.parent} has no reads past the file cache; they went through it."
    os.close(handle)
    return True, ""


def _read_all(places: Sequence[tuple[int, int, int]]) -> int:
    """Read every place into one page-aligned buffer; the bytes read."""
    longest = max((nbytes for _, _, nbytes in places), default=0)
    done = 0
    with mmap.mmap(-1, longest + 2 * PAGE) as buffer, memoryview(buffer) as view:
        view[::PAGE] = bytes(len(view[::PAGE]))  # memory is had at the first touch: that is not the disk's time
        for handle, offset, nbytes in places:
            start = offset // PAGE * PAGE
            length = -(-(offset + nbytes) // PAGE) * PAGE - start
            got = 0
            while got < nbytes:
                with view[got:length] as rest:
                    read = _read_at(handle, rest, start + got)
                if read <= 0:
                    break  # the end of the file lies inside the last page
                got += read
            done += got
    return done


def _read_at(handle: int, target: memoryview, offset: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(handle, [target], offset)
    os.lseek(handle, offset, os.SEEK_SET)
    data = os.read(handle, len(target))
    target[: len(data)] = data
    return len(data)


# --------------------------------------------------------------------------------------------- the file cache


def can_drop_pages() -> bool:
    return hasattr(os, "posix_fadvise")


def drop_pages(files: Iterable[Path]) -> bool:
    """Ask the system to forget the cached pages of ``files``; False where it cannot be asked.

    Pages that some process has mapped, or that are not written yet, stay: ``cached_share`` says what came of it.
    """
    if not can_drop_pages():
        return False
    for file in files:
        handle = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)
    return True


def cached_share(files: Iterable[Path]) -> float | None:
    """How much of ``files`` is in the file cache, 0..1; None where the system does not tell (it does on Linux)."""
    if not sys.platform.startswith("linux"):
        return None
    cached = pages = 0
    for file in files:
        handle = os.open(file, os.O_RDONLY)
        try:
            size = os.fstat(handle).st_size
            found = _cached_pages(handle, size) if size else 0
        finally:
            os.close(handle)
        if found is None:
            return None
        cached, pages = cached + found, pages + -(-size // mmap.PAGESIZE)
    return cached / pages if pages else None


def _cached_pages(handle: int, size: int) -> int | None:
    """mincore(2): mapping a file reads nothing of it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, handle, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        return None
    try:
        vector = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        if libc.mincore(address, size, vector) != 0:
            return None
        return sum(bytes(vector).translate(_LOWEST_BIT))
    finally:
        libc.munmap(address, size)


_LOWEST_BIT = bytes(value & 1 for value in range(256))  # of mincore's answer, the other bits mean nothing
