"""Formulas on the screen: between words, and on lines of their own."""

from __future__ import annotations

import math

from PySide6.QtCore import QRect, QRectF, QSizeF, Qt
from PySide6.QtGui import (
    QColor,
    QContextMenuEvent,
    QFontMetrics,
    QGuiApplication,
    QPainter,
    QPaintEvent,
    QPyTextObject,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QMenu, QScrollArea, QWidget

from app.chat.boxes import Box
from app.chat.indents import insets
from app.chat.latex_tree import Unreadable
from app.chat.markdown import Math
from app.chat.typeset import typeset
from app.theme import Theme, space

OBJECT = "\ufffc"  # what stands in a document's text for something that is no text
_TYPE = int(QTextFormat.ObjectTypes.UserObject) + 1
_LATEX = int(QTextFormat.Property.UserProperty) + 10
_SOURCE = int(QTextFormat.Property.UserProperty) + 11
DISPLAY_SIZE = 17  # px
SCROLL_BAR = 10  # px


def can_be_shown(latex: str, display: bool) -> bool:
    """Whether a formula can be set right; else its source is what to show."""
    try:
        typeset(latex, DISPLAY_SIZE, display)
    except Unreadable:
        return False
    return True


# -------------------------------------------------------------------------------------------- between words


class _Inline(QPyTextObject):
    """Qt asks it for the size of each formula in a document, and to paint it."""

    def intrinsicSize(self, document: QTextDocument, position: int, format: QTextFormat) -> QSizeF:
        look = format.toCharFormat()
        box = _box_of(look)
        return QSizeF(box.width, 2 * _half(box, _raise(look)))

    def drawObject(
        self, painter: QPainter, rect: QRectF | QRect, document: QTextDocument, position: int, format: QTextFormat
    ) -> None:
        place = QRectF(rect)
        # Qt makes room around the middle, and paints in the middle of the line: the line knows where its baseline is
        block = document.findBlock(position)
        line = block.layout().lineForTextPosition(position - block.position())
        top = place.top() - (line.ascent() + line.descent() - place.height()) / 2
        look = format.toCharFormat()
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(look.foreground().color())
        _box_of(look).paint(painter, place.left(), top + line.ascent())
        painter.restore()


def _box_of(look: QTextCharFormat) -> Box:
    return typeset(str(look.property(_LATEX)), look.font().pixelSize(), display=False)


def _raise(look: QTextCharFormat) -> float:
    """Where Qt puts an object's middle: so far above the baseline."""
    return QFontMetrics(look.font()).xHeight() / 4


def _half(box: Box, middle: float) -> float:
    """Half the height of the room that a formula needs around that middle."""
    return max(box.height - middle, box.depth + middle) + 1


_handlers: dict[str, _Inline] = {}


def insert_formula(cursor: QTextCursor, latex: str, source: str, base: QTextCharFormat, color: QColor) -> bool:
    """Put a formula at the cursor, in the size of ``base``. False: it cannot be shown, nothing was inserted."""
    if not can_be_shown(latex, display=False):
        return False
    handler = _handlers.setdefault("inline", _Inline())
    cursor.document().documentLayout().registerHandler(_TYPE, handler)
    look = QTextCharFormat(base)
    look.setObjectType(_TYPE)
    look.setProperty(_LATEX, latex)
    look.setProperty(_SOURCE, source)
    look.setVerticalAlignment(QTextCharFormat.VerticalAlignment.AlignMiddle)
    look.setForeground(base.foreground() if base.foreground().style() != Qt.BrushStyle.NoBrush else color)
    cursor.insertText(OBJECT, look)
    return True


def source_at(document: QTextDocument, position: int) -> str:
    """The source of the formula at a position of a document."""
    cursor = QTextCursor(document)
    cursor.setPosition(position + 1)
    return str(cursor.charFormat().property(_SOURCE) or "")


# -------------------------------------------------------------------------------- on lines of their own


class _Canvas(QWidget):
    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.theme = theme
        self.box: Box | None = None

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.box is not None:
            painter = QPainter(self)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QColor(self.theme.colors.text))
            self.box.paint(painter, 1, self.box.height + space(1))
            painter.end()


class FormulaView(QScrollArea):
    """Shows one ``Math`` leaf that can be set; scrolls sideways when it is wide."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme = theme
        self._leaf: Math | None = None
        self._canvas = _Canvas(theme, self)
        self.setWidget(self._canvas)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.viewport().setAutoFillBackground(False)
        self._canvas.setAutoFillBackground(False)

    @property
    def leaf(self) -> Math | None:
        return self._leaf

    def show_formula(self, leaf: Math) -> None:
        """Show a formula. Raises Unreadable."""
        self._canvas.box = typeset(leaf.source, DISPLAY_SIZE, True)
        self._leaf = leaf
        self.setAccessibleName(self.tr("Formula: %1").replace("%1", leaf.source))
        self._canvas.update()

    def restyle(self) -> None:
        self._canvas.update()

    def fit(self, width: int) -> int:
        box, leaf = self._canvas.box, self._leaf
        if box is None or leaf is None:
            return 0
        left, right = insets(leaf)
        wide, high = math.ceil(box.width) + 2, math.ceil(box.height + box.depth) + 2 * space(1)
        self._canvas.setFixedSize(wide, high)
        self.setViewportMargins(left, 0, right, 0)
        self.setAlignment(Qt.AlignmentFlag.AlignRight if leaf.mirrored else Qt.AlignmentFlag.AlignLeft)
        return high + (SCROLL_BAR if wide > width - left - right else 0)

    def wheelEvent(self, event: QWheelEvent) -> None:
        if abs(event.angleDelta().x()) > abs(event.angleDelta().y()):
            super().wheelEvent(event)  # sideways is ours
        else:
            event.ignore()  # up and down is the transcript's

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction(self.tr("Copy LaTeX"), self.copy)
        menu.popup(event.globalPos())

    def copy(self) -> None:
        """The source, to the clipboard."""
        if self._leaf is not None:
            QGuiApplication.clipboard().setText(self._leaf.source)
