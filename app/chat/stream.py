"""Markdown that is still being written: a token costs the same at the end of a long answer as at its start.

CommonMark is decided line by line: once a later top-level block, or a later item of the same list, has begun with a
complete line, nothing that follows can change what came before. So everything before the last such beginning is
*finished* and never looked at again; only the *tail* after it is parsed anew. An open code fence is not even parsed
again: its lines are passed on until the closing fence. Of a long table that is open only the new rows are parsed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from app.chat.markdown import Chunk, Code, Leaf, Span, Table, parse, renumber

_BLANK_LINES = re.compile(r"^(?:[ \t]*\n)+")
LONG_TABLE = 48  # rows; of a longer one those that are complete are kept as they were parsed
_FENCE = re.compile(r"^( {0,3})(`{3,}(?=[^`]*$)|~{3,})(.*)$")


@dataclass(frozen=True, slots=True)
class Update:
    """What changed: leaves that are now final, and the leaves after them, which the next update may replace."""

    finished: tuple[Leaf, ...]
    tail: tuple[Leaf, ...]


@dataclass(slots=True)
class _Fence:
    """A top-level code fence that is open."""

    close: re.Pattern[str]
    indent: re.Pattern[str]
    language: str
    lines: list[str]


@dataclass(slots=True)
class _OpenTable:
    """The head of a top-level table that is open, in its two lines, and the rows that are complete."""

    head: str = ""
    rows: list[tuple[tuple[Span, ...], ...]] = field(default_factory=list)

    def complete(self, chunks: list[Chunk]) -> list[Chunk]:
        """Chunks of the head and what follows the kept rows: with those rows, and lines counted without the head."""
        table = chunks[0].leaves[0]
        assert isinstance(table, Table)
        whole = replace(table, rows=(table.rows[0], *self.rows, *table.rows[1:]))
        rest = [replace(chunk, line=chunk.line - 2, sure=chunk.sure - 2) for chunk in chunks[1:]]
        return [replace(chunks[0], leaves=(whole,), sure=0), *rest]


class MarkdownStream:
    """Feed it text as it comes; ``feed`` and ``finish`` say what to show."""

    def __init__(self) -> None:
        self._rest = ""  # text after what is finished
        self._return = ""  # a carriage return whose line feed may be still to come
        self._fence: _Fence | None = None
        self._list = ""  # marker style of the list whose items were finished last
        self._number: int | None = None  # of its next item
        self._table = _OpenTable()

    def feed(self, text: str) -> Update:
        """Add text."""
        text = self._return + text
        self._return = "\r" if text.endswith("\r") else ""
        text = text.removesuffix("\r")
        self._rest += text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
        finished: list[Leaf] = []
        while True:
            if self._fence is not None and not self._read_fence(finished):
                return Update(tuple(finished), (self._open_code(),))
            if not self._table.head:
                self._rest = _BLANK_LINES.sub("", self._rest)
                if self._opens_fence():
                    continue
            chunks = self._parse()
            if not self._commit(chunks, finished):
                self._keep_rows(chunks)
                return Update(tuple(finished), tuple(leaf for chunk in chunks for leaf in chunk.leaves))

    def finish(self) -> Update:
        """The text is complete: everything is final."""
        update = self.feed("")
        self._rest, self._return, self._fence, self._list, self._table = "", "", None, "", _OpenTable()
        return Update(update.finished + update.tail, ())

    # ------------------------------------------------------------------------------------------- code fences

    def _opens_fence(self) -> bool:
        """Whether the rest starts with a complete fence line; from then on lines go to ``self._fence``."""
        line, newline, rest = self._rest.partition("\n")
        found = _FENCE.match(line) if newline else None
        if found is None:
            return False
        indent, fence, info = found.groups()
        self._fence = _Fence(
            close=re.compile(rf"^ {{0,3}}{re.escape(fence[0])}{{{len(fence)},}}[ \t]*$"),
            indent=re.compile(rf"^ {{0,{len(indent)}}}"),
            language=info.strip().split()[0] if info.strip() else "",
            lines=[],
        )
        self._rest, self._list = rest, ""
        return True

    def _read_fence(self, finished: list[Leaf]) -> bool:
        """Take complete lines up to the closing fence; True when it was found."""
        fence = self._fence
        assert fence is not None
        start = 0
        while (end := self._rest.find("\n", start)) >= 0:
            line = self._rest[start:end]
            start = end + 1
            if fence.close.match(line):
                finished.append(Code("\n".join(fence.lines), fence.language))
                self._rest, self._fence = self._rest[start:], None
                return True
            fence.lines.append(fence.indent.sub("", line))
        self._rest = self._rest[start:]
        return False

    def _open_code(self) -> Code:
        """The open fence as it looks now. A last line that may become the closing fence is not shown yet."""
        fence = self._fence
        assert fence is not None
        lines = fence.lines
        if self._rest.strip() and not fence.close.match(self._rest):
            lines = [*lines, fence.indent.sub("", self._rest)]
        return Code("\n".join(lines), fence.language)

    # ----------------------------------------------------------------------------------------- everything else

    def _parse(self) -> list[Chunk]:
        """Chunks of the rest, a list that goes on counted on."""
        chunks = parse(self._table.head + self._rest)
        if self._table.head:
            return self._table.complete(chunks)
        style, number = self._list, self._number
        for index, chunk in enumerate(chunks):
            if not style or chunk.items != style:
                break
            if number is not None:
                chunks[index] = renumber(chunk, number)
                number += 1
        return chunks

    def _commit(self, chunks: list[Chunk], finished: list[Leaf]) -> bool:
        """Finish what lies before the last beginning in a complete line; False when nothing does."""
        complete_lines = self._rest.count("\n")
        last = max((i for i, chunk in enumerate(chunks) if chunk.sure < complete_lines), default=0)
        if last == 0:
            return False
        for chunk in chunks[:last]:
            finished.extend(chunk.leaves)
        self._table = _OpenTable()
        before, first = chunks[last - 1], chunks[last]
        same_list = bool(before.items) and first.items == before.items and self._adjacent(before, first)
        self._list = before.items if same_list else ""
        self._number = None if before.number is None else before.number + 1
        self._rest = self._rest.split("\n", first.line)[first.line]
        return True

    def _keep_rows(self, chunks: list[Chunk]) -> None:
        """Take the complete rows of a long open table out of what is parsed again."""
        if len(chunks) != 1 or self._rest.count("\n") < LONG_TABLE:
            return
        if not (chunks[0].leaves and isinstance(chunks[0].leaves[0], Table)):
            return
        lines, rest = self._rest[: self._rest.rindex("\n") + 1], self._rest[self._rest.rindex("\n") + 1 :]
        head = self._table.head
        if not head:
            first, second, lines = lines.split("\n", 2)
            head = f"{first}\n{second}\n"
        found = parse(head + lines)
        table = found[0].leaves[0]
        if len(found) == 1 and isinstance(table, Table) and len(table.rows) == lines.count("\n") + 1:
            self._table.head = head
            self._table.rows.extend(table.rows[1:])
            self._rest = rest

    @staticmethod
    def _adjacent(before: Chunk, first: Chunk) -> bool:
        """Whether two items of one marker style are of one list: its numbers count on."""
        return before.number is None or first.number == before.number + 1
