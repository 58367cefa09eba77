"""Where the data are, moving them, and letting go of the old folder afterwards."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import QUrl, Signal, Slot
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QProgressBar, QPushButton, QVBoxLayout, QWidget

from app.background import Background, Job
from app.data_folder import Move, MoveRefused, check, copy, delete_old_copy, give_up, old_copy, size_of
from app.messages import SmallDialog
from app.panels import format
from app.panels.parts import ElidedLabel, label
from app.theme import space
from engine.paths import data_dir, set_from_outside


class DataFolder(QWidget):
    """``moved(Move)``: everything is copied and the user wants to go on there; the program has to start again."""

    moved = Signal(object)
    _told = Signal(float)  # from the copying thread

    def __init__(self, busy: Callable[[], bool], parent: QWidget) -> None:
        super().__init__(parent)
        self._busy = busy
        self._work = Background(self)  # its own thread: a copy may take minutes
        self._job: Job | None = None
        self._move: Move | None = None
        self.folder = ElidedLabel()
        self.move_button = QPushButton(self.tr("Move…"))
        self.open_button = QPushButton(self.tr("Show"))
        self.open_button.setAccessibleName(self.tr("Show the data folder"))
        self.note = label(role="small")
        self.note.setWordWrap(True)
        self.progress = QProgressBar()
        self.progress.setRange(0, 1000)
        self.progress.setTextVisible(False)
        self.progress.setAccessibleName(self.tr("Copying"))
        self.stop_button = QPushButton(self.tr("Stop"))
        self.old = label(role="small")
        self.old.setWordWrap(True)
        self.delete_button = QPushButton(self.tr("Delete the old copy…"))
        row = QHBoxLayout()
        row.setSpacing(space(2))
        row.addWidget(self.folder, 1)
        for button in (self.open_button, self.move_button, self.stop_button):
            button.setAutoDefault(False)
            row.addWidget(button)
        old_row = QHBoxLayout()
        old_row.addWidget(self.old, 1)
        self.delete_button.setAutoDefault(False)
        old_row.addWidget(self.delete_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(space(2))
        column.addLayout(row)
        column.addWidget(self.progress)
        column.addWidget(self.note)
        column.addLayout(old_row)
        self.open_button.clicked.connect(lambda: QDesktopServices.openUrl(QUrl.fromLocalFile(str(data_dir()))))
        self.move_button.clicked.connect(self._ask_where)
        self.stop_button.clicked.connect(self.stop)
        self.delete_button.clicked.connect(self._ask_to_delete)
        self._told.connect(lambda share: self.progress.setValue(round(1000 * share)))
        self.refresh()

    @Slot()
    def refresh(self, trouble: str = "") -> None:
        """Show what holds now. trouble: a sentence about what did not work."""
        copying, old = self._job is not None, old_copy()
        self.folder.setText(str(data_dir()))
        self.move_button.setVisible(not copying)
        self.move_button.setEnabled(not set_from_outside())
        self.stop_button.setVisible(copying)
        self.progress.setVisible(copying)
        words = self.tr("Conversations, settings, logs, what was learnt about models, and the demo.")
        if set_from_outside():
            words += " " + self.tr("GREENROOM_DATA, or --data, says that they are here.")
        self.note.setText(trouble or (self.tr("Copying, and reading back what was copied…") if copying else words))
        self.note.setProperty("role", "danger" if trouble else "small")
        self.note.style().polish(self.note)
        for widget in (self.old, self.delete_button):
            widget.setVisible(old is not None)
        if old is not None:
            text = self.tr("The folder the data were moved from is still there: {folder}, {size}.")
            self.old.setText(text.format(folder=old, size=format.size(size_of(old))))

    # ------------------------------------------------------------------------------------------------ moving

    @Slot()
    def _ask_where(self) -> None:
        folder = QFileDialog.getExistingDirectory(self, self.tr("An empty folder for the data"), str(Path.home()))
        if folder:
            self.begin(Path(folder))

    def begin(self, folder: Path) -> None:
        """Copy the data there, after a look whether that can work."""
        if self._busy():
            self.refresh(self.tr("An answer or a model is under way. Move the data when it is done."))
            return
        self._move = Move(data_dir(), folder)
        try:
            check(self._move)
        except MoveRefused as refused:
            self.refresh(str(refused))
            return
        self.progress.setValue(0)
        work = partial(_copy, self._move, lambda done, total: self._told.emit(done / total if total else 1.0))
        self._job = self._work.run(work, self._copied, self._refused)
        self.refresh()

    @Slot()
    def stop(self) -> None:
        """Give up the copy under way, and remove what it made."""
        if self._job is not None and self._move is not None:
            self._job.cancel()
            self._job = None
            self._work.run(partial(_remove, self._move), lambda result: None)
            self.refresh(self.tr("Stopped. The data stay where they are."))

    def _refused(self, problem: str) -> None:
        self._job = None
        if self._move is not None:
            self._work.run(partial(_remove, self._move), lambda result: None)
        self.refresh(problem)

    def _copied(self, nothing: object) -> None:
        self._job, move = None, self._move
        assert move is not None
        self.refresh()
        dialog = SmallDialog(self.window(), self.tr("Everything is copied"))
        dialog.add_text(
            self.tr(
                "Each file was read back and is as it was. Greenroom closes, takes over what changed meanwhile, and "
                "opens again with the data in {folder}. The old folder stays until you delete it here."
            ).format(folder=move.new)
        )
        dialog.add_button(self.tr("Not now"))
        dialog.add_button(self.tr("Close and open again"), primary=True)
        dialog.buttons.accepted.connect(dialog.accept)
        dialog.accepted.connect(lambda: self.moved.emit(move))
        dialog.rejected.connect(lambda: self._work.run(partial(_remove, move), lambda result: None))
        dialog.present()

    # ---------------------------------------------------------------------------------------------- the old one

    @Slot()
    def _ask_to_delete(self) -> None:
        old = old_copy()
        if old is None:
            self.refresh()
            return
        dialog = SmallDialog(self.window(), self.tr("Delete the old copy?"))
        words = self.tr("The data are in {new}. The old copy in {old} goes for good.")
        dialog.add_text(words.format(new=data_dir(), old=old))
        keep = dialog.add_button(self.tr("Keep it"))
        dialog.add_button(self.tr("Delete"), primary=True)
        dialog.buttons.accepted.connect(dialog.accept)
        dialog.accepted.connect(lambda: self._work.run(_delete, lambda result: self.refresh(), self.refresh))
        dialog.present()
        keep.setDefault(True)
        keep.setFocus()  # Enter does the harmless thing

    def close_work(self) -> None:
        """The program ends: so does the thread."""
        self.stop()
        self._work.close()


def _copy(move: Move, told: Callable[[int, int], None], stopped: Callable[[], bool]) -> None:
    copy(move, stopped, told)


def _remove(move: Move, stopped: Callable[[], bool]) -> None:
    give_up(move)


def _delete(stopped: Callable[[], bool]) -> None:
    delete_old_copy(stopped)
