"""A log file open for appending, shared by everyone in this process who writes to the same path.

The window thread adds the user's messages while the engine thread adds passes and deltas; both go through one lock
and reach the file in whole lines. Between processes a lock of the system keeps the second window out.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from engine.errors import SessionError
from engine.sessions.filelock import try_lock
from engine.sessions.records import LONGEST_LINE, encode_record, parse_record, read_header

log = logging.getLogger("greenroom.sessions")

FLUSH_SECONDS = 0.5  # what a kill may lose of passes and deltas
KEEP_BYTES = 8 << 20  # of lines kept in memory while the disk takes none

_open_files: dict[Path, AppendFile] = {}
_open_files_lock = threading.Lock()


class AppendFile:
    """One path, one descriptor, one lock. Made by ``acquire``, given back by ``release``."""

    def __init__(self, path: Path, descriptor: int, unlock: Callable[[], None]) -> None:
        self.path = path
        self.holders = 1
        self._descriptor = descriptor
        self._unlock = unlock
        self._lock = threading.Lock()
        self._pending: list[bytes] = []
        self._delta_answer = ""
        self._delta_text: list[str] = []
        self._flushed_at = 0.0
        self._timer: threading.Timer | None = None  # runs while lines wait that nobody may come by to flush
        self._told = False  # the user has heard that the disk takes nothing
        self._torn = False  # a failed write left half a line that could not be cut off

    def buffer(self, line: bytes) -> None:
        """Keep a whole line in memory; everything kept goes out at most FLUSH_SECONDS later."""
        with self._lock:
            self._pending.append(line)
            self._flush_soon()

    def buffer_delta(self, answer: str, text: str) -> None:
        """Like ``buffer``, and pieces of one answer become one record."""
        with self._lock:
            if answer != self._delta_answer:
                self._close_delta()
                self._delta_answer = answer
            self._delta_text.append(text)
            self._flush_soon()

    def write(self, line: bytes) -> None:
        """Put what is kept and then this line on the disk, for good. SessionError when that cannot be promised."""
        if len(line) > LONGEST_LINE:
            raise SessionError(
                f"A message of {len(line) / 1e6:.0f} MB is too long to be saved; {LONGEST_LINE / 1e6:.0f} MB can be."
            )
        with self._lock:
            if os.fstat(self._descriptor).st_nlink == 0:
                raise SessionError(f"“{self.path.name}” was deleted while it was open; nothing more is saved in it.")
            self._close_delta()
            try:
                self._write_all(b"".join(self._pending) + line)
            except OSError as error:
                self._told = True
                raise failure(self.path, error) from error
            self._pending.clear()
            self._told = False
        try:
            os.fsync(self._descriptor)  # outside the lock: the engine's passes need not wait for the disk
        except OSError as error:
            raise failure(self.path, error) from error

    def flush(self) -> None:
        """Hand what is kept to the system. A failure is told once; the lines stay for the next try."""
        with self._lock:
            self._flush()

    def close(self) -> None:
        """Flush, then give the file back to other processes."""
        with self._lock:
            try:
                self._flush()
            finally:
                self._pending.clear()  # a late timer must find nothing: the descriptor's number may be reused
                if self._timer is not None:
                    self._timer.cancel()
                os.close(self._descriptor)
                self._unlock()

    def _flush_soon(self) -> None:
        """Now when the last flush is long enough ago, else by a timer: a slow model's next token may be far away."""
        wait = self._flushed_at + FLUSH_SECONDS - time.monotonic()
        if wait <= 0:
            self._flush()
        elif self._timer is None:
            self._timer = threading.Timer(wait, self._flush_late)
            self._timer.daemon = True
            self._timer.start()

    def _flush_late(self) -> None:
        with self._lock:
            self._timer = None
            told = self._told
            try:
                self._flush()
            except SessionError:
                self._told = told  # nobody to tell on this thread; the next call hears it

    def _flush(self) -> None:
        self._close_delta()
        self._flushed_at = time.monotonic()
        if not self._pending:
            return
        try:
            self._write_all(b"".join(self._pending))
        except OSError as error:
            if sum(map(len, self._pending)) > KEEP_BYTES:
                log.warning("%s: %d lines given up", self.path, len(self._pending))
                self._pending.clear()
            if self._told:
                return
            self._told = True
            raise failure(self.path, error) from error
        self._pending.clear()
        self._told = False

    def _close_delta(self) -> None:
        if self._delta_text:
            text = "".join(self._delta_text)
            self._delta_text.clear()
            self._pending.append(encode_record({"type": "delta", "answer": self._delta_answer, "text": text}))

    def _write_all(self, data: bytes) -> None:
        """All of it or nothing: what a full disk took of a failed write is cut off again."""
        if self._torn:
            data = b"\n" + data  # the half line becomes one damaged line, and ours stay whole
        start = os.fstat(self._descriptor).st_size
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:
            try:
                os.ftruncate(self._descriptor, start)
            except OSError as error:
                log.warning("%s: half a line stays: %s", self.path, error)
                self._torn = True
            raise
        self._torn = False


