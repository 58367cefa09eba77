"""Reading past the system's file cache, and how fast this disk gives this file.

Three ways to read: ``direct`` (past the cache: O_DIRECT on Linux, F_NOCACHE on macOS), ``buffered`` (through the cache,
which keeps what it likes) and ``dropping`` (through the cache, whose copy is given up after each read).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Literal, NamedTuple

Way = Literal["direct", "buffered", "dropping"]

PAGE = 4096  # bytes; what direct reads are aligned to unless the file system wants more
LARGEST_ALIGNMENT = 16 * PAGE
LANDING = 8  # bytes; as safetensors aligns its tensors
BLOCK = 4 << 20  # bytes of one direct read: enough to keep a solid-state disk busy, little enough to copy meanwhile
IN_FLIGHT = 2  # reads at once while measuring

CAN_DROP = hasattr(os, "posix_fadvise")
_DIRECT_FLAG = getattr(os, "O_DIRECT", 0)
_NOT_INHERITED = getattr(os, "O_CLOEXEC", 0)


class Span(NamedTuple):
    """A run of bytes in a file."""

    file: Path
    offset: int
    nbytes: int


def open_direct(file: Path) -> int:
    """A descriptor whose reads pass the file cache. Raises OSError where system or file system do not offer that."""
    if _DIRECT_FLAG:
        return os.open(file, os.O_RDONLY | _NOT_INHERITED | _DIRECT_FLAG)
    if sys.platform == "darwin":
        import fcntl

        descriptor = os.open(file, os.O_RDONLY | _NOT_INHERITED)
        try:
            fcntl.fcntl(descriptor, fcntl.F_NOCACHE, 1)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor
    raise OSError(None, "this system has no direct reads")


def alignment(descriptor: int) -> int:
    """Bytes that offset, length and memory address of a direct read must be multiples of."""
    wanted = os.fstatvfs(descriptor).f_bsize
    return wanted if PAGE < wanted <= LARGEST_ALIGNMENT and wanted % PAGE == 0 else PAGE


def aligned_buffer(nbytes: int) -> memoryview:
    """Writable memory that starts at a page: what direct reads land in."""
    return memoryview(mmap.mmap(-1, -(-nbytes // PAGE) * PAGE))


def refuses_direct(files: Sequence[Path]) -> bool:
    """Whether a direct read of the first block of any of these files fails. A missing file refuses."""
    if not hasattr(os, "preadv"):
        return True
    buffer = aligned_buffer(LARGEST_ALIGNMENT)
    for file in files:
        try:
            descriptor = open_direct(file)
        except OSError:
            return True
        try:
            os.preadv(descriptor, [buffer[: alignment(descriptor)]], 0)
        except OSError:
            return True
        finally:
            os.close(descriptor)
    return False


def lands_anywhere(files: Sequence[Path]) -> int:
    """The alignment (bytes) of offset and length where direct reads of all these files may land at any multiple of
    ``LANDING``, else 0.

    Linux asks memory to be aligned as the disk's own transfers are: 4 bytes for most NVMe drives, 512 for others.
    """
    largest = 0
    for file in files:
        try:
            descriptor = open_direct(file)
        except OSError:
            return 0
        try:
            block = alignment(descriptor)
            largest = max(largest, block)
            os.preadv(descriptor, [aligned_buffer(block + PAGE)[LANDING : LANDING + block]], 0)
        except OSError:
            return 0
        finally:
            os.close(descriptor)
    return largest


def drop(descriptor: int, offset: int, nbytes: int) -> None:
    """Ask the file cache to give up its copy of these bytes, and of the rest of the pages they lie in."""
    start = offset // PAGE * PAGE
    with contextlib.suppress(OSError):  # advice: a file system may have no cache to drop from
        os.posix_fadvise(descriptor, start, -(-(offset + nbytes) // PAGE) * PAGE - start, os.POSIX_FADV_DONTNEED)


def measure(
    spans: Sequence[Span], ways: Sequence[Way], seconds: float, most: int, copies: bool = True
) -> dict[Way, float]:
    """Way -> bytes/s, each span read once, the ways in turn; 0.0 where no span was left for a way.

    seconds, most: time and bytes after which no further span is begun. What ``dropping`` reads is dropped from the
    cache before the clock starts, so that it is the disk that is measured. copies: direct reads do not land in place.
    Raises OSError.
    """
    got: dict[Way, list[float]] = {way: [0.0, 0.0] for way in ways}  # bytes, seconds
    began, total = perf_counter(), 0
    with ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="greenroom-disk") as pool, _Files(copies) as files:
        size = BLOCK + 2 * LARGEST_ALIGNMENT
        memory = [(aligned_buffer(size), bytearray(size)) for _ in range(IN_FLIGHT)]
        for turn, first in enumerate(range(0, len(spans), IN_FLIGHT)):
            if total and (perf_counter() - began >= seconds or total >= most):
                break
            way = ways[turn % len(ways)]
            batch = [span._replace(nbytes=min(span.nbytes, BLOCK)) for span in spans[first : first + IN_FLIGHT]]
            if way == "dropping":
                for span in batch:
                    drop(files.descriptor(span.file, way), span.offset, span.nbytes)
            for span in batch:
                files.descriptor(span.file, way)  # opening is not reading
            start = perf_counter()
            list(pool.map(lambda span, place, way=way: files.read(span, way, *place), batch, memory))
            got[way][1] += perf_counter() - start
            read = sum(span.nbytes for span in batch)
            got[way][0] += read
            total += read
    return {way: count / taken if taken else 0.0 for way, (count, taken) in got.items()}


def spread(spans: Sequence[Span], count: int) -> Iterator[Span]:
    """At most ``count`` of them, from all over the list."""
    step = max(1, len(spans) // count)
    yield from spans[::step][:count]


class _Files:
    """Descriptors of one measurement."""

    def __init__(self, copies: bool) -> None:
        self._copies = copies
        self._open: dict[tuple[Path, bool], int] = {}

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *failure: object) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)

    def descriptor(self, file: Path, way: Way) -> int:
        key = (file, way == "direct")
        if key not in self._open:
            flags = os.O_RDONLY | _NOT_INHERITED | getattr(os, "O_BINARY", 0)
            self._open[key] = open_direct(file) if way == "direct" else os.open(file, flags)
        return self._open[key]

    def read(self, span: Span, way: Way, aligned: memoryview, target: bytearray) -> None:
        """As the store reads: direct reads land in aligned memory and, where they must, are copied from there. Raises
        OSError, also for a file that lacks some of the bytes: what was not read would count as read fast."""
        descriptor = self.descriptor(span.file, way)
        if way == "direct":
            block = alignment(descriptor)
            start = span.offset // block * block
            got = os.preadv(descriptor, [aligned[: -(-(span.offset + span.nbytes) // block) * block - start]], start)
            if self._copies:
                target[:got] = aligned[:got]
            got -= span.offset - start
        elif hasattr(os, "preadv"):
            got = os.preadv(descriptor, [memoryview(target)[: span.nbytes]], span.offset)
        else:
            with open(span.file, "rb", buffering=0) as handle:  # noqa: PTH123 - one handle for each read: no shared position
                handle.seek(span.offset)
                got = handle.readinto(memoryview(target)[: span.nbytes])
        if got < span.nbytes:
            raise OSError(None, f"{span.file} is shorter than it should be")
        if way == "dropping":
            drop(descriptor, span.offset, span.nbytes)
