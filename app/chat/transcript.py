"""The conversation as it is read: a scrolling column that stays at the end while the reader does."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QMargins, Qt, Signal, Slot
from PySide6.QtGui import QFocusEvent, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QPushButton, QScrollArea, QWidget

from app.chat.answer import AnswerView
from app.chat.cards import Card, UserBubble
from app.chat.roll import Make, Roll
from app.theme import Theme, space

COLUMN_WIDTH = 728  # px, of the text at most: about 95 characters
NEAR_END = 32  # px from the end that still count as being there


class Transcript(QScrollArea):
    """Holds bubbles, answers and cards. Emits ``link_clicked`` with an address to be shown before it is opened."""

    link_clicked = Signal(str)
    changed = Signal()  # something was added, or everything is another

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme = theme
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName(self.tr("Conversation"))
        self.column = Roll(gap=space(6))
        self.column.height_changed.connect(self._resize_column)
        self.column.shifted.connect(self._shift)
        self.setWidget(self.column)
        self._at_end = True
        self._placing = False
        self._looking = False
        self.verticalScrollBar().valueChanged.connect(self._scrolled)
        self.verticalScrollBar().rangeChanged.connect(self._follow)
        self.verticalScrollBar().setSingleStep(space(10))
        self.jump = QPushButton(self.tr("↓  Latest"), self)
        self.jump.setProperty("kind", "float")
        self.jump.setAccessibleName(self.tr("Jump to the latest message"))
        self.jump.clicked.connect(self.scroll_to_end)
        self.jump.hide()
        self._ring = QFrame(self)
        self._ring.setObjectName("focusRing")
        self._ring.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self._ring.hide()

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        by_keyboard = event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
        self._ring.setVisible(by_keyboard)  # arrows and Page Up, Page Down scroll now
        self._ring.raise_()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self._ring.hide()

    # ------------------------------------------------------------------------------------------- content

    def clear(self) -> None:
        self.column.clear()
        self._at_end = True
        self._resize_column()
        self.changed.emit()

    @property
    def empty(self) -> bool:
        return not len(self.column)

    def add_user(self, text: str) -> UserBubble:
        """The user's message; the transcript goes to its end."""
        bubble = UserBubble(self.theme, text)
        self._append(bubble)
        self.scroll_to_end()
        return bubble

    def add_answer(self) -> AnswerView:
        answer = AnswerView(self.theme)
        self._append(answer)
        return answer

    def add_card(self, kind: str, title: str, text: str, actions: Sequence[str] = ()) -> Card:
        """A message from the program; the caller connects the ``buttons`` made of ``actions``."""
        card = Card(self.theme, kind, title, text, actions)
        self._append(card)
        return card

    def remove(self, widget: QWidget) -> None:
        """Take something out again, for good."""
        self.column.remove(widget)

    def settle(self, widget: QWidget, make: Make) -> None:
        """What is shown here is complete, ``make`` shows it anew: it need not exist while nobody is near."""
        self.column.settle(widget, partial(self._made, make))

    def replace_from(self, widget: QWidget, *others: QWidget, hold: bool = False) -> None:
        """Put these in the place of ``widget`` and everything below it; with ``hold`` the first stays where it was."""
        at = self.column.index(widget)
        top = widget.y() - self.verticalScrollBar().value()
        self._at_end = self._at_end and not hold
        for other in others:
            self._join(other)
        self.column.replace_from(at, others)
        if hold and others:
            self.verticalScrollBar().setValue(others[0].y() - top)

    def put_below(self, widget: QWidget, other: QWidget) -> None:
        """Show ``other`` below ``widget``, in the place of all that is there, and go to its end."""
        self._join(other)
        self.column.replace_from(self.column.index(widget) + 1, [other])
        self.scroll_to_end()

    def swap(self, widget: QWidget, other: QWidget) -> None:
        """Show ``other`` in the place of ``widget``, which stays, hidden, below it."""
        self.column.settle(widget, None)
        widget.hide()
        self.column.add(other, self.column.index(widget))
        self.column.refit(widget)

    def reveal(self, widget: QWidget) -> None:
        """Bring a message to the upper part of what is seen."""
        self.reveal_message(self.column.index(widget))

    def reveal_message(self, index: int) -> None:
        """Bring message ``index`` to the upper part of what is seen."""
        self._at_end = False
        for _ in range(3):  # the first time it may be made, and what is above it too
            self._looking = True
            self.verticalScrollBar().setValue(self.column.top(index) - space(6))
            self._looking = False
            self._look()
        self._place_jump()

    def show_messages(self, makers: Sequence[Make], characters: Sequence[int] = (), at: int | None = None) -> None:
        """Show a saved conversation at its end, or at message ``at``. Messages are made when the reader comes near.

        characters: how long each message is, about; it makes the scroll bar right before they are made.
        """
        self._at_end = True
        self.column.show_all([partial(self._made, make) for make in makers], characters)
        self._follow()
        if at is None:
            self._look()
        else:
            self.reveal_message(at)
        self.changed.emit()

    def _made(self, make: Make) -> QWidget:
        widget = make()
        self._join(widget)
        return widget

    def _join(self, widget: QWidget) -> None:
        if isinstance(widget, AnswerView):
            widget.link_clicked.connect(self.link_clicked)

    def _append(self, widget: QWidget) -> None:
        self._join(widget)
        self.column.add(widget)
        self.changed.emit()

    def _look(self) -> None:
        """Tell the column what is seen; it makes what is missing there."""
        if self._looking:
            return
        self._looking = True
        for _ in range(4):  # what is made may be higher or lower than was thought, and so move the end
            self.column.look(self.verticalScrollBar().value(), self.viewport().height())
            before = self.verticalScrollBar().value()
            self._follow()
            if self.verticalScrollBar().value() == before:
                break
        self._looking = False

    @Slot(int)
    def _shift(self, by: int) -> None:
        """What is being read has moved: move with it."""
        if not self._at_end:
            looking, self._looking = self._looking, True
            self.verticalScrollBar().setValue(self.verticalScrollBar().value() + by)
            self._looking = looking

    # -------------------------------------------------------------------------------------------- layout

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._ring.setGeometry(self.rect())
        width = self.viewport().width()
        left = max(space(6), (self.width() - COLUMN_WIDTH) // 2)
        right = max(space(2), left - (self.width() - width))  # in line with the composer, scroll bar or not
        self.column.set_margins(QMargins(left, space(6), right, space(8)))
        self._placing = True
        self.column.fit(width)
        self._placing = False
        self._resize_column()
        self._look()
        self._place_jump()

    @Slot()
    def _resize_column(self) -> None:
        if not self._placing:
            width = self.viewport().width()
            self.column.resize(width, max(self.column.wanted_height, 1))

    @Slot()
    def _follow(self) -> None:
        if self._at_end:
            self.verticalScrollBar().setValue(self.verticalScrollBar().maximum())
        self._place_jump()

    @Slot(int)
    def _scrolled(self, value: int) -> None:
        if not self._looking:
            self._at_end = value >= self.verticalScrollBar().maximum() - NEAR_END
        self._look()
        self._place_jump()

    @Slot()
    def scroll_to_end(self) -> None:
        self._at_end = True
        self._follow()

    def _place_jump(self) -> None:
        if self._at_end and self.jump.hasFocus():
            self.setFocus()  # else Qt hands it to the first button in the column, and scrolls there
        bar = self.verticalScrollBar()
        away = not self._at_end and bar.value() < bar.maximum() - NEAR_END
        self.jump.setVisible(away)
        if away:
            self.jump.adjustSize()
            self.jump.move((self.width() - self.jump.width()) // 2, self.height() - self.jump.height() - space(3))
            self.jump.raise_()

    @Slot(bool)
    def page(self, up: bool) -> None:
        """Scroll by nearly a page."""
        bar = self.verticalScrollBar()
        step = max(1, bar.pageStep() - space(10))
        bar.setValue(bar.value() + (-step if up else step))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        bar = self.verticalScrollBar()
        if event.key() == Qt.Key.Key_End:
            self.scroll_to_end()
        elif event.key() == Qt.Key.Key_Home:
            bar.setValue(bar.minimum())
        else:
            super().keyPressEvent(event)
