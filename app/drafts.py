"""What was typed or attached and not sent yet, edits too: kept per conversation, over a restart as well."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Slot

from app.chat.attachments import MAX_FILES, Attachment, NotText, read_again
from app.chat.composer import Composer
from app.chat.controller import ChatController
from app.chat.session import ChatSession

log = logging.getLogger("greenroom.drafts")

NEW = "new"  # the chat that has no file yet
SAVE_AFTER = 700  # ms without a key


@dataclass(frozen=True, slots=True)
class Beside:
    """What is kept with the text of a draft."""

    files: tuple[tuple[Path, str], ...] = ()  # that go along: where they are, and the digest of what was in them
    edits: Mapping[str, str] = field(default_factory=dict)  # by the message that is to be said otherwise


class DraftFiles:
    """Two small files for each conversation with a draft: NAME.txt has the text, NAME.json what is kept with it.

    A disk that takes nothing costs the draft, no more; so does a file that is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> str:
        """What was typed."""
        return self._read(f"{name}.txt")

    def read_beside(self, name: str) -> Beside:
        """What is kept with it; entries that make no sense are left out."""
        content = self._read(f"{name}.json")
        try:
            return _beside(json.loads(content)) if content else Beside()
        except (ValueError, RecursionError) as error:
            log.warning("What is kept with the draft %s cannot be read: %s", name, error)
            return Beside()

    def write(self, name: str, text: str, files: Iterable[Attachment] = (), edits: Mapping[str, str] = {}) -> None:
        """Replace the draft; what is empty has no file."""
        self._write(f"{name}.txt", text)
        record = {
            "files": [{"path": str(file.path), "sha256": file.digest} for file in files],
            "edits": dict(edits),
        }
        self._write(f"{name}.json", json.dumps(record, ensure_ascii=False) if any(record.values()) else "")

    def _read(self, name: str) -> str:
        try:
            return (self._folder / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""
        except (OSError, ValueError) as error:
            log.warning("The draft %s cannot be read: %s", name, error)
            return ""

    def _write(self, name: str, content: str) -> None:
        path = self._folder / name
        try:
            if not content.strip():
                path.unlink(missing_ok=True)
                return
            self._folder.mkdir(parents=True, exist_ok=True)
            handle, draft = tempfile.mkstemp(dir=self._folder, prefix=".draft-")
            try:
                with os.fdopen(handle, "w", encoding="utf-8", errors="replace", newline="") as file:
                    file.write(content)
                Path(draft).replace(path)
            except OSError:
                with contextlib.suppress(OSError):
                    Path(draft).unlink()
                raise
        except OSError as error:
            log.warning("The draft %s cannot be saved: %s", name, error)


def _beside(record: object) -> Beside:
    """Of what a file holds all that makes sense."""
    if not isinstance(record, dict):
        return Beside()
    listed, edits = record.get("files"), record.get("edits")
    files = [
        (Path(entry["path"]), entry["sha256"])
        for entry in (listed if isinstance(listed, list) else ())
        if isinstance(entry, dict) and _is_text(entry.get("path")) and _is_text(entry.get("sha256"))
    ]
    typed = {id: text for id, text in edits.items() if _is_text(text)} if isinstance(edits, dict) else {}
    return Beside(tuple(files[:MAX_FILES]), typed)


def _is_text(value: object) -> bool:
    """No file's name and nobody's text has a null in it, or half a character."""
    return isinstance(value, str) and "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)


class Drafts(QObject):
    """Follows the composer and the chat: a draft stays with its conversation."""

    def __init__(self, folder: Path, composer: Composer, chat: ChatController, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._files = DraftFiles(folder)
        self._composer = composer
        self._chat = chat
        self._session: ChatSession = chat.session
        self._name = NEW
        self._attached: dict[str, tuple[Attachment, ...]] = {}  # to drafts that were in the composer and are not now
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SAVE_AFTER)
        self._timer.timeout.connect(self.save)
        self._show()
        composer.changed.connect(self._timer.start)
        chat.editing.changed.connect(self._timer.start)
        chat.session_changed.connect(self._follow)

    @Slot()
    def save(self) -> None:
        """Write down what is in the composer now, and in an edit."""
        self._timer.stop()
        path = self._session.path
        edits = self._chat.editing.typed(path) if path is not None else {}
        self._files.write(self._name, self._composer.text, self._composer.attachments, edits)

    def forget(self, conversation: Path) -> None:
        """The conversation is gone for good."""
        self._files.write(conversation.stem, "")
        self._attached.pop(conversation.stem, None)
        self._chat.editing.put(conversation, {})

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
        self._show()
        self._timer.stop()

    def _show(self) -> None:
        """Put the draft of this conversation into the composer; the first time as it was when the program quit."""
        files, problems = self._attached.pop(self._name, None), list[str]()
        if files is None:
            beside = self._files.read_beside(self._name)
            files, problems = _read_again(beside.files)
            if self._session.path is not None:
                self._chat.editing.put(self._session.path, beside.edits)
        self._composer.set_draft(self._files.read(self._name), files, " ".join(problems))


def _read_again(listed: Iterable[tuple[Path, str]]) -> tuple[tuple[Attachment, ...], list[str]]:
    """Files that still are what they were, and a sentence for each that is not."""
    files: list[Attachment] = []
    problems: list[str] = []
    for path, digest in listed:
        try:
            files.append(read_again(path, digest))
        except NotText as problem:
            problems.append(str(problem))
    return tuple(files), problems
