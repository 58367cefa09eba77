"""The first start: what this is, where to look, and one button that shows it at work. Seen once."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QGridLayout, QWidget

from app.messages import SmallDialog
from app.panels.parts import label
from app.theme import space


class Welcome(SmallDialog):
    """``demo_wanted``, ``picker_wanted``: what the user chose to begin with."""

    demo_wanted = Signal()
    picker_wanted = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, parent.tr("Welcome to Greenroom"))
        self.add_text(
            self.tr(
                "Models made of many experts are often bigger than the memory of this computer. Greenroom keeps those "
                "that are called close by, lets the others wait on the disk, and shows you both."
            ),
            "muted",
        ).setMinimumWidth(600)
        rows = QGridLayout()
        rows.setHorizontalSpacing(space(4))
        rows.setVerticalSpacing(space(2))
        rows.setColumnStretch(1, 1)
        for line, (where, what) in enumerate(
            (
                (self.tr("In the middle"), self.tr("you talk to the model; it runs here and sends nothing anywhere.")),
                (self.tr("On the right"), self.tr("the panels show who is called, who is there, and what that costs.")),
                (self.tr("Session > What if"), self.tr("replays a chat with more memory, or with other rules.")),
                (self.tr("F1"), self.tr("lists every key.")),
            )
        ):
            rows.addWidget(label(where, "title"), line, 0)
            rows.addWidget(label(what, "muted"), line, 1)
        self.column.addSpacing(space(1))
        self.column.addLayout(rows)
        self.column.addSpacing(space(1))
        self.add_text(
            self.tr(
                "The demo is a small model that is built once from a download of 93 MB. It is good for looking at "
                "experts, not for its answers."
            ),
            "small",
        )
        self.later = self.add_button(self.tr("Look around first"))
        self.picker = self.add_button(self.tr("Choose a model…"))
        self.demo = self.add_button(self.tr("Load the demo"), primary=True)
        self.demo.setDefault(True)
        self.picker.clicked.connect(self.picker_wanted)
        self.demo.clicked.connect(self.demo_wanted)
        self.buttons.accepted.connect(self.accept)
