"""File > Export: the conversation as it was logged (.jsonl), or to be read (Markdown, web page)."""

from __future__ import annotations

import re
from pathlib import Path

from PySide6.QtWidgets import QFileDialog, QWidget

from app.chat.reasoning import split
from app.messages import SmallDialog
from app.settings import Settings
from engine.errors import SessionError
from engine.sessions.export import export_html, export_jsonl, export_markdown
from engine.sessions.outline import has_branches
from engine.sessions.reader import read_conversation


def export_conversation(
    window: QWidget, settings: Settings, path: Path, title: str, leaf: str | None = None
) -> SmallDialog | None:
    """Ask for a file and write it: the branch that ends at ``leaf`` (None: the chosen one), or all branches.

    The dialog that says why, when that failed.
    """
    kinds = _kinds(window, path)
    folder = settings.export_folder if Path(settings.export_folder).is_dir() else str(Path.home())
    suggested = str(Path(folder) / f"{file_name(title)}.md")
    chosen, kind = QFileDialog.getSaveFileName(
        window, window.tr("Export conversation"), suggested, ";;".join(kinds), next(iter(kinds))
    )
    if not chosen:
        return None
    suffix, whole = kinds.get(kind, (".md", False))
    target = Path(chosen)
    if target.suffix not in (".md", ".html", ".jsonl"):
        target = target.with_name(target.name + suffix)
    settings.export_folder = str(target.parent)
    problem = write_export(path, target, leaf, whole)
    if not problem:
        return None
    dialog = SmallDialog(window, window.tr("The conversation was not exported"))
    dialog.add_text(problem)
    dialog.add_button(window.tr("Close")).setDefault(True)
    dialog.present()
    return dialog


def _kinds(window: QWidget, path: Path) -> dict[str, tuple[str, bool]]:
    """What the file dialog offers -> the name's ending, and whether all branches are written."""
    kinds = {
        window.tr("Markdown, to be read (*.md)"): (".md", False),
        window.tr("Web page, to be read (*.html)"): (".html", False),
    }
    try:
        branches = has_branches(read_conversation(path))
    except SessionError:
        branches = False  # writing will say why
    if branches:
        kinds[window.tr("Markdown with all branches (*.md)")] = (".md", True)
        kinds[window.tr("Web page with all branches (*.html)")] = (".html", True)
    kinds[window.tr("Session log, with every routed expert (*.jsonl)")] = (".jsonl", True)
    return kinds


def write_export(path: Path, target: Path, leaf: str | None = None, whole: bool = False) -> str:
    """Write ``target`` in the format its name asks for; a sentence when that failed, else nothing."""
    try:
        if target.suffix == ".jsonl":
            export_jsonl(path, target)
        elif target.suffix == ".html":
            export_html(path, target, leaf, whole, split)
        else:
            export_markdown(path, target, leaf, whole)
    except SessionError as error:
        return str(error)
    return ""


def file_name(title: str) -> str:
    """A title as a file name that every system takes."""
    name = re.sub(r'[\x00-\x1f<>:"/\\|?*]+', " ", title).strip(" .")
    return name[:60].strip() or "conversation"
