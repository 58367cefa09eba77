"""A table of an answer. Cells wrap, but not to less than a few words: a wide table scrolls sideways. The head stands
out; text can be selected and copied, tabs between cells."""

from __future__ import annotations

import math

from PySide6.QtCore import Qt
from PySide6.QtGui import (
    QBrush,
    QColor,
    QFont,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextFrameFormat,
    QTextTable,
    QTextTableFormat,
    QWheelEvent,
)
from PySide6.QtWidgets import QTextBrowser, QWidget

from app.chat.indents import insets
from app.chat.markdown import Table
from app.chat.prose import LEADING, TextView, insert_spans
from app.theme import Theme, font

_ALIGNMENTS = {"right": Qt.AlignmentFlag.AlignRight, "center": Qt.AlignmentFlag.AlignHCenter}


LEAST_COLUMN = 8  # letters' heights that a column may take before its cells wrap
SCROLL_BAR = 10  # px


class TableView(TextView):
    """Shows one ``Table`` leaf."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self._table: Table | None = None
        self._grid: QTextTable | None = None

    @property
    def leaf(self) -> Table | None:
        return self._table

    def fit(self, width: int) -> int:
        table = self._table
        if table is None:
            return super().fit(width)
        least = sum(insets(table)) + max(map(len, table.rows)) * LEAST_COLUMN * font("body").pixelSize()
        height = super().fit(max(width, least))
        reach = math.ceil(self.document().idealWidth())
        wide = reach > width
        if wide:
            height = super().fit(reach)  # no empty room beside it
        bar = Qt.ScrollBarPolicy.ScrollBarAlwaysOn if wide else Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        if bar != self.horizontalScrollBarPolicy():
            self.setHorizontalScrollBarPolicy(bar)
        return height + (SCROLL_BAR if wide else 0)

    def wheelEvent(self, event: QWheelEvent) -> None:
        if abs(event.angleDelta().x()) > abs(event.angleDelta().y()):
            QTextBrowser.wheelEvent(self, event)  # sideways is ours
        else:
            super().wheelEvent(event)

    def show_table(self, table: Table) -> None:
        """Show a table. One that has only grown keeps its rows; what is new is written below them."""
        old, self._table = self._table, table
        if old == table:
            return
        kept = len(old.rows) - 1 if old is not None else 0  # the last row may have been half of itself
        if (
            old is None
            or self._grid is None
            or table.align != old.align
            or insets(table) != insets(old)
            or table.rows[:kept] != old.rows[:kept]
        ):
            self.restyle()
            return
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        if len(table.rows) > len(old.rows):
            self._grid.appendRows(len(table.rows) - len(old.rows))
        for row in range(kept, len(table.rows)):
            self._write_row(self._grid, row)
        cursor.endEditBlock()

    def restyle(self) -> None:
        """Write the table in the theme's colours."""
        table = self._table
        if table is None:
            return
        self.document().clear()
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        _flatten(cursor)  # Qt keeps a line before and after a table; neither shall be seen
        self._grid = cursor.insertTable(len(table.rows), max(map(len, table.rows)), self._format(table))
        for row in range(len(table.rows)):
            self._write_row(self._grid, row)
        cursor.movePosition(QTextCursor.MoveOperation.End)
        _flatten(cursor)
        cursor.endEditBlock()

    def _write_row(self, grid: QTextTable, row: int) -> None:
        assert self._table is not None
        base = QTextCharFormat()
        base.setFont(font("body", size=13, weight=QFont.Weight.DemiBold if row == 0 else None))
        for column, spans in enumerate(self._table.rows[row]):
            block = QTextBlockFormat()
            block.setLineHeight(LEADING, QTextBlockFormat.LineHeightTypes.LineDistanceHeight.value)
            side = self._table.align[column] if column < len(self._table.align) else ""
            block.setAlignment(_ALIGNMENTS.get(side, Qt.AlignmentFlag.AlignLeft))
            cell = grid.cellAt(row, column)
            if row == 0:
                look = cell.format()
                look.setBackground(QColor(self.theme.colors.surface))
                cell.setFormat(look)
            inside = cell.firstCursorPosition()
            inside.setPosition(cell.lastCursorPosition().position(), QTextCursor.MoveMode.KeepAnchor)
            inside.removeSelectedText()
            inside.setBlockFormat(block)
            insert_spans(inside, spans, base, self.theme)

    def _format(self, table: Table) -> QTextTableFormat:
        result = QTextTableFormat()
        result.setBorder(1)
        result.setBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_Solid)
        result.setBorderBrush(QBrush(QColor(self.theme.colors.border)))
        result.setBorderCollapse(True)
        result.setCellPadding(7)
        result.setCellSpacing(0)
        left, right = insets(table)
        result.setLeftMargin(left)
        result.setRightMargin(right)
        if table.mirrored:
            result.setAlignment(Qt.AlignmentFlag.AlignRight)
        result.setHeaderRowCount(1)
        return result


def _flatten(cursor: QTextCursor) -> None:
    """Make the cursor's paragraph take no height."""
    block = QTextBlockFormat()
    block.setLineHeight(0, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
    cursor.setBlockFormat(block)
    small = QTextCharFormat()
    tiny = font("body")
    tiny.setPixelSize(1)
    small.setFont(tiny)
    cursor.setBlockCharFormat(small)
