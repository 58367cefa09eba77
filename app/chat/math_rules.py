"""Mathematics in markdown: rules for markdown-it that find formulas before anything in them is taken for a mark.

Inline: ``$…$``, ``$$…$$``, ``\\(…\\)`` and ``\\[…\\]``. A dollar is a price unless it looks like mathematics: no space
inside the dollars, and neither letter nor digit after the closing one. On lines of their own, ``$$…$$`` and
``\\[…\\]`` make a block; as in LaTeX there is no blank line inside. A block that is still open at the end of the text
is mathematics so far as one can tell; the reader of a stream waits for its end.
"""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

INLINE, BLOCK = "math_inline", "math_block"
_PAIRS = (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"), ("$", "$"))
_SIGN = re.compile(r"[\\^_=+\-*/<>(){}|]")
_SPACE = re.compile(r"\s")
_BLOCK_PAIRS = {"$$": "$$", "\\[": "\\]"}


def add_math(parser: MarkdownIt) -> None:
    """Let a parser find formulas: tokens ``math_inline`` and ``math_block`` with the LaTeX as content.

    ``markup`` is the opening mark. ``info`` of a block is "open" while its end has not come.
    """
    parser.inline.ruler.before("escape", INLINE, _inline)
    interrupts = ["paragraph", "reference", "blockquote", "list"]
    parser.block.ruler.before("fence", BLOCK, _block, {"alt": interrupts})


def _inline(state: StateInline, silent: bool) -> bool:
    source, start = state.src, state.pos
    if source[start] not in "$\\":
        return False
    for opening, closing in _PAIRS:
        if not source.startswith(opening, start):
            continue
        begin = start + len(opening)
        end = _closing(state, opening, closing, begin)
        if end < 0:
            if opening == "$$":  # nor is it an empty formula between two dollars
                return False
            continue
        if not silent:
            token = state.push(INLINE, "", 0)
            token.content, token.markup = source[begin:end].strip(), opening
            token.info = source[start : end + len(closing)]
        state.pos = end + len(closing)
        return True
    return False


def _closing(state: StateInline, opening: str, closing: str, begin: int) -> int:
    """Where the closing mark is; -1 where there is none. What was looked for in vain is not looked for again."""
    source, limit = state.src, state.posMax
    of, hopeless = state.env.get("math", (None, {}))
    if of is not source:
        hopeless = {}
        state.env["math"] = (source, hopeless)
    if begin >= hopeless.get(opening, limit + 1):
        return -1
    if opening == "$" and (begin >= limit or source[begin].isspace()):
        return -1
    end = begin
    while (end := source.find(closing, end, limit)) >= 0:
        if source[end - 1] == "\\" and closing[0] == "$":
            end += 1
            continue
        if closing != "$":
            return end if source[begin:end].strip() else -1
        after = source[end + 1 : end + 2]
        if end == begin or source[end - 1].isspace() or after.isalnum() or after == "$":
            return -1  # a price, or a variable of a shell
        inside = source[begin:end]
        return end if _SIGN.search(inside) or not _SPACE.search(inside) else -1  # words between two prices
    hopeless[opening] = begin
    return -1


def _block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    if state.is_code_block(start):
        return False
    first = state.src[state.bMarks[start] + state.tShift[start] : state.eMarks[start]]
    opening = first[:2]
    closing = _BLOCK_PAIRS.get(opening)
    if closing is None:
        return False
    lines: list[str] = []
    line, text, closed = start, first[2:], False
    while True:
        found = text.find(closing)
        if found >= 0:
            if text[found + 2 :].strip():
                return False  # words follow on the line: it is a formula in a paragraph
            lines.append(text[:found])
            closed = True
            break
        lines.append(text)
        line += 1
        if line >= end:
            break
        if state.isEmpty(line) or state.sCount[line] < state.blkIndent:
            return False
        text = state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]
    content = "\n".join(lines).strip()
    if closed and not content:
        return False
    if not closed and line < state.lineMax:
        return False  # the list or quote around it ends first
    if silent:
        return True
    state.line = min(line + 1, end)
    token = state.push(BLOCK, "", 0)
    token.block = True
    token.content, token.markup, token.info = content, opening, "" if closed else "open"
    token.map = [start, state.line]
    return True
