"""The Speed panel: how fast tokens come, now and answer by answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QLabel, QVBoxLayout, QWidget

from app.panels import format
from app.panels.history import History
from app.panels.parts import Heading, Panel, label, show_figure
from app.panels.rate import RateHead
from app.panels.sparkline import Sparkline
from app.theme import space
from engine.messages import CacheSnapshot, Timings

if TYPE_CHECKING:
    from app.theme import Theme

ROWS = 5  # answers listed, the latest first
_COLUMNS = 5


class SpeedPanel(Panel):
    """Decoding over time out of ``history``; below, the latest answers of the chat as ``answers`` gives them."""

    def __init__(self, theme: Theme, history: History | None = None, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._history = history or History()
        self._snapshot: CacheSnapshot | None = None
        self.answers: Callable[[], Sequence[Timings]] = lambda: ()
        self.line = Sparkline(theme, self._history.decode, top=None, words=lambda value: f"{value:g}")
        self.line.setAccessibleName(self.tr("Decoding speed over time"))
        of_prompt = self.tr("Tokens of the prompt read per second, of the last prompt")
        self._head = RateHead(self.tr("tokens / s, last 64 tokens"), of_prompt, self.line)
        self.rate, self.prefill = self._head.rate, self._head.aside
        body = QWidget()
        column = QVBoxLayout(body)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(space(2))
        column.addWidget(self._head)
        self._table = QWidget()
        column.addWidget(self._table)
        self._cells = self._make_table()
        nothing = self.tr("How fast the model reads and writes appears here with the first answer.")
        self.arrange(Heading(self.tr("Speed"), theme), body, nothing)
        self.refresh()

    def _make_table(self) -> list[list[QLabel]]:
        grid = QGridLayout(self._table)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(space(2))
        grid.setVerticalSpacing(space(0.5))
        right = Qt.AlignmentFlag.AlignRight
        heads = (
            self.tr("answer"),
            self.tr("tokens"),
            self.tr("prefill / s"),
            self.tr("decode / s"),
            self.tr("first token"),
        )
        for place, words in enumerate(heads):
            grid.addWidget(label(words, "faint"), 0, place, right if place else Qt.AlignmentFlag.AlignLeft)
            grid.setColumnStretch(place, 1)
        rows = []
        for row in range(1, ROWS + 1):
            cells = [label("", "small", figures="small") for _ in heads]
            for place, cell in enumerate(cells):
                grid.addWidget(cell, row, place, right if place else Qt.AlignmentFlag.AlignLeft)
            rows.append(cells)
        return rows

    def forget(self) -> None:
        """Another model, or none."""
        self._snapshot = None
        self.mark_stale()

    def show_snapshot(self, snapshot: CacheSnapshot) -> None:
        """Show the present speed."""
        self._snapshot = snapshot
        self.mark_stale()

    def show_now(self) -> None:
        rate = self._snapshot.tokens_per_second if self._snapshot else None
        show_figure(self.rate, format.rate(rate))
        self.rate.setAccessibleName(self.tr("{rate} tokens per second").format(rate=self.rate.text()))
        self._head.draw_line()
        answers = list(self.answers())
        last = answers[-1] if answers else None
        prefill = self._history.prefill_rate
        read = prefill or (last.prefill_rate if last else None)
        self.prefill.setText(self.tr("prefill {rate} / s").format(rate=format.rate(read)))
        self.show_body(self.line.known or rate is not None or read is not None or bool(answers))
        self.heading.set_note(self._note(len(answers)))
        self._table.setVisible(bool(answers))
        numbered = list(enumerate(answers, start=1))[: -ROWS - 1 : -1]
        for row, cells in enumerate(self._cells):
            texts = self._texts(*numbered[row]) if row < len(numbered) else ("",) * _COLUMNS
            for cell, text in zip(cells, texts, strict=True):
                cell.setText(text)
                cell.setVisible(bool(text))

    @staticmethod
    def _texts(number: int, timings: Timings) -> tuple[str, ...]:
        return (
            format.count(number),
            format.count(timings.answer_tokens),
            format.rate(timings.prefill_rate),
            format.rate(timings.decode_rate),
            format.milliseconds(timings.first_token_seconds),
        )

    def _note(self, answers: int) -> str:
        if not answers:
            return ""
        return self.tr("1 answer") if answers == 1 else self.tr("{count} answers").format(count=format.count(answers))

    # ------------------------------------------------------------------------------------------ for those who check

    def listed(self) -> list[list[str]]:
        """The table as it is shown."""
        self.refresh()
        return [[cell.text() for cell in row] for row in self._cells if row[0].text()]
