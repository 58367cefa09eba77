"""Paragraphs, headings, lists and quotes in one read-only text view, with a tail that can be replaced.

The view grows by leaves. Final leaves stay; the tail is cut back to the first leaf that changed and written anew.
It never loads a resource, copies plain text only, and asks its owner before a link opens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QMimeData, QRectF, Qt, QUrl, Signal
from PySide6.QtGui import (
    QColor,
    QFocusEvent,
    QFont,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QTextBlock,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocumentFragment,
    QTextFormat,
    QTextListFormat,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QTextBrowser, QWidget

from app.chat.formula import OBJECT, insert_formula, source_at
from app.chat.indents import BAR, INDENT, QUOTE_INDENT, bar_at
from app.chat.markdown import DONE_BOX, OPEN_BOX, Paragraph, Rule, Span
from app.chat.pointing import position_clicked
from app.theme import Theme, font, space

QUOTE = int(QTextFormat.Property.UserProperty) + 1  # block property: how many quotes deep
RULE = int(QTextFormat.Property.UserProperty) + 2  # block property: a horizontal line
MIRRORED = int(QTextFormat.Property.UserProperty) + 3  # block property: the quote is written from right to left

NOTHING = "\u200b"  # a character that is not seen
FIRST_WIDTH = 600  # px that text is laid out for before its width is known; for none, a long word takes a minute
RULE_HEIGHT = space(2)  # px
LEADING = 5  # px between the lines of a paragraph
_BOXES = {OPEN_BOX: QTextBlockFormat.MarkerType.Unchecked, DONE_BOX: QTextBlockFormat.MarkerType.Checked}
HEADINGS = {1: 20, 2: 18, 3: 16}  # px; deeper ones have the size of text


def gap_above(leaf: Paragraph | Rule) -> int:
    """Space between a leaf and what comes before it, px."""
    if isinstance(leaf, Rule):
        return space(4)
    if leaf.level:
        return space(5)
    if leaf.depth:
        return space(1.5)
    return space(2.5)


class TextView(QTextBrowser):
    """A text as high as its content: for answers, questions and tables."""

    link_clicked = Signal(str)
    pointed = Signal(int)  # a plain click on the character at this position of the document

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme = theme
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setOpenLinks(False)
        self.setUndoRedoEnabled(False)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setAccessibleName(self.tr("Text of the message"))
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextBrowserInteraction | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.viewport().setAutoFillBackground(False)
        # wrapped at the width it is told: one that wraps at its own is measured wrongly before it is first shown
        self.setLineWrapMode(QTextBrowser.LineWrapMode.FixedPixelWidth)
        self.setLineWrapColumnOrWidth(FIRST_WIDTH)
        self.document().setDocumentMargin(0)
        self.document().setIndentWidth(INDENT)
        self.setFont(font("body"))
        self.anchorClicked.connect(lambda url: self.link_clicked.emit(url.toString()))

    def fit(self, width: int) -> int:
        if self.lineWrapColumnOrWidth() != width:
            self.setLineWrapColumnOrWidth(width)
        return math.ceil(self.document().size().height())

    def loadResource(self, kind: int, name: QUrl | str) -> Any:
        return None  # nothing in a chat is ever fetched, from disk or network

    def createMimeDataFromSelection(self) -> QMimeData:
        data = QMimeData()
        data.setText(plain_text(self.textCursor()))
        return data

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        if (position := position_clicked(self, event)) >= 0:
            self.pointed.emit(position)

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()  # the transcript scrolls, not the paragraph

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        forward = event.reason() == Qt.FocusReason.TabFocusReason
        if (forward or event.reason() == Qt.FocusReason.BacktabFocusReason) and (
            self.focusPolicy() & Qt.FocusPolicy.TabFocus
        ):  # to its first link, or its last
            self.moveCursor(QTextCursor.MoveOperation.Start if forward else QTextCursor.MoveOperation.End)
            self.focusNextPrevChild(forward)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        if event.reason() == Qt.FocusReason.MouseFocusReason:  # one selection at a time
            cursor = self.textCursor()
            cursor.clearSelection()
            self.setTextCursor(cursor)


def plain_text(cursor: QTextCursor) -> str:
    """The selected text as one would type it: list markers included, soft breaks as line breaks."""
    if not cursor.hasSelection():
        return ""
    if cursor.currentTable() is not None or cursor.hasComplexSelection():
        return QTextDocumentFragment(cursor).toPlainText()
    start, end = cursor.selectionStart(), cursor.selectionEnd()
    lines: list[str] = []
    block = cursor.document().findBlock(start)
    while block.isValid() and block.position() <= end:
        text = block.text()[max(0, start - block.position()) : max(0, end - block.position())]
        if OBJECT in text:
            first = max(start, block.position())
            text = "".join(
                source_at(cursor.document(), first + n) if sign == OBJECT else sign for n, sign in enumerate(text)
            )
        items = block.textList()
        if items is not None and start <= block.position():
            text = "  " * (items.format().indent() - 1) + marker_of(items.itemText(block)) + " " + _box_of(block) + text
        lines.append(text.replace("\u2028", "\n").replace(NOTHING, ""))
        block = block.next()
    return "\n".join(lines)


def marker_of(text: str) -> str:
    return text if text[:1].isdigit() else "-"


def _box_of(block: QTextBlock) -> str:
    """How a task's box is typed; nothing for what is no task."""
    marker = block.blockFormat().marker()
    return {QTextBlockFormat.MarkerType.Unchecked: "[ ] ", QTextBlockFormat.MarkerType.Checked: "[x] "}.get(marker, "")


