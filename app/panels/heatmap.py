"""The heatmap itself: layers x experts, painted from one lookup table into one image.

A frame is a few ``take``s of numpy and one ``drawImage``. It is built when Qt asks for a paint and something changed,
so a hidden heatmap costs nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QEvent, QPoint, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QAccessible,
    QAccessibleEvent,
    QColor,
    QFocusEvent,
    QHelpEvent,
    QImage,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.panels import cells, format, grid
from app.panels.canvas import Canvas
from app.panels.cells import Mode
from engine.messages import Cell, ExpertSnapshot, Fetched

if TYPE_CHECKING:
    from app.theme import Theme

TALLEST = 420  # logical px the heatmap asks for at most, unless it is wider than that
SHORTEST = 180  # the demo's 30 layers keep their marks: 6 px each
_STEPS = {
    Qt.Key.Key_Left: (0, -1),
    Qt.Key.Key_Right: (0, 1),
    Qt.Key.Key_Up: (-1, 0),
    Qt.Key.Key_Down: (1, 0),
}


class Heatmap(QWidget):
    """Shows the latest ``ExpertSnapshot`` in the chosen ``Mode``.

    ``frames`` counts the images built, for those who measure. Hovering tells about the cell; with the focus, arrow
    keys move a cursor over the cells and the accessible description follows it.
    """

    cursor_moved = Signal(str)  # the sentence about the cell under the cursor

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._shape: tuple[int, int] | None = None
        self._snapshot: ExpertSnapshot | None = None
        self._mode = Mode.TOKEN
        self._knows_where = True
        self.elsewhere = False  # answer and chat are not those on the screen
        self.encoder_layers = 0  # the first so many rows are an encoder's
        self.waiting = self.tr("on disk")  # where an expert is that is not on the device
        self._grid: grid.Grid | None = None
        self._canvas: Canvas | None = None
        self._stale = True
        self._cursor = (0, 0)
        self.frames = 0
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.setAccessibleName(self.tr("Expert heatmap"))
        theme.changed.connect(self._forget_layout)

    # ------------------------------------------------------------------------------------------ what to show

    @property
    def mode(self) -> Mode:
        return self._mode

    def set_mode(self, mode: Mode) -> None:
        self._mode = mode
        self._refresh()

    def set_shape(self, layers: int, experts: int) -> None:
        """A new model: every expert unused and waiting until the first snapshot."""
        self._shape = (layers, experts) if layers and experts else None
        self._snapshot = None
        self._cursor = (0, 0)
        self._forget_layout()
        self._fit_height()

    def show_snapshot(self, snapshot: ExpertSnapshot, knows_where: bool = True) -> None:
        """Keep ``snapshot`` and paint it when visible. One of another model's shape changes the shape.

        knows_where: it says who is on the device; one read back from a log does not.
        """
        self._knows_where = knows_where
        if snapshot.cells.shape != self._shape:
            self.set_shape(*snapshot.cells.shape)
        self._snapshot = snapshot
        self._refresh()

    def states(self) -> np.ndarray:
        """States ``[layers, experts]`` as painted (see ``cells``)."""
        if self._snapshot is not None:
            return cells.states(self._snapshot, self._mode)
        return np.zeros(self._shape or (0, 0), np.uint16)

    def _refresh(self) -> None:
        self._stale = True
        self.update()

    # ------------------------------------------------------------------------------------------ layout

    def placement(self) -> grid.Grid | None:
        """Where the cells lie at the present size, in device pixels."""
        if self._grid is None and self._shape is not None and self.width() > 0:
            ratio = self.devicePixelRatioF()
            layers, experts = self._shape
            width, height = (int(length * ratio) for length in (self.width(), self.height()))
            self._grid = grid.fit(layers, experts, width, height, ratio)
        return self._grid

    def _forget_layout(self) -> None:
        self._grid = self._canvas = None
        self._refresh()

    def _fit_height(self) -> None:
        self.setMaximumHeight(self._height_at(TALLEST) if self._shape else TALLEST)
        self.updateGeometry()

    def _height_at(self, limit: int) -> int:
        assert self._shape is not None
        ratio = self.devicePixelRatioF()
        width = self.width() if self.testAttribute(Qt.WidgetAttribute.WA_Resized) else 320
        limit = max(limit, width) if limit == TALLEST else limit
        placed = grid.fit(*self._shape, int(width * ratio), int(limit * ratio), ratio)
        return -int(-placed.height // ratio)

    def sizeHint(self) -> QSize:
        return QSize(320, self._height_at(TALLEST) if self._shape else SHORTEST)

    def minimumSizeHint(self) -> QSize:
        lowest = max(SHORTEST, self._height_at(SHORTEST)) if self._shape else SHORTEST
        return QSize(160, min(lowest, self.sizeHint().height()))

    def used_height(self) -> int:
        """Logical pixels from the top that the cells take at the present size."""
        placed = self.placement()
        return -int(-placed.height // self.devicePixelRatioF()) if placed else self.height()

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._forget_layout()
        if event.size().width() != event.oldSize().width():
            self._fit_height()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.LanguageChange:
            self.setAccessibleName(self.tr("Expert heatmap"))

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.DevicePixelRatioChange:
            self._forget_layout()
            self._fit_height()
        elif event.type() == QEvent.Type.ToolTip:
            assert isinstance(event, QHelpEvent)
            self._show_tool_tip(event.pos(), event.globalPos())
            return True
        return super().event(event)

    # ------------------------------------------------------------------------------------------ painting

    def _build(self, placed: grid.Grid) -> None:
        """Fill the pixel buffer: of every cell the first row of its picture, then of every cell the second, .."""
        if self._canvas is None:
            self._canvas = Canvas(placed, self.devicePixelRatioF(), self._theme.colors)
        self._canvas.paint(self.states())
        self._stale = False
        self.frames += 1

    def image(self) -> QImage | None:
        """The present frame, built anew only if something changed. It shares its pixels with this widget."""
        placed = self.placement()
        if placed is None:
            return None
        if self._stale:
            self._build(placed)
        assert self._canvas is not None
        result = self._canvas.image()
        result.setDevicePixelRatio(self.devicePixelRatioF())
        return result

    def paintEvent(self, event: QPaintEvent) -> None:
        image = self.image()
        painter = QPainter(self)
        ground = QColor(self._theme.colors.sidebar)
        if image is None:
            painter.fillRect(self.rect(), ground)
            return
        # the widget paints all of itself, so that nobody clears it first
        wide, high = (math.floor(length / image.devicePixelRatio()) for length in (image.width(), image.height()))
        painter.fillRect(QRectF(wide, 0, self.width() - wide, self.height()), ground)
        painter.fillRect(QRectF(0, high, self.width(), self.height() - high), ground)
        painter.drawImage(0, 0, image)
        if self.encoder_layers:
            edge = self._rectangle(self.encoder_layers, 0).top() - 1
            painter.setPen(QPen(QColor(self._theme.colors.text_muted), 1))
            painter.drawLine(0, edge, wide, edge)
        if self.hasFocus():
            colors = self._theme.colors
            for grown, color in ((2.0, colors.sidebar), (1.0, colors.warm)):
                painter.setPen(QPen(QColor(color), 2 if grown == 2.0 else 1.5))
                painter.drawRect(QRectF(self._rectangle(*self._cursor)).adjusted(-grown, -grown, grown, grown))

    def _rectangle(self, layer: int, expert: int) -> QRect:
        placed = self.placement()
        assert placed is not None
        ratio = self.devicePixelRatioF()
        x, y, width, height = (round(length / ratio) for length in placed.rectangle(layer, expert))
        return QRect(x, y, max(1, width), max(1, height))

    # ------------------------------------------------------------------------------------------ words

    def cell_at(self, point: QPoint) -> tuple[int, int] | None:
        """(layer, expert) under a point of this widget."""
        placed = self.placement()
        ratio = self.devicePixelRatioF()
        return placed.cell_at(point.x() * ratio, point.y() * ratio) if placed else None

    def describe(self, layer: int, expert: int) -> str:
        """One sentence about one expert, for the tooltip and for screen readers."""
        place = self.tr("Layer {layer}, expert {expert}").format(layer=layer, expert=expert)
        if self.encoder_layers:
            half = self.tr("encoder") if layer < self.encoder_layers else self.tr("decoder")
            place = self.tr("{place} ({half})").format(place=place, half=half)
        if self._snapshot is None:
            return place
        cell = int(self._snapshot.cells[layer, expert])
        uses = int(cells.counts(self._snapshot, self._mode)[layer, expert])
        pieces = [self._uses(uses)]
        if self._mode is Mode.TOKEN:
            pieces.insert(0, self._happened(cell))
        if self._knows_where:
            waits = self.tr("waiting {where}").format(where=self.waiting)
            pieces.append(self.tr("on the device") if cell & Cell.RESIDENT else waits)
        if self._snapshot.fetched is not None:
            pieces.append(self._last_fetch(Fetched(int(self._snapshot.fetched[layer, expert]))))
        return f"{place}: {', '.join(filter(None, pieces))}"

    def _last_fetch(self, last: Fetched) -> str:
        return {
            Fetched.NEVER: "",
            Fetched.DEMAND: self.tr("last fetched on demand"),
            Fetched.IN_TIME: self.tr("last fetched ahead, in time"),
            Fetched.LATE: self.tr("last fetched ahead, too late"),
            Fetched.WASTED: self.tr("last fetched ahead, for nothing"),
        }[last]

    def _uses(self, uses: int) -> str:
        there = self.elsewhere and self._knows_where  # a replayed answer is on the screen
        answer = self.tr("in the other chat's answer") if there else self.tr("in this answer")
        span = {
            Mode.TOKEN: answer,
            Mode.ANSWER: answer,
            Mode.CHAT: self.tr("in the other chat") if there else self.tr("in this chat"),
            Mode.TOTAL: self.tr("since the model was loaded"),
        }[self._mode]
        if uses == 0:
            return self.tr("not used {span}").format(span=span)
        if uses == 1:
            return self.tr("used once {span}").format(span=span)
        return self.tr("used {count} times {span}").format(count=format.count(uses), span=span)

    def _happened(self, cell: int) -> str:
        words = self._choice(cell)
        if not cell & Cell.PREDICTED:
            return words
        return self.tr("{words}, expected next").format(words=words) if words else self.tr("expected next")

    def _choice(self, cell: int) -> str:
        if cell & Cell.MISS:
            return self.tr("chosen now and fetched")
        if cell & Cell.LATE:
            return self.tr("chosen now while it was being fetched ahead")
        if cell & Cell.PREFETCHED:
            return self.tr("chosen now and fetched ahead in time")
        if cell & (Cell.ROUTED | Cell.HIT):
            return self.tr("chosen now and already there")
        return self.tr("fetched ahead and not used") if cell & Cell.WASTED else ""

    def _show_tool_tip(self, at: QPoint, on_screen: QPoint) -> None:
        found = self.cell_at(at)
        if found is None:
            QToolTip.hideText()
        else:
            QToolTip.showText(on_screen, self.describe(*found), self, self._rectangle(*found))

    # ------------------------------------------------------------------------------------------ keyboard

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if self._shape is None:
            event.ignore()
            return
        layers, experts = self._shape
        layer, expert = self._cursor
        step = _STEPS.get(Qt.Key(event.key()))
        if step is not None:
            layer, expert = layer + step[0], expert + step[1]
        elif event.key() == Qt.Key.Key_Home:
            expert = 0
        elif event.key() == Qt.Key.Key_End:
            expert = experts - 1
        else:
            event.ignore()
            return
        self._cursor = (min(max(layer, 0), layers - 1), min(max(expert, 0), experts - 1))
        self._tell_cursor(pop_up=True)
        self.update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        found = self.cell_at(event.position().toPoint())
        if found is not None:
            self._cursor = found
            self._tell_cursor(pop_up=False)
            self.update()
        super().mousePressEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._show_tool_tip(event.position().toPoint(), event.globalPosition().toPoint())
        super().mouseMoveEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self._tell_cursor(pop_up=False)

    def _tell_cursor(self, pop_up: bool) -> None:
        if self._shape is None:
            return
        sentence = self.describe(*self._cursor)
        self.setAccessibleDescription(sentence)
        QAccessible.updateAccessibility(QAccessibleEvent(self, QAccessible.Event.DescriptionChanged))
        self.cursor_moved.emit(sentence)
        if pop_up:
            area = self._rectangle(*self._cursor)
            QToolTip.showText(self.mapToGlobal(area.bottomRight()), sentence, self, area)
