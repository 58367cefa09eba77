"""What a row of the sidebar looks like: a heading, a conversation, or a conversation that the search found."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import (
    QAbstractItemModel,
    QEvent,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QPointF,
    QRect,
    QRectF,
    QSize,
    Qt,
    QTimer,
    Signal,
)
from PySide6.QtGui import QColor, QFont, QFontMetrics, QKeyEvent, QPainter, QTextCharFormat, QTextLayout
from PySide6.QtWidgets import (
    QLineEdit,
    QListWidgetItem,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from app.panels.parts import plain_tip
from app.theme import RADIUS, Theme, font, space
from engine.sessions.library import ConversationEntry, Hit

PATH = Qt.ItemDataRole.UserRole
PROBLEM = Qt.ItemDataRole.UserRole + 1
SNIPPET = Qt.ItemDataRole.UserRole + 2  # engine.sessions.snippet.Snippet
MESSAGE = Qt.ItemDataRole.UserRole + 3  # id of the message that was found
WRITING = Qt.ItemDataRole.UserRole + 4  # an answer is being written into it

Index = QModelIndex | QPersistentModelIndex

ROW, FOUND_ROW, HEADING = space(9), space(14), space(9)  # px
PAD = space(3)
DOTS = space(6)  # px, of the button at a row's right end
TITLE_MOST = 200  # characters


def heading_item(text: str) -> QListWidgetItem:
    item = QListWidgetItem(text)
    item.setFlags(Qt.ItemFlag.NoItemFlags)
    return item


def entry_item(entry: ConversationEntry, writing: bool, hit: Hit | None = None) -> QListWidgetItem:
    item = QListWidgetItem(entry.title)
    item.setData(PATH, str(entry.path))
    item.setData(PROBLEM, entry.problem)
    item.setData(WRITING, writing)
    flags = Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable
    if not entry.problem:
        flags |= Qt.ItemFlag.ItemIsEditable
    item.setFlags(flags)
    spoken = entry.title
    if hit is not None:
        item.setData(MESSAGE, hit.message)
        item.setData(SNIPPET, hit.snippet if hit.message else None)
        spoken = f"{entry.title}: {hit.snippet.text}" if hit.message else entry.title
    item.setData(Qt.ItemDataRole.AccessibleTextRole, spoken)
    item.setToolTip(plain_tip(entry.problem or entry.title))
    return item


def _choose_all(field: QLineEdit) -> None:
    """All of the text, with its beginning to be seen."""
    field.end(False)
    field.home(True)


def dots_rect(row: QRect) -> QRect:
    """Where the button with the three dots is in a row."""
    return QRect(row.right() - DOTS - space(1), row.top(), DOTS, min(row.height(), ROW))


class RowDelegate(QStyledItemDelegate):
    """Paints rows, and edits titles in place. ``current`` is the path of the conversation on the screen."""

    renamed = Signal(str, str)  # path, new title

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self.current = ""

    # ---------------------------------------------------------------------------------------------- painting

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        if not index.data(PATH):
            return QSize(0, HEADING)
        return QSize(0, FOUND_ROW if index.data(SNIPPET) is not None else ROW)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        row = QRect(option.rect)
        if not index.data(PATH):
            self._paint_heading(painter, row, str(index.data()))
        else:
            self._paint_conversation(painter, row, option.state, index)
        painter.restore()

    def _paint_heading(self, painter: QPainter, row: QRect, text: str) -> None:
        painter.setFont(font("small"))
        painter.setPen(QColor(self._theme.colors.text_faint))
        aligned = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignBottom
        painter.drawText(row.adjusted(PAD, 0, 0, -space(1.5)), aligned, text)

    def _paint_conversation(self, painter: QPainter, row: QRect, state: QStyle.StateFlag, index: Index) -> None:
        colors = self._theme.colors
        here = index.data(PATH) == self.current
        under_mouse = bool(state & QStyle.StateFlag.State_MouseOver)
        focused = bool(state & QStyle.StateFlag.State_HasFocus)
        box = QRectF(row).adjusted(0.5, 1.5, -0.5, -1.5)
        if here or under_mouse or focused:
            painter.setPen(QColor(colors.accent) if focused else Qt.PenStyle.NoPen)
            painter.setBrush(QColor(colors.accent_soft if here else colors.surface))
            painter.drawRoundedRect(box, RADIUS, RADIUS)
        dotted = under_mouse or focused
        room = row.adjusted(PAD, 0, -PAD, 0)
        if dotted:
            room.setRight(dots_rect(row).left() - space(1))
            self._paint_dots(painter, dots_rect(row))
        elif index.data(WRITING):
            room.setRight(room.right() - space(4))
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(colors.accent))
            painter.drawEllipse(QPointF(row.right() - PAD - 3, row.top() + ROW / 2), 3, 3)
        title, look, color = str(index.data())[:TITLE_MOST], font("body"), colors.text
        if index.data(PROBLEM):
            title, color = f"!  {title}", colors.text_muted
            look.setItalic(True)
        snippet = index.data(SNIPPET)
        line = QRect(room.left(), room.top(), room.width(), ROW if snippet is None else space(8))
        painter.setFont(look)
        painter.setPen(QColor(color))
        shown = QFontMetrics(look).elidedText(title, Qt.TextElideMode.ElideRight, line.width())
        painter.drawText(line, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, shown)
        if snippet is not None:
            below = QRect(room.left(), row.top() + space(7), row.right() - PAD - room.left(), space(5))
            self._paint_snippet(painter, below, snippet.text, snippet.marks)

    def _paint_dots(self, painter: QPainter, box: QRect) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(self._theme.colors.text_muted))
        middle = QRectF(box).center()
        for step in (-5, 0, 5):
            painter.drawEllipse(middle + QPointF(step, 0), 1.5, 1.5)

    def _paint_snippet(self, painter: QPainter, box: QRect, text: str, marks: Sequence[tuple[int, int]]) -> None:
        look = font("small")
        bolder = space(1) * len(marks)  # px that marked words are wider than plain ones
        text = QFontMetrics(look).elidedText(text, Qt.TextElideMode.ElideRight, box.width() - bolder)
        layout = QTextLayout(text, look)
        formats = []
        for start, length in marks:
            piece = QTextLayout.FormatRange()
            piece.start, piece.length = start, length
            strong = QTextCharFormat()
            strong.setForeground(QColor(self._theme.colors.text))
            strong.setFontWeight(QFont.Weight.DemiBold)
            piece.format = strong
            formats.append(piece)
        layout.setFormats(formats)
        layout.beginLayout()
        line = layout.createLine()
        line.setLineWidth(100_000)
        layout.endLayout()
        painter.save()
        painter.setClipRect(box)
        painter.setPen(QColor(self._theme.colors.text_muted))
        layout.draw(painter, QPointF(box.left(), box.top() + (box.height() - line.height()) / 2))
        painter.restore()

    # ---------------------------------------------------------------------------------------------- renaming

    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: Index) -> QWidget:
        field = QLineEdit(parent)
        field.setMaxLength(TITLE_MOST)
        field.setAccessibleName(self.tr("Title"))
        field.setPlaceholderText(self.tr("Title from the first message"))
        field.setStyleSheet(f"padding: 2px {PAD - 3}px; border-radius: {RADIUS}px;")
        return field

    def eventFilter(self, editor: QObject, event: QEvent) -> bool:
        """Enter ends the editing and nothing else: the list below would open the conversation with it."""
        enter = (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress and event.key() in enter:
            assert isinstance(editor, QWidget)
            self.commitData.emit(editor)
            self.closeEditor.emit(editor)
            return True
        return super().eventFilter(editor, event)

    def setEditorData(self, editor: QWidget, index: Index) -> None:
        assert isinstance(editor, QLineEdit)
        if not editor.isModified():
            editor.setText(str(index.data()))
            QTimer.singleShot(0, editor, partial(_choose_all, editor))  # after the view, which would show its end

    def setModelData(self, editor: QWidget, model: QAbstractItemModel, index: Index) -> None:
        assert isinstance(editor, QLineEdit)
        title = " ".join(editor.text().split())
        if title != index.data():
            self.renamed.emit(index.data(PATH), title)

    def updateEditorGeometry(self, editor: QWidget, option: QStyleOptionViewItem, index: Index) -> None:
        row = QRect(option.rect)
        editor.setGeometry(row.adjusted(0, 1, 0, -1))
