"""The bars of quotes where nobody else paints them: between the views of a text, and beside those that are no prose."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRect
from PySide6.QtGui import QColor, QPainter
from PySide6.QtWidgets import QWidget

from app.chat.code import CodeCard
from app.chat.formula import FormulaView
from app.chat.indents import BAR, bar_at
from app.chat.markdown import Leaf
from app.chat.prose import ProseView
from app.chat.table import TableView

OVERLAP = 8  # px; prose ends its bars with its last line, a little above its own end, and no line is lower than this


def paint_bars(painter: QPainter, views: Sequence[QWidget], area: QRect, color: QColor) -> None:
    """On what the views lie on, as wide as they are, as far as ``area`` reaches. Prose has bars of its own, which
    these join."""
    above: Leaf | None = None
    bottom = 0
    for view in views:
        box = view.geometry()
        leaves = _leaves(view)
        first, last = (leaves[0], leaves[-1]) if leaves else (None, None)
        if bottom <= area.bottom() and box.bottom() >= area.top() and first is not None:
            if above is not None and above.mirrored == first.mirrored:
                quotes = min(above.quote, first.quote)
                _paint(painter, quotes, first.mirrored, box.width(), bottom - OVERLAP, box.top(), color)
            if not isinstance(view, ProseView):
                _paint(painter, first.quote, first.mirrored, box.width(), box.top(), box.bottom() + 1, color)
        above, bottom = last, box.bottom() + 1


def _paint(painter: QPainter, quotes: int, mirrored: bool, width: int, top: int, bottom: int, color: QColor) -> None:
    for level in range(quotes):
        painter.fillRect(bar_at(level, mirrored, width), top, BAR, bottom - top, color)


def _leaves(view: QWidget) -> Sequence[Leaf]:
    if isinstance(view, ProseView):
        return view.leaves
    leaf = view.leaf if isinstance(view, CodeCard | TableView | FormulaView) else None
    return [leaf] if leaf is not None else []
