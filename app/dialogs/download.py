"""Fetch a model from the Hugging Face hub by name. Nothing is contacted before a button that says so is pressed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QTimer, Signal, Slot
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QDialog, QHBoxLayout, QLineEdit, QProgressBar, QPushButton, QVBoxLayout, QWidget

from app.dialogs import verdict
from app.dialogs.model_details import Card
from app.dialogs.model_list import precision
from app.dialogs.plan_bars import PlanBars
from app.panels import format
from app.panels.parts import ElidedLabel, label, plain_tip
from app.theme import space
from engine.messages import (
    DEFAULT_POLICY,
    DownloadDone,
    DownloadModel,
    DownloadProgress,
    Failed,
    LookUpModel,
    ModelOnHub,
    StopDownload,
)

if TYPE_CHECKING:
    from app.engine_client import EngineClient
    from app.theme import Theme

WIDTH = 560  # px


class DownloadDialog(QDialog):
    """Look up, then download. Closing it lets a download go on; ``ended`` names a model that is here now, or a part of
    it."""

    ended = Signal(str)
    moved = Signal()  # something to say in one line has changed

    def __init__(self, client: EngineClient, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._client = client
        self._found: ModelOnHub | None = None
        self._asked = ""  # the name that is being looked up
        self._left = False  # nobody waits for the answer to that any more
        self._fetching = ""  # the name that is being downloaded
        self._stopping = False
        self._line = ""
        self.setWindowTitle(self.tr("Download a model"))
        self.setMinimumWidth(WIDTH)
        self.name = QLineEdit()
        self.name.setPlaceholderText(self.tr("owner/name, as on the model's page"))
        self.name.setAccessibleName(self.tr("Name of the model on the hub"))
        self.look_up_button = QPushButton(self.tr("Look up on the hub"))
        self.title = ElidedLabel(role="title")
        self.facts = label(role="muted")
        self.facts.setWordWrap(True)
        self.bars = PlanBars(theme)
        self.note = Card()
        self.place = ElidedLabel(role="faint")
        self.progress = QProgressBar()
        self.progress.setTextVisible(False)
        self.progress.setRange(0, 1000)
        self.progress.setAccessibleName(self.tr("Download"))
        self.figures = label(role="small", figures="small")
        self.file = ElidedLabel(role="faint")
        self.close_button = QPushButton(self.tr("Close"))
        self.stop_button = QPushButton(self.tr("Stop"))
        self.download_button = QPushButton(self.tr("Download"))
        self._lay_out()
        self._connect()
        self._refresh()

    def _lay_out(self) -> None:
        column = QVBoxLayout(self)
        column.setContentsMargins(space(6), space(5), space(6), space(4))
        column.setSpacing(space(2))
        column.addWidget(label(self.tr("Download from the Hugging Face hub"), "heading"))
        promise = label(self.tr("Nothing is contacted before you press a button here."), "small")
        promise.setWordWrap(True)
        column.addWidget(promise)
        column.addSpacing(space(2))
        asking = QHBoxLayout()
        asking.setSpacing(space(2))
        asking.addWidget(self.name, 1)
        asking.addWidget(self.look_up_button)
        column.addLayout(asking)
        column.addSpacing(space(2))
        for widget in (self.title, self.facts, self.bars, self.note, self.place):
            column.addWidget(widget)
        column.addStretch(1)
        column.addWidget(self.figures)
        column.addWidget(self.progress)
        column.addWidget(self.file)
        buttons = QHBoxLayout()
        buttons.setContentsMargins(0, space(3), 0, 0)
        buttons.setSpacing(space(3))
        buttons.addStretch(1)
        for button in (self.close_button, self.stop_button, self.download_button):
            buttons.addWidget(button)
        column.addLayout(buttons)
        self.download_button.setProperty("kind", "primary")
        for button in (self.look_up_button, self.close_button, self.stop_button, self.download_button):
            button.setAutoDefault(False)

    def _connect(self) -> None:
        self.name.returnPressed.connect(self.look_up)
        self.name.textEdited.connect(self._edited)
        self.look_up_button.clicked.connect(self.look_up)
        self.download_button.clicked.connect(self.download)
        self.stop_button.clicked.connect(self.stop)
        self.close_button.clicked.connect(self.reject)
        client = self._client
        client.model_on_hub.connect(self._looked_up)
        client.download_progress.connect(self._progressed)
        client.download_done.connect(self._done)
        client.failed.connect(self._failed)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.name.setFocus()
        self.name.selectAll()

    # ------------------------------------------------------------------------------------------ what one can do

    def ask_about(self, name: str) -> None:
        """Put a name in, ready to be looked up."""
        if not self._fetching:
            self.name.setText(name)
            self._edited()

    @Slot()
    def look_up(self) -> None:
        name = self.name.text().strip()
        if name and not self._asked and not self._fetching:
            self._asked, self._found, self._left = name, None, False
            self._client.send(LookUpModel(name))
            self.note.say(self.tr("Asking the hub…"), "note")
            self._refresh()

    @Slot()
    def download(self) -> None:
        if self._found is not None and not self._fetching:
            self._fetching, self._stopping = self._found.name, False
            self._line = self.tr("Starting…")
            self.progress.setValue(0)
            self._client.send(DownloadModel(self._fetching))
            self._refresh()

    @Slot()
    def stop(self) -> None:
        """What was fetched stays; the next download goes on from there."""
        if self._fetching:
            self._stopping = True
            self._client.send(StopDownload())
            self._refresh()

    def reject(self) -> None:
        """Closed. A download goes on; nobody waits any more for what the hub says about a model."""
        if self._asked and not self._fetching:
            self._left = True
            self._client.send(StopDownload())
        super().reject()

    @property
    def line(self) -> str:
        """The running download in one line, "" when there is none."""
        return f"{self._fetching} · {self._line}" if self._fetching else ""

    # ------------------------------------------------------------------------------------------ what comes back

    @Slot()
    def _edited(self) -> None:
        self._found = None
        if not self._asked:
            self.note.say("", "note")
        self._refresh()

    @Slot(object)
    def _looked_up(self, found: ModelOnHub) -> None:
        if found.name != self._asked:
            return
        self._asked, self._found = "", found
        model, plan = found.summary, found.plan
        if model.problem:
            self.note.say(model.problem, "error")
        elif self._short_of_room(found):
            missing = found.total_bytes - found.present_bytes - found.free_bytes
            words = self.tr("Its disk lacks {missing} of room. Free some, then look it up again.")
            self.note.say(words.format(missing=format.size(missing)), "error")
        elif plan is not None:
            words = " ".join(verdict.sentences(plan, model, DEFAULT_POLICY))
            self.note.say(words, "error" if plan.verdict == "too big" else "note")
        self._refresh()

    @staticmethod
    def _short_of_room(found: ModelOnHub) -> bool:
        return found.total_bytes - found.present_bytes > found.free_bytes

    @Slot(object)
    def _progressed(self, event: DownloadProgress) -> None:
        if event.name != self._fetching:
            return
        done, total = event.done_bytes, event.total_bytes
        self.progress.setValue(round(1000 * done / total) if total else 0)
        words = [self.tr("{done} of {total}").format(done=format.size(done), total=format.size(total))]
        if event.bytes_per_second:
            words.append(self.tr("{rate}/s").format(rate=format.size(event.bytes_per_second)))
            words.append(self.tr("{time} left").format(time=duration((total - done) / event.bytes_per_second)))
        elif event.bytes_per_second == 0:
            words.append(self.tr("waiting for the server"))
        self._line = " · ".join(words)
        self.file.setText(event.file)
        self._refresh()

    @Slot(object)
    def _done(self, event: DownloadDone) -> None:
        if event.name == self._fetching:
            self._fetching, self._found, self._stopping = "", None, False
            self.note.say(self.tr("{name} is here and complete.").format(name=event.name), "note")
            self._refresh()
            self.ended.emit(event.name)

    @Slot(object)
    def _failed(self, event: Failed) -> None:
        if event.doing == "look up" and event.request_id == self._asked:
            self._asked = ""
            if self._left:
                self._edited()
                return
        elif event.doing == "download" and event.request_id == self._fetching:
            stopped, self._fetching, self._stopping = self._stopping, "", False
            self.note.say(event.text, "note" if stopped else "error")
            self._refresh()
            self.ended.emit(event.request_id)
            return
        else:
            return
        self.note.say(event.text, "error")
        self._refresh()

    def _refresh(self) -> None:
        found, fetching = self._found, bool(self._fetching)
        plan = found.plan if found else None
        self.title.setText(found.name if found else "")
        self.facts.setText(self._facts(found) if found else "")
        self.bars.show_plan(plan)
        self.place.setText(self._place(found) if found else "")
        self.place.setToolTip(plain_tip(found.folder) if found else "")
        for widget, shown in (
            (self.title, found is not None),
            (self.facts, found is not None),
            (self.bars, plan is not None),
            (self.place, found is not None),
            (self.progress, fetching),
            (self.figures, fetching),
            (self.file, fetching),
            (self.stop_button, fetching),
            (self.download_button, not fetching),
        ):
            widget.setVisible(shown)
        self.figures.setText(self.tr("Stopping…") if self._stopping else self._line)
        self.name.setEnabled(not fetching)
        self.look_up_button.setEnabled(not fetching and not self._asked and bool(self.name.text().strip()))
        self.stop_button.setEnabled(not self._stopping)
        usable = found is not None and not found.summary.problem and not self._short_of_room(found)
        self.download_button.setEnabled(usable and not self._asked)
        rest = found.total_bytes - found.present_bytes if found else 0
        begun = bool(found and found.present_bytes)
        words = self.tr("Download the rest, {size}") if begun else self.tr("Download {size}")
        self.download_button.setText(words.format(size=format.size(rest)) if usable else self.tr("Download"))
        QTimer.singleShot(0, self._grow)  # once the legend knows how many lines it needs
        self.close_button.setText(self.tr("Close, and go on") if fetching else self.tr("Close"))
        self.moved.emit()

    @Slot()
    def _grow(self) -> None:
        """Never lower than what is in it; what the user made higher stays so."""
        layout = self.layout()
        assert layout is not None
        layout.activate()
        needed = layout.totalHeightForWidth(self.width())
        if needed > self.height():
            self.resize(self.width(), needed)

    def _facts(self, found: ModelOnHub) -> str:
        model = found.summary
        shape = self.tr("{layers} layers × {experts} experts, {top_k} per token")  # noqa: RUF001
        pieces = [
            model.family,
            shape.format(layers=model.layers, experts=model.experts, top_k=model.top_k) if model.layers else "",
            format.size(found.total_bytes),
            precision(model.dtype),
            model.license or self.tr("no licence named"),
        ]
        return " · ".join(piece for piece in pieces if piece)

    def _place(self, found: ModelOnHub) -> str:
        words = self.tr("{files} files to {folder}, where {free} are free")
        return words.format(files=found.files, folder=found.folder, free=format.size(found.free_bytes))


def duration(seconds: float) -> str:
    """ "45 s", "18 min", "3.2 h"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
