"""Help > About: what this is, what it runs on, and whose work is in it, under which licence."""

from __future__ import annotations

from importlib import metadata

from PySide6.QtCore import QCoreApplication, Qt
from PySide6.QtWidgets import QGridLayout, QScrollArea, QWidget

from app.messages import SmallDialog, version
from app.panels.parts import label
from app.theme import space
from engine.messages import EngineReady
from engine.paths import resources_dir

Part = tuple[str, str, str]  # name, version, licence


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


def libraries() -> list[Part]:
    """What Greenroom stands on, as it is installed here: the libraries it asks for, and their licences as they say."""
    try:
        wanted = metadata.requires("greenroom") or []
    except metadata.PackageNotFoundError:
        return []
    found: dict[str, Part] = {}
    for requirement in wanted:
        if "extra ==" in requirement.replace('"', "").replace("'", ""):
            continue
        name = _name(requirement)
        try:
            about = metadata.metadata(name)
        except metadata.PackageNotFoundError:
            continue
        found[name.lower()] = (about["Name"], about["Version"], licence_of(about))
    return [found[name] for name in sorted(found)]


def licence_of(about: metadata.PackageMetadata) -> str:
    """A library's licence in a few words, out of any of the places where it may say so."""
    short = str((about.get_all("License-Expression") or [""])[0])
    if not short:
        classes = [
            line.split(" :: ")[-1] for line in about.get_all("Classifier") or () if line.startswith("License ::")
        ]
        short = ", ".join(name for name in classes if name != "OSI Approved")
    if not short:
        text = str((about.get_all("License") or [""])[0])
        short = next(iter(text.strip().splitlines()), "")
    return short or tr("see its own page")


def _name(requirement: str) -> str:
    end = next((at for at, sign in enumerate(requirement) if not (sign.isalnum() or sign in "-_.")), len(requirement))
    return requirement[:end]


def show_about(parent: QWidget, engine: EngineReady | None) -> SmallDialog:
    """The sheet."""
    dialog = SmallDialog(parent, parent.tr("About Greenroom"))
    dialog.add_text(
        tr(
            "Chat with Mixture-of-Experts models that are bigger than the graphics card. In a theatre, the green room "
            "is where performers wait until they are called: here the experts wait, and step on just in time."
        )
    )
    lines = [tr("Version %1, Apache License 2.0").replace("%1", version())]
    lines += [engine.libraries, engine.device] if engine is not None else []
    dialog.add_text("\n".join(lines), "small")
    grid = QGridLayout()
    grid.setContentsMargins(0, 0, space(3), 0)
    grid.setHorizontalSpacing(space(5))
    grid.setVerticalSpacing(space(1))
    grid.setColumnStretch(2, 1)
    line = 0
    for title, parts in ((tr("Bundled"), bundled()), (tr("Libraries"), libraries())):
        heading = label(title, "title")
        heading.setContentsMargins(0, space(2) if line else 0, 0, 0)
        grid.addWidget(heading, line, 0, 1, 3)
        for name, number, licence in parts:
            line += 1
            for column, text in enumerate((name, number, licence)):
                shown = label(text, "small")
                shown.setWordWrap(column == 2)
                grid.addWidget(shown, line, column, Qt.AlignmentFlag.AlignTop)
        line += 1
    inside = QWidget()
    inside.setObjectName("sideSheetInside")
    inside.setLayout(grid)
    scroll = QScrollArea()
    scroll.setWidgetResizable(True)
    scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    scroll.setMinimumSize(560, 280)
    scroll.setAccessibleName(tr("Whose work is in it"))
    scroll.setWidget(inside)
    dialog.column.addWidget(scroll, 1)
    dialog.add_button(dialog.tr("Close")).setDefault(True)
    dialog.present()
    return dialog
