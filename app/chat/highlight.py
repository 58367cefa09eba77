"""Colours for code, a little at a time.

Pygments reads a whole text; a long block would hold the window up. While code streams, only its last lines are read,
seldom; when it is complete, all of it is read in slices of a few milliseconds between other events.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

from PySide6.QtCore import QTimer, Slot
from PySide6.QtGui import QColor, QFont, QSyntaxHighlighter, QTextCharFormat, QTextDocument

from app.colors import Colors
from app.theme import Theme

WINDOW = 1200  # characters read again while code streams
SLICE_SECONDS = 0.004
SHARE = 15  # a pass over the window may cost one part in so many of the time

Token = tuple[int, Any, str]  # start, pygments token type, text


@cache
def _languages() -> frozenset[str]:
    """What pygments knows by itself. Asked for anything else, it would search every installed package for plugins."""
    from pygments.lexers import get_all_lexers

    return frozenset(alias.lower() for _, aliases, *_ in get_all_lexers(plugins=False) for alias in aliases)


@cache
def _lexer_class(name: str) -> Any:
    from pygments.lexers import find_lexer_class_by_name

    return find_lexer_class_by_name(name)  # looks through all there are


def lexer_for(language: str) -> Any | None:
    """Pygments' lexer for what a fence says, None where there is none."""
    name = language.strip("{}.").lower()
    return _lexer_class(name)(stripnl=False, ensurenl=False) if name in _languages() else None


class Looks(dict[Any, QTextCharFormat | None]):
    """By pygments token type, what a token looks like; None: as the rest of the text. Found once for each type."""

    def __init__(self, colors: Colors) -> None:
        super().__init__()
        self._formats = formats(colors)

    def __missing__(self, kind: Any) -> QTextCharFormat | None:
        look = self[kind] = next((look for wanted, look in self._formats if kind in wanted), None)
        return look


@lru_cache(maxsize=4)
def looks_in(colors: Colors) -> Looks:
    """What every block of code in these colours shares."""
    return Looks(colors)


def formats(colors: Colors) -> list[tuple[Any, QTextCharFormat]]:
    """Looks by pygments token type; the first that contains a token's type holds."""
    from pygments.token import Token as Kind

    def look(color: str, bold: bool = False, italic: bool = False) -> QTextCharFormat:
        result = QTextCharFormat()
        result.setForeground(QColor(color))
        if bold:
            result.setFontWeight(QFont.Weight.Bold)
        result.setFontItalic(italic)
        return result

    return [
        (Kind.Comment, look(colors.text_faint, italic=True)),
        (Kind.Literal.String, look(colors.warm)),
        (Kind.Literal.Number, look(colors.warm)),
        (Kind.Keyword, look(colors.accent)),
        (Kind.Operator.Word, look(colors.accent)),
        (Kind.Name.Decorator, look(colors.accent)),
        (Kind.Name.Tag, look(colors.accent)),
        (Kind.Name.Function, look(colors.text, bold=True)),
        (Kind.Name.Class, look(colors.text, bold=True)),
        (Kind.Generic.Deleted, look(colors.danger)),
        (Kind.Generic.Inserted, look(colors.accent)),
        (Kind.Generic.Heading, look(colors.text, bold=True)),
    ]


class Highlighter(QSyntaxHighlighter):
    """Colours a code document by spans it was given per line; Qt asks for a line whenever it is laid out anew."""

    def __init__(self, document: QTextDocument, theme: Theme, language: str) -> None:
        super().__init__(document)
        self._lexer = lexer_for(language)
        self._looks = looks_in(theme.colors)
        self._lines: list[list[tuple[int, int, QTextCharFormat]]] = []
        self._next_read = 0.0
        self._pending: Iterator[Token] | None = None
        self._reading_line = 0
        self._timer = QTimer(self)
        self._timer.setInterval(0)
        self._timer.timeout.connect(self._read_slice)

    def highlightBlock(self, text: str) -> None:
        number = self.currentBlock().blockNumber()
        if number < len(self._lines):
            for start, length, look in self._lines[number]:
                self.setFormat(start, length, look)

    def update_live(self, text: str) -> None:
        """The code has grown: colour its end, when it is time again."""
        began = time.perf_counter()
        if self._lexer is None or began < self._next_read:
            return
        start = 0
        if len(text) > WINDOW:
            start = text.rfind("\n", 0, len(text) - WINDOW) + 1
        first_line = text.count("\n", 0, start)
        self._read(self._lexer.get_tokens_unprocessed(text[start:]), first_line, None)
        cost = time.perf_counter() - began
        self._next_read = began + max(0.15, SHARE * cost)

    def read_all(self, text: str) -> None:
        """The code is complete: colour all of it, at once when short, else in slices from the event loop."""
        if self._lexer is None:
            return
        self._pending = iter(self._lexer.get_tokens_unprocessed(text))
        self._reading_line = 0
        self._read_slice()
        if self._pending is not None:
            self._timer.start()

    def stop(self) -> None:
        """Another one paints from here on."""
        self._pending = None
        self._timer.stop()
        self.setDocument(None)

    @property
    def reading(self) -> bool:
        """Some lines still wait for their colours."""
        return self._pending is not None

    @Slot()
    def _read_slice(self) -> None:
        if self._pending is None:
            return
        self._reading_line, ended = self._read(self._pending, self._reading_line, time.perf_counter() + SLICE_SECONDS)
        if ended:
            self._pending = None
            self._timer.stop()

    def _read(self, tokens: Iterator[Token], line: int, deadline: float | None) -> tuple[int, bool]:
        """Turn tokens into spans from ``line`` on; where it got to, and whether the tokens ended.

        Stops only at the end of a line, so that the next slice starts at column 0.
        """
        spans: list[tuple[int, int, QTextCharFormat]] = []
        column = 0
        for _, kind, value in tokens:
            look = self._looks[kind]
            pieces = value.split("\n")
            for index, piece in enumerate(pieces):
                if index:
                    self._set_line(line, spans)
                    spans, column, line = [], 0, line + 1
                if look is not None and piece:
                    spans.append((column, len(piece), look))
                column += len(piece)
            if column == 0 and deadline is not None and time.perf_counter() > deadline:
                return line, False
        self._set_line(line, spans)
        return line, True

    def _set_line(self, line: int, spans: list[tuple[int, int, QTextCharFormat]]) -> None:
        while len(self._lines) <= line:
            self._lines.append([])
        if self._lines[line] != spans:
            self._lines[line] = spans
            block = self.document().findBlockByNumber(line)
            if block.isValid():
                self.rehighlightBlock(block)
