"""Edit > Preferences: what holds for the whole program. Every change holds at once, or says when it will."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QSignalBlocker, Qt, Signal, Slot
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import (
    QDialog,
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app.choice import Choice
from app.dialogs.check_box import CheckBox
from app.dialogs.preferences_data import DataFolder
from app.number_box import WholeBox
from app.panels.parts import label
from app.theme import space
from engine.messages import KEEP_PAST, POLICIES, PREDICTORS, PREFETCH, READ_MODES

if TYPE_CHECKING:
    from app.model_state import ModelState
    from app.panels_column import PanelsColumn
    from app.settings import Settings
    from app.theme import Theme

CONTROL = 232  # px of width
CHOSEN = "chosen "  # before a model's source, among the choices of what to load at the start


class Preferences(QDialog):
    """Emits what its owner has to carry out; the settings themselves it writes."""

    theme_chosen = Signal(str)
    font_size_chosen = Signal(int)  # px
    columns_chosen = Signal(bool, bool)  # conversations, panels
    reload_wanted = Signal()
    policy_chosen = Signal()

    def __init__(
        self,
        theme: Theme,
        settings: Settings,
        state: ModelState,
        panels: PanelsColumn,
        busy: Callable[[], bool],
        parent: QWidget,
    ) -> None:
        """busy: whether an answer or a load is under way."""
        super().__init__(parent)
        self._theme, self._settings, self._state, self._busy = theme, settings, state, busy
        self._offered: dict[str, str] = {}  # as "At the start" lists it
        self.setWindowTitle(self.tr("Preferences"))
        self.resize(680, 660)
        self.theme_choice = self._choice(
            self.tr("Theme"),
            {"system": self.tr("Like the system"), "light": self.tr("Light"), "dark": self.tr("Dark")},
            lambda name: self.theme_chosen.emit(name),
        )
        self.font_size = self._number(self.tr("Size of text"), 11, 22, self.font_size_chosen.emit)
        self.font_size.setSuffix(self.tr(" px"))
        self.sidebar = CheckBox(self.tr("Conversations, on the left"), theme)
        self.panels = CheckBox(self.tr("Panels, on the right"), theme)
        self._column = panels
        self.each_panel = {name: CheckBox(panels.panels[name].heading.name, theme) for name in panels.order}
        self.startup = self._choice(self.tr("At the start"), {}, self._set_startup)
        self.threads = self._number(self.tr("Threads"), 0, max(1, os.cpu_count() or 1), self._set("threads"))
        self.threads.setSpecialValueText(self.tr("all but one"))
        self.policy = self._choice(self.tr("Policy"), _same(POLICIES), self._set_policy)
        self.predictor = self._choice(self.tr("Predictor"), _same(PREDICTORS), self._set("predictor"))
        self.prefetch = self._choice(self.tr("Fetching ahead"), _same(PREFETCH), self._set("prefetch"))
        self.reads = self._choice(self.tr("Reading"), _same(READ_MODES), self._set("reads"))
        self.keep_past = self._choice(self.tr("Keeping what was read"), _sizes(KEEP_PAST), self._set("keep_past"))
        named = ("policy", "predictor", "prefetch", "reads", "keep_past")
        self.sentences = {name: self._sentence() for name in named}
        self.reload = QPushButton(self.tr("Load the model again"))
        self.reload_note = label(role="muted")
        self.reload_note.setWordWrap(True)
        self.data = DataFolder(busy, self)
        self.close_button = QPushButton(self.tr("Close"))
        self._lay_out()
        for box in (self.sidebar, self.panels):
            box.clicked.connect(lambda: self.columns_chosen.emit(self.sidebar.isChecked(), self.panels.isChecked()))
        for name, box in self.each_panel.items():
            box.clicked.connect(lambda shown, name=name: panels.show_panel(name, shown))
        panels.changed.connect(self._refresh_seen)
        self.reload.clicked.connect(self.reload_wanted)
        self.close_button.clicked.connect(self.accept)
        self.close_button.setAutoDefault(False)
        state.changed.connect(self._refresh_seen)

    # ------------------------------------------------------------------------------------------------ parts

    def _choice(self, name: str, words: Mapping[str, str], chosen: Callable[[Any], None]) -> Choice:
        box = Choice(self._theme)
        box.setAccessibleName(name)
        box.setFixedWidth(CONTROL)
        for value, text in words.items():
            box.addItem(text, value)

        def take(index: int) -> None:
            chosen(box.itemData(index))
            self.refresh()

        box.activated.connect(take)
        return box

    def _number(self, name: str, low: int, high: int, chosen: Callable[[Any], None]) -> WholeBox:
        box = WholeBox()
        box.setAccessibleName(name)
        box.setFixedWidth(CONTROL)
        box.setRange(low, high)
        box.setKeyboardTracking(False)

        def take(value: int) -> None:
            chosen(value)
            self.refresh()

        box.valueChanged.connect(take)
        return box

    def _sentence(self, text: str = "") -> Any:
        made = label(text, "small")
        made.setWordWrap(True)
        made.setContentsMargins(0, 0, 0, space(2))  # nearer to what it explains than to what follows
        return made

    def _lay_out(self) -> None:
        inside = QWidget()
        inside.setObjectName("sideSheetInside")
        self._grid = QGridLayout(inside)
        self._grid.setContentsMargins(space(6), space(1), space(6), space(5))
        self._grid.setHorizontalSpacing(space(5))
        self._grid.setVerticalSpacing(space(2))
        self._grid.setColumnStretch(1, 1)
        self._head(self.tr("Look"))
        self._row(self.tr("Theme"), self.theme_choice)
        self._row(
            self.tr("Size of text"),
            self.font_size,
            self._sentence(self.tr("Everything else keeps its proportion to it.")),
        )
        self._row(self.tr("Columns"), self.sidebar)
        self._row("", self.panels)
        panels = QWidget()
        row = QHBoxLayout(panels)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(space(4))
        for box in self.each_panel.values():
            row.addWidget(box)
        self._row(self.tr("Panels shown"), panels)
        self._head(self.tr("Model"))
        crash = self.tr("A model that ended the program before it had answered is never loaded by itself.")
        self._row(self.tr("At the start"), self.startup, self._sentence(crash))
        threads = self.tr("Cores that compute. The one that is left serves this window and the reading of experts.")
        self._row(self.tr("Threads"), self.threads, self._sentence(threads))
        self._head(self.tr("Data"))
        self._wide(self.data)
        self._row(self.tr("Chats already read"), self.keep_past, self.sentences["keep_past"])
        self._head(self.tr("Advanced"))
        for name, title in (
            ("policy", self.tr("Policy: who leaves")),
            ("predictor", self.tr("Predictor: who is next")),
            ("prefetch", self.tr("Fetching ahead")),
            ("reads", self.tr("Reading from disk")),
        ):
            self._row(title, getattr(self, name), self.sentences[name])
        self._grid.setRowStretch(self._grid.rowCount(), 1)
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setWidget(inside)
        foot = QHBoxLayout()
        foot.setContentsMargins(space(6), space(3.5), space(6), space(3.5))
        foot.setSpacing(space(3))
        foot.addWidget(self.reload_note, 1)
        self.reload.setAutoDefault(False)
        foot.addWidget(self.reload)
        foot.addWidget(self.close_button)
        heading = label(self.tr("Preferences"), "heading")
        heading.setContentsMargins(space(6), space(5), space(6), space(2))
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(heading)
        column.addWidget(scroll, 1)
        column.addWidget(_line())
        column.addLayout(foot)

    def _head(self, text: str) -> None:
        row = self._grid.rowCount()
        title = label(text, "title")
        title.setContentsMargins(0, space(4), 0, space(1))
        self._grid.addWidget(title, row, 0, 1, 2)

    def _row(self, text: str, control: QWidget, sentence: QWidget | None = None) -> None:
        row = self._grid.rowCount()
        name = label(text, "muted")
        name.setBuddy(control)
        self._grid.addWidget(name, row, 0, Qt.AlignmentFlag.AlignVCenter)
        self._grid.addWidget(control, row, 1, Qt.AlignmentFlag.AlignLeft)
        if sentence is not None:
            self._grid.addWidget(sentence, row + 1, 1)

    def _wide(self, widget: QWidget) -> None:
        self._grid.addWidget(widget, self._grid.rowCount(), 0, 1, 2)

    # ------------------------------------------------------------------------------------------------ values

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.data.refresh()
        self.refresh()
        self.theme_choice.setFocus()

    @Slot()
    def _refresh_seen(self) -> None:
        """Hidden, there is nothing to refresh: a load says how far it is many times a second."""
        if self.isVisible():
            self.refresh()

    @Slot()
    def refresh(self) -> None:
        """Show what holds now."""
        settings = self._settings
        self._offer_models()
        for box, value in (
            (self.theme_choice, settings.theme),
            (self.policy, settings.last_policy),
            (self.predictor, settings.predictor),
            (self.prefetch, settings.prefetch),
            (self.reads, settings.reads),
            (self.keep_past, settings.keep_past),
        ):
            box.setCurrentIndex(box.findData(value))
        for spin, number in ((self.font_size, settings.font_size), (self.threads, settings.threads)):
            with QSignalBlocker(spin):
                spin.setValue(int(number))
        self.sidebar.setChecked(settings.sidebar_open)
        self.panels.setChecked(settings.panels_open)
        for name, shown in self.each_panel.items():
            shown.setChecked(self._column.is_shown(name))
        for name, words in (
            ("policy", POLICIES),
            ("predictor", PREDICTORS),
            ("prefetch", PREFETCH),
            ("reads", READ_MODES),
            ("keep_past", KEEP_PAST),
        ):
            self.sentences[name].setText(words.get(getattr(self, name).currentData(), ""))
        self._show_reload()

    def _offer_models(self) -> None:
        settings, wanted, model = self._settings, self._state.wanted_source, self._state.model
        sources = {settings.startup_source: settings.startup_source} if settings.startup_source else {}
        if model is not None and wanted:
            sources[wanted] = model.name
        offered = {"last": self.tr("The model used last"), "none": self.tr("No model")}
        for source, name in sources.items():
            offered[f"{CHOSEN}{source}"] = self.tr("Always {name}").format(name=name)
        if offered != self._offered:  # else a list that is open would close under the hand
            self._offered = offered
            self.startup.clear()
            for value, words in offered.items():
                self.startup.addItem(words, value)
        now = settings.startup if settings.startup != "chosen" else f"{CHOSEN}{settings.startup_source}"
        self.startup.setCurrentIndex(max(0, self.startup.findData(now)))

    def _show_reload(self) -> None:
        """What the loaded model does not have yet."""
        model, wanted = self._state.model, self._state.wanted
        settings = self._settings
        names = ("predictor", "prefetch", "reads", "threads", "keep_past")
        differs = (
            model is not None
            and wanted is not None
            and [wanted.policy, *(getattr(wanted, name) for name in names)]
            != [settings.last_policy, *(getattr(settings, name) for name in names)]
        )
        self.reload.setVisible(differs)
        self.reload_note.setText(
            self.tr("The loaded model keeps its settings until it is loaded again.") if differs else ""
        )

    def _set(self, name: str) -> Callable[[Any], None]:
        return lambda value: setattr(self._settings, name, value)

    def _set_policy(self, name: str) -> None:
        self._settings.last_policy = name
        self.policy_chosen.emit()

    def _set_startup(self, chosen: str) -> None:
        if chosen.startswith(CHOSEN):
            self._settings.startup_source = chosen.removeprefix(CHOSEN)
            chosen = "chosen"
        self._settings.startup = chosen


def _sizes(names: Mapping[str, str]) -> dict[str, str]:
    """Sizes as people write them."""
    return {name: name.replace("GB", " GB") for name in names}


def _same(names: Mapping[Any, str]) -> dict[str, str]:
    return {name: name for name in names}


def _line() -> QFrame:
    line = QFrame()
    line.setProperty("line", True)
    return line