def acquire(path: Path, first_line: bytes = b"") -> AppendFile:
    """Open ``path`` for appending, or join those in this process who have it open.

    ``first_line`` makes a new file that starts with it, on disk before this returns. Without one the file must be a
    log this program can add to; a torn last line is cut off. SessionError in a sentence for everything else.
    """
    path = path.absolute().resolve()
    with _open_files_lock:
        shared = _open_files.get(path)
        if shared is not None and not first_line:
            shared.holders += 1
            return shared
        flags = os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0)
        if first_line:
            flags |= os.O_CREAT | os.O_EXCL
        try:
            descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            raise failure(path, error) from error
        try:
            opened = _opened(path, descriptor, first_line)
        except BaseException:
            os.close(descriptor)
            if first_line:
                path.unlink(missing_ok=True)
            raise
        _open_files[path] = opened
        return opened


def release(shared: AppendFile) -> None:
    """Give one hold back; the last one closes the file."""
    with _open_files_lock:
        shared.holders -= 1
        if shared.holders:
            last = False
        else:
            last = True
            del _open_files[shared.path]
            shared.close()  # within the lock, so that nobody reopens a file that is still locked
    if not last:
        shared.flush()


def flush_pending(path: Path) -> None:
    """Make what this process still keeps for ``path`` readable in the file."""
    with _open_files_lock:
        shared = _open_files.get(path.absolute().resolve())
    if shared is not None:
        shared.flush()


def is_open(path: Path) -> bool:
    """Whether anybody in this process still adds to ``path``."""
    with _open_files_lock:
        return path.absolute().resolve() in _open_files


def failure(path: Path, error: OSError) -> SessionError:
    """The sentence for a conversation file that could not be opened, read or written."""
    name = f"“{path.name}”"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        text = f"The disk is full, so {name} could not be saved. Free some space; what was saved before is intact."
    elif isinstance(error, FileNotFoundError) and not path.absolute().parent.is_dir():
        text = f"There is no folder {path.absolute().parent} for {name}. Make it, or name another place."
    elif isinstance(error, FileNotFoundError):
        text = f"There is no file {name} in {path.absolute().parent}: it was moved or deleted, or has another name."
    elif isinstance(error, IsADirectoryError) or (isinstance(error, PermissionError) and path.is_dir()):
        text = f"{path} is a folder, not a conversation. Name the file of one, which ends in .jsonl."
    elif isinstance(error, PermissionError) or error.errno == errno.EROFS:
        text = f"Greenroom is not allowed to use {name} in {path.parent}; check the rights of file and folder."
    else:
        text = f"{name} could not be read or written: {error.strerror or error}."
    return SessionError(text)


def _opened(path: Path, descriptor: int, first_line: bytes) -> AppendFile:
    unlock = try_lock(path, descriptor)
    if unlock is None:
        raise SessionError(
            "This conversation is open in another window. Close it there, or go on in a new conversation here."
        )
    try:
        shared = AppendFile(path, descriptor, unlock)
        if first_line:
            shared.write(first_line)
            _sync_folder(path.parent)
        else:
            _check_and_mend(path, descriptor)
    except BaseException:
        unlock()
        raise
    return shared


def _check_and_mend(path: Path, descriptor: int) -> None:
    """Refuse what is no log; cut off a last line that a crash left unfinished."""
    try:
        with path.open("rb") as file:
            read_header(file, path.name)
            size = file.seek(0, os.SEEK_END)
            whole = end_of_last_line(file, size)
            if whole == size:
                return
            file.seek(whole)
            tail = file.read(min(size - whole, LONGEST_LINE + 1))
        if parse_record(tail) is not None:
            os.write(descriptor, b"\n")  # complete; only the line's end is missing
        else:
            os.ftruncate(descriptor, whole)
    except OSError as error:
        raise failure(path, error) from error


def end_of_last_line(file: BinaryIO, size: int) -> int:
    """Offset after the last newline in the file."""
    position = size
    while position > 0:
        start = max(0, position - (1 << 16))
        file.seek(start)
        newline = file.read(position - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        position = start
    return 0


def _sync_folder(folder: Path) -> None:
    """Make the new file's name last through a power cut, where the system can promise that."""
    if os.name != "posix":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        log.debug("folder of %s not synced: %s", folder, error)
    finally:
        os.close(descriptor)
