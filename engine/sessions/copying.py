"""A log as a new conversation in the data folder: one that somebody handed over, or a second one of our own."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from engine.errors import SessionError
from engine.sessions import appendfile
from engine.sessions.export import export_jsonl
from engine.sessions.log import SessionLog, new_path
from engine.sessions.reader import read_conversation


def import_log(source: Path, folder: Path) -> Path:
    """Copy a log into ``folder``, which is made when it is not there; the copy's path.

    SessionError when it is no log, holds no message that can be read, or cannot be copied; nothing is left behind then.
    """
    if source.exists() and not source.is_file() and not source.is_dir():  # one could wait forever for a pipe's end
        raise SessionError(f"“{source.name}” is no file that could be read to its end, so it cannot be imported.")
    if source.is_symlink() and not source.exists():
        raise SessionError(f"“{source.name}” is a link that leads nowhere.")
    if not read_conversation(source).messages:
        raise SessionError(f"“{source.name}” holds no message that can be read, so there is nothing to import.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        needed, free = source.stat().st_size, shutil.disk_usage(folder).free
    except OSError as error:
        raise appendfile.failure(folder, error) from error
    if needed > free:
        raise SessionError(f"“{source.name}” takes {needed / 1e6:,.1f} MB and the disk has {free / 1e6:,.1f} MB left.")
    target = new_path(folder)
    export_jsonl(source, target)
    return target


def duplicate(path: Path, title: str) -> Path:
    """A second conversation with all of the first one, beside it and under this title. Raises like ``import_log``."""
    target = import_log(path, path.parent)
    try:
        with SessionLog.open(target) as log:
            log.append_title(title)
    except SessionError:
        with suppress(OSError):
            target.unlink()
        raise
    return target
