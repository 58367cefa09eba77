"""The Cache panel: how often the wanted expert was there, what it cost when it was not, and does guessing help?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QLabel, QVBoxLayout, QWidget

from app.panels import format
from app.panels.history import History
from app.panels.parts import FigureRow, Heading, Panel, label, show_figure
from app.panels.rate import RateHead
from app.panels.sparkline import Sparkline
from app.theme import space
from engine.messages import CacheCounters, CacheSnapshot, ModelLoaded, PrefetchState

if TYPE_CHECKING:
    from app.theme import Theme

Phase = Literal["decode", "prefill"]
Figure = Literal["fetched", "stall", "used", "late", "wasted"]


class CachePanel(Panel):
    """Figures of the latest ``CacheSnapshot``, the hit rate over time out of ``history``."""

    def __init__(self, theme: Theme, history: History | None = None, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._history = history or History()
        self._model: ModelLoaded | None = None
        self._snapshot: CacheSnapshot | None = None
        self._best: float | None = None
        self.line = Sparkline(theme, self._history.hits, words=format.percent)
        self.line.setAccessibleName(self.tr("Hit rate over time"))
        belady = self.tr(
            "What a cache that knew the future (Belady's rule) would have hit on this chat, fetching nobody ahead"
        )
        self._head = RateHead(self.tr("hits, last 64 tokens"), belady, self.line)
        self.rate, self.best = self._head.rate, self._head.aside
        self.figures = FigureRow(
            (
                ("fetched", self.tr("per token"), self.tr("Experts fetched per token, over the last 64 tokens")),
                ("stall", self.tr("stall"), self.tr("Time per token that computing waited for experts")),
                ("used", self.tr("ahead, used"), self.tr("Of the experts fetched ahead, there when they were wanted")),
                ("late", self.tr("late"), self.tr("Of the experts fetched ahead, still under way when wanted")),
                ("wasted", self.tr("wasted"), self.tr("Of the experts fetched ahead, evicted before anybody asked")),
            )
        )
        self.verdict = label(role="small")
        self.verdict.setWordWrap(True)
        self.accuracy = label(role="faint")
        self.accuracy.setWordWrap(True)
        self._counts: dict[tuple[str, Phase], QLabel] = {}

        body = QWidget()
        column = QVBoxLayout(body)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(space(2))
        column.addWidget(self._head)
        column.addWidget(self.figures)
        column.addWidget(self.verdict)
        column.addWidget(self.accuracy)
        column.addLayout(self._count_table())
        nothing = self.tr("How often an expert is found in memory appears here with the first answer.")
        self.arrange(Heading(self.tr("Cache"), theme), body, nothing)
        self.refresh()

    def _count_table(self) -> QGridLayout:
        """Whole-session counts, decode and prefill apart."""
        table = QGridLayout()
        table.setHorizontalSpacing(space(3))
        table.setVerticalSpacing(space(0.5))
        right = Qt.AlignmentFlag.AlignRight
        table.addWidget(label(self.tr("Since loading"), "faint"), 0, 0)
        heads = {"hits": self.tr("hits"), "misses": self.tr("misses"), "evictions": self.tr("evictions")}
        for column, words in enumerate(heads.values(), start=1):
            table.addWidget(label(words, "faint"), 0, column, right)
        phases: tuple[tuple[Phase, str], ...] = (("decode", self.tr("decode")), ("prefill", self.tr("prefill")))
        for row, (phase, words) in enumerate(phases, start=1):
            table.addWidget(label(words, "small"), row, 0)
            for column, what in ((1, "hits"), (2, "misses")):
                number = label(format.NOTHING, "small", figures="small")
                number.setAccessibleName(f"{words}, {heads[what]}")
                table.addWidget(number, row, column, right)
                self._counts[what, phase] = number
        self.evictions = label(format.NOTHING, "small", figures="small")
        self.evictions.setToolTip(self.tr("Experts that had to leave since the model was loaded"))
        table.addWidget(self.evictions, 1, 3, right)
        for column, stretch in enumerate((3, 2, 2, 2)):
            table.setColumnStretch(column, stretch)
        return table

    # ------------------------------------------------------------------------------------------ what to show

    def set_model(self, model: ModelLoaded | None) -> None:
        """Another model, or none: its figures start anew."""
        self._model = model
        self._snapshot = None
        self._best = None
        self.mark_stale()

    def show_snapshot(self, snapshot: CacheSnapshot) -> None:
        """Show these figures."""
        self._snapshot = snapshot
        self.mark_stale()

    def show_best(self, rate: float | None) -> None:
        """The hit rate that could have been had on this chat with the present budget; None: not known."""
        self._best = rate
        self.mark_stale()

    def show_now(self) -> None:
        snapshot = self._snapshot
        self.heading.set_note(self._note())
        show_figure(self.rate, format.percent(snapshot.window_hit_rate if snapshot else None))
        self.rate.setAccessibleName(self.tr("Hit rate over the last 64 tokens: {rate}").format(rate=self.rate.text()))
        self.best.setText(self.tr("best on demand {rate}").format(rate=format.percent(self._best)))
        self.line.set_best(self._best)
        self._head.draw_line()
        self.figures.set("fetched", format.size(snapshot.window_bytes_per_token if snapshot else None))
        self.figures.set("stall", format.milliseconds(snapshot.window_stall_per_token if snapshot else None))
        counters = snapshot.counters if snapshot else None
        self.show_body(counters is not None and counters != CacheCounters())
        fates = (counters.prefetch_used, counters.prefetch_late, counters.prefetch_wasted) if counters else (0, 0, 0)
        for key, number in zip(("used", "late", "wasted"), fates, strict=True):
            self.figures.set(key, format.percent(number / sum(fates) if sum(fates) else None))
        self._show_prefetch(snapshot.prefetch if snapshot else None)
        self.evictions.setText(format.count(counters.evictions if counters else None))
        for (what, phase), shown in self._counts.items():
            shown.setText(format.count(getattr(counters, f"{phase}_{what}") if counters else None))

    def _show_prefetch(self, state: PrefetchState | None) -> None:
        self.verdict.setText(state.verdict if state else "")
        self.verdict.setVisible(bool(self.verdict.text()))
        words = ""
        known = [(place, share) for place, share in enumerate(state.accuracy if state else (), 1) if share is not None]
        if known:
            shares = " · ".join(f"{place}: {format.percent(share)}" for place, share in known[:4])
            words = self.tr("foreseen, layers ahead  {shares}").format(shares=shares)
        self.accuracy.setText(words)
        self.accuracy.setVisible(bool(words))

    def _note(self) -> str:
        if self._model is None:
            return ""
        slots = self._snapshot.slots if self._snapshot else self._model.slots
        return self.tr("{policy} · {slots} of {total} slots").format(
            policy=self._model.policy, slots=format.count(slots), total=format.count(self._model.total_experts)
        )

    # ------------------------------------------------------------------------------------------ for those who check

    def shown(self, figure: Figure) -> str:
        """The text of one of the figures."""
        self.refresh()
        return self.figures.text(figure)

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
