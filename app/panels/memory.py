"""The Memory panel: each memory as one bar, split by what holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from app.panels import bars, format
from app.panels.bars import Segment, SegmentedBar
from app.panels.legend import Entry, Legend
from app.panels.parts import ElidedLabel, Heading, Panel, label
from app.theme import font, space
from engine.messages import MemoryBar, MemorySnapshot

if TYPE_CHECKING:
    from app.theme import Theme


class MemoryPanel(Panel):
    """Shows the latest ``MemorySnapshot``; hidden it only keeps it."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._snapshot: MemorySnapshot | None = None
        self.rows: list[MemoryRow] = []
        self._empty = label(self.tr("Not measured yet"), "small")
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(space(2))
        self._column.addWidget(Heading(self.tr("Memory")))
        self._column.addWidget(self._empty)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Maximum)

    def show_snapshot(self, snapshot: MemorySnapshot) -> None:
        """Show how full each memory is."""
        self._snapshot = snapshot
        self.mark_stale()

    def show_now(self) -> None:
        if self._snapshot is None:
            return
        shown = self._snapshot.bars
        self._empty.setVisible(not shown)
        while len(self.rows) < len(shown):
            row = MemoryRow(self._theme)
            self.rows.append(row)
            self._column.addWidget(row)
        while len(self.rows) > len(shown):
            gone = self.rows.pop()
            self._column.removeWidget(gone)
            gone.deleteLater()
        for row, bar in zip(self.rows, shown, strict=True):
            row.show_bar(bar)


class MemoryRow(QWidget):
    """One memory: name, used of total, bar, legend with sizes."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.name = ElidedLabel(role="small")
        self.used = label(role="small")
        self.used.setFont(font("small", tabular=True))
        self.bar = SegmentedBar(theme)
        self.legend = Legend(theme)
        top = QHBoxLayout()
        top.addWidget(self.name, 1)
        top.addWidget(self.used)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(space(1))
        column.addLayout(top)
        column.addWidget(self.bar)
        column.addWidget(self.legend)

    def show_bar(self, bar: MemoryBar) -> None:
        used = sum(part.bytes for part in bar.parts)
        self.name.setText(bar.name)
        self.used.setText(format.used_of(used, bar.total))
        self.bar.show_segments([Segment(part.kind, part.bytes) for part in bar.parts], bar.total)
        names = {
            "dense": self.tr("dense"),
            "experts": self.tr("experts"),
            "kv": self.tr("KV"),
            "other": self.tr("other"),
        }
        entries = [
            Entry(f"{names[part.kind]} {format.size(part.bytes)}", bars.picture(part.kind))
            for part in bar.parts
            if part.bytes
        ]
        entries.append(Entry(self.tr("free {size}").format(size=format.size(max(0, bar.total - used)))))
        if self.legend.texts != tuple(entry.text for entry in entries):
            self.legend.set_entries(entries)
        self.bar.setAccessibleName(f"{bar.name}: {self.used.text()}")
