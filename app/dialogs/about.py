"""Help > About: what this is, what it runs on, and whose work is in it, under which licence."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QCoreApplication, Qt
from PySide6.QtWidgets import QDialogButtonBox, QGridLayout, QPlainTextEdit, QWidget

from app.licences import Part, libraries, texts
from app.messages import SmallDialog
from app.panels.parts import label, scrolling
from app.theme import font, space
from engine.messages import EngineReady
from engine.paths import resources_dir
from engine.version import __version__


def tr(text: str) -> str:
    return QCoreApplication.translate("About", text)


def bundled() -> list[Part]:
    """What comes with Greenroom and is not a library."""
    fonts = resources_dir() / "fonts"
    parts = [
        (tr("Inter, the typeface"), "", "SIL Open Font License 1.1", fonts / "OFL-Inter.txt"),
        (tr("JetBrains Mono, the typeface"), "", "SIL Open Font License 1.1", fonts / "OFL-JetBrainsMono.txt"),
        (tr("Icons, drawn for Greenroom"), "", "Apache-2.0", resources_dir() / "icons" / "greenroom.svg"),
        (tr("Demo: SmolLM2-135M-Instruct"), "", "Apache-2.0", resources_dir() / "demo" / "model-LICENSE"),
    ]
    return [(name, number, licence) for name, number, licence, proof in parts if proof.exists()]


def show_texts(parent: QWidget, file: Path) -> SmallDialog:
    """All licences in full, as they came with the program."""
    dialog = SmallDialog(parent, tr("Licences"))
    text = QPlainTextEdit(file.read_text("utf-8", errors="replace"))
    text.setReadOnly(True)
    text.setTabChangesFocus(True)
    text.setFont(font("mono"))
    text.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
    text.setMinimumSize(760, 480)
    text.setAccessibleName(tr("Licences"))
    dialog.column.addWidget(text, 1)
    dialog.add_button(tr("Close")).setDefault(True)
    dialog.present()
    return dialog


def show_about(parent: QWidget, engine: EngineReady | None) -> SmallDialog:
    """The sheet."""
    dialog = SmallDialog(parent, parent.tr("About Greenroom"))
    dialog.add_text(
        tr(
            "Chat with Mixture-of-Experts models that are bigger than the graphics card. In a theatre, the green room "
            "is where performers wait until they are called: here the experts wait, and step on just in time."
        )
    )
    lines = [tr("Version %1, Apache License 2.0").replace("%1", __version__)]
    lines += [engine.libraries, engine.device] if engine is not None else []
    dialog.add_text("\n".join(lines), "small")
    grid = QGridLayout()
    grid.setContentsMargins(space(3), space(2), space(4), space(2))
    grid.setHorizontalSpacing(space(5))
    grid.setVerticalSpacing(space(1))
    grid.setColumnStretch(2, 1)
    grid.setColumnMinimumWidth(2, space(50))
    line = 0
    for title, parts in ((tr("Bundled"), bundled()), (tr("Libraries"), libraries())):
        heading = label(title, "title")
        heading.setContentsMargins(0, space(2) if line else 0, 0, 0)
        grid.addWidget(heading, line, 0, 1, 3)
        for name, number, licence in parts:
            line += 1
            for column, text in enumerate((name, number, licence or tr("see its own page"))):
                shown = label(text, "small")
                shown.setWordWrap(column == 2)
                grid.addWidget(shown, line, column, Qt.AlignmentFlag.AlignTop)
        line += 1
    inside = QWidget()
    inside.setLayout(grid)
    scroll = scrolling(tr("Whose work is in it"), inside, boxed=True)
    scroll.setMinimumSize(560, 280)
    dialog.column.addWidget(scroll, 1)
    file = texts()
    if file is not None:
        full = dialog.buttons.addButton(tr("Licences in full"), QDialogButtonBox.ButtonRole.ActionRole)
        full.clicked.connect(lambda: show_texts(dialog, file))
    close = dialog.add_button(dialog.tr("Close"))
    close.setDefault(True)
    dialog.present()
    close.setFocus()
    return dialog
