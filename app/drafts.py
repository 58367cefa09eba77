"""What was typed and not sent yet: kept per conversation, over a restart too.

Files that go along stay with it while the program runs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Slot

from app.chat.attachments import Attachment
from app.chat.composer import Composer
from app.chat.controller import ChatController
from app.chat.session import ChatSession

log = logging.getLogger("greenroom.drafts")

NEW = "new"  # the chat that has no file yet
SAVE_AFTER = 700  # ms without a key


class DraftFiles:
    """A small text file for each conversation with a draft. A disk that takes nothing costs the draft, no more."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> str:
        try:
            return self._path(name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""
        except (OSError, ValueError) as error:
            log.warning("The draft %s cannot be read: %s", name, error)
            return ""

    def write(self, name: str, text: str) -> None:
        """Replace the draft; an empty one has no file."""
        try:
            if not text.strip():
                self._path(name).unlink(missing_ok=True)
                return
            self._folder.mkdir(parents=True, exist_ok=True)
            handle, draft = tempfile.mkstemp(dir=self._folder, prefix=".draft-")
            try:
                with os.fdopen(handle, "w", encoding="utf-8", errors="replace", newline="") as file:
                    file.write(text)
                Path(draft).replace(self._path(name))
            except OSError:
                with contextlib.suppress(OSError):
                    Path(draft).unlink()
                raise
        except OSError as error:
            log.warning("The draft %s cannot be saved: %s", name, error)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.txt"


class Drafts(QObject):
    """Follows the composer and the chat: a draft stays with its conversation."""

    def __init__(self, folder: Path, composer: Composer, chat: ChatController, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._files = DraftFiles(folder)
        self._composer = composer
        self._chat = chat
        self._session: ChatSession = chat.session
        self._name = NEW
        self._attached: dict[str, tuple[Attachment, ...]] = {}  # to the drafts that are not in the composer
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SAVE_AFTER)
        self._timer.timeout.connect(self.save)
        composer.set_text(self._files.read(NEW))
        composer.input.textChanged.connect(self._timer.start)
        chat.session_changed.connect(self._follow)

    @Slot()
    def save(self) -> None:
        """Write down what is in the composer now."""
        self._timer.stop()
        self._files.write(self._name, self._composer.text)

    def forget(self, conversation: Path) -> None:
        """The conversation is gone for good."""
        self._files.write(conversation.stem, "")
        self._attached.pop(conversation.stem, None)

    @Slot()
    def _follow(self) -> None:
        session = self._chat.session
        name = session.path.stem if session.path is not None else NEW
        if name == self._name:
            self._session = session
            return
        if session is self._session:  # the new chat got its file: what is in the composer goes with it
            self._files.write(self._name, "")
            self._name = name
            self._timer.start()
            return
        self.save()
        self._attached[self._name] = tuple(self._composer.attachments)
        self._session, self._name = session, name
        self._composer.set_draft(self._files.read(name), self._attached.pop(name, ()))
        self._timer.stop()
