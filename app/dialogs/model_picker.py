"""Choose a model: the demo, what the hub cache holds, and what lies in the user's own folders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QModelIndex, QObject, QPoint, Qt, Signal
from PySide6.QtGui import QAction, QKeyEvent, QShowEvent
from PySide6.QtWidgets import (
    QDialog,
    QFileDialog,
    QHBoxLayout,
    QLineEdit,
    QListView,
    QMenu,
    QPushButton,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.dialogs.divider import Divider
from app.dialogs.download import DownloadDialog
from app.dialogs.loading_row import LoadingRow
from app.dialogs.model_details import ModelDetails, question
from app.dialogs.model_list import ModelDelegate, ModelsFilter, ModelsModel, SummaryRole
from app.panels.parts import ElidedLabel, label
from app.remembered import choose, last_used, remembered
from app.theme import space
from engine.messages import Failed, InspectModel, ListModels, LoadModel, MemoryPlanned, ModelList, ModelSummary

if TYPE_CHECKING:
    from app.engine_client import EngineClient
    from app.settings import Settings
    from app.theme import Theme

_LIST_KEYS = (Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_PageUp, Qt.Key.Key_PageDown)


class ModelPicker(QDialog):
    """Asks the engine for models each time it is shown, and what each would take. ``load_requested`` carries the
    ``LoadModel``; the picker stays while it is carried out, and closes once the model is there.

    The filter has the focus: typing filters, arrow keys move through the list, Enter loads.
    """

    load_requested = Signal(object)
    stop_requested = Signal()  # the load under way

    def __init__(self, client: EngineClient, theme: Theme, settings: Settings, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._client = client
        self._theme = theme
        self._settings = settings
        self._added = ""  # a folder just added, until we know what it holds
        self._inspected = ""
        self._then = ""  # the source to select once the list is there
        self._scanning = False
        self._choices: dict[str, LoadModel] = {}  # by source, since the picker is there
        self._unplanned: list[str] = []  # sources whose verdict nobody has asked for yet
        self.setWindowTitle(self.tr("Choose a model"))
        self.resize(1000, 680)
        self.models = ModelsModel(self)
        self.filtered = ModelsFilter(self)
        self.filtered.setSourceModel(self.models)
        self.filter = QLineEdit()
        self.filter.setPlaceholderText(self.tr("Filter"))
        self.filter.setAccessibleName(self.tr("Filter models"))
        self.filter.setClearButtonEnabled(True)
        self.list = QListView()
        self.list.setModel(self.filtered)
        self.list.setItemDelegate(ModelDelegate(theme, self.list))
        self.list.setAccessibleName(self.tr("Models"))
        self.list.setMouseTracking(True)
        self.list.setStyleSheet("QListView { border: none; }")
        self.list.setUniformItemSizes(True)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.message = label(role="muted")
        self.message.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.message.setWordWrap(True)
        self.details = ModelDetails(theme)
        self.loading = LoadingRow(client)
        self.download_dialog = DownloadDialog(client, theme, self)
        self.downloading = ElidedLabel(role="faint")
        self.download_button = QPushButton(self.tr("Download by name…"))
        self.add_button = QPushButton(self.tr("Add folder…"))
        self.refresh_button = QPushButton(self.tr("Refresh"))
        self.cancel_button = QPushButton(self.tr("Cancel"))
        self.load_button = QPushButton(self.tr("Load"))
        self._lay_out()
        self._connect()
        self._show_state()

    def _lay_out(self) -> None:
        self._left = QStackedWidget()
        self._left.addWidget(self.list)
        self._left.addWidget(self.message)
        left = QVBoxLayout()
        left.setContentsMargins(space(3.5), space(3.5), space(3.5), space(3.5))
        left.setSpacing(space(3))
        left.addWidget(self.filter)
        left.addWidget(self._left, 1)
        side = QWidget()
        side.setFixedWidth(380)
        side.setLayout(left)
        middle = QHBoxLayout()
        middle.setSpacing(0)
        middle.addWidget(side)
        middle.addWidget(Divider(self._theme, down=True))
        middle.addWidget(self.details, 1)
        buttons = QHBoxLayout()
        buttons.setContentsMargins(space(6), space(3.5), space(6), space(3.5))
        buttons.setSpacing(space(3))
        for button in (
            self.add_button,
            self.download_button,
            self.refresh_button,
            self.cancel_button,
            self.load_button,
        ):
            button.setAutoDefault(False)
        self.load_button.setDefault(True)
        self.load_button.setProperty("kind", "primary")
        buttons.addWidget(self.add_button)
        buttons.addWidget(self.download_button)
        buttons.addWidget(self.refresh_button)
        buttons.addWidget(self.downloading, 1)
        buttons.addWidget(self.cancel_button)
        buttons.addWidget(self.load_button)
        heading = label(self.tr("Choose a model"), "heading")
        heading.setContentsMargins(space(6), space(5), space(6), space(4))
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(heading)
        column.addWidget(Divider(self._theme))
        column.addLayout(middle, 1)
        column.addWidget(Divider(self._theme))
        column.addWidget(self.loading)
        column.addLayout(buttons)

    def _connect(self) -> None:
        self._client.model_list.connect(self._listed)
        self._client.failed.connect(self._failed)
        self._client.ready.connect(lambda engine: self.details.advanced.set_cards(engine.cards))
        self.filter.textChanged.connect(self._filter_changed)
        self.filter.installEventFilter(self)
        self.list.installEventFilter(self)
        self.list.selectionModel().currentChanged.connect(self._current_changed)
        self.list.doubleClicked.connect(self._load)
        self.list.customContextMenuRequested.connect(self._menu)
        self.add_button.clicked.connect(self._ask_folder)
        self.refresh_button.clicked.connect(lambda: self.refresh())
        self.cancel_button.clicked.connect(self._cancel)
        self.details.changed.connect(self._chosen_otherwise)
        self.details.download_wanted.connect(self._ask_download)
        self.download_button.clicked.connect(lambda: self._ask_download(""))
        self.download_dialog.ended.connect(self.refresh)
        self.download_dialog.moved.connect(self._show_download)
        self._client.memory_planned.connect(self._planned)
        self.loading.changed.connect(self._show_state)
        self.loading.loaded.connect(self.accept)
        self.load_button.clicked.connect(self._load)

    # ------------------------------------------------------------------------------------------ asking the engine

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.filter.clear()
        self.filter.setFocus()
        self.loading.forget()
        self.refresh()

    def refresh(self, then: str = "") -> None:
        """Ask the engine again; what is listed stays until it answers. ``then`` is the source to select."""
        self._scanning = True
        self._then = then
        self._unplanned = []
        self._client.send(ListModels(self._settings.model_folders))
        self._show_state()

    def add_folder(self, folder: str) -> None:
        """Remember ``folder`` and look into it. What it turns out to hold is selected, a problem included."""
        known = self._settings.model_folders
        if folder not in known:
            self._settings.model_folders = (*known, folder)
        self._added = folder
        self.filter.clear()
        self.refresh()

    def _ask_folder(self) -> None:
        folder = QFileDialog.getExistingDirectory(self, self.tr("Add a folder with models"))
        if folder:
            self.add_folder(folder)

    def _listed(self, answer: ModelList) -> None:
        if self._inspected and [model.source for model in answer.models] == [self._inspected]:
            self._inspected = ""
            self.models.merge(answer.models[0])
            self._select(answer.models[0].source)
            return
        if not self._scanning:
            return  # the answer to someone else's question
        before = self.chosen()
        self._scanning = False
        self.models.forget_plans()
        self.models.replace(answer.models)
        inside = next((m.source for m in self.models.models if _within(m.source, self._added)), "")
        if self._added and not inside:
            # nothing usable was found there: ask why, so that the user learns it
            self._inspected = self._added
            self._client.send(InspectModel(self._added))
        self._added = ""
        self._unplanned = [model.source for model in self.models.models if _can_be_planned(model)]
        self._select(inside or self._then or (before.source if before else self._settings.last_source))
        self._ask_next()

    def _failed(self, event: Failed) -> None:
        if event.doing == "plan":
            self._not_planned(event)
        elif event.doing == "list":
            self._scanning = False
            self._inspected = self._added = ""
            self._show_state(event.text)

    # ------------------------------------------------------------------------------------------ what fits

    def choice(self, source: str) -> LoadModel:
        """How ``source`` would be loaded: as chosen here, else as the last time."""
        return self._choices.get(source) or remembered(self._settings, source)

    def forget_choices(self) -> None:
        """The preferences have changed: what was not loaded yet begins with them."""
        self._choices.clear()
        self._show_details(self.details.model)

    def _ask_next(self) -> None:
        """One after the other, so that the model on the right never waits behind the whole list."""
        shown = self.details.model.source if self.details.model else ""
        while self._unplanned:
            source = self._unplanned.pop(0)
            if self.models.plan_of(source) is None and source != shown:
                self._client.send(question(self.choice(source)))
                return

    def _chosen_otherwise(self) -> None:
        choice = self.details.choice
        self._choices[choice.source] = choice
        if self.details.plan is None:
            self._client.send(question(choice))
        self._show_buttons()

    def _planned(self, plan: MemoryPlanned) -> None:
        source = plan.question.source
        self.models.show_plan(plan)
        if self.details.model is not None and self.details.model.source == source:
            self.details.show_plan(plan)
        self._show_buttons()
        self._ask_next()

    def _not_planned(self, event: Failed) -> None:
        """What cannot be opened cannot be loaded: its row says why."""
        row = self.models.row_of(event.request_id)
        if row >= 0:
            chosen = self.chosen()
            self.models.merge(replace(self.models.models[row], problem=event.text))
            self._select(chosen.source if chosen else event.request_id)
        self._ask_next()

    # ------------------------------------------------------------------------------------------ the list

    def chosen(self) -> ModelSummary | None:
        """The selected model."""
        index = self.list.currentIndex()
        model: ModelSummary | None = index.data(SummaryRole) if index.isValid() else None
        return model

    def _select(self, source: str) -> None:
        """Select a source, or the first row when it is not there."""
        row = self.models.row_of(source)
        index = self.filtered.mapFromSource(self.models.index(row, 0)) if row >= 0 else QModelIndex()
        self.list.setCurrentIndex(index if index.isValid() else self.filtered.index(0, 0))
        self._show_state()

    def _filter_changed(self, text: str) -> None:
        self.filtered.set_text(text)
        if not self.list.currentIndex().isValid():
            self.list.setCurrentIndex(self.filtered.index(0, 0))
        self._show_state()

    def _current_changed(self, current: QModelIndex, previous: QModelIndex) -> None:
        self._show_state()

    def _show_state(self, trouble: str = "") -> None:
        """Bring the message, the details and the buttons in line with what is known."""
        model = self.chosen()
        if model != self.details.model:
            self._show_details(model)
        self._show_buttons()
        self.refresh_button.setEnabled(not self._scanning)
        if trouble:
            message = trouble
        elif self._scanning and not self.models.models:
            message = self.tr("Looking for models…")
        elif not self.models.models:
            message = self.tr("No models found. Add a folder that holds one.")
        elif not self.filtered.rowCount():
            message = self.tr("Nothing matches “{text}”").format(text=self.filter.text())
        else:
            message = ""
        self.message.setText(message)
        self._left.setCurrentWidget(self.message if message else self.list)

    def _show_details(self, model: ModelSummary | None) -> None:
        if model is None:
            self.details.show_model(None)
            return
        choice, plan = self.choice(model.source), self.models.plan_of(model.source)
        self.details.show_model(model, choice, plan, last_used(self._settings, model.source))
        if _can_be_planned(model) and self.details.plan is None:
            self._client.send(question(choice))

    def _show_buttons(self) -> None:
        model, plan = self.details.model, self.details.plan
        fits = plan is None or plan.verdict != "too big"
        usable = model is not None and not model.problem and fits
        self.load_button.setEnabled(usable and not self.loading.busy)
        self.cancel_button.setText(self.tr("Stop loading") if self.loading.busy else self.tr("Cancel"))
        self.cancel_button.setEnabled(not self.loading.stopping)

    def _show_download(self) -> None:
        self.downloading.setText(self.download_dialog.line)

    def _ask_download(self, name: str) -> None:
        if name:
            self.download_dialog.ask_about(name)
        self.download_dialog.open()

    def _menu(self, at: QPoint) -> None:
        index = self.list.indexAt(at)
        model: ModelSummary | None = index.data(SummaryRole) if index.isValid() else None
        folder = next((f for f in self._settings.model_folders if model and _within(model.source, f)), "")
        if folder:
            menu = QMenu(self)
            forget = QAction(self.tr("Do not look in this folder any more"), menu)
            forget.triggered.connect(lambda: self.forget_folder(folder))
            menu.addAction(forget)
            menu.popup(self.list.viewport().mapToGlobal(at))

    def forget_folder(self, folder: str) -> None:
        """Stop looking there. Nothing on disk is touched."""
        self._settings.model_folders = tuple(f for f in self._settings.model_folders if f != folder)
        self.refresh()

    # ------------------------------------------------------------------------------------------ keyboard, loading

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            if watched is self.filter and event.key() in _LIST_KEYS:
                self.list.keyPressEvent(event)
                return True
            if watched is self.list and event.text().isprintable() and event.text().strip():
                self.filter.setFocus()
                self.filter.insert(event.text())
                return True
            if watched is self.list and event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                self._load()
                return True
        return super().eventFilter(watched, event)

    def _load(self) -> None:
        model = self.chosen()
        if model is not None and self.load_button.isEnabled():
            self.loading.expect(model.name)
            choose(self._settings, self.details.choice)
            self.load_requested.emit(self.details.choice)
            self._show_buttons()

    def _cancel(self) -> None:
        """Stop the load under way; without one, close."""
        if self.loading.busy:
            self.loading.stop()
            self.stop_requested.emit()
        else:
            self.reject()


def _can_be_planned(model: ModelSummary) -> bool:
    return model.built and not model.problem


def _within(source: str, folder: str) -> bool:
    """Whether a source is this folder or lies in it."""
    return bool(folder) and Path(source).is_absolute() and Path(source).is_relative_to(Path(folder))
