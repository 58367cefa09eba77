"""Widgets stacked from top to bottom whose heights follow from the width, without asking all of them every time.

Qt's box layouts ask every child again when one changes; a streaming answer changes one child 30 times a second. A
``Column`` remembers where each child ends and moves only what lies below the one that changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from PySide6.QtCore import QMargins, Signal
from PySide6.QtWidgets import QWidget


class Fits(Protocol):
    """What a column needs of its children besides being widgets."""

    def fit(self, width: int) -> int:
        """Lay out for ``width`` px; the height that takes, in px."""


@dataclass(slots=True)
class _Item:
    widget: QWidget
    gap: int  # above it, px; not above the first one shown
    top: int = 0
    height: int = 0
    width: int = -1  # it was laid out for


class Column(QWidget):
    """A stack of widgets that can ``fit``. Emits ``height_changed`` when it wants another height at the same width."""

    height_changed = Signal()

    def __init__(self, parent: QWidget | None = None, gap: int = 0, margins: QMargins | None = None) -> None:
        super().__init__(parent)
        self._gap = gap
        self._margins = margins or QMargins()
        self._items: list[_Item] = []
        self._height = 0
        self._width = -1

    # ------------------------------------------------------------------------------------------- children

    @property
    def wanted_height(self) -> int:
        """Of all children, at the width it was last fitted to."""
        return self._height

    def widgets(self) -> list[QWidget]:
        return [item.widget for item in self._items]

    def add(self, widget: QWidget, gap: int | None = None, index: int | None = None) -> None:
        """Put a widget at the end, or before the one at ``index``. The caller then calls ``refit``."""
        if widget.parentWidget() is not self:  # Qt would dress it again
            widget.setParent(self)
        at = len(self._items) if index is None else index
        self._items.insert(at, _Item(widget, self._gap if gap is None else gap))
        if isinstance(widget, Column):
            widget.height_changed.connect(self._child_changed)
        widget.show()

    def remove(self, widget: QWidget) -> None:
        """Take a widget out; it stays alive and hidden, the caller may add it again or delete it."""
        if isinstance(widget, Column):
            widget.height_changed.disconnect(self._child_changed)
        self._items = [item for item in self._items if item.widget is not widget]
        widget.hide()

    def replace_from(self, index: int, widgets: Sequence[tuple[QWidget, int]]) -> None:
        """Put these widgets, each with the gap above it, in the place of all from ``index`` on.

        Those left out are deleted. The caller then calls ``refit``.
        """
        before = {item.widget: item for item in self._items[index:]}
        del self._items[index:]
        for widget, gap in widgets:
            item = before.pop(widget, None)
            if item is None:
                self.add(widget, gap)
            else:
                item.gap = gap
                self._items.append(item)
        for widget in before:
            widget.hide()
            widget.deleteLater()

    def clear(self) -> None:
        """Remove and delete every child."""
        for item in self._items:
            item.widget.hide()
            item.widget.deleteLater()
        self._items = []
        self.refit()

    def _child_changed(self) -> None:
        self.refit(cast(QWidget, self.sender()))

    # --------------------------------------------------------------------------------------------- layout

    def set_margins(self, margins: QMargins) -> None:
        self._margins = margins

    def fit(self, width: int) -> int:
        """Lay out everything for ``width``; what was laid out for it before is asked again only if it changed."""
        self._width = width
        self._place(0)
        return self._height

    def refit(self, *changed: QWidget) -> None:
        """Measure the changed children and new ones again, and move what lies below them."""
        if self._width < 0:
            return
        before = self._height
        start = len(self._items)
        for index in range(len(self._items) - 1, -1, -1):  # what changes is mostly near the end
            item = self._items[index]
            if item.width < 0 or item.widget in changed:
                item.width = -1
                start = index
        self._place(start)
        if self._height != before:
            self.height_changed.emit()

    def _place(self, start: int) -> None:
        margins = self._margins
        inner = max(1, self._width - margins.left() - margins.right())
        bottom = margins.top()
        any_above = False
        for index in range(start - 1, -1, -1):
            item = self._items[index]
            if not item.widget.isHidden():
                bottom, any_above = item.top + item.height, True
                break
        for index in range(start, len(self._items)):
            item = self._items[index]
            widget = item.widget
            if widget.isHidden():
                item.top, item.height, item.width = bottom, 0, -1
                continue
            if item.width != inner:
                item.height = cast(Any, widget).fit(inner)
                item.width = inner
            item.top = bottom + (item.gap if any_above else 0)
            widget.setGeometry(margins.left(), item.top, inner, item.height)
            bottom, any_above = item.top + item.height, True
        self._height = bottom + margins.bottom()
