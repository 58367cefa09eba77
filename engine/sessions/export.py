"""Handing a conversation to someone else: the log itself, or Markdown to read. Both appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from engine.errors import SessionError
from engine.sessions import appendfile
from engine.sessions.conversation import Conversation, Message
from engine.sessions.reader import read_conversation, read_records

_SPEAKERS = {"system": "System", "user": "You", "assistant": "Answer"}
_REASONS = {"length": "ended at the token limit", "stopped": "stopped", "error": "ended by an error"}


def export_jsonl(path: Path, target: Path) -> None:
    """Copy the log, less a torn last line. SessionError says what is wrong with source or target."""
    appendfile.flush_pending(path)
    for _ in read_records(path, passes=False):
        break  # refuses what is no log before the target is touched
    with _written_whole(path, target) as out:
        for line in _lines(path):
            if line.endswith(b"\n"):
                out.write(line)


def export_markdown(path: Path, target: Path, leaf: str | None = None) -> None:
    """Write the branch that ends at ``leaf`` (None: the newest) as Markdown. SessionError like ``export_jsonl``."""
    text = as_markdown(read_conversation(path), leaf)
    with _written_whole(path, target) as out:
        out.write(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode())


def as_markdown(conversation: Conversation, leaf: str | None = None) -> str:
    """One branch of a conversation for people to read."""
    if leaf is None:
        newest = conversation.latest_leaf()
        leaf = newest.id if newest else None
    parts = [f"# {conversation.title}"]
    facts = [fact for fact in (conversation.created, ", ".join(conversation.models)) if fact]
    if facts:
        parts.append(f"*{' · '.join(facts)}*")
    for message in conversation.path_to(leaf):
        parts.append(f"## {_SPEAKERS[message.role]}")
        parts.append(message.text.strip("\n"))
        note = _note(message)
        if note:
            parts.append(f"*({note})*")
    return "\n\n".join(parts) + "\n"


def _note(message: Message) -> str:
    facts = [_REASONS.get(message.reason or "", ""), message.error]
    return ": ".join(fact for fact in facts if fact)


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from file
    except OSError as error:
        raise appendfile.failure(path, error) from error


@contextmanager
def _written_whole(source: Path, target: Path) -> Iterator[BinaryIO]:
    """A file that takes the target's place only once it is complete and on the disk."""
    try:
        if target.exists() and target.samefile(source):
            raise SessionError("That is the conversation's own file; choose another name for the export.")
        if target.is_dir():
            raise SessionError(f"“{target}” is a folder; choose a file name for the export.")
        if not target.parent.is_dir():
            raise SessionError(f"There is no folder “{target.parent}” to export into.")
    except OSError as error:
        raise appendfile.failure(target, error) from error
    draft = target.with_name(f".{secrets.token_hex(6)}.part")
    try:
        with draft.open("xb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        draft.replace(target)
    except OSError as error:
        raise appendfile.failure(target, error) from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
