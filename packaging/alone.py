"""One start.py at a time: a second would take the first one's half-made environment for a broken one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_POLL = 0.2  # seconds


@contextmanager
def alone(file: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock on an existing file while the body runs; the system drops it when the process dies.

    Waits for whoever holds it. Where files cannot be locked the body runs all the same.
    """
    with file.open("rb") as held:
        waited = False
        while not _locked(held):
            if not waited:
                say("Another start.py is at work on the environment; waiting for it.")
                waited = True
            time.sleep(_POLL)
        yield


def _locked(held: BinaryIO) -> bool:
    """Try once; False when another process has it."""
    if sys.platform == "win32":
        import msvcrt

        held.seek(1 << 30)  # far behind the content, which others go on reading
        try:
            msvcrt.locking(held.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks
    return True
