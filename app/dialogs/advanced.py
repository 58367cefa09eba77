"""How experts are kept, foreseen, fetched ahead and read: four choices, one sentence each, folded until wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QSignalBlocker, Signal
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget

from app.panels.parts import label
from app.side_sheet import Choice
from app.theme import space
from engine.messages import POLICIES, PREDICTORS, PREFETCH, READ_MODES, LoadModel

if TYPE_CHECKING:
    from app.theme import Theme


class Advanced(QWidget):
    """Emits ``changed`` when the user chose something."""

    changed = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.fold = QPushButton()
        self.fold.setProperty("kind", "fold")
        self.fold.setCheckable(True)
        self.fold.setAutoDefault(False)
        self.fold.toggled.connect(self._show)
        self.policy = _Option(theme, self.tr("Who leaves when a slot is needed"), POLICIES)
        self.predictor = _Option(theme, self.tr("Who is expected next"), PREDICTORS)
        self.prefetch = _Option(theme, self.tr("Fetching ahead"), PREFETCH)
        self.reads = _Option(theme, self.tr("Reading from disk"), READ_MODES)
        self.options = {name: getattr(self, name) for name in ("policy", "predictor", "prefetch", "reads")}
        self._inside = QWidget()
        column = QVBoxLayout(self._inside)
        column.setContentsMargins(0, space(1), 0, 0)
        column.setSpacing(space(3))
        for option in self.options.values():
            column.addWidget(option)
            option.changed.connect(self.changed)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(space(1))
        whole.addWidget(self.fold)
        whole.addWidget(self._inside)
        self._show(False)

    def show_choice(self, command: LoadModel) -> None:
        """Show what ``command`` would take, without telling anybody."""
        for name, option in self.options.items():
            option.choose(getattr(command, name))

    def apply(self, command: LoadModel) -> LoadModel:
        """``command`` with the four choices."""
        chosen: dict[str, Any] = {name: option.chosen for name, option in self.options.items()}
        return replace(command, **chosen)

    def _show(self, open_: bool) -> None:
        self._inside.setVisible(open_)
        self.fold.setText(("▾ " if open_ else "▸ ") + self.tr("Advanced"))
        self.fold.setAccessibleName(self.tr("Advanced, open") if open_ else self.tr("Advanced, closed"))


class _Option(QWidget):
    changed = Signal()

    def __init__(self, theme: Theme, title: str, words: Mapping[Any, str]) -> None:
        super().__init__()
        self._words = dict(words)
        self.box = Choice(theme)
        self.box.addItems(list(self._words))
        self.box.setAccessibleName(title)
        self.sentence = label(role="small")
        self.sentence.setWordWrap(True)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(space(1))
        column.addWidget(label(title))
        column.addWidget(self.box)
        column.addWidget(self.sentence)
        self.box.currentTextChanged.connect(self._chosen)
        self._chosen()

    @property
    def chosen(self) -> str:
        return self.box.currentText()

    def choose(self, name: str) -> None:
        with QSignalBlocker(self.box):
            self.box.setCurrentText(name)
        self.sentence.setText(self._words[self.chosen])

    def _chosen(self) -> None:
        self.sentence.setText(self._words[self.chosen])
        self.box.setAccessibleDescription(self._words[self.chosen])
        self.changed.emit()
