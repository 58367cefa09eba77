"""How many of a layer's experts each predictor would have foreseen, some layers ahead."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtWidgets import QGridLayout, QWidget

from app.panels import format
from app.panels.parts import label
from app.theme import space
from engine.messages import PREDICTORS, WhatIfForesight

AHEAD = (1, 2, 3)  # layers


class ForesightTable(QWidget):
    """Nothing at all until there are rows."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows: tuple[tuple[str, ...], ...] = ()  # as shown: predictor, then a share for each distance
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(space(3))
        self._grid.setVerticalSpacing(space(1))
        self._grid.setColumnStretch(0, 1)

    def show_rows(self, rows: Sequence[WhatIfForesight]) -> None:
        """One line for each predictor; those that no log can say anything about are named at the end."""
        while (item := self._grid.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.deleteLater()
        names = dict.fromkeys(row.predictor for row in rows)
        recalls = {name: {row.distance: row.recall for row in rows if row.predictor == name} for name in names}
        known = [name for name in names if any(share is not None for share in recalls[name].values())]
        self.rows = tuple((name, *(format.percent(recalls[name].get(far)) for far in AHEAD)) for name in known)
        if not names:
            return
        head = (self.tr("Foreseen, layers ahead"), *map(str, AHEAD))
        for line, words in enumerate((head, *self.rows)):
            for column, text in enumerate(words):
                shown = label(text, "small", figures="small" if column else None)
                if line and not column:
                    shown.setToolTip(PREDICTORS.get(text, ""))
                self._grid.addWidget(shown, line, column)
        unknown = [name for name in names if name not in known]
        if unknown:
            reason = self.tr("{names}: they look into hidden states, which no log holds.")
            note = label(reason.format(names=", ".join(unknown)), "faint")
            note.setWordWrap(True)
            self._grid.addWidget(note, len(known) + 1, 0, 1, len(head))
