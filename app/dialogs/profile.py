"""Session > What was learnt: the model's saved activation profile, to look at, export, import and clear."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QCoreApplication, Qt, Signal, Slot
from PySide6.QtWidgets import QDialog, QFileDialog, QGridLayout, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.messages import SmallDialog
from app.panels import format
from app.panels.parts import label
from app.theme import space
from engine.messages import Failed, ModelLoaded, ProfileFacts, UseProfile

if TYPE_CHECKING:
    from app.engine_client import EngineClient

AHEAD = 3  # layers, of the accuracy that is told


class ProfileDialog(QDialog):
    """``reload_wanted``: the model must be loaded again to use what was imported, or to forget what was cleared."""

    reload_wanted = Signal()

    def __init__(self, client: EngineClient, busy: Callable[[], bool], parent: QWidget) -> None:
        """busy: whether an answer is under way, which would save over an import."""
        super().__init__(parent)
        self._client, self._busy = client, busy
        self._model: ModelLoaded | None = None
        self.facts: ProfileFacts | None = None
        self.setWindowTitle(self.tr("What was learnt"))
        self.resize(560, 360)
        self.about = label(role="muted")
        self.about.setWordWrap(True)
        self.rows = QGridLayout()
        self.rows.setHorizontalSpacing(space(5))
        self.rows.setVerticalSpacing(space(1.5))
        self.rows.setColumnStretch(1, 1)
        self.message = label(role="muted")
        self.message.setWordWrap(True)
        self.export_button = QPushButton(self.tr("Export…"))
        self.import_button = QPushButton(self.tr("Import…"))
        self.clear_button = QPushButton(self.tr("Clear…"))
        self.close_button = QPushButton(self.tr("Close"))
        buttons = QHBoxLayout()
        buttons.setSpacing(space(2))
        for button in (self.export_button, self.import_button, self.clear_button):
            button.setAutoDefault(False)
            buttons.addWidget(button)
        buttons.addStretch(1)
        buttons.addWidget(self.close_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(space(6), space(5), space(6), space(5))
        column.setSpacing(space(3))
        column.addWidget(label(self.tr("What was learnt"), "heading"))
        column.addWidget(self.about)
        column.addLayout(self.rows)
        column.addWidget(self.message)
        column.addStretch(1)
        column.addLayout(buttons)
        self.export_button.clicked.connect(self._ask_export)
        self.import_button.clicked.connect(self._ask_import)
        self.clear_button.clicked.connect(self._ask_clear)
        self.close_button.clicked.connect(self.accept)
        client.profile_facts.connect(self._told)
        client.failed.connect(self._failed)

    def open_for(self, model: ModelLoaded | None) -> None:
        """Show it, and ask the engine what it knows of this model."""
        self._model, self.facts = model, None
        self.message.setText("")
        if model is None:
            self.about.setText(self.tr("Load a model to see what was learnt about its experts."))
            self._show()
        else:
            self.about.setText(
                self.tr(
                    "While {name} answers, Greenroom learns which experts are called together, and who comes next. The "
                    "next load has the likeliest of them in place before the first word."
                ).format(name=model.name)
            )
            self._ask(UseProfile(model.signature))
        self.open()
        self.close_button.setFocus()

    # ------------------------------------------------------------------------------------------------- asking

    def _ask(self, command: UseProfile) -> None:
        self.message.setText("")
        self._client.send(command)

    @Slot()
    def _ask_export(self) -> None:
        if self._model is None:
            return
        suggested = str(Path.home() / f"{self._model.name.replace('/', '-')} profile.npz")
        file, _ = QFileDialog.getSaveFileName(self, self.tr("Export what was learnt"), suggested, "*.npz")
        if file:
            self._ask(UseProfile(self._model.signature, "export", file))

    @Slot()
    def _ask_import(self) -> None:
        file, _ = QFileDialog.getOpenFileName(self, self.tr("Import what was learnt"), str(Path.home()), "*.npz")
        if file:
            self.change("import", file)

    @Slot()
    def _ask_clear(self) -> None:
        dialog = SmallDialog(self, self.tr("Forget what was learnt?"))
        dialog.add_text(self.tr("Everything learnt about this model goes for good, and the model is loaded again."))
        keep = dialog.add_button(self.tr("Keep it"))
        dialog.add_button(self.tr("Forget"), primary=True)
        dialog.buttons.accepted.connect(dialog.accept)
        dialog.accepted.connect(lambda: self.change("clear"))
        dialog.present()
        keep.setDefault(True)
        keep.setFocus()

    def change(self, deed: str, file: str = "") -> None:
        """Import or clear; not while an answer is under way, which would save over it."""
        if self._model is None:
            return
        if self._busy():
            self.message.setText(self.tr("An answer is under way, and will be learnt from. Do this when it is done."))
            return
        self._ask(UseProfile(self._model.signature, "import" if deed == "import" else "clear", file))

    # ------------------------------------------------------------------------------------------------- answers

    @Slot(object)
    def _told(self, facts: ProfileFacts) -> None:
        if self._model is None or facts.signature != self._model.signature:
            return
        self.facts = facts
        if facts.deed == "export":
            self.message.setText(self.tr("Exported."))
        elif facts.deed in ("import", "clear"):
            done = self.tr("Imported.") if facts.deed == "import" else self.tr("Forgotten.")
            self.message.setText(done + " " + self.tr("The model is loaded again."))
            self.reload_wanted.emit()
        self._show()

    @Slot(object)
    def _failed(self, event: Failed) -> None:
        if event.doing == "profile" and self._model is not None and event.request_id == self._model.signature:
            self.message.setText(event.text)
            self._show()

    def _show(self) -> None:
        while (item := self.rows.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.deleteLater()
        facts = self.facts
        there = facts is not None and facts.there
        self.export_button.setEnabled(there)
        self.clear_button.setEnabled(there)
        self.import_button.setEnabled(self._model is not None)
        if self._model is not None and not there and not self.message.text():
            self.message.setText(self.tr("Nothing was learnt about this model yet. It learns with every answer."))
        if facts is not None and there:
            for line, (name, value) in enumerate(lines(facts)):
                self.rows.addWidget(label(name, "muted"), line, 0, Qt.AlignmentFlag.AlignTop)
                shown = label(value)
                shown.setWordWrap(True)
                self.rows.addWidget(shown, line, 1)


def tr(text: str, **values: str) -> str:
    return QCoreApplication.translate("Profile", text).format(**values)


def lines(facts: ProfileFacts) -> list[tuple[str, str]]:
    """The profile in words: (what, how much)."""
    told = [(tr("Past answers kept"), format.count(facts.requests))]
    for name, tokens in facts.tokens:
        told.append((tr("{name}, fitted to", name=name), tr("{count} tokens", count=format.count(tokens))))
    for name, shares in facts.accuracy:
        known = ", ".join(format.percent(share) for share in shares[:AHEAD])
        far = ", ".join(str(layers) for layers in range(1, len(shares[:AHEAD]) + 1))
        how = tr("{shares} of a layer's experts, {far} layers ahead", shares=known, far=far)
        told.append((tr("{name}, foreseen", name=name), how))
    day = facts.saved.replace("T", ", ").removesuffix("Z")
    return [*told, (tr("Saved"), tr("{day} UTC, {size}", day=day, size=format.size(facts.bytes)))]
