"""A switch of a few words of which one is chosen. One tab stop; arrow keys choose, as among radio buttons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QFrame, QHBoxLayout, QPushButton, QWidget

from app.theme import font

if TYPE_CHECKING:
    from app.theme import Theme


class SegmentedSwitch(QFrame):
    """Emits ``chosen(index)`` when the user or ``choose`` changes the choice."""

    chosen = Signal(int)

    def __init__(self, theme: Theme, words: Sequence[str], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._group = QButtonGroup(self)
        self._group.setExclusive(True)
        row = QHBoxLayout(self)
        row.setContentsMargins(2, 2, 2, 2)
        row.setSpacing(2)
        for index, word in enumerate(words):
            button = QPushButton(word)
            button.setCheckable(True)
            button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
            button.setCursor(Qt.CursorShape.PointingHandCursor)
            button.setAutoDefault(False)
            self._group.addButton(button, index)
            row.addWidget(button, 1)
        self._group.button(0).setChecked(True)
        self._group.idToggled.connect(self._toggled)
        theme.changed.connect(self._dress)
        self._dress()

    @property
    def index(self) -> int:
        return self._group.checkedId()

    def choose(self, index: int) -> None:
        self._group.button(index).setChecked(True)

    def buttons(self) -> list[QPushButton]:
        return [button for button in self._group.buttons() if isinstance(button, QPushButton)]

    def _toggled(self, index: int, on: bool) -> None:
        if on:
            self.chosen.emit(index)

    def _dress(self) -> None:
        colors = self._theme.colors
        self.setStyleSheet(
            f"SegmentedSwitch {{ border: 1px solid {colors.border}; border-radius: 8px; background: transparent; }}"
            f"QPushButton {{ border: 1px solid transparent; border-radius: 6px; padding: 3px 4px; min-height: 16px;"
            f" font-size: {font('small').pixelSize()}px; color: {colors.text_muted}; background: transparent; }}"
            f"QPushButton:hover {{ color: {colors.text}; }}"
            f"QPushButton:disabled {{ color: {colors.text_faint}; }}"
            f"QPushButton:checked {{ background: {colors.border}; color: {colors.text}; font-weight: 600; }}"
            f"QPushButton:focus {{ border: 1px solid {colors.accent}; }}"
        )
