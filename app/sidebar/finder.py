"""The library of conversations, asked on the background thread: the list, and the latest search."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.background import Background, Job, Stopped
from engine.sessions.library import ConversationEntry, Hit, Library
from engine.sessions.trash import Trash


class _Shelf:
    """The library, opened by the thread that uses it. Plain data only: no Qt here."""

    def __init__(self, folder: Path, database: Path) -> None:
        self._folder, self._database = folder, database
        self._library: Library | None = None

    def library(self) -> Library:
        if self._library is None:
            self._library = Library(self._folder, self._database)
            Trash(self._folder).recover()
        return self._library

    def close(self, stopped: Stopped) -> None:
        if self._library is not None:
            self._library.close()


def _entries(shelf: _Shelf, stopped: Stopped) -> list[ConversationEntry]:
    return shelf.library().entries()


def _entries_read(shelf: _Shelf, stopped: Stopped) -> list[ConversationEntry] | None:
    library = shelf.library()
    return library.entries() if library.refresh(stopped) else None


def _search(shelf: _Shelf, text: str, stopped: Stopped) -> list[Hit]:
    return shelf.library().search(text, stopped)


class Finder(QObject):
    """Answers with signals. A new search takes the place of the one before."""

    listed = Signal(object)  # list[ConversationEntry]
    found = Signal(str, object)  # what was looked for, list[Hit]
    failed = Signal(str)

    def __init__(self, folder: Path, background: Background, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._background = background
        self._shelf = _Shelf(folder, folder.parent / "search.sqlite")
        background.at_end.append(self._shelf.close)
        self._listing: list[Job] = []
        self._unread = False  # not every changed file was read yet
        self._searching: Job | None = None

    def list(self) -> None:
        """The list as far as it is known, then again once every changed file was read."""
        for job in self._listing:
            job.cancel()
        self._unread = True
        self._listing = [
            self._background.run(partial(_entries, self._shelf), self.listed.emit, self.failed.emit),
            self._background.run(partial(_entries_read, self._shelf), self._all_read, self.failed.emit),
        ]

    def _all_read(self, entries: object) -> None:
        if entries is not None:
            self._unread = False
            self.listed.emit(entries)

    def search(self, text: str) -> None:
        """Look for conversations with all the words of ``text``; the reading for the list waits meanwhile."""
        self.stop_search()
        for job in self._listing:
            job.cancel()
        found: Callable[[object], None] = partial(self._found, text)
        self._searching = self._background.run(partial(_search, self._shelf, text), found, self.failed.emit)

    def _found(self, text: str, hits: object) -> None:
        self.found.emit(text, hits)
        if self._unread:
            self.list()

    def stop_search(self) -> None:
        if self._searching is not None:
            self._searching.cancel()
