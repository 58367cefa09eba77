"""File > Export: the conversation as it was logged (.jsonl), or to be read (Markdown)."""

from __future__ import annotations

import re
from pathlib import Path

from PySide6.QtWidgets import QFileDialog, QWidget

from app.messages import SmallDialog
from app.settings import Settings
from engine.errors import SessionError
from engine.sessions.export import export_jsonl, export_markdown


def export_conversation(window: QWidget, settings: Settings, path: Path, title: str) -> None:
    """Ask for a file and write it; the window says when that fails, and why."""
    markdown = window.tr("Markdown, to be read (*.md)")
    log = window.tr("Session log, with every routed expert (*.jsonl)")
    folder = settings.export_folder if Path(settings.export_folder).is_dir() else str(Path.home())
    suggested = str(Path(folder) / f"{file_name(title)}.md")
    chosen, kind = QFileDialog.getSaveFileName(
        window, window.tr("Export conversation"), suggested, f"{markdown};;{log}"
    )
    if not chosen:
        return
    target = Path(chosen)
    if not target.suffix:
        target = target.with_suffix(".jsonl" if kind == log else ".md")
    settings.export_folder = str(target.parent)
    problem = write_export(path, target)
    if problem:
        dialog = SmallDialog(window, window.tr("The conversation was not exported"))
        dialog.add_text(problem)
        dialog.add_button(window.tr("Close")).setDefault(True)
        dialog.present()


def write_export(path: Path, target: Path) -> str:
    """Write ``target`` in the format its name asks for; a sentence when that failed, else nothing."""
    try:
        (export_jsonl if target.suffix == ".jsonl" else export_markdown)(path, target)
    except SessionError as error:
        return str(error)
    return ""


def file_name(title: str) -> str:
    """A title as a file name that every system takes."""
    name = re.sub(r'[\x00-\x1f<>:"/\\|?*]+', " ", title).strip(" .")
    return name[:60].strip() or "conversation"
