"""Hit rate over memory for experts, one line for each policy: told apart by colour, dash and mark, and by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFocusEvent,
    QFontMetricsF,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QPolygonF,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.dialogs.what_if_figures import BELADY, Setting, point_at
from app.panels import format
from app.theme import font, space
from engine.messages import POLICIES, WhatIfLine

if TYPE_CHECKING:
    from app.colors import Colors
    from app.theme import Theme

LABELS = 148  # px on the right, for the lines' names
LABEL_STEP = 19  # px between two names
SAMPLE = 24  # px of line before a name

BLUE, VIOLET = ("#2b62b0", "#86b6f2"), ("#74489f", "#c9a6f0")  # in light, in dark: two more than the theme's accents

# name -> colour (the theme's name for it, or a pair), dash in pen widths (none: solid), mark
STYLES: dict[str, tuple[str | tuple[str, str], tuple[float, ...], str]] = {
    "next-use": ("accent", (), "circle"),
    "lfu-aged": ("warm", (6, 3), "square"),
    "eam": ("danger", (6, 2, 1, 2), "diamond"),
    "lru": ("text_muted", (), "cross"),
    "lfu": (BLUE, (2, 2), "triangle"),
    "least-stale": (VIOLET, (3, 2), "plus"),
    BELADY: ("text", (4, 4), ""),
}
SPARE = (  # for policies that were added and have no style of their own, in the order of the registry
    (("#0f7a70", "#6fd3c7"), (8, 3), "triangle"),
    (("#8a5a00", "#e0b566"), (1, 3), "square"),
    (("#a03c7a", "#f09acb"), (5, 2, 5, 6), "diamond"),
    (("#4d6b1f", "#b2d67a"), (10, 4), "plus"),
)


def style_of(policy: str) -> tuple[str | tuple[str, str], tuple[float, ...], str]:
    """How its line is drawn: its own style, or the spare one of its place among those that have none."""
    if policy in STYLES:
        return STYLES[policy]
    added = [name for name in POLICIES if name not in STYLES]
    return SPARE[added.index(policy) % len(SPARE) if policy in added else 0]


class WhatIfChart(QWidget):
    """``picked(policy, place)`` when a point is clicked, or chosen with Enter. Arrow keys move through the sizes."""

    picked = Signal(str, int)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.lines: tuple[WhatIfLine, ...] = ()
        self._present: Setting | None = None
        self._place: int | None = None  # which size the pointer or the keys are at
        self._chosen: tuple[str, int] | None = None
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(440, 300)
        self.setAccessibleName(self.tr("Hit rate over memory for experts"))
        theme.changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(680, 420)

    def show_lines(self, lines: Sequence[WhatIfLine], present: Setting) -> None:
        """Draw these. present: marked with a line down, and its policy's line is the thick one."""
        self.lines, self._present = tuple(lines), present
        if self._place is not None and self._place >= self._places():
            self._place = None
        self.setAccessibleDescription(self.describe())
        self.update()

    def choose(self, policy: str, place: int) -> None:
        """Put a ring around a point."""
        self._chosen = policy, place
        self.update()

    def describe(self) -> str:
        """The picture in words, for those who do not see it."""
        present = self._present
        if present is None:
            return ""
        told = []
        for line in self.lines:
            point = point_at(line, present.slots)
            told += [f"{self.name_of(line.policy)} {format.percent(point.hit_rate)}"] if point else []
        return self.tr("At the present size: {rates}").format(rates=", ".join(told)) if told else ""

    def name_of(self, policy: str) -> str:
        return self.tr("best possible (Belady)") if policy == BELADY else policy

    # ------------------------------------------------------------------------------------------- geometry

    def _places(self) -> int:
        return len(self.lines[0].points) if self.lines else 0

    def _box(self) -> QRectF:
        return QRectF(self.rect()).adjusted(space(13), space(7), -LABELS, -space(10))

    def _x(self, slots: int) -> float:
        box = self._box()
        return box.left() + box.width() * slots / max(1, self._present.total if self._present else 1)

    def _y(self, share: float) -> float:
        box = self._box()
        return box.bottom() - box.height() * share

    def point(self, policy: str, place: int) -> QPointF | None:
        """Where a figure is drawn, in this widget's pixels."""
        line = next((line for line in self.lines if line.policy == policy), None)
        if line is None or place >= len(line.points) or line.points[place].hit_rate is None:
            return None
        found = line.points[place]
        return QPointF(self._x(found.slots), self._y(found.hit_rate or 0.0))

    # --------------------------------------------------------------------------------------------- input

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._go_to(self._nearest(event.position().x()))

    def leaveEvent(self, event: QEvent) -> None:
        self._go_to(None)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        place = self._nearest(event.position().x())
        if place is None or event.button() != Qt.MouseButton.LeftButton:
            return
        drawn = [(line.policy, self.point(line.policy, place)) for line in self.lines if line.policy != BELADY]
        near = [(abs(at.y() - event.position().y()), policy) for policy, at in drawn if at is not None]
        if near:
            self.picked.emit(min(near)[1], place)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}.get(Qt.Key(event.key()))
        if step is None or not self._places():
            super().keyPressEvent(event)
            return
        here = self._place if self._place is not None else self._present_place()
        self._go_to(min(max(here + step, 0), self._places() - 1))

    def _present_place(self) -> int:
        slots = [point.slots for point in self.lines[0].points]
        return slots.index(self._present.slots) if self._present and self._present.slots in slots else 0

    def _nearest(self, x: float) -> int | None:
        if not self.lines:
            return None
        points = self.lines[0].points
        return min(range(len(points)), key=lambda place: abs(self._x(points[place].slots) - x))

    def _go_to(self, place: int | None) -> None:
        if place != self._place:
            self._place = place
            self.update()

    def readout(self) -> list[tuple[str, str, str]]:
        """(policy, hit rate, bytes per token) where the pointer is, the most hits first."""
        if self._place is None:
            return []
        found = [(line.policy, line.points[self._place]) for line in self.lines]
        found.sort(key=lambda pair: -(pair[1].hit_rate or 0.0))
        return [(policy, _share(point.hit_rate), format.size(point.bytes_per_token)) for policy, point in found]

    # ------------------------------------------------------------------------------------------- painting

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(font("small", tabular=True))
        colors = self._theme.colors
        self._paint_axes(painter, colors)
        if self._present is not None:
            self._paint_present(painter, colors)
        for line in self.lines:
            self._paint_line(painter, colors, line)
        self._paint_names(painter, colors)
        if self._chosen is not None and (at := self.point(*self._chosen)) is not None:
            painter.setPen(QPen(QColor(colors.text), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawEllipse(at, 7, 7)
        if self._place is not None and self.lines:
            self._paint_readout(painter, colors)
        if self.hasFocus():
            painter.setPen(QPen(QColor(colors.accent), 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 8, 8)

    def _paint_axes(self, painter: QPainter, colors: Colors) -> None:
        box = self._box()
        for quarter in range(5):
            y = round(self._y(quarter / 4)) + 0.5
            painter.setPen(QPen(QColor(colors.border), 1))
            painter.drawLine(QPointF(box.left(), y), QPointF(box.right(), y))
            painter.setPen(QColor(colors.text_muted))
            where = QRectF(0, y - 10, box.left() - space(2), 20)
            painter.drawText(where, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, f"{25 * quarter}%")
        if self._present is None:
            return
        total = self._present.total
        for quarter in range(5):
            slots = round(total * quarter / 4)
            where = QRectF(self._x(slots) - 50, box.bottom() + space(1.5), 100, 18)
            text = format.size(slots * self._present.slot_bytes) if quarter else "0"
            painter.drawText(where, Qt.AlignmentFlag.AlignCenter, text)

    def _paint_present(self, painter: QPainter, colors: Colors) -> None:
        assert self._present is not None
        box, x = self._box(), self._x(self._present.slots)
        painter.setPen(QPen(QColor(colors.accent), 1.4, Qt.PenStyle.DotLine))
        painter.drawLine(QPointF(x, box.top() - space(2)), QPointF(x, box.bottom()))
        text = self.tr("now, {size}").format(size=format.size(self._present.slots * self._present.slot_bytes))
        width = QFontMetricsF(painter.font()).horizontalAdvance(text) + 4
        left = min(x + space(1), box.right() - width)
        painter.setPen(QColor(colors.accent))
        where = QRectF(left, 0, width, box.top() - 2)
        painter.drawText(where, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, text)

    def _paint_line(self, painter: QPainter, colors: Colors, line: WhatIfLine) -> None:
        places = [self.point(line.policy, place) for place in range(len(line.points))]
        points = [point for point in places if point is not None]
        pen, mark = self._pen(colors, line.policy)
        painter.setPen(pen)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawPolyline(QPolygonF(points))
        for point in points:
            _paint_mark(painter, point, mark, pen.color())

    def _pen(self, colors: Colors, policy: str) -> tuple[QPen, str]:
        named, dash, mark = style_of(policy)
        color = named[self._theme.is_dark] if isinstance(named, tuple) else getattr(colors, named)
        width = 2.6 if self._present is not None and policy == self._present.policy else 1.5
        pen = QPen(QColor(color), width)
        pen.setCapStyle(Qt.PenCapStyle.FlatCap if dash else Qt.PenCapStyle.RoundCap)
        if dash:
            pen.setDashPattern(dash)
        return pen, mark

    def _paint_names(self, painter: QPainter, colors: Colors) -> None:
        """Beside the lines' ends, moved apart where they would lie on each other."""
        ends: list[tuple[float, float, str]] = []
        for line in self.lines:
            last = self.point(line.policy, len(line.points) - 1)
            middle = self.point(line.policy, len(line.points) // 2)
            if last is not None and middle is not None:
                ends.append((round(last.y()), middle.y(), line.policy))
        left, y = self._box().right() + space(3), -1e9
        for end, _, policy in sorted(ends):
            y = max(end, y + LABEL_STEP)
            pen, mark = self._pen(colors, policy)
            painter.setPen(pen)
            painter.drawLine(QPointF(left, y), QPointF(left + SAMPLE, y))
            _paint_mark(painter, QPointF(left + SAMPLE / 2, y), mark, pen.color())
            painter.setPen(QColor(colors.text))
            name = self.tr("best possible") if policy == BELADY else policy
            if self._present is not None and policy == self._present.policy:
                name = self.tr("{policy}, now").format(policy=policy)
            where = QRectF(left + SAMPLE + space(1.5), y - 10, LABELS - SAMPLE - space(4.5), 20)
            painter.drawText(where, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, name)

    def _paint_readout(self, painter: QPainter, colors: Colors) -> None:
        assert self._place is not None and self._present is not None
        slots = self.lines[0].points[self._place].slots
        box, x = self._box(), self._x(slots)
        painter.setPen(QPen(QColor(colors.text_faint), 1))
        painter.drawLine(QPointF(x, box.top()), QPointF(x, box.bottom()))
        rows = self.readout()
        width, step = 268.0, 18.0
        height = step * (len(rows) + 1) + space(4)
        left = x + space(3) if x + space(3) + width <= self.width() else x - space(3) - width
        card = QRectF(max(0.0, left), max(0.0, box.bottom() - height - space(2)), width, height)
        painter.setPen(QPen(QColor(colors.border), 1))
        painter.setBrush(QColor(colors.surface_raised))
        painter.drawRoundedRect(card, 8, 8)
        vertical = Qt.AlignmentFlag.AlignVCenter
        row = QRectF(card.left() + space(3), card.top() + space(2), card.width() - space(6), step)
        painter.setPen(QColor(colors.text))
        size = format.size(slots * self._present.slot_bytes)
        title = self.tr("{size}, {slots} of {total} experts").format(
            size=size, slots=format.count(slots), total=format.count(self._present.total)
        )
        painter.drawText(row, vertical | Qt.AlignmentFlag.AlignLeft, title)
        for policy, rate, fetched in rows:
            row.translate(0, step)
            pen, mark = self._pen(colors, policy)
            painter.setPen(pen)
            y = row.center().y()
            painter.drawLine(QPointF(row.left(), y), QPointF(row.left() + SAMPLE, y))
            _paint_mark(painter, QPointF(row.left() + SAMPLE / 2, y), mark, pen.color())
            painter.setPen(QColor(colors.text))
            name = self.tr("best possible") if policy == BELADY else policy
            painter.drawText(row.adjusted(SAMPLE + space(2), 0, 0, 0), vertical | Qt.AlignmentFlag.AlignLeft, name)
            painter.drawText(row.adjusted(0, 0, -space(16), 0), vertical | Qt.AlignmentFlag.AlignRight, rate)
            painter.setPen(QColor(colors.text_muted))
            painter.drawText(row, vertical | Qt.AlignmentFlag.AlignRight, fetched)


def _share(rate: float | None) -> str:
    return format.NOTHING if rate is None else f"{100 * rate:.1f}%"


def _paint_mark(painter: QPainter, at: QPointF, mark: str, color: QColor) -> None:
    x, y, r = at.x(), at.y(), 3.4
    painter.save()
    painter.setPen(QPen(color, 1.6) if mark in ("cross", "plus") else Qt.PenStyle.NoPen)
    painter.setBrush(color)
    if mark == "circle":
        painter.drawEllipse(at, r, r)
    elif mark == "square":
        painter.drawRect(QRectF(x - 3, y - 3, 6, 6))
    elif mark == "diamond":
        painter.drawPolygon(
            QPolygonF([QPointF(x, y - 4.4), QPointF(x + 4.4, y), QPointF(x, y + 4.4), QPointF(x - 4.4, y)])
        )
    elif mark == "triangle":
        painter.drawPolygon(QPolygonF([QPointF(x, y - 4.2), QPointF(x + 4, y + 3.2), QPointF(x - 4, y + 3.2)]))
    elif mark == "cross":
        painter.drawLine(QPointF(x - r, y - r), QPointF(x + r, y + r))
        painter.drawLine(QPointF(x - r, y + r), QPointF(x + r, y - r))
    elif mark == "plus":
        painter.drawLine(QPointF(x - r - 0.6, y), QPointF(x + r + 0.6, y))
        painter.drawLine(QPointF(x, y - r - 0.6), QPointF(x, y + r + 0.6))
    painter.restore()
