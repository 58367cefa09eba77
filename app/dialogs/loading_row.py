"""How far a load is, in the picker: what is being done, a bar, and why it did not work out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QProgressBar, QVBoxLayout, QWidget

from app.panels.parts import label
from app.theme import space
from engine.messages import Failed, ModelLoaded, Progress

if TYPE_CHECKING:
    from app.engine_client import EngineClient


class LoadingRow(QWidget):
    """Hidden until ``expect``. ``busy``: the load asked for here is under way."""

    changed = Signal()
    loaded = Signal()

    def __init__(self, client: EngineClient, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.busy = False
        self.stopping = False
        self._name = ""
        self.text = label(role="small")
        self.text.setWordWrap(True)
        self.bar = QProgressBar()
        self.bar.setTextVisible(False)
        self.bar.setAccessibleName(self.tr("Loading"))
        column = QVBoxLayout(self)
        column.setContentsMargins(space(6), space(3), space(6), 0)
        column.setSpacing(space(2))
        column.addWidget(self.text)
        column.addWidget(self.bar)
        client.progress.connect(self._progress)
        client.model_loaded.connect(self._loaded)
        client.failed.connect(self._failed)
        self.hide()

    def expect(self, name: str) -> None:
        """A load of ``name`` has been asked for."""
        self.busy, self.stopping, self._name = True, False, name
        self._say(self.tr("Loading {name}").format(name=name), None)
        self.changed.emit()

    def stop(self) -> None:
        """A stop has been asked for; the load ends between two steps."""
        self.stopping = True
        self._say(self.tr("Stopping…"), None)
        self.changed.emit()

    def forget(self) -> None:
        """Why the last load did not work out is old news."""
        if not self.busy:
            self.hide()

    def _say(self, text: str, fraction: float | None) -> None:
        self.text.setText(text)
        self.text.setProperty("role", "small")
        self._polish()
        self.bar.setRange(0, 0 if fraction is None else 1000)
        self.bar.setValue(round(1000 * (fraction or 0)))
        self.bar.show()
        self.show()

    def _polish(self) -> None:
        self.text.style().unpolish(self.text)
        self.text.style().polish(self.text)

    @Slot(object)
    def _progress(self, event: Progress) -> None:
        if self.busy and not self.stopping:
            self._say(f"{event.task}: {event.detail}" if event.detail else event.task, event.fraction)

    @Slot(object)
    def _loaded(self, event: ModelLoaded) -> None:
        if self.busy:
            self.busy = self.stopping = False
            self.hide()
            self.changed.emit()
            self.loaded.emit()

    @Slot(object)
    def _failed(self, event: Failed) -> None:
        if self.busy and event.doing in ("load", "start"):
            self.busy = self.stopping = False
            self.text.setText(event.text)
            self.text.setProperty("role", "danger")
            self._polish()
            self.bar.hide()
            self.changed.emit()
