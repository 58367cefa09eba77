"""Tab goes through the window as one reads it, whatever order its parts were made in.

Qt's own order is that of the making: a message that comes later would be reached after the panels, and its buttons
before its text.
"""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication, QScrollArea, QWidget

MARGIN = 16  # px that stay free around what is scrolled into view


def stops(parts: Sequence[QWidget]) -> list[QWidget]:
    """Where Tab stops in these parts, one part after the other."""
    return [stop for part in parts for stop in _reading_order(part, _reachable(part))]


def go_on(parts: Sequence[QWidget], forward: bool) -> bool:
    """Put the keyboard on the next stop, or the one before; behind the last is the first. False: there is none."""
    now = QApplication.focusWidget()
    order = stops(parts)
    if now is not None and now not in order:  # a click put it there: go on from this place
        part = next((part for part in parts if part.isAncestorOf(now)), None)
        if part is not None:
            order = [
                stop
                for each in parts
                for stop in _reading_order(each, _reachable(each) + ([now] if each is part else []))
            ]
    others = [stop for stop in order if stop is not now]
    if not others:
        return False
    at = order.index(now) if now in order else (-1 if forward else 0)
    wanted = order[(at + (1 if forward else -1)) % len(order)]
    wanted.setFocus(Qt.FocusReason.TabFocusReason if forward else Qt.FocusReason.BacktabFocusReason)
    _bring_into_view(wanted)
    return True


def _reachable(part: QWidget) -> list[QWidget]:
    return [
        widget
        for widget in (part, *part.findChildren(QWidget))
        if widget.focusPolicy() & Qt.FocusPolicy.TabFocus
        and widget.focusProxy() is None
        and widget.isVisible()
        and widget.isEnabled()
        and widget.window() is part.window()
    ]


def _reading_order(part: QWidget, found: list[QWidget]) -> list[QWidget]:
    """From top to bottom and in a row from left to right; what holds others comes before them."""
    holders = [widget for widget in found if any(other is not widget and widget.isAncestorOf(other) for other in found)]
    boxes = {widget: (widget.mapTo(part, QPoint()), widget.size()) for widget in found if widget not in holders}
    middle = {widget: place.y() + size.height() / 2 for widget, (place, size) in boxes.items()}
    rows: list[list[QWidget]] = []
    for widget in sorted(boxes, key=lambda each: middle[each]):
        first = boxes[rows[-1][0]] if rows else None
        if first is not None and middle[widget] < first[0].y() + first[1].height():
            rows[-1].append(widget)
        else:
            rows.append([widget])
    return holders + [widget for row in rows for widget in sorted(row, key=lambda each: boxes[each][0].x())]


def _bring_into_view(widget: QWidget) -> None:
    around = widget.parentWidget()
    while around is not None:
        if isinstance(around, QScrollArea):
            around.ensureWidgetVisible(widget, MARGIN, MARGIN)
        around = around.parentWidget()
