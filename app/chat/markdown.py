"""Markdown as a flat list of leaves: paragraphs, code, tables, rules, each knowing how deep it sits.

markdown-it-py with raw HTML off reads CommonMark, tables and strikethrough; what it leaves nested (lists in lists,
quotes) is flattened here, so that a view only ever appends one leaf after another. Nothing in a leaf can load anything:
an image is its own source text, and a link keeps its address only when it is http, https or mailto.

A quote is ``mirrored`` when its first letter is of a language that is written from right to left.

Two liberties with CommonMark, both because models write for chats: a line break in a paragraph stays a line break, and
link reference definitions are plain text (they could change what was shown long before). ``inline_rules`` takes more.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

from app.chat.harmless import harmless
from app.chat.inline_rules import add_break, addresses, parse_inline
from app.chat.math_rules import BLOCK, add_math

_ABYSS = re.compile(r"^(?:[ \t]{0,3}(?:>|[-*+] |[0-9]{1,9}[.)] )){60}", re.MULTILINE)  # lists or quotes in each other
_SAFE_LINK = re.compile(r"^(https?://|mailto:)", re.IGNORECASE)
_BOX = re.compile(r"\[([ xX])\] (?=\S)")  # as a task begins
OPEN_BOX, DONE_BOX = "☐", "☑"
_MARKS = "*_[]$\\`<&!~"
MAX_MARKS = 3000  # in one paragraph; looking for the ends of so many takes longer than anybody waits
MAX_DEPTH = 8  # lists and quotes nested deeper are shown at this depth


@dataclass(frozen=True, slots=True)
class Span:
    """A run of text in one look. ``href``: "" or a safe address. ``math``: "" or LaTeX; ``text`` is then its source."""

    text: str
    bold: bool = False
    italic: bool = False
    strike: bool = False
    code: bool = False
    href: str = ""
    math: str = ""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph, heading or the first line of a list item. "\\n" in a span is a line break.

    level: 1-6 for a heading, else 0. depth: how many lists it sits in. marker: "•", "3." or a task's box where an item
    begins. quote: how many block quotes it sits in.
    """

    spans: tuple[Span, ...]
    level: int = 0
    depth: int = 0
    marker: str = ""
    quote: int = 0
    mirrored: bool = False


@dataclass(frozen=True, slots=True)
class Code:
    """A fenced or indented code block. ``language`` is what the fence said, in its own words."""

    text: str
    language: str = ""
    depth: int = 0
    quote: int = 0
    mirrored: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells, the first row being the head. ``align``: "left", "right", "center" or "" by column."""

    rows: tuple[tuple[tuple[Span, ...], ...], ...]
    align: tuple[str, ...]
    depth: int = 0
    quote: int = 0
    mirrored: bool = False


@dataclass(frozen=True, slots=True)
class Math:
    """A formula on lines of its own, as LaTeX. ``open``: its end has not come yet."""

    source: str
    depth: int = 0
    quote: int = 0
    open: bool = False
    mirrored: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A horizontal line."""

    depth: int = 0
    quote: int = 0
    mirrored: bool = False


Leaf: TypeAlias = Paragraph | Code | Table | Math | Rule


@dataclass(frozen=True, slots=True)
class Chunk:
    """The leaves of one top-level block, or of one item of a top-level list.

    line: where it starts in the parsed text. items: marker style of the list it belongs to ("-", "*", ".", ")"), else
    "". number: of an ordered item, as it is written in the text; None for a bullet. sure: the line that decides, once
    it is complete, that the chunk begins there: of a table the one below its head, of a formula its last.
    """

    line: int
    leaves: tuple[Leaf, ...]
    items: str = ""
    number: int | None = None
    sure: int = 0


def _make_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 100})
    parser.enable(["table", "strikethrough"])
    parser.disable(["html_block", "html_inline", "reference"])
    add_math(parser)
    add_break(parser)
    parser.core.ruler.at("inline", _inline)
    return parser


def _inline(state: StateCore) -> None:
    """Look for marks inside paragraphs, unless one has so many that it can only be nonsense: it is text then."""
    for token in state.tokens:
        if token.type != "inline":
            continue
        token.children = []
        if sum(map(token.content.count, _MARKS)) > MAX_MARKS:
            plain = Token("text", "", 0)
            plain.content = token.content
            token.children.append(plain)
        else:
            parse_inline(state.md, token.content, state.env, token.children)


