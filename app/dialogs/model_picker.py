"""Choose a model: the demo, what the hub cache holds, and what lies in the user's own folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QModelIndex, QObject, QPoint, Qt, Signal
from PySide6.QtGui import QAction, QColor, QKeyEvent, QPainter, QPaintEvent, QShowEvent
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

from app.dialogs.model_details import ModelDetails
from app.dialogs.model_list import ModelDelegate, ModelsFilter, ModelsModel, SummaryRole
from app.panels.parts import label
from app.theme import space
from engine.messages import Failed, InspectModel, ListModels, LoadModel, ModelList, ModelSummary

if TYPE_CHECKING:
    from app.engine_client import EngineClient
    from app.settings import Settings
    from app.theme import Theme

_LIST_KEYS = (Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_PageUp, Qt.Key.Key_PageDown)


class ModelPicker(QDialog):
    """Asks the engine for models each time it is shown. ``load_requested`` carries the ``LoadModel`` on acceptance.

    The filter has the focus: typing filters, arrow keys move through the list, Enter loads.
    """

    load_requested = Signal(object)

    def __init__(self, client: EngineClient, theme: Theme, settings: Settings, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._client = client
        self._theme = theme
        self._settings = settings
        self._added = ""  # a folder just added, until we know what it holds
        self._inspected = ""
        self._scanning = False
        self.setWindowTitle(self.tr("Choose a model"))
        self.resize(1000, 640)
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
        self.details = ModelDetails(theme, settings.last_experts, settings.last_policy)
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
        middle.addWidget(_Divider(self._theme, down=True))
        middle.addWidget(self.details, 1)
        buttons = QHBoxLayout()
        buttons.setContentsMargins(space(6), space(3.5), space(6), space(3.5))
        buttons.setSpacing(space(3))
        for button in (self.add_button, self.refresh_button, self.cancel_button, self.load_button):
            button.setAutoDefault(False)
        self.load_button.setDefault(True)
        self.load_button.setProperty("kind", "primary")
        buttons.addWidget(self.add_button)
        buttons.addWidget(self.refresh_button)
        buttons.addStretch(1)
        buttons.addWidget(self.cancel_button)
        buttons.addWidget(self.load_button)
        heading = label(self.tr("Choose a model"), "heading")
        heading.setContentsMargins(space(6), space(5), space(6), space(4))
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(heading)
        column.addWidget(_Divider(self._theme))
        column.addLayout(middle, 1)
        column.addWidget(_Divider(self._theme))
        column.addLayout(buttons)

    def _connect(self) -> None:
        self._client.model_list.connect(self._listed)
        self._client.failed.connect(self._failed)
        self.filter.textChanged.connect(self._filter_changed)
        self.filter.installEventFilter(self)
        self.list.installEventFilter(self)
        self.list.selectionModel().currentChanged.connect(self._current_changed)
        self.list.doubleClicked.connect(self._load)
        self.list.customContextMenuRequested.connect(self._menu)
        self.add_button.clicked.connect(self._ask_folder)
        self.refresh_button.clicked.connect(self.refresh)
        self.cancel_button.clicked.connect(self.reject)
        self.load_button.clicked.connect(self._load)

    # ------------------------------------------------------------------------------------------ asking the engine

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.filter.clear()
        self.filter.setFocus()
        self.refresh()

    def refresh(self) -> None:
        """Ask the engine again; what is listed stays until it answers."""
        self._scanning = True
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
        self.models.replace(answer.models)
        inside = next((m.source for m in self.models.models if _within(m.source, self._added)), "")
        if self._added and not inside:
            # nothing usable was found there: ask why, so that the user learns it
            self._inspected = self._added
            self._client.send(InspectModel(self._added))
        self._added = ""
        self._select(inside or (before.source if before else self._settings.last_source))
        self._show_state()

    def _failed(self, event: Failed) -> None:
        if event.doing == "list":
            self._scanning = False
            self._inspected = self._added = ""
            self._show_state(event.text)

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
            self.details.show_model(model)
        self.load_button.setEnabled(model is not None and not model.problem)
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
        if model is None or model.problem:
            return
        settings = self._settings
        self.load_requested.emit(
            LoadModel(
                source=model.source,
                experts=self.details.experts(),
                policy=self.details.policy(),
                context=int(settings.last_context),
                device=settings.last_device,
                dtype=settings.last_dtype,
            )
        )
        self.accept()


def _within(source: str, folder: str) -> bool:
    """Whether a source is this folder or lies in it."""
    return bool(folder) and Path(source).is_absolute() and Path(source).is_relative_to(Path(folder))


class _Divider(QWidget):
    """A hair line, across or down."""

    def __init__(self, theme: Theme, down: bool = False) -> None:
        super().__init__()
        self._theme = theme
        if down:
            self.setFixedWidth(1)
        else:
            self.setFixedHeight(1)

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), QColor(self._theme.colors.border))
