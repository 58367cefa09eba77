"""The right column: experts, cache and memory, one above the other."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QScrollArea, QVBoxLayout, QWidget

from app.panels.cache import CachePanel
from app.panels.experts import ExpertsPanel
from app.panels.memory import MemoryPanel
from app.theme import Theme, space
from engine.messages import ModelLoaded


class PanelsColumn(QScrollArea):
    """Scrolls when the window is low; a hidden column costs nothing, the panels see to that themselves."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("panels")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.experts = ExpertsPanel(theme)
        self.cache = CachePanel(theme)
        self.memory = MemoryPanel(theme)
        inside = QWidget()
        inside.setObjectName("panelsInside")
        column = QVBoxLayout(inside)
        column.setContentsMargins(space(4), space(4), space(4), space(4))
        column.setSpacing(space(6))
        for panel in (self.experts, self.cache, self.memory):
            column.addWidget(panel)
        column.addStretch(1)
        self.setWidget(inside)

    def set_model(self, model: ModelLoaded | None) -> None:
        """The model the panels are about; None: none."""
        self.experts.set_model(model)
        self.cache.set_model(model)
