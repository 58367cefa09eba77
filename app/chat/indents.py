"""How far lists and quotes push in what belongs to them."""

from __future__ import annotations

from app.chat.markdown import Code, Math, Table

INDENT = 24  # px per list depth
QUOTE_INDENT = 16  # px per quote


def left_edge(leaf: Code | Math | Table) -> int:
    """Where what is no prose begins, px."""
    return leaf.depth * INDENT + leaf.quote * QUOTE_INDENT
