"""The small dialogs, and the one that asks before a link is opened."""

from __future__ import annotations

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QLabel, QPushButton, QVBoxLayout, QWidget

from app.chat.harmless import harmless
from app.tab_order import go_on
from app.theme import font, space

LONGEST = 1024  # characters of an address that are shown


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

    def focusNextPrevChild(self, forward: bool) -> bool:
        return go_on((self,), forward)  # the box of buttons has its own idea of their order

    def present(self) -> None:
        self.column.addSpacing(space(2))
        self.column.addWidget(self.buttons)
        for widget in self.findChildren(QWidget):
            widget.ensurePolished()  # else sizes are those of letters that the style sheet has not set yet
        width = max(self.column.totalMinimumSize().width(), self.column.totalSizeHint().width())
        wraps = self.column.hasHeightForWidth()
        least = self.column.minimumHeightForWidth(width) if wraps else self.column.totalMinimumSize().height()
        best = self.column.totalHeightForWidth(width) if wraps else self.column.totalSizeHint().height()
        self.setMinimumSize(width, least)
        self.resize(width, min(best, round(0.9 * self.screen().availableGeometry().height())))
        self.open()


def ask_to_open(parent: QWidget, address: str) -> SmallDialog:
    """Show where a link leads, and open it only when told to."""
    dialog = SmallDialog(parent, parent.tr("Open this link?"))
    dialog.add_text(dialog.tr("The model wrote it; Greenroom cannot know what is there. Your browser will open:"))
    shown = dialog.add_text(_broken(dialog, address), "body")
    shown.setFont(font("mono"))
    shown.setTextInteractionFlags(
        Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
    )
    host = QUrl(address).host(QUrl.ComponentFormattingOption.FullyEncoded)
    if host:  # told apart: what stands before it may look like it, and so may letters of other scripts
        dialog.add_text(dialog.tr("It is on the server %1").replace("%1", host), "body")
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


def _broken(dialog: QDialog, address: str) -> str:
    """A long address in lines that fit; of one that would fill the screen its beginning, and how much more there is."""
    shown = harmless(address)
    lines = [shown[start : start + 64] for start in range(0, min(len(shown), LONGEST), 64)]
    more = len(shown) - LONGEST
    if more > 0:
        lines.append(dialog.tr("… and %1 more characters").replace("%1", f"{more:,}"))
    return "\n".join(lines)
