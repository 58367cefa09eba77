"""What stands in a transcript beside answers: the user's messages, quiet notes, and errors as cards."""

from __future__ import annotations

import math
from collections.abc import Sequence

from PySide6.QtCore import QEvent, QMimeData, QRectF, Qt
from PySide6.QtGui import (
    QColor,
    QEnterEvent,
    QGuiApplication,
    QPainter,
    QPainterPath,
    QPaintEvent,
    QTextBlockFormat,
    QTextCursor,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QLabel, QPlainTextEdit, QPushButton, QWidget

from app.chat.actions import UserActions
from app.chat.harmless import harmless
from app.chat.prose import LEADING, TextView
from app.theme import RADIUS, Theme, font, space

BUBBLE_SHARE = 0.8  # of the column's width, at most
LEAST_SHARE = 0.65  # that a bubble may have beside its actions; else they go below it
BUBBLE_RADIUS = 14
PAD_X, PAD_Y = 16, 10
LEAD = 2  # px that Qt adds below the last line and not above the first
MANY = 8000  # characters of a message that are laid out in less time than a frame; a longer one scrolls
LINE = 2000  # characters of a line that are laid out in one go
BREAK = "\u200b\n"  # behind what is shown on a line of its own and was not typed so
LINES = 16  # of such a one that are seen at once


class Said(TextView):
    """What was said, as high as it is long."""

    def __init__(self, theme: Theme, text: str, parent: QWidget) -> None:
        super().__init__(theme, parent)
        self.setPlainText(text)
        block = QTextBlockFormat()
        block.setLineHeight(LEADING, QTextBlockFormat.LineHeightTypes.LineDistanceHeight.value)
        cursor = QTextCursor(self.document())
        cursor.select(QTextCursor.SelectionType.Document)
        cursor.mergeBlockFormat(block)

    @property
    def ideal_width(self) -> float:
        """px that it could use."""
        return self.document().idealWidth()


class LongSaid(QPlainTextEdit):
    """A text of any length, a few lines of which are seen: files that went along, most often. Only those are laid out;
    all of them would hold the window up for seconds."""

    ideal_width = math.inf

    def __init__(self, text: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.setReadOnly(True)
        self.setUndoRedoEnabled(False)
        self.setTabChangesFocus(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.document().setDocumentMargin(0)
        self.viewport().setAutoFillBackground(False)
        self.setFont(font("body"))
        self.setPlainText(in_short_lines(text))

    def createMimeDataFromSelection(self) -> QMimeData:
        """What is copied is what was typed."""
        data = QMimeData()
        data.setText(self.textCursor().selection().toPlainText().replace(BREAK, ""))
        return data

    def fit(self, width: int) -> int:
        return LINES * math.ceil(self.fontMetrics().lineSpacing())

    def wheelEvent(self, event: QWheelEvent) -> None:
        if self.hasFocus():
            super().wheelEvent(event)
        else:
            event.ignore()  # whoever reads on does not get caught in it


def in_short_lines(text: str) -> str:
    """``text`` with BREAK in lines so long that laying out one of them would hold the window up."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if len(line) > LINE:
            lines[number] = BREAK.join(line[start : start + LINE] for start in range(0, len(line), LINE))
    return "\n".join(lines)


class UserBubble(QWidget):
    """What the user said, as it was typed, on the right; what can be done with it stands to its left."""

    def __init__(self, theme: Theme, text: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme = theme
        self.text = text
        shown = harmless(text)
        self._text = Said(theme, shown, self) if len(shown) <= MANY else LongSaid(shown, self)
        self._text.setAccessibleName(self.tr("You said"))
        self._actions_below = False
        self.turn_actions = UserActions(self)
        self.turn_actions.copy_wanted.connect(lambda: QGuiApplication.clipboard().setText(self.text))
        self.turn_actions.changed.connect(self._place_actions)
        theme.changed.connect(self.update)

    def fit(self, width: int) -> int:
        row = self.turn_actions.sizeHint()
        beside = width - row.width() - space(3)
        self._actions_below = beside < width * LEAST_SHARE
        room = int(width * BUBBLE_SHARE)
        most = max(40, (room if self._actions_below else min(room, beside)) - 2 * PAD_X)
        self._text.fit(most)
        inner = math.ceil(min(most, self._text.ideal_width + 1))
        height = self._text.fit(inner)
        self._text.setGeometry(width - inner - PAD_X, PAD_Y + LEAD, inner, height)
        self._place_actions()
        return height + 2 * PAD_Y + (space(1) + row.height() if self._actions_below else 0)

    def _place_actions(self) -> None:
        """At the foot of the bubble's left side, or below it where the column is narrow."""
        row, text = self.turn_actions, self._text.geometry()
        row.adjustSize()
        bottom = text.bottom() + PAD_Y - LEAD
        if self._actions_below:
            row.move(text.right() + PAD_X - row.width(), bottom + space(1))
        else:
            row.move(text.left() - PAD_X - space(3) - row.width(), bottom - row.height())

    def enterEvent(self, event: QEnterEvent) -> None:
        self.turn_actions.veil(False)

    def leaveEvent(self, event: QEvent) -> None:
        self.turn_actions.veil(True)

    def paintEvent(self, event: QPaintEvent) -> None:
        inside = QRectF(self._text.geometry()).adjusted(-PAD_X, -PAD_Y - LEAD, PAD_X, PAD_Y - LEAD)
        path = QPainterPath()
        path.addRoundedRect(inside, BUBBLE_RADIUS, BUBBLE_RADIUS)
        corner = QPainterPath()  # the corner that points at the speaker is sharper
        corner.addRoundedRect(inside.adjusted(inside.width() / 2, inside.height() / 2, 0, 0), 4, 4)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.fillPath(path.united(corner), QColor(self.theme.colors.user_bubble))
        painter.end()


class Label(QLabel):
    """A wrapping label that a column can lay out."""

    def __init__(self, text: str, role: str, parent: QWidget | None = None) -> None:
        super().__init__(text, parent)
        self.setProperty("role", role)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setWordWrap(True)
        self.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)

    def fit(self, width: int) -> int:
        return max(0, self.heightForWidth(width))


class Card(QWidget):
    """A message from the program: what happened, and buttons for what to do. Kinds: "note" and "error"."""

    def __init__(
        self, theme: Theme, kind: str, title: str, text: str, actions: Sequence[str] = (), parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.theme = theme
        self.kind = kind
        self.title = Label(title, "title", self)
        self.text = Label(text, "muted", self)
        self.buttons = [QPushButton(action, self) for action in actions]
        self.text.setVisible(bool(text))
        self.setAccessibleName(f"{title} {text}")
        theme.changed.connect(self.update)

    def fit(self, width: int) -> int:
        left, pad = space(11), space(3.5)
        inner = width - left - space(4)
        y = pad
        for label, gap in ((self.title, space(1)), (self.text, 0)):
            height = label.fit(inner)
            label.setGeometry(left, y, inner, height)
            y += height + gap
        x = left
        for index, button in enumerate(self.buttons):
            button.adjustSize()
            y += space(3) if index == 0 else 0
            button.move(x, y)
            x += button.width() + space(2)
        if self.buttons:
            y += self.buttons[0].height()
        return y + pad

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self.theme.colors
        strong = QColor(colors.danger if self.kind == "error" else colors.accent)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        box = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
        painter.setPen(QColor(colors.border))
        painter.setBrush(QColor(colors.surface))
        painter.drawRoundedRect(box, RADIUS, RADIUS)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(strong)
        disc = QRectF(space(4), self.title.y() + 1, 16, 16)
        painter.drawEllipse(disc)
        painter.setPen(QColor(colors.surface))
        painter.setFont(font("small", weight=font("title").weight()))
        painter.drawText(disc, Qt.AlignmentFlag.AlignCenter, "!" if self.kind == "error" else "i")
        painter.end()
