"""The bar above the columns: the program's name, the menus, and at the right which model is loaded."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt, Slot
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QMenuBar, QPushButton, QSizePolicy, QWidget

from app.model_state import ModelState
from app.panels import format
from app.theme import Theme, font, space
from engine.messages import CacheSnapshot

MOST_CHARACTERS = 36  # of a model's name; the tool tip has all of it


class ModelPill(QPushButton):
    """Says in a few words what the engine has loaded, with a mark whose shape says the same as its colour."""

    def __init__(self, theme: Theme, state: ModelState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme = theme
        self._state = state
        self._text = ""
        self._mark = "wait"  # "good", "wait", "none"
        self._slots: int | None = None  # what the experts have left; None: not told yet
        self.setProperty("kind", "pill")
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFont(font("body", size=13, tabular=True))
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        state.changed.connect(self.refresh)
        theme.changed.connect(self.update)
        self.refresh()

    @Slot()
    def refresh(self) -> None:
        state = self._state
        if state.model is None:
            self._slots = None
        if state.model is not None:
            model = state.model
            slots = model.slots if self._slots is None else self._slots
            here, all_ = slots * model.slot_bytes, model.total_experts * model.slot_bytes
            experts = self.tr("experts %1 of %2").replace("%1", format.size(here)).replace("%2", format.size(all_))
            if here >= all_:
                experts = self.tr("all experts on the device, %1").replace("%1", format.size(all_))
            text = f"{_short(model.name)}  ·  {experts}"
            self._mark = "good"
            tip = self.tr("%1: choose another model").replace("%1", model.name)
        elif state.problem:
            text, self._mark, tip = self.tr("No model"), "none", state.problem
        elif state.loading is not None:
            fraction = state.loading.fraction
            share = f" {100 * fraction:.0f}%" if fraction is not None else "…"
            text, self._mark, tip = self.tr("Loading") + share, "wait", state.loading.task
        else:
            text, self._mark, tip = self.tr("Starting…"), "wait", self.tr("The engine reads its libraries")
        self._text = text
        self.setToolTip(tip)
        self.setAccessibleName(self.tr("Model: %1").replace("%1", text))
        self.updateGeometry()
        self.update()

    @Slot(object)
    def show_slots(self, snapshot: CacheSnapshot) -> None:
        """A conversation that grows takes slots from the experts."""
        if self._state.model is not None and snapshot.slots != self._slots:
            self._slots = snapshot.slots
            self.refresh()

    def sizeHint(self) -> QSize:
        return QSize(self.fontMetrics().horizontalAdvance(self._text) + space(16), 30)

    def minimumSizeHint(self) -> QSize:
        return QSize(space(30), 30)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)  # the pill's outline, hover and focus
        colors = self.theme.colors
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        middle = self.height() / 2
        dot = QRectF(space(4), middle - 4, 8, 8)
        color = {"good": colors.accent, "wait": colors.warm, "none": colors.text_faint}[self._mark]
        painter.setPen(QColor(color))
        painter.setBrush(QColor(color) if self._mark == "good" else Qt.BrushStyle.NoBrush)
        if self._mark == "wait":
            painter.drawPie(dot, 90 * 16, 0)
            painter.drawEllipse(dot)
            painter.setBrush(QColor(color))
            painter.drawPie(dot, 90 * 16, -180 * 16)
        else:
            painter.drawEllipse(dot)
        painter.setPen(QColor(colors.text))
        words = QRectF(space(8), 0, self.width() - space(15), self.height())
        text = self.fontMetrics().elidedText(self._text, Qt.TextElideMode.ElideRight, int(words.width()) + 1)
        painter.drawText(words, Qt.AlignmentFlag.AlignVCenter, text)
        arrow = QRectF(self.width() - space(8), 0, space(5), self.height())
        painter.setPen(QColor(colors.text_muted))
        painter.drawText(arrow, Qt.AlignmentFlag.AlignCenter, "▾")
        painter.end()


class TopBar(QWidget):
    """Name, menus, pill."""

    def __init__(self, theme: Theme, state: ModelState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("topBar")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        name = QLabel("Greenroom", self)
        name.setProperty("role", "title")
        self.menus = QMenuBar(self)
        self.menus.setNativeMenuBar(False)
        self.menus.setSizePolicy(QSizePolicy.Policy.Minimum, QSizePolicy.Policy.Fixed)
        self.pill = ModelPill(theme, state, self)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(space(4), space(1.5), space(4), space(1.5))
        layout.setSpacing(space(3))
        layout.addWidget(name)
        layout.addWidget(self.menus)
        layout.addStretch(1)
        layout.addWidget(self.pill)
        theme.changed.connect(self._fit)
        self._fit()

    def _fit(self) -> None:
        """As high as the menus' letters want."""
        self.setFixedHeight(max(44, self.menus.sizeHint().height() + space(3)))
        self.menus.setMinimumWidth(self.menus.sizeHint().width())

    def resizeEvent(self, event: QResizeEvent) -> None:
        self.menus.setMinimumWidth(self.menus.sizeHint().width())  # the pill gives way, not the menus
        super().resizeEvent(event)


def _short(name: str) -> str:
    return name if len(name) <= MOST_CHARACTERS else name[: MOST_CHARACTERS - 1] + "…"
