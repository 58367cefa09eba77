"""What the user does with whole conversations: rename, duplicate, delete and undo, import, export.

The sidebar and the menus say what is wanted; what takes long is done in the background; what went wrong is said in a
sentence at the foot of the chat.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFileDialog, QWidget

from app.background import Background, Stopped
from app.chat.controller import ChatController
from app.chat.reasoning import split
from app.drafts import Drafts
from app.sidebar import Sidebar
from app.toast import Toast
from engine.errors import SessionError, explain
from engine.sessions.conversation import title_of
from engine.sessions.copying import duplicate, import_log
from engine.sessions.export import as_markdown
from engine.sessions.log import SessionLog
from engine.sessions.trash import Trash

log = logging.getLogger("greenroom.conversations")


@dataclass(slots=True)
class Deletion:
    """A conversation that the user deleted and may still want back."""

    path: Path
    title: str
    was_open: bool
    moved: Path | None = None  # where it waits; None while its answer is being stopped
    undone: bool = False


class Conversations(QObject):
    """Between the sidebar, the chat and the files."""

    changed = Signal()  # whether there is a deletion to undo

    def __init__(
        self,
        folder: Path,
        sidebar: Sidebar,
        chat: ChatController,
        drafts: Drafts,
        toast: Toast,
        undo_toast: Toast,
        background: Background,
        window: QWidget,
    ) -> None:
        super().__init__(window)
        self._folder, self._window = folder, window
        self._sidebar, self._chat, self._drafts = sidebar, chat, drafts
        self._toast, self._undo_toast, self._background = toast, undo_toast, background
        self._trash = Trash(folder)
        self._deleted: list[Deletion] = []
        sidebar.renamed.connect(self.rename)
        sidebar.duplicate_wanted.connect(self.duplicate)
        sidebar.delete_wanted.connect(self.delete)
        sidebar.dropped.connect(self.import_files)
        undo_toast.gone.connect(self._give_up)

    # ------------------------------------------------------------------------------------------------- title

    @Slot(Path, str)
    def rename(self, path: Path, title: str) -> None:
        """Give a conversation a title; an empty one brings back that of its first message."""
        session = self._chat.session_of(path)
        try:
            if session is not None:
                session.rename(title)
            else:
                with SessionLog.open(path) as file:
                    file.append_title(title)
        except SessionError as error:
            self._toast.say(str(error))
            return
        if title:
            self._sidebar.set_title(path, title_of(title))
        self._sidebar.refresh()
        if session is self._chat.session:
            self._chat.session_changed.emit()

    # ------------------------------------------------------------------------------------------------ copies

    @Slot(Path, str)
    def duplicate(self, path: Path, title: str) -> None:
        """Make a second conversation with everything of this one, and open it."""
        copy_title = self.tr("%1 (copy)").replace("%1", title)
        self._background.run(partial(_duplicate, path, copy_title), self._arrived, self._toast.say)

    @Slot()
    def ask_for_import(self) -> None:
        """Let the user choose logs to import."""
        kinds = self.tr("Session logs (*.jsonl);;All files (*)")
        chosen, _ = QFileDialog.getOpenFileNames(self._window, self.tr("Import conversations"), str(Path.home()), kinds)
        self.import_files([Path(name) for name in chosen])

    @Slot(list)
    def import_files(self, sources: list[Path]) -> None:
        """Copy these logs into the data folder and open the last one; what is no log is refused in a sentence."""
        if sources:
            self._background.run(partial(_import, sources, self._folder), self._imported, self._toast.say)

    def _imported(self, outcome: tuple[list[Path], list[str]]) -> None:
        paths, problems = outcome
        if paths:
            self._arrived(paths[-1])
        if len(problems) == 1:
            self._toast.say(problems[0])
        elif problems:
            words = self.tr("%1 files were not imported. The first: %2")
            self._toast.say(words.replace("%1", str(len(problems))).replace("%2", problems[0]))
        elif len(paths) > 1:
            self._toast.say(self.tr("%1 conversations were imported").replace("%1", str(len(paths))))

    def _arrived(self, path: Path) -> None:
        self._sidebar.refresh()
        self._chat.open(path)

    @Slot()
    def copy_all(self) -> None:
        """The branch on the screen as Markdown, to the clipboard."""
        session = self._chat.session
        if session.turns:
            QGuiApplication.clipboard().setText(as_markdown(session.conversation, session.leaf, split=split))
            self._toast.say(self.tr("The conversation was copied as Markdown"))

    # -------------------------------------------------------------------------------------------- deleting

    @Slot(Path, str)
    def delete(self, path: Path, title: str) -> None:
        """Take a conversation away, stopping its answer first; there is time to undo that."""
        deletion = Deletion(path, title, was_open=self._chat.session.path == path)
        self._deleted.append(deletion)
        self._hide()
        self._chat.let_go(path, partial(self._move, deletion))
        if deletion not in self._deleted:
            return
        if len(self._deleted) == 1:
            text = self.tr("Deleted “%1”").replace("%1", title)
        else:
            text = self.tr("Deleted %1 conversations").replace("%1", str(len(self._deleted)))
        self._undo_toast.say(text, self.tr("Undo"), self.undo)
        self.changed.emit()

    def _move(self, deletion: Deletion) -> None:
        """Nothing adds to it any more: put it away, unless it was wanted back meanwhile."""
        if deletion.undone:
            self._back(deletion)
            return
        try:
            deletion.moved = self._trash.put(deletion.path)
        except SessionError as error:
            if deletion in self._deleted:
                self._deleted.remove(deletion)
            self._hide()
            self._toast.say(str(error))
            self.changed.emit()
            return
        if deletion not in self._deleted:  # given up while its answer was being stopped
            self._purge(deletion)

    @property
    def can_undo(self) -> bool:
        return bool(self._deleted)

    @Slot()
    def undo(self) -> None:
        """Bring back what was deleted since the toast appeared."""
        deletions, self._deleted = self._deleted, []
        self._undo_toast.withdraw()
        for deletion in deletions:
            deletion.undone = True
            if deletion.moved is not None:
                try:
                    deletion.path = self._trash.restore(deletion.moved)
                except SessionError as error:
                    self._toast.say(str(error))
                    continue
                self._back(deletion)
        self._hide()
        self._sidebar.refresh()
        self.changed.emit()

    def _back(self, deletion: Deletion) -> None:
        """It is in its place again: show it, if it was on the screen and nothing else is there since."""
        self._sidebar.refresh()
        deleted_again = any(other.path == deletion.path for other in self._deleted)
        if deletion.was_open and not deleted_again and not self._chat.session.turns:
            self._chat.open(deletion.path)

    @Slot()
    def _give_up(self) -> None:
        """The undo is gone, and what it could have brought back with it."""
        deletions, self._deleted = self._deleted, []
        for deletion in deletions:
            if deletion.moved is not None:
                self._purge(deletion)
        self._sidebar.refresh()
        self.changed.emit()

    def _purge(self, deletion: Deletion) -> None:
        assert deletion.moved is not None
        self._trash.purge(deletion.moved)
        self._drafts.forget(deletion.path)

    def _hide(self) -> None:
        self._sidebar.hide_entries(frozenset(deletion.path for deletion in self._deleted))

    def close(self) -> None:
        """The window closes: the undo goes with it."""
        self._undo_toast.withdraw()
        self._give_up()


def _duplicate(path: Path, title: str, stopped: Stopped) -> Path:
    return duplicate(path, title)


def _import(sources: list[Path], folder: Path, stopped: Stopped) -> tuple[list[Path], list[str]]:
    paths: list[Path] = []
    problems: list[str] = []
    for source in sources:
        try:
            paths.append(import_log(source, folder))
        except Exception as error:  # one that nobody foresaw must not hide those that came in
            if not isinstance(error, SessionError):
                log.exception("%s could not be imported", source)
            problems.append(explain(error))
    return paths, problems
