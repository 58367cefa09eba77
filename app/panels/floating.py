"""A panel in a window of its own. Closed, it goes back to the column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app import geometry
from app.theme import space

if TYPE_CHECKING:
    from app.panels.parts import Panel


class PanelWindow(QWidget):
    """Holds ``panel`` until ``release``."""

    closed = Signal()

    def __init__(self, panel: Panel, over: QWidget) -> None:
        super().__init__(over.window(), Qt.WindowType.Tool)
        self.panel = panel
        self.setObjectName("panelWindow")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setWindowTitle(f"{panel.heading.name} – Greenroom")  # noqa: RUF001
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(space(4), space(3), space(4), space(4))
        self._column.addWidget(panel, 1000)  # what it cannot use is left below it
        self._column.addStretch(1)
        self.resize(max(420, panel.width() + space(8)), max(360, panel.height() + space(7)))

    def release(self) -> Panel:
        """Give the panel back; the window is over."""
        self._column.removeWidget(self.panel)
        self.panel.setParent(None)
        self.hide()
        self.deleteLater()
        return self.panel

    def place(self) -> str:
        """Size and place, for ``restore``."""
        return geometry.packed(self)

    def restore(self, place: str) -> None:
        geometry.restore(self, place)

    def closeEvent(self, event: QCloseEvent) -> None:
        event.ignore()
        self.closed.emit()
