"""What can be done with a message, as a row of quiet words beside it: edit, regenerate, continue, and its versions.

A bubble and an answer each have one row. It only says what was wanted; the controller knows whether it can be had.
"""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QWidget

from app.theme import font, space


class QuietButton(QPushButton):
    """A word that can be clicked. While ``veiled`` it is seen only when the keyboard is on it; it keeps its place."""

    def __init__(self, text: str, name: str, parent: QWidget) -> None:
        super().__init__(text, parent)
        self.veiled = False
        self.setProperty("kind", "flush")
        self.setAccessibleName(name)
        self.setCursor(Qt.CursorShape.PointingHandCursor)

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self.veiled or self.hasFocus():
            super().paintEvent(event)


class VersionStepper(QWidget):
    """Steps through the versions of a message: "2 of 3" between two arrows. Hidden while there is only one."""

    stepped = Signal(int)  # to this version, from 0

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._number, self._count, self._free = 0, 1, True
        self.previous = QuietButton("‹", self.tr("Previous version"), self)  # noqa: RUF001
        self.next = QuietButton("›", self.tr("Next version"), self)  # noqa: RUF001
        self.label = QLabel(self)
        self.label.setProperty("role", "faint")
        self.label.setFont(font("small", tabular=True))
        for button, step in ((self.previous, -1), (self.next, 1)):
            button.setToolTip(button.accessibleName())
            button.setFixedWidth(space(4))
            button.clicked.connect(lambda _=False, step=step: self.stepped.emit(self._number + step))
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(space(1))
        for widget in (self.previous, self.label, self.next):
            layout.addWidget(widget)
        self.hide()

    @property
    def shown(self) -> tuple[int, int]:
        """The version, from 0, and how many there are."""
        return self._number, self._count

    def show_version(self, number: int, count: int) -> None:
        """This is version ``number``, from 0, of ``count``."""
        self._number, self._count = number, count
        text = self.tr("%1 of %2").replace("%1", str(number + 1)).replace("%2", str(count))
        self.label.setText(text)
        self.setAccessibleName(self.tr("Version %1").replace("%1", text))
        self.setVisible(count > 1)
        self.set_free(self._free)

    def set_free(self, free: bool) -> None:
        """Whether one may step now."""
        self._free = free
        self.previous.setEnabled(free and self._number > 0)
        self.next.setEnabled(free and self._number < self._count - 1)

    def take_focus(self, forward: bool) -> None:
        """Put the keyboard on the button that goes on in this direction, or on the other at the end."""
        wanted, other = (self.next, self.previous) if forward else (self.previous, self.next)
        (wanted if wanted.isEnabled() else other).setFocus()


class TurnActions(QWidget):
    """The row. ``can_ask``: a model is ready and nobody is answering; ``free``: branches may be turned to."""

    changed = Signal()  # it wants another size
    stepped = Signal(int)  # to this version, from 0

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.versions: VersionStepper | None = None  # made when there is more than one: most messages have one
        self.row = QHBoxLayout(self)
        self.row.setContentsMargins(0, 0, 0, 0)
        self.row.setSpacing(space(4))

    def show_version(self, number: int, count: int) -> None:
        """This is version ``number``, from 0, of ``count``."""
        if count > 1 and self.versions is None:
            self.versions = VersionStepper(self)
            self.versions.stepped.connect(self.stepped)
            self.row.addWidget(self.versions)
        if self.versions is not None and (number, count) != self.versions.shown:
            self.versions.show_version(number, count)
            self.changed.emit()

    def allow(self, can_ask: bool, free: bool) -> None:
        if self.versions is not None:
            self.versions.set_free(free)


class UserActions(TurnActions):
    """Edit and Copy, seen while the mouse or the keyboard is near, and the stepper; Ask again where no answer came."""

    answer_wanted = Signal()
    edit_wanted = Signal()
    copy_wanted = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.edit = QuietButton(self.tr("Edit"), self.tr("Edit this message"), self)
        self.copy = QuietButton(self.tr("Copy"), self.tr("Copy this message"), self)
        self.edit.setToolTip(self.tr("Say it otherwise; this version is kept"))
        self.edit.clicked.connect(self.edit_wanted)
        self.copy.clicked.connect(self.copy_wanted)
        self.again = QuietButton(self.tr("Ask again"), self.tr("Ask this again"), self)
        self.again.setToolTip(self.tr("This was never answered; ask for an answer now"))
        self.again.clicked.connect(self.answer_wanted)
        self.again.hide()
        for widget in (self.edit, self.copy, self.again):
            self.row.addWidget(widget)
        self.veil(True)

    def allow(self, can_ask: bool, free: bool) -> None:
        super().allow(can_ask, free)
        self.edit.setEnabled(free)
        self.again.setEnabled(can_ask)

    def offer_answer(self, missing: bool) -> None:
        """``missing``: the message is the last one, and nobody is answering it."""
        if self.again.isHidden() == missing:
            self.again.setVisible(missing)
            self.changed.emit()

    def veil(self, veiled: bool) -> None:
        for button in (self.edit, self.copy):
            button.veiled = veiled
            button.update()


class AnswerActions(TurnActions):
    """Regenerate, Continue where the answer was cut, and the stepper."""

    again_wanted = Signal()
    more_wanted = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.again = QuietButton(self.tr("Regenerate"), self.tr("Regenerate this answer"), self)
        self.again.setToolTip(self.tr("Another answer to the same message; this one is kept"))
        self.more = QuietButton(self.tr("Continue"), self.tr("Continue this answer"), self)
        self.more.setToolTip(self.tr("Let the model go on where it was cut"))
        self.again.clicked.connect(self.again_wanted)
        self.more.clicked.connect(self.more_wanted)
        self.row.addWidget(self.again)
        self.row.addWidget(self.more)
        self.more.hide()

    def offer_more(self, cut: bool) -> None:
        """``cut``: the answer could go on."""
        if self.more.isHidden() == cut:
            self.more.setVisible(cut)
            self.changed.emit()

    def allow(self, can_ask: bool, free: bool) -> None:
        super().allow(can_ask, free)
        self.again.setEnabled(can_ask)
        self.more.setEnabled(can_ask)