class ProseView(TextView):
    """Final leaves, then a tail of leaves that may still change."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self.muted = False  # for thoughts
        self._leaves: list[Paragraph | Rule] = []
        self._starts: list[int] = []  # position in the document of each leaf's block
        self._final = 0
        self._final_length = 0
        self._marked = False  # has quotes or rules to paint
        self._caret = False

    @property
    def leaves(self) -> Sequence[Paragraph | Rule]:
        return self._leaves

    @property
    def final_length(self) -> int:
        """Characters of the final leaves."""
        return self._final_length

    def append_final(self, leaf: Paragraph | Rule) -> None:
        """Add a leaf that will not change. Drops the tail unless it begins with this very leaf."""
        if len(self._leaves) <= self._final or self._leaves[self._final] != leaf:
            self._write(self._final, [leaf])
        self._final += 1
        if isinstance(leaf, Paragraph):
            self._final_length += sum(len(span.text) for span in leaf.spans)

    def set_tail(self, leaves: Sequence[Paragraph | Rule]) -> None:
        """Show these leaves after the final ones, instead of the tail before."""
        self._write(self._final, leaves)

    def set_caret(self, shown: bool) -> None:
        """A mark at the end: more is coming."""
        if self._caret != shown:
            self._caret = shown
            self.viewport().update()

    def restyle(self) -> None:
        """Write everything again in the theme's colours."""
        leaves = list(self._leaves)
        self._write(0, [])
        self._marked = False
        self._write(0, leaves)

    # ------------------------------------------------------------------------------------------- writing

    def _write(self, at: int, leaves: Sequence[Paragraph | Rule]) -> None:
        """Make the leaves from number ``at`` on be ``leaves``; the equal ones among them are left alone."""
        same = 0
        while same < len(leaves) and at + same < len(self._leaves) and self._leaves[at + same] == leaves[same]:
            same += 1
        at += same
        if same == len(leaves) and at == len(self._leaves):
            return
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        if at < len(self._leaves):
            cursor.setPosition(max(0, self._starts[at] - 1))
            cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
            cursor.removeSelectedText()
            del self._leaves[at:], self._starts[at:]
        cursor.movePosition(QTextCursor.MoveOperation.End)
        for leaf in leaves[same:]:
            self._append(cursor, leaf)
        cursor.endEditBlock()

    def _append(self, cursor: QTextCursor, leaf: Paragraph | Rule) -> None:
        first = not self._leaves
        block = QTextBlockFormat()
        block.setLineHeight(LEADING, QTextBlockFormat.LineHeightTypes.LineDistanceHeight.value)
        block.setTopMargin(0 if first else gap_above(leaf))
        (block.setRightMargin if leaf.mirrored else block.setLeftMargin)(leaf.quote * QUOTE_INDENT)
        marker = ""
        if isinstance(leaf, Rule):
            block.setProperty(RULE, True)
            block.setLineHeight(RULE_HEIGHT, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
            block.setIndent(leaf.depth)
            block.setBottomMargin(space(2.5))
        else:
            marker = leaf.marker
            block.setIndent(0 if marker else leaf.depth)
            block.setHeadingLevel(leaf.level)
        if leaf.quote:
            block.setProperty(QUOTE, leaf.quote)
            block.setProperty(MIRRORED, leaf.mirrored)
        self._marked = self._marked or isinstance(leaf, Rule) or bool(leaf.quote)
        base = self._character_format(leaf)
        if first:
            cursor.setBlockFormat(block)
            cursor.setBlockCharFormat(base)
        else:
            cursor.insertBlock(block, base)
        self._leaves.append(leaf)
        self._starts.append(cursor.position())
        if marker:
            cursor.createList(_list_format(marker, leaf.depth))
            block.setIndent(0)
            if marker in _BOXES:
                block.setMarker(_BOXES[marker])
            cursor.mergeBlockFormat(block)
        elif cursor.currentList() is not None:
            cursor.currentList().remove(cursor.block())
            cursor.setBlockFormat(block)
        if isinstance(leaf, Rule) or not leaf.spans:
            cursor.insertText(NOTHING, base)  # Qt lets an empty block take the next one's format when that is removed
        else:
            insert_spans(cursor, leaf.spans, base, self.theme)
            if any(span.href for span in leaf.spans):
                self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def _character_format(self, leaf: Paragraph | Rule) -> QTextCharFormat:
        base = QTextCharFormat()
        level = leaf.level if isinstance(leaf, Paragraph) else 0
        weight = QFont.Weight.DemiBold if level else QFont.Weight.Normal
        base.setFont(font("body", size=HEADINGS.get(level), weight=weight))
        if self.muted or leaf.quote:
            base.setForeground(QColor(self.theme.colors.text_muted))
        return base

    # ------------------------------------------------------------------------------------------- painting

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self._marked and not self._caret:
            return
        painter = QPainter(self.viewport())
        if self._marked:
            self._paint_marks(painter)
        if self._caret:
            end = QTextCursor(self.document())
            end.movePosition(QTextCursor.MoveOperation.End)
            place = self.cursorRect(end)
            painter.fillRect(QRectF(place.left() + 2, place.bottom() - 15, 7, 15), QColor(self.theme.colors.text))
        painter.end()

    def _paint_marks(self, painter: QPainter) -> None:
        line = QColor(self.theme.colors.border)
        layout = self.document().documentLayout()
        block = self.document().begin()
        above: QRectF | None = None
        depth_above, mirrored_above = 0, False
        width = self.viewport().width()
        while block.isValid():
            box = layout.blockBoundingRect(block)
            look = block.blockFormat()
            depth, mirrored = int(look.property(QUOTE) or 0), bool(look.property(MIRRORED))
            if mirrored != mirrored_above:
                depth_above = 0  # another quote begins
            top = above.bottom() if above is not None and depth_above else box.top()
            for level in range(depth):
                start = top if level < depth_above else box.top()
                painter.fillRect(QRectF(bar_at(level, mirrored, width), start, BAR, box.bottom() - start), line)
            if look.property(RULE):
                room = look.indent() * INDENT + depth * QUOTE_INDENT
                middle = box.top() + RULE_HEIGHT // 2  # the box itself is as high as letters are, whatever it is told
                painter.fillRect(QRectF(0 if mirrored else room, middle, width - room, 1), line)
            above, depth_above, mirrored_above = box, depth, mirrored
            block = block.next()


def _list_format(marker: str, depth: int) -> QTextListFormat:
    result = QTextListFormat()
    result.setIndent(depth)
    if marker == "•" or marker in _BOXES:
        result.setStyle(QTextListFormat.Style.ListDisc)
    else:
        result.setStyle(QTextListFormat.Style.ListDecimal)
        result.setStart(int(marker.removesuffix(".")))
    return result


def insert_spans(cursor: QTextCursor, spans: Sequence[Span], base: QTextCharFormat, theme: Theme) -> None:
    """Write spans at the cursor, each in its look over ``base``."""
    colors = theme.colors
    for span in spans:
        look = QTextCharFormat(base)
        if span.code:
            mono = font("mono")
            mono.setPixelSize(round(base.font().pixelSize() * 0.92))
            look.setFont(mono)
            look.setBackground(QColor(colors.surface))
        if span.bold:
            look.setFontWeight(QFont.Weight.DemiBold if not span.code else QFont.Weight.Bold)
        if span.italic:
            look.setFontItalic(True)
        if span.strike:
            look.setFontStrikeOut(True)
        if span.href:
            look.setAnchor(True)
            look.setAnchorHref(span.href)
            look.setForeground(QColor(colors.accent))
            look.setFontUnderline(True)
        if span.math:
            if insert_formula(cursor, span.math, span.text, base, QColor(colors.text)):
                continue
            look.setFontFamilies(font("mono").families())  # it cannot be shown right: its source can
        cursor.insertText(span.text.replace("\n", "\u2028"), look)
