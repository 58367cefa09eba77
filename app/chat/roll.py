"""A long stack of messages of which only those near the reader exist.

Every message has a place and a height: measured while its widget is there, remembered afterwards, guessed from its
length before. Widgets are made when the view comes near and taken down when it is far away again. Whatever changes
above what is being read moves the view along, so that the text under the eyes stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from PySide6.QtCore import QMargins, QTimer, Signal, Slot
from PySide6.QtWidgets import QApplication, QWidget

from app.chat.column import Column

AHEAD = 1.0  # heights of the view in which messages are made before they are seen
BEHIND = 2.0  # heights of the view beyond which they are taken down
LINE = 22  # px of a line of text, for guesses
LETTER = 7.4  # px
FRAME = 44  # px of a message besides its lines

Make = Callable[[], QWidget]


@dataclass(slots=True)
class _Entry:
    make: Make | None  # None: only this widget will do, it stays
    characters: int = 0
    widget: QWidget | None = None
    top: int = 0
    height: int = 0
    width: int = -1  # that the height is measured for; -1: it is not, or no longer
    fresh: bool = False  # just made in the place of a guess, and not measured yet


class Roll(QWidget):
    """Its owner tells what part is seen (``look``) and obeys its signals.

    height_changed: the whole is higher or lower now. shifted: what is seen has moved down by so many px.
    """

    height_changed = Signal()
    shifted = Signal(int)

    def __init__(self, gap: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._gap = gap
        self._margins = QMargins()
        self._entries: list[_Entry] = []
        self._width = -1
        self._height = 0
        self._top, self._seen = 0, 0  # what part is seen
        self._later = QTimer(self)
        self._later.setInterval(0)
        self._later.timeout.connect(self._make_one_ahead)

    # ------------------------------------------------------------------------------------------- messages

    @property
    def wanted_height(self) -> int:
        return self._height

    def __len__(self) -> int:
        return len(self._entries)

    def widgets(self) -> list[QWidget]:
        """The widgets that exist now, from top to bottom."""
        return [entry.widget for entry in self._entries if entry.widget is not None]

    def clear(self) -> None:
        """Forget everything."""
        self._later.stop()
        for entry in self._entries:
            self._take_down(entry)
        self._entries = []
        self._place(0)

    def show_all(self, makers: Sequence[Make], characters: Sequence[int]) -> None:
        """These messages and no others; ``characters``: how long each is, about. Nothing is made before ``look``."""
        self.clear()
        lengths = [*characters, *[0] * (len(makers) - len(characters))]
        self._entries = [_Entry(make, length) for make, length in zip(makers, lengths, strict=True)]
        self._place(0)

    def add(self, widget: QWidget, index: int | None = None) -> None:
        """Put a widget at the end, or before the message at ``index``. It stays until it is removed."""
        at = len(self._entries) if index is None else index
        self._entries.insert(at, _Entry(None))
        self._put_up(self._entries[at], widget)
        self._place(at)

    def remove(self, widget: QWidget) -> None:
        """Take a message out; its widget is deleted."""
        index = self._index(widget)
        if index is not None:
            self._take_down(self._entries.pop(index))
            self._place(index)

    def replace_from(self, index: int, widgets: Sequence[QWidget]) -> None:
        """Put these in the place of message ``index`` and all below it. They stay until they are removed."""
        for entry in self._entries[index:]:
            self._take_down(entry)
        del self._entries[index:]
        for widget in widgets:
            self._entries.append(_Entry(None))
            self._put_up(self._entries[-1], widget)
        self._place(index)

    def settle(self, widget: QWidget, make: Make | None) -> None:
        """This message can be made anew from now on, so it need not exist while nobody is near; None: it cannot."""
        index = self._index(widget)
        if index is not None:
            self._entries[index].make = make

    def index(self, widget: QWidget) -> int:
        """Number of the message that this widget shows; ValueError when it shows none."""
        found = self._index(widget)
        if found is None:
            raise ValueError("no message is shown by this widget")
        return found

    def top(self, index: int) -> int:
        """Where a message begins, px; a guess as long as those above it were not all made."""
        return self._entries[index].top

    def _index(self, widget: object) -> int | None:
        for index in range(len(self._entries) - 1, -1, -1):  # what changes is mostly near the end
            if self._entries[index].widget is widget:
                return index
        return None

    # -------------------------------------------------------------------------------------------- widgets

    def look(self, top: int, height: int) -> None:
        """The reader now sees ``height`` px from ``top`` on: what is there exists when this returns."""
        self._top, self._seen = top, height
        if self._width < 0:
            return
        for _ in range(len(self._entries)):
            missing = self._missing(0)
            if missing is None:
                break
            self._make(missing)
        self._take_down_far_ones()
        if self._missing(AHEAD) is not None:
            self._later.start()

    def _missing(self, ahead: float) -> int | None:
        """The nearest message without a widget within so many heights of what is seen, the ones seen from below up."""
        margin = round(ahead * self._seen)
        low, high = self._top - margin, self._top + self._seen + margin
        middle = self._top + self._seen
        found: int | None = None
        nearest = 0
        for index in range(self._first_below(low), len(self._entries)):
            entry = self._entries[index]
            if entry.top > high:
                break
            distance = abs(entry.top + entry.height - middle)
            if entry.widget is None and (found is None or distance < nearest):
                found, nearest = index, distance
        return found

    def _first_below(self, y: int) -> int:
        """Index of the first message that reaches below ``y``."""
        low, high = 0, len(self._entries)
        while low < high:
            middle = (low + high) // 2
            entry = self._entries[middle]
            if entry.top + entry.height < y:
                low = middle + 1
            else:
                high = middle
        return low

    def _make(self, index: int) -> None:
        entry = self._entries[index]
        assert entry.make is not None
        self._put_up(entry, entry.make())
        entry.width, entry.fresh = -1, True
        self._place(index)

    @Slot()
    def _make_one_ahead(self) -> None:
        missing = self._missing(AHEAD)
        if missing is None:
            self._later.stop()
        else:
            self._make(missing)

    def _put_up(self, entry: _Entry, widget: QWidget) -> None:
        entry.widget = widget
        widget.setParent(self)
        if isinstance(widget, Column):
            widget.height_changed.connect(self._child_changed)
        widget.show()

    def _take_down(self, entry: _Entry) -> None:
        widget, entry.widget = entry.widget, None
        if widget is not None:
            widget.hide()
            widget.deleteLater()

    def _take_down_far_ones(self) -> None:
        margin = round(BEHIND * self._seen)
        low, high = self._top - margin, self._top + self._seen + margin
        for entry in self._entries:
            if entry.widget is None or entry.make is None or (low <= entry.top + entry.height and entry.top <= high):
                continue
            if not _in_use(entry.widget):
                self._take_down(entry)

    # --------------------------------------------------------------------------------------------- layout

    def set_margins(self, margins: QMargins) -> None:
        self._margins = margins

    def fit(self, width: int) -> int:
        """Lay out for ``width`` px; the height that takes."""
        if width != self._width:
            self._width = width
            for entry in self._entries:
                entry.width = -1
        self._place(0)
        return self._height

    @Slot()
    def _child_changed(self) -> None:
        self.refit(cast(QWidget, self.sender()))

    def refit(self, *changed: QWidget) -> None:
        """Measure these again, and move what lies below them."""
        first = len(self._entries)
        for widget in changed:
            index = self._index(widget)
            if index is not None:
                self._entries[index].width = -1
                first = min(first, index)
        self._place(first)

    def _place(self, start: int) -> None:
        """Heights and places from number ``start`` on; tells by how much that moved what is seen."""
        if self._width < 0:
            return
        inner = max(1, self._width - self._margins.left() - self._margins.right())
        eye = min(self._first_below(self._top), len(self._entries) - 1)
        shift = 0
        entries = self._entries
        bottom = entries[start - 1].top + entries[start - 1].height if start else self._margins.top()
        for index in range(start, len(entries)):
            entry = entries[index]
            old_top, old_height, fresh = entry.top, entry.height, entry.fresh
            self._measure(entry, inner)
            entry.top = bottom + (self._gap if index and entry.height else 0)
            bottom = entry.top + entry.height
            if index == eye:
                shift = entry.top - old_top
                if fresh and old_top < self._top:  # its end is what is being read: it grows upwards
                    shift += entry.height - old_height
            if entry.widget is not None:
                entry.widget.setGeometry(self._margins.left(), entry.top, inner, entry.height)
        before, self._height = self._height, bottom + self._margins.bottom()
        self._top += shift
        if self._height != before:
            self.height_changed.emit()
        if shift:
            self.shifted.emit(shift)

    def _measure(self, entry: _Entry, inner: int) -> None:
        """Give an entry its height."""
        widget = entry.widget
        if widget is None:
            if not entry.height:
                entry.height = round((entry.characters * LETTER / inner + 1) * LINE + FRAME)
        elif widget.isHidden():
            entry.height, entry.width = 0, -1
        elif entry.width != inner:
            height = cast(Any, widget).fit(inner)
            if not entry.fresh:
                entry.height, entry.width = height, inner
            elif getattr(widget, "settled", True):
                entry.height, entry.width, entry.fresh = height, inner, False
            else:  # being filled, it keeps the room it was given: what follows does not move for every piece
                entry.height = max(height, entry.height)


def _in_use(widget: QWidget) -> bool:
    """Whether the reader did something with it that would be lost: the focus, a selection, something opened."""
    focus = QApplication.focusWidget()
    return bool(getattr(widget, "touched", False)) or (focus is not None and widget.isAncestorOf(focus))
