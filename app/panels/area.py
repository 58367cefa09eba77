"""What held a memory over the last minutes, one layer above the other in the order of the bar."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.panels.history import MEMORY_SECONDS
from engine.messages import MemoryBar, MemorySnapshot

if TYPE_CHECKING:
    from app.theme import Theme

KINDS = ("dense", "experts", "kv", "other")


class MemoryHistory(QWidget):
    """Draws one memory's past from ``past``, pairs of seconds and snapshot, now being the right edge."""

    def __init__(
        self,
        theme: Theme,
        past: Sequence[tuple[float, MemorySnapshot]],
        clock: Callable[[], float] = time.monotonic,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._theme = theme
        self._past = past
        self._clock = clock
        self._name = ""
        self.setFixedHeight(36)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)

    def show_memory(self, name: str) -> None:
        """Draw the memory of this name."""
        self._name = name
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(320, self.height())

    def layers(self, width: float, height: float) -> dict[str, list[tuple[float, float]]]:
        """Upper edge of each kind's layer: (x, y) in px from the upper left, steps, oldest first."""
        now = self._clock()
        edges: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
        for at, snapshot in self._past:
            bar = next((bar for bar in snapshot.bars if bar.name == self._name), None)
            if bar is None or bar.total <= 0:
                continue
            x = max(0.0, width * (1 - (now - at) / MEMORY_SECONDS))
            held = _held(bar)
            below = 0
            for kind in KINDS:
                below += held[kind]
                y = height * (1 - min(1.0, below / bar.total))
                line = edges[kind]
                if line and line[-1][1] != y:
                    line.append((x, line[-1][1]))  # it was like before until now
                line.append((x, y))
        for line in edges.values():
            if line:
                line.append((width, line[-1][1]))
        return edges

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        painter = QPainter(self)
        width, height = float(self.width()), float(self.height() - 1)
        painter.fillRect(QRectF(0, 0, width, height), QColor(colors.surface))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        edges = self.layers(width, height)
        for kind in reversed(KINDS):  # the highest layer first, each one below covers its own part
            line = [QPointF(x, y) for x, y in edges[kind]]
            if len(line) < 2:
                continue
            color = QColor(getattr(colors, kind))
            fill = QColor(color)
            fill.setAlpha(150)
            ground = [QPointF(line[-1].x(), height), QPointF(line[0].x(), height)]
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(colors.sidebar))
            painter.drawPolygon(QPolygonF(line + ground))
            painter.setBrush(fill)
            painter.drawPolygon(QPolygonF(line + ground))
            painter.setPen(QPen(color, 1))
            painter.drawPolyline(QPolygonF(line))
        painter.setPen(QPen(QColor(colors.border), 1))
        painter.drawLine(QPointF(0, height), QPointF(width, height))


def _held(bar: MemoryBar) -> dict[str, int]:
    held = dict.fromkeys(KINDS, 0)
    for part in bar.parts:
        held[part.kind] += part.bytes
    return held
