"""File > Export: the conversation as it was logged (.jsonl), or to be read (Markdown, web page)."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QFileDialog, QWidget

from app.background import Background, Stopped
from app.chat.reasoning import split
from app.messages import SmallDialog
from app.settings import Settings
from app.toast import Toast
from engine.errors import SessionError
from engine.sessions.export import export_html, export_jsonl, export_markdown
from engine.sessions.outline import has_branches
from engine.sessions.reader import read_conversation


class Exporter(QObject):
    """Asks where to and in which form; reads and writes in the background, for a web page of a long conversation takes
    a second. A toast says where it is, a dialog why it is not."""

    def __init__(self, window: QWidget, settings: Settings, background: Background, toast: Toast) -> None:
        super().__init__(window)
        self._window, self._settings, self._background, self._toast = window, settings, background, toast
        self.dialog: SmallDialog | None = None  # that says why the last export failed

    def export(self, path: Path, title: str, leaf: str | None = None) -> None:
        """Export the branch that ends at ``leaf`` (None: the chosen one), or all branches, as the user wants."""
        self._background.run(partial(_has_branches, path), partial(self._ask, path, title, leaf))

    def _ask(self, path: Path, title: str, leaf: str | None, branches: bool) -> None:
        kinds, settings = self._kinds(branches), self._settings
        last = Path(settings.export_folder or Path.home())
        folder = last if last.is_dir() else Path.home()
        suggested = str(folder / f"{file_name(title)}.md")
        chosen, kind = QFileDialog.getSaveFileName(
            self._window, self.tr("Export conversation"), suggested, ";;".join(kinds), next(iter(kinds))
        )
        if not chosen:
            return
        suffix, whole = kinds.get(kind, (".md", False))
        target = Path(chosen)
        write = partial(self._write, path, leaf, whole)
        if target.suffix.lower() in (".md", ".html", ".jsonl"):
            write(target)
        elif not (named := target.with_name(target.name + suffix)).exists():
            write(named)
        else:
            self._ask_to_replace(named, write)

    def _ask_to_replace(self, target: Path, write: Callable[[Path], None]) -> None:
        """The file dialog has asked about another name, without the ending."""
        self.dialog = SmallDialog(self._window, self.tr("Replace that file?"))
        self.dialog.add_text(self.tr("%1 is there already, and would be written anew.").replace("%1", str(target)))
        keep = self.dialog.add_button(self.tr("Keep it"))
        self.dialog.add_button(self.tr("Replace"), primary=True)
        self.dialog.buttons.accepted.connect(self.dialog.accept)
        self.dialog.accepted.connect(lambda: write(target))
        self.dialog.present()
        keep.setDefault(True)
        keep.setFocus()  # Enter does the harmless thing

    def _write(self, path: Path, leaf: str | None, whole: bool, target: Path) -> None:
        self._settings.export_folder = str(target.parent)
        self._background.run(partial(_write, path, target, leaf, whole), partial(self._ended, target))

    def _ended(self, target: Path, problem: str) -> None:
        if not problem:
            self._toast.say(self.tr("Exported to %1").replace("%1", str(target)))
            return
        self.dialog = SmallDialog(self._window, self.tr("The conversation was not exported"))
        self.dialog.add_text(problem)
        self.dialog.add_button(self.tr("Close")).setDefault(True)
        self.dialog.present()

    def _kinds(self, branches: bool) -> dict[str, tuple[str, bool]]:
        """What the file dialog offers -> the name's ending, and whether all branches are written."""
        kinds = {
            self.tr("Markdown, to be read (*.md)"): (".md", False),
            self.tr("Web page, to be read (*.html)"): (".html", False),
        }
        if branches:
            kinds[self.tr("Markdown with all branches (*.md)")] = (".md", True)
            kinds[self.tr("Web page with all branches (*.html)")] = (".html", True)
        kinds[self.tr("Session log, with every routed expert (*.jsonl)")] = (".jsonl", True)
        return kinds


def _has_branches(path: Path, stopped: Stopped) -> bool:
    try:
        return has_branches(read_conversation(path))
    except SessionError:
        return False  # writing will say why


def _write(path: Path, target: Path, leaf: str | None, whole: bool, stopped: Stopped) -> str:
    return write_export(path, target, leaf, whole)


def write_export(path: Path, target: Path, leaf: str | None = None, whole: bool = False) -> str:
    """Write ``target`` in the format its name asks for; a sentence when that failed, else nothing."""
    try:
        if target.suffix.lower() == ".jsonl":
            export_jsonl(path, target)
        elif target.suffix.lower() == ".html":
            export_html(path, target, leaf, whole, split)
        else:
            export_markdown(path, target, leaf, whole, split)
    except SessionError as error:
        return str(error)
    return ""


def file_name(title: str) -> str:
    """A title as a file name that every system takes."""
    name = re.sub(r'[\x00-\x1f<>:"/\\|?*]+', " ", title).strip(" .")
    return name[:60].strip() or "conversation"
