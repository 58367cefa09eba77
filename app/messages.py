"""The few small dialogs: opening a link, the keys, about."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QGridLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.theme import font, space
from engine.messages import EngineReady


def version() -> str:
    """The program's version."""
    try:
        return metadata.version("greenroom")
    except metadata.PackageNotFoundError:  # run from a folder that was never installed
        return "0.1.0"


class SmallDialog(QDialog):
    """A heading, something below it, and buttons. Shown beside the event loop, never in one of its own."""

    def __init__(self, parent: QWidget, title: str) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(title)
        self.column = QVBoxLayout(self)
        self.column.setContentsMargins(space(6), space(6), space(6), space(5))
        self.column.setSpacing(space(3))
        heading = QLabel(title)
        heading.setProperty("role", "heading")
        self.column.addWidget(heading)
        self.buttons = QDialogButtonBox()
        self.buttons.rejected.connect(self.reject)

    def add_text(self, text: str, role: str = "muted") -> QLabel:
        label = QLabel(text)
        label.setTextFormat(Qt.TextFormat.PlainText)
        label.setProperty("role", role)
        label.setWordWrap(True)
        label.setMinimumWidth(360)
        self.column.addWidget(label)
        return label

    def add_button(self, text: str, primary: bool = False) -> QPushButton:
        role = QDialogButtonBox.ButtonRole
        button = self.buttons.addButton(text, role.AcceptRole if primary else role.RejectRole)
        if primary:
            button.setProperty("kind", "primary")
        return button

    def present(self) -> None:
        self.column.addSpacing(space(2))
        self.column.addWidget(self.buttons)
        self.open()


def ask_to_open(parent: QWidget, address: str) -> SmallDialog:
    """Show where a link leads, and open it only when told to."""
    dialog = SmallDialog(parent, parent.tr("Open this link?"))
    dialog.add_text(dialog.tr("The model wrote it; Greenroom cannot know what is there. Your browser will open:"))
    shown = dialog.add_text(_broken(address), "body")
    shown.setFont(font("mono"))
    shown.setTextInteractionFlags(
        Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
    )
    cancel = dialog.add_button(dialog.tr("Cancel"))
    copy = dialog.buttons.addButton(dialog.tr("Copy address"), QDialogButtonBox.ButtonRole.ActionRole)
    copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(address))
    copy.clicked.connect(dialog.reject)
    dialog.add_button(dialog.tr("Open"), primary=True)
    dialog.buttons.accepted.connect(lambda: QDesktopServices.openUrl(QUrl(address)))
    dialog.buttons.accepted.connect(dialog.accept)
    dialog.present()
    cancel.setDefault(True)
    cancel.setFocus()  # Enter does the harmless thing
    return dialog


def _broken(address: str) -> str:
    """A long address in lines that fit, so that all of it is seen."""
    return "\n".join(address[start : start + 64] for start in range(0, min(len(address), 1024), 64))


def show_keys(parent: QWidget) -> SmallDialog:
    """The keyboard, on one page."""
    dialog = SmallDialog(parent, parent.tr("Keyboard"))
    rows: Sequence[tuple[str, str]] = (
        ("Enter", parent.tr("send the message")),
        ("Shift+Enter", parent.tr("begin a new line")),
        ("Esc", parent.tr("stop the answer, or the loading")),
        ("Ctrl+N", parent.tr("new chat")),
        ("Ctrl+L", parent.tr("choose a model")),
        ("Ctrl+K", parent.tr("search all conversations")),
        ("F2", parent.tr("rename the conversation, in the list")),
        ("Ctrl+E", parent.tr("export the conversation")),
        ("Ctrl+Shift+C", parent.tr("copy the whole conversation")),
        ("Ctrl+Shift+Z", parent.tr("bring back a deleted conversation")),
        ("Ctrl+B", parent.tr("show or hide the conversations")),
        ("Ctrl+J", parent.tr("show or hide the panels")),
        ("Page Up, Page Down", parent.tr("scroll the conversation")),
        ("Tab", parent.tr("to the next control")),
        ("Ctrl+Q", parent.tr("quit")),
    )
    grid = QGridLayout()
    grid.setHorizontalSpacing(space(6))
    grid.setVerticalSpacing(space(2))
    for row, (keys, text) in enumerate(rows):
        key = QLabel(keys)
        key.setFont(font("mono"))
        does = QLabel(text)
        does.setProperty("role", "muted")
        grid.addWidget(key, row, 0)
        grid.addWidget(does, row, 1)
    dialog.column.addLayout(grid)
    dialog.add_button(dialog.tr("Close")).setDefault(True)
    dialog.present()
    return dialog


def show_about(parent: QWidget, engine: EngineReady | None) -> SmallDialog:
    """What this is, and what it runs on."""
    dialog = SmallDialog(parent, "Greenroom")
    dialog.add_text(
        dialog.tr(
            "Chat with Mixture-of-Experts models that are bigger than the graphics card. In a theatre, the green room "
            "is where performers wait until they are called: here the experts wait, and step on just in time."
        )
    )
    dialog.add_text(dialog.tr("Version %1, Apache License 2.0").replace("%1", version()), "small")
    if engine is not None:
        dialog.add_text(f"{engine.libraries}\n{engine.device}", "small")
    dialog.add_text(dialog.tr("Type: Inter and JetBrains Mono, SIL Open Font License 1.1"), "small")
    dialog.add_button(dialog.tr("Close")).setDefault(True)
    dialog.present()
    return dialog
