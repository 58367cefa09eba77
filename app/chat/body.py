"""A markdown text as a column of views: prose, code cards and tables, built while it streams."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeVar, cast

from PySide6.QtCore import QTimer, Signal, Slot
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.chat.code import CodeCard, CodeText
from app.chat.column import Column
from app.chat.formula import FormulaView, can_be_shown
from app.chat.markdown import Code, Leaf, Math, Paragraph, Rule, Table
from app.chat.prose import ProseView, TextView, gap_above
from app.chat.quote_bars import paint_bars
from app.chat.stream import MarkdownStream
from app.chat.table import TableView
from app.theme import Theme, space

Prose = Paragraph | Rule
View = TypeVar("View", ProseView, CodeCard, TableView, FormulaView)

MAX_CHARACTERS = 4000  # a prose view takes no further final leaf beyond this, so that it is laid out no more
SHARE = 40  # showing may cost one part in so many of the time: what the window computes, the engine waits for
SLICE = 2000  # characters shown at once at most, so that a long text never holds the window up,
LEAST_SLICE = 1000  # and at least: a paragraph without end is laid out again for each piece
SLICE_SECONDS = 0.015  # that one piece may take; how many characters that is, the last one tells
CATCH_UP = 2  # the share while text waits that came faster than it could be shown
MAX_ROWS = 100  # of a table; a longer one is shown as plain lines, which cost nothing to lay out
MAX_COLUMNS = 64  # as well: Qt lays a table out in time that grows with the square of its width


class MarkdownBody(Column):
    """Feed it text; it shows it soon, at most as often as it can afford."""

    link_clicked = Signal(str)
    pointed = Signal(str, int)  # a plain click: the text shown from the beginning to it and a bit on, and where in that
    complete = Signal()  # all of a text that was said to be complete is shown now

    def __init__(self, theme: Theme, parent: QWidget | None = None, muted: bool = False) -> None:
        super().__init__(parent)
        self.theme = theme
        self._muted = muted
        self._stream = MarkdownStream()
        self._waiting: list[str] = []
        self._final = 0  # views that hold final leaves; the next update may take back those after them
        self._caret: ProseView | None = None
        self._next = 0.0
        self._slice = SLICE
        self._ending = False
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._show)
        theme.changed.connect(self.restyle)

    def feed(self, text: str) -> None:
        """Add text that streams in."""
        self._waiting.append(text)
        if time.perf_counter() >= self._next and not self._timer.isActive():
            self._show()
        else:
            self._wait()

    def finish(self) -> None:
        """The text is complete. What is left of it is shown now when it is short, else little by little."""
        self._ending = True
        self._show()

    def set_text(self, text: str) -> None:
        """Show a complete text."""
        self._waiting.append(text)
        self.finish()

    @Slot()
    def restyle(self) -> None:
        """Everything again in the theme's colours."""
        for widget in self.widgets():
            cast(ProseView | CodeCard | TableView | FormulaView, widget).restyle()
        self.refit(*self.widgets())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint_bars(painter, self.widgets(), event.rect(), QColor(self.theme.colors.border))
        painter.end()

    @property
    def settled(self) -> bool:
        """All text that was fed is shown."""
        return not self._waiting

    @Slot()
    def _show(self) -> None:
        """Show the next piece of what waits."""
        self._timer.stop()
        began = time.perf_counter()
        text = "".join(self._waiting)
        text, rest = text[: self._slice], text[self._slice :]
        self._waiting = [rest] if rest else []
        if text:
            update = self._stream.feed(text)
            self._apply(update.finished, update.tail)
            self._set_caret(True)
        if self._ending and not rest:
            self._ending = False
            self._apply(self._stream.finish().finished, ())
            self._set_caret(False)
            self.complete.emit()
        cost = time.perf_counter() - began
        self._next = began + cost * (CATCH_UP if rest else SHARE)
        if len(text) >= LEAST_SLICE:
            self._slice = min(SLICE, max(LEAST_SLICE, round(len(text) * SLICE_SECONDS / cost)))
        if rest:
            self._wait()

    def _wait(self) -> None:
        if not self._timer.isActive():
            self._timer.start(max(1, round((self._next - time.perf_counter()) * 1000)))

    # ------------------------------------------------------------------------------------------- views

    def _apply(self, finished: Sequence[Leaf], tail: Sequence[Leaf]) -> None:
        """Make the views show the final leaves so far, then ``finished``, then ``tail``."""
        views = self.widgets()
        last = views[self._final - 1] if self._final else None
        spare = views[self._final :]
        used: list[tuple[QWidget, int]] = []
        prose: dict[ProseView, tuple[list[Prose], list[Prose]]] = {}
        changed: set[QWidget] = set()
        if isinstance(last, ProseView):
            prose[last] = ([], [])
        final = self._final
        for number, leaf in enumerate((*finished, *tail)):
            is_final = number < len(finished)
            if isinstance(leaf, Table) and _too_large(leaf):
                leaf = _as_lines(leaf)
            if isinstance(leaf, Math) and (leaf.open or not can_be_shown(leaf.source, display=True)):
                leaf = Code(leaf.source, "latex", leaf.depth, leaf.quote, leaf.mirrored)  # no wrong formula: its source
            if isinstance(leaf, Code):
                last = card = self._take(spare, CodeCard)
                if card.leaf != leaf or is_final:
                    card.show_code(leaf, live=not is_final)
                    changed.add(card)
                used.append((card, space(3)))
            elif isinstance(leaf, Table):
                last = table = self._take(spare, TableView)
                if table.leaf != leaf:
                    table.show_table(leaf)
                    changed.add(table)
                used.append((table, space(3)))
            elif isinstance(leaf, Math):
                last = formula = self._take(spare, FormulaView)
                if formula.leaf != leaf:
                    formula.show_formula(leaf)
                    changed.add(formula)
                used.append((formula, space(2)))
            else:
                if not isinstance(last, ProseView) or self._is_full(last, prose):
                    last = self._take(spare, ProseView)
                    prose[last] = ([], [])
                    used.append((last, max(gap_above(leaf), space(3)) if used or views[: self._final] else 0))
                prose[last][0 if is_final else 1].append(leaf)
            if is_final:
                final = self._final + len(used)
        for view, (done, open_leaves) in prose.items():
            for leaf in done:
                view.append_final(leaf)
            view.set_tail(open_leaves)
            changed.add(view)
        self.replace_from(self._final, used)
        self._final = final
        self.refit(*changed)
        if any(leaf.quote for leaf in (*finished, *tail)):
            self.update()  # the bars between the views

    @staticmethod
    def _is_full(view: ProseView, prose: dict[ProseView, tuple[list[Prose], list[Prose]]]) -> bool:
        done, _ = prose.get(view, ([], []))
        return view.final_length + sum(len(text) for leaf in done for text in _texts(leaf)) > MAX_CHARACTERS

    def _take(self, spare: list[QWidget], kind: type[View]) -> View:
        """A view of this kind that the last tail used, or a new one."""
        for widget in spare:
            if isinstance(widget, kind):
                spare.remove(widget)
                return widget
        view = kind(self.theme, self)
        if isinstance(view, ProseView):
            view.muted = self._muted
        if isinstance(view, TextView):
            view.link_clicked.connect(self.link_clicked)
            view.pointed.connect(self._pointed)
        elif isinstance(view, CodeCard):
            view.text.pointed.connect(self._pointed)
        return view

    @Slot(int)
    def _pointed(self, position: int) -> None:
        """Tell what is read before the character that was clicked."""
        clicked = cast(QWidget, self.sender())
        before: list[str] = []
        for view in self.widgets():
            text = view.text if isinstance(view, CodeCard) else view
            shown = text.toPlainText() if isinstance(text, TextView | CodeText) else ""
            if text is clicked:
                start = sum(len(piece) + 1 for piece in before)
                self.pointed.emit("\n".join([*before, shown]), start + position)
                return
            before.append(shown)

    def _set_caret(self, shown: bool) -> None:
        views = self.widgets()
        last = views[-1] if views and shown else None
        wanted = last if isinstance(last, ProseView) else None
        if self._caret is not wanted:
            if self._caret is not None and self._caret in views:
                self._caret.set_caret(False)
            self._caret = wanted
            if wanted is not None:
                wanted.set_caret(True)


def _too_large(table: Table) -> bool:
    return len(table.rows) > MAX_ROWS or max(map(len, table.rows)) > MAX_COLUMNS


def _as_lines(table: Table) -> Code:
    lines = [" | ".join("".join(span.text for span in cell) for cell in row) for row in table.rows]
    return Code("\n".join(lines), "table", table.depth, table.quote, table.mirrored)


def _texts(leaf: Prose) -> list[str]:
    return [span.text for span in leaf.spans] if isinstance(leaf, Paragraph) else []
