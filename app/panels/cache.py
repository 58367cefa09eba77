"""The Cache panel: how often the wanted expert was already there, and what it cost when it was not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from app.panels import format
from app.panels.parts import Heading, Panel, label
from app.panels.sparkline import Sparkline
from app.theme import space
from engine.messages import CacheCounters, CacheSnapshot, ModelLoaded

if TYPE_CHECKING:
    from app.theme import Theme

Phase = Literal["decode", "prefill"]


class CachePanel(Panel):
    """Figures of the latest ``CacheSnapshot``. Hidden it only keeps the snapshot and the line's next point."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._model: ModelLoaded | None = None
        self._snapshot: CacheSnapshot | None = None
        self.heading = Heading(self.tr("Cache"))
        self.rate = label(format.NOTHING, figures="figure")
        self.line = Sparkline(theme)
        self.line.setAccessibleName(self.tr("Hit rate over time"))
        self._figures: dict[str, QLabel] = {}
        self._counts: dict[tuple[str, Phase], QLabel] = {}

        first = QHBoxLayout()
        first.setSpacing(space(2))
        first.addWidget(self.rate, 0, Qt.AlignmentFlag.AlignBottom)
        first.addWidget(label(self.tr("hits, last 64 tokens"), "small"), 0, Qt.AlignmentFlag.AlignBottom)
        first.addStretch(1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(space(2))
        column.addWidget(self.heading)
        column.addLayout(first)
        column.addWidget(self.line)
        column.addLayout(self._figure_row())
        column.addLayout(self._count_table())
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Maximum)
        self.refresh()

    def _figure_row(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(space(2))
        for key, words, meaning in (
            ("fetched", self.tr("per token"), self.tr("Experts fetched per token, over the last 64 tokens")),
            ("stall", self.tr("stall"), self.tr("Time per token that computing waited for experts")),
            ("speed", self.tr("tokens / s"), self.tr("Decoding speed over the last 64 tokens")),
            ("evictions", self.tr("evictions"), self.tr("Experts that had to leave since the model was loaded")),
        ):
            pair = QVBoxLayout()
            pair.setSpacing(0)
            figure = label(format.NOTHING, "title", figures="title")
            figure.setAccessibleName(meaning)
            figure.setToolTip(meaning)
            pair.addWidget(figure)
            pair.addWidget(label(words, "faint"))
            row.addLayout(pair, 1)
            self._figures[key] = figure
        return row

    def _count_table(self) -> QGridLayout:
        """Whole-session counts, decode and prefill apart."""
        table = QGridLayout()
        table.setHorizontalSpacing(space(3))
        table.setVerticalSpacing(space(0.5))
        right = Qt.AlignmentFlag.AlignRight
        table.addWidget(label(self.tr("Since loading"), "faint"), 0, 0)
        for column, words in ((1, self.tr("hits")), (2, self.tr("misses"))):
            table.addWidget(label(words, "faint"), 0, column, right)
        phases: tuple[tuple[Phase, str], ...] = (("decode", self.tr("decode")), ("prefill", self.tr("prefill")))
        for row, (phase, words) in enumerate(phases, start=1):
            table.addWidget(label(words, "small"), row, 0)
            for column, what in ((1, "hits"), (2, "misses")):
                number = label(format.NOTHING, "small", figures="small")
                number.setAccessibleName(f"{words} {what}")
                table.addWidget(number, row, column, right)
                self._counts[what, phase] = number
        table.setColumnStretch(0, 2)
        table.setColumnStretch(1, 1)
        table.setColumnStretch(2, 1)
        return table

    # ------------------------------------------------------------------------------------------ what to show

    def set_model(self, model: ModelLoaded | None) -> None:
        """Another model, or none: its figures start anew."""
        self._model = model
        self._snapshot = None
        self.line.clear()
        self.mark_stale()

    def show_snapshot(self, snapshot: CacheSnapshot) -> None:
        """Show these figures; the line grows by a point when tokens were decoded since the last one."""
        before = self._snapshot.counters if self._snapshot else CacheCounters()
        passed = snapshot.counters.minus(before)
        if passed.decode_hits + passed.decode_misses:
            self.line.add(snapshot.window_hit_rate)
        self._snapshot = snapshot
        self.mark_stale()

    def show_now(self) -> None:
        snapshot = self._snapshot
        self.heading.set_note(self._note())
        self.rate.setText(format.percent(snapshot.window_hit_rate if snapshot else None))
        self.rate.setAccessibleName(self.tr("Hit rate over the last 64 tokens: {rate}").format(rate=self.rate.text()))
        self._figures["fetched"].setText(format.size(snapshot.window_bytes_per_token if snapshot else None))
        self._figures["stall"].setText(format.milliseconds(snapshot.window_stall_per_token if snapshot else None))
        self._figures["speed"].setText(format.rate(snapshot.tokens_per_second if snapshot else None))
        counters = snapshot.counters if snapshot else None
        self._figures["evictions"].setText(format.count(counters.evictions if counters else None))
        for (what, phase), number in self._counts.items():
            number.setText(format.count(getattr(counters, f"{phase}_{what}") if counters else None))

    def _note(self) -> str:
        if self._model is None:
            return ""
        slots = self._snapshot.slots if self._snapshot else self._model.slots
        return self.tr("{policy} · {slots} of {total} slots").format(
            policy=self._model.policy, slots=format.count(slots), total=format.count(self._model.total_experts)
        )

    # ------------------------------------------------------------------------------------------ for those who check

    def shown(self, figure: Literal["fetched", "stall", "speed", "evictions"]) -> str:
        """The text of one of the four figures."""
        self.refresh()
        return self._figures[figure].text()

    def shown_hits(self, phase: Phase = "decode") -> int | None:
        """The count of hits as the labels show it (read back from them); None where they show a dash."""
        return self._shown_count("hits", phase)

    def shown_misses(self, phase: Phase = "decode") -> int | None:
        """The count of misses as the labels show it; None where they show a dash."""
        return self._shown_count("misses", phase)

    def _shown_count(self, what: str, phase: Phase) -> int | None:
        self.refresh()
        text = self._counts[what, phase].text()
        return None if text == format.NOTHING else int(text.replace(",", ""))
