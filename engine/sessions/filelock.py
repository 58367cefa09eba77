"""One writer per conversation among all windows: an advisory lock that the system drops when the process dies."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger("greenroom.sessions")


def try_lock(path: Path, descriptor: int) -> Callable[[], None] | None:
    """Lock the open file for this process; return what releases it, or None when another process holds it.

    A file system that knows no locks (some network shares) is used without one rather than not at all.
    """
    if sys.platform == "win32":
        return _lock_beside(path)
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return None
        log.warning("no lock on %s: %s", path, error)
    return lambda: None  # closing the descriptor releases it


def _lock_beside(path: Path) -> Callable[[], None] | None:
    """Windows locks bytes against reading too, so the lock is on a file of its own."""
    if sys.platform != "win32":
        raise AssertionError("only called on Windows")
    import msvcrt

    beside = path.with_name(path.name + ".lock")
    try:
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT)
    except PermissionError:
        return None  # the other process is just removing it
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except OSError:
        os.close(descriptor)
        return None

    def release() -> None:
        os.close(descriptor)
        try:
            beside.unlink()
        except OSError:
            log.debug("left %s", beside)

    return release
