"""Deleted conversations, kept until their deletion can no longer be undone.

They wait in a folder of their own beside the others. What is still there after a crash was never given up by anybody,
so it comes back.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from engine.errors import SessionError
from engine.sessions import appendfile
from engine.sessions.filelock import try_lock
from engine.sessions.log import new_path

log = logging.getLogger("greenroom.sessions")

ABANDONED = 300.0  # seconds; another window offers its undo for much less


class Trash:
    """For the conversations in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._deleted = folder / "deleted"

    def put(self, path: Path) -> Path:
        """Take a conversation out of the list; where it is now. SessionError when it has to stay.

        The caller has let go of the file; another window that adds to it keeps it.
        """
        try:
            self._check_free(path)
            self._deleted.mkdir(exist_ok=True)
            return path.rename(self._deleted / f"{time.time():.0f}~{path.name}")
        except OSError as error:
            raise appendfile.failure(path, error) from error

    @staticmethod
    def _check_free(path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            unlock = try_lock(path, descriptor)
            if unlock is None:
                raise SessionError("This conversation is open in another window. Close it there before you delete it.")
            unlock()
        finally:
            os.close(descriptor)

    def restore(self, deleted: Path) -> Path:
        """Put it back, under its old name when that is still free."""
        path = self._folder / deleted.name.partition("~")[2]
        if path.exists():
            path = new_path(self._folder)
        try:
            return deleted.rename(path)
        except OSError as error:
            raise appendfile.failure(deleted, error) from error

    def purge(self, deleted: Path) -> None:
        """Nobody wants it back: remove it for good."""
        try:
            deleted.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s could not be removed: %s", deleted, error)

    def recover(self) -> list[Path]:
        """Put back what a program that crashed had deleted and not yet given up; where they are."""
        found = []
        for deleted in sorted(self._deleted.glob("*~*.jsonl")):
            stamp = deleted.name.partition("~")[0]
            if stamp.isdigit() and time.time() - int(stamp) > ABANDONED:
                try:
                    found.append(self.restore(deleted))
                except SessionError as error:
                    log.warning("%s stays deleted: %s", deleted, error)
        return found
