"""Handing a conversation to someone else: the log itself, Markdown, or a web page. All appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from engine.errors import SessionError
from engine.sessions import appendfile
from engine.sessions.conversation import Conversation, title_of
from engine.sessions.outline import outline
from engine.sessions.reader import read_conversation, read_records
from engine.sessions.records import LONGEST_LINE, parse_record
from engine.sessions.webpage import SPEAKERS, Split, as_html, no_thoughts, note_of

_PIECE = 1 << 20  # bytes copied at a time


def export_jsonl(path: Path, target: Path) -> None:
    """Copy the log, less a torn last line. SessionError says what is wrong with source or target."""
    appendfile.flush_pending(path)
    for _ in read_records(path, passes=False):
        break  # refuses what is no log before the target is touched
    with _written_whole(path, target) as out:
        _copy_lines(path, out)


def export_markdown(
    path: Path, target: Path, leaf: str | None = None, whole: bool = False, split: Split = no_thoughts
) -> None:
    """Write the branch that ends at ``leaf`` (None: the chosen one) as Markdown; with ``whole``, all others after it.

    ``split`` tells thought from answer. SessionError like ``export_jsonl``.
    """
    _write_text(path, target, as_markdown(read_conversation(path), leaf, whole, split))


def export_html(
    path: Path, target: Path, leaf: str | None = None, whole: bool = False, split: Split = no_thoughts
) -> None:
    """Like ``export_markdown``, as one web page that needs no other file."""
    _write_text(path, target, as_html(read_conversation(path), leaf, whole, split))


def as_markdown(
    conversation: Conversation, leaf: str | None = None, whole: bool = False, split: Split = no_thoughts
) -> str:
    """A conversation for people to read: thoughts are folded, and the marks around them left out."""
    parts = [f"# {conversation.title}"]
    facts = [fact for fact in (conversation.created, ", ".join(conversation.models)) if fact]
    if facts:
        parts.append(f"*{' · '.join(facts)}*")
    for section in outline(conversation, leaf, whole):
        if section.instead_of is not None:
            parts += ["---", f"*In place of “{title_of(section.instead_of.text, '…')}”:*"]
        for turn in section.turns:
            thought, text = split(turn.text) if turn.role == "assistant" else ("", turn.text)
            parts.append(f"## {SPEAKERS[turn.role]}")
            if thought.strip():
                parts.append(f"<details>\n<summary>Thought</summary>\n\n{thought.strip()}\n\n</details>")
            parts.append(text.strip("\n"))
            if note := note_of(turn):
                parts.append(f"*({note})*")
    return "\n\n".join(parts) + "\n"


def _write_text(source: Path, target: Path, text: str) -> None:
    with _written_whole(source, target) as out:
        out.write(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode())


def _copy_lines(path: Path, out: BinaryIO) -> None:
    """Every byte of the whole lines, and a last one that is complete but for its end."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            left = whole = appendfile.end_of_last_line(file, size)
            file.seek(0)
            while left and (piece := file.read(min(left, _PIECE))):
                out.write(piece)
                left -= len(piece)
            tail = file.read(min(size - whole, LONGEST_LINE))
            if tail and parse_record(tail) is not None:
                out.write(tail + b"\n")
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
