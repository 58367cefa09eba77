"""Where markdown's own rules would show marks instead of what they mean, and models write for the latter.

CommonMark tells from spaces whether stars open or close; Chinese, Japanese and Korean have none, so beside a character
of theirs any star may do either. ``<br>`` breaks the line, the only way to do so in a table's cell; no other tag means
anything. A bare web address ends where a reader would end it.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Scanned
from markdown_it.token import Token

_CJK = re.compile(
    "[\u1100-\u11ff\u2e80-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff]"
)
_BREAK = re.compile(r"<br[ \t]*/?>[ \t]*\n?[ \t]*", re.IGNORECASE)
_ADDRESS = re.compile("https?://[^\\s<>\"'`\u3000-\u303f\uff00-\uff0f\uff1a-\uff20\uff3b-\uff65\u2018-\u201f\u2026]+")
_ENDS = ".,;:!?*_~"  # of the sentence around an address
_PAIRS = {")": "(", "]": "[", "}": "{"}


def add_break(parser: MarkdownIt) -> None:
    """Let a parser take ``<br>`` for a ``hardbreak``."""
    parser.inline.ruler.before("autolink", "line_break", _break)


def parse_inline(parser: MarkdownIt, text: str, env: MutableMapping[str, Any], tokens: list[Token]) -> None:
    """Append the tokens of a paragraph's text."""
    state = _State(text, parser, env, tokens)
    parser.inline.tokenize(state)
    for rule in parser.inline.ruler2.getRules(""):
        rule(state)


def addresses(text: str) -> list[tuple[int, int]]:
    """Where bare web addresses begin and end, without what belongs to the sentence around them."""
    found = []
    for match in _ADDRESS.finditer(text):
        address = match.group()
        extra = {close: address.count(close) - address.count(opening) for close, opening in _PAIRS.items()}
        end = len(address)
        while (last := address[end - 1]) in _ENDS or extra.get(last, 0) > 0:
            if last in extra:
                extra[last] -= 1
            end -= 1
        if address[:end].rpartition("://")[2].strip("/"):
            found.append((match.start(), match.start() + end))
    return found


class _State(StateInline):
    def scanDelims(self, start: int, canSplitWord: bool) -> Scanned:
        found = super().scanDelims(start, canSplitWord)
        end = start + found.length
        before = self.src[start - 1 : start]
        after = self.src[end : min(end + 1, self.posMax)]
        if canSplitWord and (_CJK.match(before) or _CJK.match(after)):
            opens = found.can_open or bool(after and not after.isspace())
            closes = found.can_close or bool(before and not before.isspace())
            return found._replace(can_open=opens, can_close=closes)
        return found


def _break(state: StateInline, silent: bool) -> bool:
    found = _BREAK.match(state.src, state.pos, state.posMax)
    if found is None:
        return False
    if not silent:
        state.pending = state.pending.rstrip(" ")
        state.push("hardbreak", "br", 0)
    state.pos = found.end()
    return True
