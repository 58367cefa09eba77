"""The Memory panel: each memory as one bar, split by what holds it, and how that went over the last minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.panels import bars, format
from app.panels.area import MemoryHistory
from app.panels.bars import Segment, SegmentedBar
from app.panels.history import History
from app.panels.legend import Entry, Legend
from app.panels.parts import ElidedLabel, Heading, Panel, label
from app.theme import font, space
from engine.messages import CacheSnapshot, MemoryBar, MemorySnapshot, ModelLoaded

if TYPE_CHECKING:
    from app.theme import Theme


class MemoryPanel(Panel):
    """The latest ``MemorySnapshot`` as bars, and out of ``history`` how it came to that."""

    def __init__(self, theme: Theme, history: History | None = None, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._history = history or History()
        self._model: ModelLoaded | None = None
        self._slots: int | None = None
        self._snapshot: MemorySnapshot | None = None
        self.rows: list[MemoryRow] = []
        self.given_back = label(role="small")
        self.given_back.setWordWrap(True)
        body = QWidget()
        self._column = QVBoxLayout(body)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(space(2))
        self._column.addWidget(self.given_back)
        nothing = self.tr("What fills each memory appears here once the engine has started.")
        self.arrange(Heading(self.tr("Memory"), theme), body, nothing)

    def set_model(self, model: ModelLoaded | None) -> None:
        self._model, self._slots = model, None
        self.mark_stale()

    def show_snapshot(self, snapshot: MemorySnapshot) -> None:
        """Show how full each memory is."""
        self._snapshot = snapshot
        self.mark_stale()

    def show_slots(self, snapshot: CacheSnapshot) -> None:
        """Show how many slots the experts have left."""
        if snapshot.slots != self._slots:
            self._slots = snapshot.slots
            self.mark_stale()

    def show_now(self) -> None:
        self.given_back.setText(self._slots_in_words())
        self.given_back.setVisible(bool(self.given_back.text()))
        if self._snapshot is None:
            return
        shown = self._snapshot.bars
        self.show_body(bool(shown))
        while len(self.rows) < len(shown):
            row = MemoryRow(self._theme, self._history)
            self.rows.append(row)
            self._column.insertWidget(self._column.indexOf(self.given_back), row)
        while len(self.rows) > len(shown):
            gone = self.rows.pop()
            self._column.removeWidget(gone)
            gone.deleteLater()
        for row, bar in zip(self.rows, shown, strict=True):
            row.show_bar(bar)

    def _slots_in_words(self) -> str:
        if self._model is None or self._slots is None:
            return ""
        given = self._model.slots - self._slots
        if given <= 0:
            return ""
        return self.tr("{given} of {slots} slots ({size}) were given back to the conversation").format(
            given=format.count(given),
            slots=format.count(self._model.slots),
            size=format.size(given * self._model.slot_bytes),
        )


class MemoryRow(QWidget):
    """One memory: name, used of total, bar, the last minutes, legend with sizes."""

    def __init__(self, theme: Theme, history: History, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.name = ElidedLabel(role="small")
        self.used = label(role="small")
        self.used.setFont(font("small", tabular=True))
        self.bar = SegmentedBar(theme)
        self.past = MemoryHistory(theme, history.memory, history.clock)
        self.past.setToolTip(self.tr("The last five minutes, now on the right"))
        self.legend = Legend(theme)
        top = QHBoxLayout()
        top.addWidget(self.name, 1)
        top.addWidget(self.used)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(space(1))
        column.addLayout(top)
        column.addWidget(self.bar)
        column.addWidget(self.past)
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
        self.past.show_memory(bar.name)
        self.past.setAccessibleName(self.tr("{name} over the last five minutes").format(name=bar.name))
        self.bar.setAccessibleName(f"{bar.name}: {self.used.text()}")
