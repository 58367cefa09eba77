"""How far lists and quotes push in what belongs to them, and where the bars of quotes stand.

A quote has its bars where its text begins: at the left, or at the right where it is written from right to left.
"""

from __future__ import annotations

from app.chat.markdown import Code, Math, Table

INDENT = 24  # px per list depth
QUOTE_INDENT = 16  # px per quote
BAR = 2  # px, its width


def insets(leaf: Code | Math | Table) -> tuple[int, int]:
    """Room at the left and at the right that what is no prose leaves free, px."""
    room = leaf.depth * INDENT + leaf.quote * QUOTE_INDENT
    return (0, room) if leaf.mirrored else (room, 0)


def bar_at(level: int, mirrored: bool, width: int) -> int:
    """The left edge of a quote's bar, px. level: in how many quotes that quote stands. width: of the text, px."""
    inset = level * QUOTE_INDENT
    return width - inset - BAR if mirrored else inset
