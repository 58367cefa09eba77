"""A memory plan as bars: what would hold how much of VRAM, RAM, and what would be read from disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.panels import bars, format
from app.panels.bars import Segment, SegmentedBar
from app.panels.legend import Entry, Legend
from app.panels.parts import label, pair
from app.theme import space
from engine.messages import MemoryBar, MemoryPlanned

if TYPE_CHECKING:
    from app.theme import Theme


class PlanBars(QWidget):
    """Shows the latest plan. Rows are kept, so that only lengths and figures change while a slider moves."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.rows: list[PlanRow] = []
        self.legend = Legend(theme)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(space(2))
        self._column.addWidget(self.legend)

    def show_plan(self, plan: MemoryPlanned | None) -> None:
        """Show a plan, or nothing."""
        shown = plan.bars if plan else ()
        while len(self.rows) < len(shown):
            row = PlanRow(self._theme)
            self._column.insertWidget(len(self.rows), row)
            self.rows.append(row)
        while len(self.rows) > len(shown):
            gone = self.rows.pop()
            self._column.removeWidget(gone)
            gone.deleteLater()
        for row, bar in zip(self.rows, shown, strict=True):
            row.show_bar(bar)
        entries = self._entries(plan) if plan else []
        if self.legend.texts != tuple(entry.text for entry in entries):
            self.legend.set_entries(entries)

    def _entries(self, plan: MemoryPlanned) -> list[Entry]:
        """The device's memory, part by part."""
        bar = plan.bars[0]
        sizes: dict[str, int] = {part.kind: part.bytes for part in bar.parts}
        fits = plan.verdict != "too big"
        if fits:  # the whole context, of which a part may be what experts give back
            sizes["kv"] = plan.kv_bytes
        names = {
            "dense": self.tr("dense"),
            "experts": self.tr("experts"),
            "kv": self.tr("context"),
            "workspace": self.tr("workspace"),
            "other": self.tr("other programs"),
        }
        entries = [
            Entry(f"{names[kind]} {format.size(sizes[kind])}", bars.picture(kind)) for kind in names if sizes.get(kind)
        ]
        free = bar.total - sum(part.bytes for part in bar.parts)
        if fits and free > 0:
            entries.append(Entry(self.tr("free {size}").format(size=format.size(free))))
        return entries


class PlanRow(QWidget):
    """One memory: its name, how much of it would be used, and the bar."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.name = label(role="small")
        self.figure = label(role="small", figures="small")
        self.bar = SegmentedBar(theme, ground="border")
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(space(1))
        column.addLayout(pair(self.name, self.figure))
        column.addWidget(self.bar)

    def show_bar(self, bar: MemoryBar) -> None:
        used = sum(part.bytes for part in bar.parts)
        if bar.name == "disk":
            self.name.setText(self.tr("Read from disk when called"))
            words = self.tr("{used} of {total} of experts")
            figure = words.format(used=format.size(used), total=format.size(bar.total)) if used else self.tr("nothing")
        else:
            self.name.setText(bar.name)
            figure = self.tr("{used} of {total} GB").format(
                used=format.gigabytes(used), total=format.gigabytes(bar.total)
            )
        self.bar.setVisible(bar.name != "disk" or used > 0)
        self.figure.setText(figure)
        self.bar.show_segments([Segment(part.kind, part.bytes) for part in bar.parts if part.bytes], bar.total)
        self.bar.setAccessibleName(f"{self.name.text()}: {figure}")