_PARSER = _make_parser()


def parse(text: str) -> list[Chunk]:
    """Top-level chunks of a markdown text, in order."""
    if _ABYSS.search(text):
        return [Chunk(0, (Code(text.removesuffix("\n")),))]  # nobody means that; the parser would leave its end out
    tokens = _PARSER.parse(text)
    chunks: list[Chunk] = []
    start = 0
    while start < len(tokens):
        end = _closing(tokens, start)
        token = tokens[start]
        line = token.map[0] if token.map else 0
        if token.type in ("bullet_list_open", "ordered_list_open"):
            chunks.extend(_items(tokens[start : end + 1], _Place(), line))
        else:
            leaves = tuple(_leaves(tokens[start : end + 1], _Place()))
            sure = line
            if token.type == "table_open":
                sure = line + 1
            elif token.type == BLOCK and token.map:
                sure = text.count("\n") + 1 if token.info else token.map[1] - 1
            chunks.append(Chunk(line, leaves, sure=sure))
        start = end + 1
    return chunks


def leaves_of(text: str) -> list[Leaf]:
    """All leaves of a text, in order."""
    return [leaf for chunk in parse(text) for leaf in chunk.leaves]


@dataclass(frozen=True, slots=True)
class _Place:
    depth: int = 0
    quote: int = 0

    def deeper(self, depth: int = 0, quote: int = 0) -> _Place:
        return _Place(min(self.depth + depth, MAX_DEPTH), min(self.quote + quote, MAX_DEPTH))


def _closing(tokens: Sequence[Token], start: int) -> int:
    """Index of the token that closes the block opened at ``start``."""
    level = 0
    for index in range(start, len(tokens)):
        level += tokens[index].nesting
        if level == 0:
            return index
    return len(tokens) - 1


def _leaves(tokens: Sequence[Token], place: _Place) -> Iterator[Leaf]:
    index = 0
    while index < len(tokens):
        token = tokens[index]
        end = _closing(tokens, index) if token.nesting == 1 else index
        match token.type:
            case "paragraph_open" | "heading_open":
                level = int(token.tag[1]) if token.type == "heading_open" else 0
                yield Paragraph(_spans(tokens[index + 1]), level, place.depth, "", place.quote)
            case "fence" | "code_block":
                language = token.info.strip().split()[0] if token.info.strip() else ""
                yield Code(token.content.removesuffix("\n"), language, place.depth, place.quote)
            case "math_block":
                yield Math(token.content, place.depth, place.quote, bool(token.info))
            case "hr":
                yield Rule(place.depth, place.quote)
            case "table_open":
                yield _table(tokens[index : end + 1], place)
            case "blockquote_open":
                quoted = list(_leaves(tokens[index + 1 : end], place.deeper(quote=1)))
                mirrored = not place.quote and _from_the_right(quoted)  # those in it stand as the outermost does
                yield from (replace(leaf, mirrored=True) for leaf in quoted) if mirrored else quoted
            case "bullet_list_open" | "ordered_list_open":
                for item in _items(tokens[index : end + 1], place, 0):
                    yield from item.leaves
            case "inline":
                yield Paragraph(_spans(token), 0, place.depth, "", place.quote)
        index = end + 1


def _from_the_right(leaves: Sequence[Leaf]) -> bool:
    """Whether the first letter of the leaves' prose is one that is written from right to left."""
    for leaf in leaves:
        if isinstance(leaf, Paragraph):
            spans: Iterable[Span] = leaf.spans
        elif isinstance(leaf, Table):
            spans = (span for row in leaf.rows for cell in row for span in cell)
        else:
            continue
        for letter in (letter for span in spans if not span.math for letter in span.text):
            kind = unicodedata.bidirectional(letter)
            if kind in ("L", "R", "AL"):
                return kind != "L"
    return False


