"""A conversation in memory: a tree of messages, because a regenerated answer or an edited question starts a branch."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from engine.errors import SessionError
from engine.messages import CacheCounters, FinishReason, Role, Timings
from engine.sessions.records import PASS_PREFIX, now, parse_header, parse_record

TITLE_LENGTH = 60
UNTITLED = "New chat"
_HEAD_BYTES = 64 << 10  # of a file, read to find its title


@dataclass(frozen=True, slots=True)
class Message:
    """One turn as it was saved. ``reason`` and what follows is known of answers only."""

    id: str
    parent: str | None
    role: Role
    text: str
    time: str = ""  # ISO 8601, UTC
    reason: FinishReason | None = None
    timings: Timings | None = None
    cache: CacheCounters | None = None
    seed: int | None = None
    error: str = ""


@dataclass(slots=True)
class Conversation:
    """All messages of one file, in the order in which they began."""

    id: str
    created: str = ""
    messages: dict[str, Message] = field(default_factory=dict)
    models: tuple[str, ...] = ()  # names of the models that answered, in order
    damaged: int = 0  # lines that could not be read and were skipped
    torn: bool = False  # the last line was cut short by a crash
    _replies: dict[str, list[str]] = field(default_factory=dict, repr=False)  # ids under each parent's id

    @property
    def title(self) -> str:
        """From the first thing the user said."""
        return next((title_of(m.text) for m in self.messages.values() if m.role == "user"), UNTITLED)

    def add(self, message: Message) -> None:
        """Add a message, or replace the one with its id, which keeps its place."""
        before = self.messages.get(message.id)
        self.messages[message.id] = message
        if before is not None and before.parent == message.parent:
            return
        if before is not None and before.parent is not None:
            self._replies[before.parent].remove(message.id)
        if message.parent is not None:
            self._replies.setdefault(message.parent, []).append(message.id)

    def remove(self, id: str) -> None:
        """Forget a message, in memory only. What replied to it becomes a root."""
        message = self.messages.pop(id)
        if message.parent is not None:
            self._replies[message.parent].remove(id)

    def branch(self, parent: str | None, role: Role, text: str) -> Message:
        """A new message under ``parent``, beside whatever is there already; None begins a new root."""
        message = Message(id=new_id(), parent=parent, role=role, text=text, time=now())
        self.add(message)
        return message

    def children(self, id: str | None) -> list[Message]:
        """Direct replies to a message, oldest first; None gives the roots. A lost parent makes a root."""
        if id is None:
            return [m for m in self.messages.values() if m.parent is None or m.parent not in self.messages]
        return [self.messages[reply] for reply in self._replies.get(id, ())]

    def siblings(self, id: str) -> list[Message]:
        """The message and its alternatives, oldest first."""
        message = self.messages[id]
        known = message.parent is not None and message.parent in self.messages
        return self.children(message.parent if known else None)

    def latest_leaf(self, under: str | None = None) -> Message | None:
        """The newest message without replies; with ``under``, the newest among what follows that message."""
        for message in reversed(self.messages.values()):
            if self._replies.get(message.id):
                continue
            if under is None or any(m.id == under for m in self.path_to(message.id)):
                return message
        return None

    def path_to(self, leaf: str | None) -> list[Message]:
        """From the root down to ``leaf``: what the model is shown. Empty for None."""
        path: list[Message] = []
        seen: set[str] = set()
        while leaf is not None and leaf in self.messages and leaf not in seen:
            seen.add(leaf)  # a damaged file might go round in circles
            path.append(self.messages[leaf])
            leaf = self.messages[leaf].parent
        path.reverse()
        return path


@dataclass(frozen=True, slots=True)
class ConversationEntry:
    """A line in the list of conversations. ``problem`` says in a sentence why it cannot be opened."""

    id: str
    path: Path
    title: str
    modified: float  # seconds since 1970
    problem: str = ""


def new_id() -> str:
    """An id for a message."""
    return uuid.uuid4().hex


def title_of(text: str) -> str:
    """The first line that says something, shortened."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), UNTITLED)
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"


def list_conversations(folder: Path) -> list[ConversationEntry]:
    """Every log in the folder, newest first. Reads only the head of each; damaged ones are listed with a problem."""
    try:
        paths = [path for path in folder.iterdir() if path.suffix == ".jsonl" and not path.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SessionError(f"The folder with the conversations, {folder}, cannot be read: {error.strerror}.") from error
    return sorted(map(_entry, paths), key=lambda entry: entry.modified, reverse=True)


def _entry(path: Path) -> ConversationEntry:
    modified = 0.0
    try:
        modified = path.stat().st_mtime
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        if not head:
            raise SessionError(f"“{path.name}” is empty: Greenroom was ended before anything was saved in it.")
        lines = head.split(b"\n")
        if parse_record(lines[0]) is not None or not _rescuable(lines[1:]):
            parse_header(lines[0], path.name)
        return ConversationEntry(path.stem, path, _title_in(lines[1:]), modified)
    except SessionError as error:
        return ConversationEntry(path.stem, path, path.stem, modified, str(error))
    except OSError as error:
        problem = f"“{path.name}” cannot be read: {error.strerror or error}."
        return ConversationEntry(path.stem, path, path.stem, modified, problem)


def _title_in(lines: Iterable[bytes]) -> str:
    for line in lines:
        if line.startswith(PASS_PREFIX):
            continue
        record = parse_record(line)
        if record and record["type"] == "message" and record.get("role") == "user":
            return title_of(str(record.get("text", "")))
    return UNTITLED


def _rescuable(lines: Iterable[bytes]) -> bool:
    """Whether messages follow a first line that is damaged; the reader then reads those."""
    return any(record is not None and record["type"] == "message" for record in map(parse_record, lines))
