"""Reading a saved conversation: a short one at once, a long one in the background."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from app.background import Background, Job, Stopped
from app.chat.session import ChatSession
from engine.errors import SessionError

READ_AT_ONCE = 256 * 1024  # bytes of a log that take less time to read than a frame on the screen


class Opening:
    """One conversation at a time: who wants another gives up the one before."""

    def __init__(self, background: Background, program: str) -> None:
        self._background, self._program = background, program
        self._job: Job | None = None

    def read(self, path: Path, done: Callable[[ChatSession], None], failed: Callable[[str], None]) -> None:
        """Call ``done`` with the conversation, or ``failed`` with a sentence; before this returns if it is short."""
        self.give_up()
        if _is_long(path):
            self._job = self._background.run(partial(_read, path, self._program), done, failed)
            return
        try:
            session = ChatSession.open(path, self._program)
        except SessionError as error:
            failed(str(error))
        else:
            done(session)

    def give_up(self) -> None:
        """Nobody wants the conversation that is being read any more."""
        if self._job is not None:
            self._job.cancel()
            self._job = None


def _is_long(path: Path) -> bool:
    try:
        return path.stat().st_size > READ_AT_ONCE
    except OSError:
        return False  # reading says why


def _read(path: Path, program: str, stopped: Stopped) -> ChatSession:
    return ChatSession.open(path, program)