def _items(tokens: Sequence[Token], place: _Place, line: int) -> Iterator[Chunk]:
    """One chunk per item of a list; ``tokens`` run from its opening to its closing token."""
    ordered = tokens[0].type == "ordered_list_open"
    number = int(tokens[0].attrs.get("start", 1)) if ordered else None
    inner = place.deeper(depth=1)
    index = 1
    while index < len(tokens) - 1:
        end = _closing(tokens, index)
        token = tokens[index]
        leaves = list(_leaves(tokens[index + 1 : end], inner))
        marker = "•" if number is None else f"{number}."
        first = leaves[0] if leaves else None
        if number is None and isinstance(first, Paragraph) and (task := _task(first)) is not None:
            marker, first = task
            leaves[0] = first
        if isinstance(first, Paragraph) and not first.marker and first.quote == inner.quote:
            leaves[0] = replace(first, marker=marker)
        else:
            leaves.insert(0, Paragraph((), 0, inner.depth, marker, inner.quote))
        begins = token.map[0] if token.map else line
        yield Chunk(begins, tuple(leaves), tokens[0].markup, number, sure=begins)
        number = None if number is None else number + 1
        index = end + 1


def _task(first: Paragraph) -> tuple[str, Paragraph] | None:
    """The box that an item begins with, and the rest of it; None when it is no task."""
    span = first.spans[0] if first.spans else None
    if span is None or span.code or span.math or span.href or (found := _BOX.match(span.text)) is None:
        return None
    rest = (replace(span, text=span.text[found.end() :]), *first.spans[1:])
    return (OPEN_BOX if found[1] == " " else DONE_BOX), replace(first, spans=rest)


def renumber(chunk: Chunk, number: int) -> Chunk:
    """The same ordered item with another number: a list goes on counting whatever its items are called."""
    first = chunk.leaves[0]
    assert isinstance(first, Paragraph)
    return replace(chunk, number=number, leaves=(replace(first, marker=f"{number}."), *chunk.leaves[1:]))


def _table(tokens: Sequence[Token], place: _Place) -> Table:
    rows: list[list[tuple[Span, ...]]] = []
    align: list[str] = []
    for index, token in enumerate(tokens):
        if token.type == "tr_open":
            rows.append([])
        elif token.type in ("th_open", "td_open"):
            rows[-1].append(_spans(tokens[index + 1]))
            if token.type == "th_open":
                align.append(str(token.attrs.get("style", "")).removeprefix("text-align:"))
    return Table(tuple(map(tuple, rows)), tuple(align), place.depth, place.quote)


def _spans(inline: Token) -> tuple[Span, ...]:
    spans: list[Span] = []
    bold = italic = strike = 0
    hrefs: list[str] = []

    def add(text: str, code: bool = False) -> None:
        text = harmless(text)
        span = Span(text, bold > 0, italic > 0, strike > 0, code, hrefs[-1] if hrefs else "")
        last = spans[-1] if spans else None
        if last is not None and not last.math and replace(last, text="") == replace(span, text=""):
            spans[-1] = replace(last, text=last.text + text)
        elif text:
            spans.append(span)

    for token in inline.children or ():
        match token.type:
            case "text" | "text_special":
                add(token.content)
            case "code_inline":
                add(token.content, code=True)
            case "softbreak" | "hardbreak":
                add("\n")
            case "strong_open" | "strong_close":
                bold += token.nesting
            case "em_open" | "em_close":
                italic += token.nesting
            case "s_open" | "s_close":
                strike += token.nesting
            case "link_open":
                address = str(token.attrs.get("href", ""))
                hrefs.append(address if _SAFE_LINK.match(address) else "")
            case "link_close":
                hrefs.pop()
            case "math_inline":
                spans.append(Span(harmless(token.info), bold > 0, math=token.content))
            case "image":
                add(f"![{token.content}]({token.attrs.get('src', '')})")
            case _:
                add(token.content)
    return tuple(part for span in spans for part in _linkified(span))


def _linkified(span: Span) -> Iterator[Span]:
    """Bare web addresses become links."""
    if span.code or span.href or span.math or "://" not in span.text:
        yield span
        return
    end = 0
    for start, stop in addresses(span.text):
        if start > end:
            yield replace(span, text=span.text[end:start])
        yield replace(span, text=span.text[start:stop], href=span.text[start:stop])
        end = stop
    if end < len(span.text):
        yield replace(span, text=span.text[end:])
