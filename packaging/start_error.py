"""Why a start fails, in words for the person who wanted to chat."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

_MB, _GB = 1_000_000, 1_000_000_000
_FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}
_WINDOWS_FULL = 112


class StartError(Exception):
    """Why it cannot go on, in a sentence or two for the user; ``log`` is the file that says more, where not pip's."""

    heading = "Greenroom cannot start"
    log: Path | None = None


class ProgramDied(StartError):
    """The program was open and is no more."""

    heading = "Greenroom has ended"

    def __init__(self, text: str, log: Path) -> None:
        super().__init__(text)
        self.log = log


def from_os(error: OSError, folder: Path, what: str) -> StartError:
    """The sentence for what the system refused while ``what`` was done in ``folder``."""
    if error.errno in _FULL or getattr(error, "winerror", None) == _WINDOWS_FULL:
        return StartError(disk_full(folder))
    if error.errno in _REFUSED:
        return StartError(not_writable(folder))
    return StartError(f"{what} failed in {folder}: {error.strerror or error}.")


def disk_full(folder: Path) -> str:
    """The sentence for a disk without room, with what it has."""
    return (
        f"the disk that holds {folder} is full ({_free(folder)} free). Greenroom needs about 3 GB (about 9 GB with a "
        "graphics card); free some space and start again."
    )


def not_writable(folder: Path) -> str:
    """The sentence for a folder that is not the user's."""
    return (
        f"{folder} may not be written to. Move the whole Greenroom folder to a place of your own, such as your home "
        "folder, and start it there."
    )


def require_room(folder: Path, needed: int) -> None:
    """StartError when less than ``needed`` bytes are free; better now than at the end of a long download."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return  # a file system that does not say
    if usage.total and usage.free < needed:
        raise StartError(
            f"only {size(usage.free)} are free on the disk that holds {folder}, and this step needs about "
            f"{size(needed)}. Free some space, or move the Greenroom folder to a larger disk, and start again."
        )


def size(count: int) -> str:
    """A number of bytes in GB or MB."""
    return f"{count / _GB:.1f} GB" if count >= _GB else f"{count // _MB} MB"


def _free(folder: Path) -> str:
    try:
        return size(shutil.disk_usage(folder).free)
    except OSError:
        return "nothing"
