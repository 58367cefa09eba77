"""The sheet beside the chat: how answers are to be. Every change holds at once, for the model that is loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QEvent, QSignalBlocker, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import (
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app.answer_style import ADVISED, BUILT_IN, AnswerStyle, declared_in_words
from app.choice import Choice
from app.dialogs.check_box import CheckBox
from app.number_field import Field
from app.theme import Theme, space
from engine.messages import ModelLoaded

WIDTH = 348  # px, at least
TYPING_MS = 400  # without a key, before a system prompt is taken over


class SideSheet(QFrame):
    """Lies over the right of its parent, where its owner puts it; the chat beside it stays in sight."""

    opened = Signal()
    closed = Signal()
    resized = Signal()  # it wants another width

    def __init__(self, theme: Theme, style: AnswerStyle, parent: QWidget) -> None:
        super().__init__(parent)
        self._style = style
        self._inside, self._wanted = QWidget(), 0
        self._deleted: dict[str, Any] | None = None
        self._naming = ""  # the preset that is renamed; "" for a new one
        self.setObjectName("sideSheet")
        self.setAccessibleName(self.tr("How answers are to be"))
        self.model = _label("", "small")
        self.preset = Choice(theme)
        self.preset.setAccessibleName(self.tr("Preset"))
        self.preset.setSizeAdjustPolicy(Choice.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.preset.setMinimumContentsLength(12)  # a long name of one's own does not widen the sheet
        self.preset.activated.connect(lambda index: style.choose(self.preset.itemData(index)))
        self.save = _button(self.tr("Save as…"), self.tr("Save these values as a preset"), self._ask_new_name)
        self.update_preset = _button(self.tr("Update"), self.tr("Write the changes into this preset"), style.update)
        self.rename = _button(self.tr("Rename…"), self.tr("Rename this preset"), self._ask_other_name)
        self.delete = _button(self.tr("Delete"), self.tr("Delete this preset"), self._delete)
        self.undo = _button(self.tr("Undo"), self.tr("Bring the deleted preset back"), self._undo)
        self.name = QLineEdit()
        self.name.setAccessibleName(self.tr("Name of the preset"))
        self.name.setPlaceholderText(self.tr("Name, then Enter"))
        self.name.returnPressed.connect(self._take_name)
        self.name.installEventFilter(self)
        self.message = _label("", "small")
        self.system = QPlainTextEdit()
        self.system.setObjectName("systemPrompt")
        self.system.setTabChangesFocus(True)
        self.system.setFixedHeight(112)
        self.system.setPlaceholderText(self.tr("Said to the model before everything else. “Answer in one sentence.”"))
        self.system.setAccessibleName(self.tr("System prompt"))
        self._typing = QTimer(self)
        self._typing.setSingleShot(True)
        self._typing.setInterval(TYPING_MS)
        self._typing.timeout.connect(self._take_system)
        self.system.textChanged.connect(self._typing.start)
        self.system.installEventFilter(self)
        self.fields = [
            Field(
                self.tr("Temperature"), self.tr("0 is always the likeliest word; higher is freer"), "temperature", 0.05
            ),
            Field(self.tr("Top-p"), self.tr("Only the likeliest words that add up to this share"), "top_p", 0.01),
            Field(self.tr("Top-k"), self.tr("Only this many of the likeliest words; 0 is off"), "top_k", 1, slider=200),
            Field(self.tr("Min-p"), self.tr("Only words this likely, compared with the likeliest"), "min_p", 0.01),
            Field(
                self.tr("Repetition penalty"),
                self.tr("Above 1, words that were said become less likely"),
                "repetition_penalty",
                0.01,
            ),
            Field(
                self.tr("No repeats of"),
                self.tr("No run of this many tokens is written twice; 0 is off"),
                "no_repeat_ngram_size",
                1,
            ),
            Field(self.tr("Longest answer"), self.tr("In tokens; it may end earlier"), "max_tokens", 64),
            Field(self.tr("Seed"), self.tr("The same seed gives the same answer again"), "seed", 1),
        ]
        for field in self.fields:
            field.chosen.connect(style.set)
        self.thinking = CheckBox("", theme)
        self.thinking.clicked.connect(style.switch_thinking)
        self.declared = _label("", "small")
        self.reset = QPushButton(self.tr("Reset to what the model's makers advise"))
        self.reset.clicked.connect(style.reset)
        self._lay_out()
        style.changed.connect(self.refresh)
        self.refresh()
        self.hide()

    def _lay_out(self) -> None:
        close = _button("✕", self.tr("Close"), self.close_sheet, "quiet")
        head = QHBoxLayout()
        head.addWidget(_label(self.tr("Answer settings"), "title"), 1)
        head.addWidget(close)
        actions = QHBoxLayout()
        actions.setSpacing(space(4))
        for button in (self.save, self.update_preset, self.rename, self.delete, self.undo):
            actions.addWidget(button)
        actions.addStretch(1)
        grid = QGridLayout()
        grid.setHorizontalSpacing(space(3))
        grid.setVerticalSpacing(space(2.5))
        grid.setColumnStretch(1, 1)
        for row, field in enumerate(self.fields):
            grid.addWidget(field.label, row, 0)
            if field.slider is not None:
                grid.addWidget(field.slider, row, 1)
                grid.addWidget(field.spin, row, 2)
            else:  # a number of many digits, and room for them
                grid.addWidget(field.spin, row, 1, 1, 2, Qt.AlignmentFlag.AlignRight)
        inside = self._inside
        inside.installEventFilter(self)
        inside.setObjectName("sideSheetInside")
        column = QVBoxLayout(inside)
        column.setContentsMargins(space(5), space(4), space(5), space(5))
        column.setSpacing(space(2))
        column.addLayout(head)
        column.addWidget(self.model)
        column.addWidget(self.declared)
        column.addSpacing(space(2))
        column.addWidget(_label(self.tr("Preset"), "small"))
        column.addWidget(self.preset)
        column.addLayout(actions)
        column.addWidget(self.name)
        column.addWidget(self.message)
        column.addSpacing(space(2))
        column.addWidget(_label(self.tr("System prompt"), "small"))
        column.addWidget(self.system)
        column.addWidget(self.thinking)
        column.addSpacing(space(3))
        column.addLayout(grid)
        column.addSpacing(space(3))
        column.addWidget(self.reset)
        column.addStretch(1)
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setWidget(inside)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(1, 0, 0, 0)
        whole.addWidget(scroll)
        self.name.hide()
        self.message.hide()
        self.undo.hide()

    # -------------------------------------------------------------------------------------- open and closed

    @property
    def wanted_width(self) -> int:
        """Px in which nothing is cut off, however large the letters are."""
        return max(WIDTH, self._inside.minimumSizeHint().width() + space(3))  # and the bar to scroll with

    def open_sheet(self) -> None:
        self.show()
        self.opened.emit()
        self.raise_()
        self.preset.setFocus()

    @Slot()
    def close_sheet(self) -> None:
        self._take_system()
        self.hide()
        self.closed.emit()

    @Slot()
    def toggle(self) -> None:
        if self.isVisible():
            self.close_sheet()
        else:
            self.open_sheet()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.close_sheet()
        else:
            super().keyPressEvent(event)

    def eventFilter(self, watched: QWidget, event: QEvent) -> bool:  # type: ignore[override]
        if watched is self._inside and event.type() == QEvent.Type.LayoutRequest and self._wanted != self.wanted_width:
            self._wanted = self.wanted_width
            self.resized.emit()
        if watched is self.system and event.type() == QEvent.Type.FocusOut:
            self._take_system()
        if watched is self.name and isinstance(event, QKeyEvent) and event.key() == Qt.Key.Key_Escape:
            self._end_naming()
            return True
        return super().eventFilter(watched, event)

    # -------------------------------------------------------------------------------------------- values

    def show_model(self, model: ModelLoaded | None) -> None:
        """Whose values these are."""
        words = (
            self.tr("for %1, and kept for it").replace("%1", model.name) if model else self.tr("for every new model")
        )
        self.model.setText(words)
        alone = model is not None and model.one_text
        self.system.setEnabled(not alone)
        self.system.setPlaceholderText(
            self.tr("This model takes one text and nothing before it.")
            if alone
            else self.tr("Said to the model before everything else. “Answer in one sentence.”")
        )

    @Slot()
    def refresh(self) -> None:
        """Show what holds now."""
        style = self._style
        names = {
            ADVISED: self.tr("As the model's makers advise"),
            "precise": self.tr("Precise: always the likeliest word"),
            "balanced": self.tr("Balanced"),
            "creative": self.tr("Creative"),
        }
        with QSignalBlocker(self.preset):
            self.preset.clear()
            for name in style.presets:
                self.preset.addItem(names.get(name, name), name)
            self.preset.setCurrentIndex(self.preset.findData(style.preset))
        own = style.preset not in BUILT_IN
        changed = bool(style.changed_fields)
        self.rename.setVisible(own)
        self.delete.setVisible(own)
        self.update_preset.setVisible(own and changed)
        self.reset.setEnabled(changed or style.preset != ADVISED)
        if not self._typing.isActive() and self.system.toPlainText() != style.style.system:
            with QSignalBlocker(self.system):
                self.system.setPlainText(style.style.system)
        self.thinking.setVisible(style.switch != "fixed")
        full = self.tr("Think at length before the answer")
        self.thinking.setText(full if style.switch == "effort" else self.tr("Think before the answer"))
        self.thinking.setChecked(style.thinks)
        self.declared.setText(declared_in_words(style))
        self.declared.setVisible(bool(self.declared.text()))
        sampling = style.style.sampling
        for field in self.fields:
            field.show_value(getattr(sampling, field.field), style.is_changed(field.field))
            if field.field in ("top_p", "top_k", "min_p", "seed"):
                field.set_enabled(sampling.temperature > 0)  # the likeliest word needs none of them

    def keep_typed(self) -> None:
        """Take over what was typed a moment ago, before it is about another model or nobody is there any more."""
        if self._typing.isActive():
            self._take_system()

    @Slot()
    def _take_system(self) -> None:
        self._typing.stop()
        self._style.set("system", self.system.toPlainText())

    # ------------------------------------------------------------------------------------------- presets

    @Slot()
    def _ask_new_name(self) -> None:
        self._ask_name("")

    @Slot()
    def _ask_other_name(self) -> None:
        self._ask_name(self._style.preset)

    def _ask_name(self, present: str) -> None:
        self._naming = present
        self._deleted = None
        self.undo.hide()
        self.message.hide()
        self.name.setText(present)
        self.name.show()
        self.name.setFocus()
        self.name.selectAll()

    @Slot()
    def _take_name(self) -> None:
        problem = self._style.problem_with(self.name.text(), self._naming)
        if problem:
            self._tell(problem)
        elif self._naming:
            self._style.rename(self._naming, self.name.text())
            self._end_naming()
        else:
            self._take_system()
            self._style.save_as(self.name.text())
            self._end_naming()

    def _end_naming(self) -> None:
        self.name.hide()
        self.message.hide()
        self.preset.setFocus()

    @Slot()
    def _delete(self) -> None:
        name = self._style.preset
        self._deleted = self._style.delete(name)
        self._tell(self.tr("“%1” is deleted; its values stay in use here.").replace("%1", name))
        self.undo.show()
        self.undo.setFocus()

    @Slot()
    def _undo(self) -> None:
        if self._deleted is not None:
            self._style.restore(self._deleted)
        self._deleted = None
        self.undo.hide()
        self.message.hide()
        self.preset.setFocus()

    def _tell(self, text: str) -> None:
        self.message.setText(text)
        self.message.show()


def _label(text: str, role: str) -> QLabel:
    label = QLabel(text)
    label.setProperty("role", role)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(True)
    return label


def _button(text: str, name: str, slot: Callable[[], object], kind: str = "flush") -> QPushButton:
    button = QPushButton(text)
    button.setProperty("kind", kind)
    button.setAccessibleName(name)
    button.setToolTip(name)
    button.setAutoDefault(False)
    button.clicked.connect(lambda: slot())
    return button
