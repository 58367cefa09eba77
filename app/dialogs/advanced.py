"""How experts are kept, foreseen, fetched ahead and read, and what computes: a sentence for each choice, folded until
wanted. What only a graphics card makes a difference to is offered where there is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QSignalBlocker, Signal
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget

from app.choice import Choice
from app.panels.parts import label
from app.theme import space
from engine.messages import COMPUTE_ON_MISS, POLICIES, PRECISIONS, PREDICTORS, PREFETCH, READ_MODES, LoadModel

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
        self.dtype = _Option(theme, self.tr("Precision of computing"), PRECISIONS)
        self.device = _Option(theme, self.tr("What computes"), self._devices(()))
        self.compute_on_miss = _Option(theme, self.tr("Experts that are not on the card"), COMPUTE_ON_MISS)
        names = ("policy", "predictor", "prefetch", "reads", "dtype", "device", "compute_on_miss")
        self.options: dict[str, _Option] = {name: getattr(self, name) for name in names}
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
        self.set_cards(())
        self._show(False)

    def set_cards(self, cards: Sequence[str]) -> None:
        """cards: names of the graphics cards, in their order."""
        self.device.offer(self._devices(cards))
        for option in (self.device, self.compute_on_miss):
            option.setVisible(bool(cards))

    def _devices(self, cards: Sequence[str]) -> dict[str, str]:
        words = {
            "auto": self.tr("The first graphics card where there is one, else the processor."),
            "cpu": self.tr("The processor. Experts wait in RAM, and on disk what has no place there."),
        }
        one = self.tr("{card}. Experts that have no place in its memory wait in RAM, then on disk.")
        words |= {f"cuda:{number}": one.format(card=card) for number, card in enumerate(cards)}
        if len(cards) > 1:
            every = ",".join(f"cuda:{number}" for number in range(len(cards)))
            words[every] = self.tr("All cards: the experts are shared out among them.")
        return words

    def show_choice(self, command: LoadModel) -> None:
        """Show what ``command`` would take, without telling anybody."""
        for name, option in self.options.items():
            option.choose(getattr(command, name))

    def apply(self, command: LoadModel) -> LoadModel:
        """``command`` with what is chosen here."""
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

    def offer(self, words: Mapping[str, str]) -> None:
        """Other choices; what was chosen stays if it is among them."""
        before, self._words = self.chosen, dict(words)
        with QSignalBlocker(self.box):
            self.box.clear()
            self.box.addItems(list(self._words))
        self.choose(before)

    def choose(self, name: str) -> None:
        """Show this choice, or the first where it is not to be had, and tell nobody."""
        with QSignalBlocker(self.box):
            self.box.setCurrentIndex(max(0, self.box.findText(name)))
        self._say()

    def _say(self) -> None:
        self.sentence.setText(self._words[self.chosen])
        self.box.setAccessibleDescription(self._words[self.chosen])

    def _chosen(self) -> None:
        self._say()
        self.changed.emit()
