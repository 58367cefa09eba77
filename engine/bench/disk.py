"""What a disk gives a plain reader, and keeping a file out of the system's file cache.

The plain reader is the yardstick for the expert store: blocks of one size from given places, past the file cache, into
one buffer per reader, and nothing done with them.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.hardware.disk import (
    BLOCK,
    CAN_DROP,
    LARGEST_ALIGNMENT,
    PAGE,
    Span,
    aligned_buffer,
    alignment,
    drop,
    open_direct,
    refuses_direct,
)
from engine.hardware.limits import ram

CACHE_SHARE = 0.5  # of the free memory that files may take in the file cache


@dataclass(frozen=True, slots=True)
class Rate:
    """bytes per second, and whether the file cache was passed by; ``note``: why not, a sentence."""

    bytes_per_second: float
    direct: bool
    note: str = ""


def read_rate(spans: Sequence[Span], readers: int) -> Rate:
    """Read ``spans``, so many at a time, and say how fast. Rounds them outwards to what direct reads want.

    Where the system or the file system has no direct reads, the file's cached pages are dropped first and reads go
    through the cache; where that cannot be had either, the note says that the figure may be the cache's.
    """
    files = {span.file for span in spans}
    direct = not refuses_direct(sorted(files))
    note = ""
    if not direct:
        note = "There are no reads past the file cache here, so the plain reader read through it."
        if not drop_pages(files):
            note += " Pages in the file cache could not be dropped: the figure may be the cache's."
    plain = os.O_RDONLY | getattr(os, "O_BINARY", 0)
    handles = {file: open_direct(file) if direct else os.open(file, plain) for file in files}
    try:
        shares = [spans[first::readers] for first in range(readers)]
        longest = max(span.nbytes for span in spans)
        buffers = [aligned_buffer(longest + 2 * LARGEST_ALIGNMENT) for _ in shares]
        for buffer in buffers:
            buffer[::PAGE] = bytes(len(buffer[::PAGE]))  # memory is had at the first touch: that is not the disk's time
        began = time.perf_counter()
        with ThreadPoolExecutor(readers) as pool:
            read = sum(pool.map(lambda share, buffer: _read_all(handles, share, buffer), shares, buffers))
        return Rate(read / (time.perf_counter() - began), direct, note)
    finally:
        for handle in handles.values():
            os.close(handle)


def _read_all(handles: dict[Path, int], spans: Sequence[Span], buffer: memoryview) -> int:
    """Read every span into the one buffer; the bytes read."""
    done = 0
    for span in spans:
        handle = handles[span.file]
        block = alignment(handle) if hasattr(os, "fstatvfs") else PAGE
        start = span.offset // block * block
        length = -(-(span.offset + span.nbytes) // block) * block - start
        got = 0
        while got < span.offset + span.nbytes - start:
            read = _read_at(handle, buffer[got:length], start + got)
            if read <= 0:
                break  # the file became shorter
            got += read
        done += got
    return done


def _read_at(handle: int, target: memoryview, offset: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(handle, [target], offset)
    os.lseek(handle, offset, os.SEEK_SET)  # one reader for each handle is enough where this is all there is
    data = os.read(handle, len(target))
    target[: len(data)] = data
    return len(data)


# --------------------------------------------------------------------------------------------- the file cache


def drop_pages(files: Iterable[Path]) -> bool:
    """Ask the system to forget the cached pages of ``files``; False where it cannot be asked.

    Pages that some process has mapped stay: ``cached_share`` says what came of it.
    """
    if not CAN_DROP:
        return False
    for file in files:
        handle = os.open(file, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):
                os.fsync(handle)  # a page that is not written yet cannot be dropped
            drop(handle, 0, os.fstat(handle).st_size)
        finally:
            os.close(handle)
    return True


def fill_pages(files: Iterable[Path]) -> bool:
    """Read ``files`` into the file cache; False when they would not fit beside what uses memory now."""
    files = list(files)
    if sum(file.stat().st_size for file in files) > ram().available * CACHE_SHARE:
        return False
    buffer = bytearray(BLOCK)
    for file in files:
        with file.open("rb", buffering=0) as handle:
            while handle.readinto(buffer):
                pass
    return True


def whole_files(files: Iterable[Path]) -> list[Span]:
    """All of every file."""
    return [Span(file, 0, file.stat().st_size) for file in files]


def cached_share(spans: Iterable[Span]) -> float | None:
    """How much of ``spans`` is in the file cache, 0..1; None where the system does not tell (it does on Linux)."""
    if not sys.platform.startswith("linux"):
        return None
    by_file: dict[Path, list[Span]] = {}
    for span in spans:
        by_file.setdefault(span.file, []).append(span)
    cached = pages = 0
    for file, parts in by_file.items():
        found = _cached_pages(file)
        if found is None:
            return None
        before = np.concatenate([[0], np.cumsum(found)])  # cached pages before each page
        for part in parts:
            first, end = part.offset // mmap.PAGESIZE, -(-(part.offset + part.nbytes) // mmap.PAGESIZE)
            cached += int(before[end] - before[first])
            pages += end - first
    return cached / pages if pages else None


def _cached_pages(file: Path) -> np.ndarray | None:
    """bool ``[pages]``, by mincore(2): mapping a file reads nothing of it. None where the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    size = file.stat().st_size
    answer = np.zeros(-(-size // mmap.PAGESIZE), np.uint8)
    if not size:
        return answer
    with file.open("rb") as handle:
        address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, handle.fileno(), 0)
    if address in (None, ctypes.c_void_p(-1).value):
        return None
    try:
        if libc.mincore(address, size, answer.ctypes.data) != 0:
            return None
    finally:
        libc.munmap(address, size)
    return answer & 1  # the other bits mean nothing
