"""What a line of the log looks like, for writer and reader alike (FORMAT.md has the whole format)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO

import numpy as np

from engine.errors import SessionError

VERSION = 1
PASS_PREFIX = b'{"type":"pass"'  # pass records start so, to be skipped without parsing
LONGEST_LINE = 64 << 20  # bytes; nothing that is longer was written here, and nothing that is longer is read whole
_RESCUE_LINES = 100  # looked at when the first line is damaged
_PIECE = 1 << 20
_SHOWN = 40  # of a line that is too long


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a log."""

    version: int
    program: str
    conversation: str
    created: str


def now() -> str:
    """The present moment as the log writes it, ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def encode_record(record: Mapping[str, Any]) -> bytes:
    """One whole line. Text stays readable UTF-8; a lone surrogate, which UTF-8 cannot hold, becomes an escape."""
    try:
        return (json.dumps(record, ensure_ascii=False, separators=(",", ":"), default=_plain_number) + "\n").encode()
    except UnicodeEncodeError:
        return (json.dumps(record, separators=(",", ":"), default=_plain_number) + "\n").encode()


def parse_record(line: bytes) -> dict[str, Any] | None:
    """The record on this line, None when it is damaged. Types nobody knows are records too."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("type"), str):
        return None
    return record


def parse_header(line: bytes, name: str) -> Header:
    """Read the first line of the file called ``name``. SessionError when this is no log, or a newer program's."""
    record = parse_record(line)
    if record is None or record["type"] != "header" or not isinstance(record.get("version"), int):
        if not line:
            raise SessionError(f"“{name}” is not a Greenroom conversation: it is empty.")
        raise SessionError(f"“{name}” is not a Greenroom conversation: its first line says nothing Greenroom knows.")
    if record["version"] > VERSION:
        raise SessionError(
            f"“{name}” was written by a newer Greenroom (log version {record['version']}; this one reads up to "
            f"{VERSION}). It was left as it is; update Greenroom to open it."
        )
    return Header(
        version=record["version"],
        program=str(record.get("program", "")),
        conversation=str(record.get("conversation", "")),
        created=str(record.get("created", "")),
    )


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines of an open log from where it is. Of one that is too long only its beginning comes, which is no record
    and so counts as damaged, and its end, when it has one."""
    while line := file.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            line, rest = line[:_SHOWN], line
            while rest and not rest.endswith(b"\n"):
                rest = file.readline(_PIECE)
            line += rest[-1:]
        yield line


def read_header(file: BinaryIO, name: str) -> Header | None:
    """Like ``parse_header``, of an open file, which is left at its second line.

    None when the first line is damaged and a conversation follows all the same.
    """
    line = file.readline(LONGEST_LINE)
    second = file.tell()
    try:
        return parse_header(line, name)
    except SessionError:
        if parse_record(line) is not None or not line.endswith(b"\n") or not _messages_follow(file):
            raise
    file.seek(second)
    return None


def _messages_follow(file: BinaryIO) -> bool:
    records = (parse_record(line) for _, line in zip(range(_RESCUE_LINES), lines_of(file), strict=False))
    return any(record is not None and record["type"] == "message" for record in records)


def _plain_number(value: Any) -> Any:
    """numpy's numbers as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a log record cannot hold {type(value).__name__}")
