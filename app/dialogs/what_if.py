"""Session > What if: answers that were logged, replayed under other policies, predictors and sizes.

The replay runs in the engine's process for it while the chat goes on; lines appear as they are done.
"""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, Qt, Signal, Slot
from PySide6.QtGui import QHideEvent
from PySide6.QtWidgets import (
    QDialog,
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QLabel,
    QProgressBar,
    QPushButton,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.choice import Choice
from app.dialogs.check_box import CheckBox
from app.dialogs.what_if_chart import WhatIfChart
from app.dialogs.what_if_figures import BELADY, Setting, budgets, logs_of, sentences, setting_in
from app.dialogs.what_if_foresight import ForesightTable
from app.panels import format
from app.panels.parts import label, scrolling
from app.theme import space
from engine.messages import (
    POLICIES,
    PREDICTORS,
    Failed,
    ModelLoaded,
    StopWhatIf,
    WhatIf,
    WhatIfProgress,
    WhatIfResult,
)

if TYPE_CHECKING:
    from app.background import Background, Job
    from app.engine_client import EngineClient
    from app.theme import Theme

_numbers = itertools.count(1)
THIS_CHAT, ALL_CHATS, CHOSEN = range(3)


class WhatIfDialog(QDialog):
    """``use_wanted(policy, experts)``: load the model with these; experts as ``LoadModel`` takes them."""

    use_wanted = Signal(str, str)

    def __init__(
        self, client: EngineClient, theme: Theme, background: Background, conversations: Path, parent: QWidget
    ) -> None:
        super().__init__(parent)
        self._client, self._background, self._folder = client, background, conversations
        self._chat: Path | None = None  # the conversation on the screen
        self._logs: list[Path] = []
        self._model: ModelLoaded | None = None
        self._rate: float | None = None  # bytes of experts per second of waiting
        self._present: Setting | None = None
        self._request = ""  # of the replay under way
        self._job: Job | None = None
        self.result_shown: WhatIfResult | None = None
        self.setWindowTitle(self.tr("What if"))
        self.resize(1060, 680)
        self.scope = Choice(theme)
        self.scope.setAccessibleName(self.tr("What is replayed"))
        for text in (self.tr("This chat"), self.tr("All chats with this model"), self.tr("Choose logs…")):
            self.scope.addItem(text)
        self.with_predictors = CheckBox(self.tr("Predictors too"), theme)
        self.with_predictors.setToolTip(self.tr("How many of a layer's experts each predictor would have foreseen"))
        self.run_button = QPushButton()
        self.subtitle = label(role="muted")
        self.subtitle.setWordWrap(True)
        self.chart = WhatIfChart(theme)
        self.message = label(role="muted")
        self.message.setWordWrap(True)
        self.message.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.progress = QProgressBar()
        self.progress.setRange(0, 1000)
        self.progress.setTextVisible(False)
        self.detail = label(role="small")
        self.words: list[QLabel] = []
        self.cards: list[QFrame] = []
        self.predictors = ForesightTable()
        self.policy = Choice(theme)
        self.policy.setAccessibleName(self.tr("Policy to use"))
        self.size_choice = Choice(theme)
        self.size_choice.setAccessibleName(self.tr("Memory for experts to use"))
        self.use_button = QPushButton(self.tr("Use this…"))
        self.close_button = QPushButton(self.tr("Close"))
        self._lay_out()
        self._connect()

    def _lay_out(self) -> None:
        controls = QHBoxLayout()
        controls.setSpacing(space(3))
        controls.addWidget(self.scope)
        controls.addWidget(self.with_predictors)
        controls.addStretch(1)
        controls.addWidget(self.run_button)
        self.page = QStackedWidget()
        self.page.addWidget(self.chart)
        empty = QWidget()
        middle = QVBoxLayout(empty)
        middle.setContentsMargins(space(10), 0, space(10), 0)
        middle.addStretch(1)
        middle.addWidget(self.message)
        middle.addStretch(2)
        self.page.addWidget(empty)
        left = QVBoxLayout()
        left.setSpacing(space(2))
        left.addWidget(self.page, 1)
        left.addWidget(self.progress)
        left.addWidget(self.detail)
        self._side = QVBoxLayout()
        self._side.setSpacing(space(3))
        self._side.setContentsMargins(0, 0, space(2), 0)
        for _ in range(2):
            card = QFrame()
            card.setProperty("card", "note")
            inside = QVBoxLayout(card)
            inside.setContentsMargins(space(3.5), space(3), space(3.5), space(3))
            text = label()
            text.setWordWrap(True)
            inside.addWidget(text)
            self._side.addWidget(card)
            self.cards.append(card)
            self.words.append(text)
        self._side.addWidget(self.predictors)
        self._side.addStretch(1)
        inner = QWidget()
        inner.setLayout(self._side)
        self.side = scrolling(self.tr("What the curves say"), inner)
        self.side.setFixedWidth(292)
        right = QVBoxLayout()
        right.setSpacing(space(2))
        right.addWidget(self.side, 1)
        self.use_title = label(self.tr("Load the model again with"), "small")
        right.addWidget(self.use_title)
        right.addWidget(self.policy)
        right.addWidget(self.size_choice)
        row = QHBoxLayout()
        row.addWidget(self.use_button)
        row.addStretch(1)
        row.addWidget(self.close_button)
        right.addLayout(row)
        both = QHBoxLayout()
        both.setSpacing(space(5))
        both.addLayout(left, 1)
        both.addLayout(right)
        column = QVBoxLayout(self)
        column.setContentsMargins(space(6), space(5), space(6), space(5))
        column.setSpacing(space(3))
        column.addWidget(label(self.tr("What if"), "heading"))
        column.addWidget(self.subtitle)
        column.addLayout(controls)
        column.addLayout(both, 1)
        for button in (self.run_button, self.use_button, self.close_button):
            button.setAutoDefault(False)

    def _connect(self) -> None:
        self._client.what_if_progress.connect(self._progressed)
        self._client.what_if_result.connect(self._answered)
        self._client.failed.connect(self._failed)
        self.scope.activated.connect(self._scope_chosen)
        self.with_predictors.clicked.connect(self.look)
        self.run_button.clicked.connect(self._run_or_stop)
        self.chart.picked.connect(self._picked)
        self.policy.currentIndexChanged.connect(self._choice_changed)
        self.size_choice.currentIndexChanged.connect(self._choice_changed)
        self.use_button.clicked.connect(self._use)
        self.close_button.clicked.connect(self.reject)

    # --------------------------------------------------------------------------------------- what to replay

    def open_for(self, chat: Path | None, model: ModelLoaded | None, rate: float | None) -> None:
        """Show it and replay this chat. rate: bytes of experts that came per second of waiting; None: not known."""
        self._chat, self._model, self._rate = chat, model, rate
        self.scope.setCurrentIndex(THIS_CHAT)
        self.open()
        self.scope.setFocus()
        self.look()

    @Slot(int)
    def _scope_chosen(self, index: int) -> None:
        if index == CHOSEN:
            kinds = self.tr("Session logs (*.jsonl)")
            names, _ = QFileDialog.getOpenFileNames(self, self.tr("Logs to replay"), str(self._folder), kinds)
            if not names:
                self.scope.setCurrentIndex(THIS_CHAT)
            self.choose_logs([Path(name) for name in names])
        else:
            self.look()

    def choose_logs(self, logs: list[Path]) -> None:
        """Replay these."""
        if logs:
            self.scope.setCurrentIndex(CHOSEN)
            self._logs = logs
        self.look()

    @Slot()
    def look(self) -> None:
        """Find out what there is to replay, and replay it."""
        self.stop()
        self.result_shown = None
        self._show_words(None)
        index = self.scope.currentIndex()
        chosen = {THIS_CHAT: [self._chat] if self._chat else [], CHOSEN: self._logs}.get(index, [])
        signature = self._model.signature if self._model is not None else ""
        folder = self._folder if index == ALL_CHATS else None
        self._say(self.tr("Looking at what was logged…"))
        self._job = self._background.run(partial(_found, chosen, folder, signature), self._looked, self._say)

    def _looked(self, found: tuple[list[Path], Setting | None]) -> None:
        logs, setting = found
        if setting is None:
            self._say(
                self.tr(
                    "No answer was logged yet, so there is nothing to replay. Ask the model something, then come back: "
                    "every answer logs which experts it called."
                )
            )
            return
        if self._model is not None and self._model.signature == setting.signature:
            setting = Setting.of(self._model)
        self._present = setting
        predictors = tuple(name for name in PREDICTORS if name != "none") if self.with_predictors.isChecked() else ()
        self._request = f"what-if-{next(_numbers)}"
        self._client.send(WhatIf(self._request, tuple(map(str, logs)), tuple(POLICIES), budgets(setting), predictors))
        self.chart.show_lines((), setting)
        self.page.setCurrentIndex(0)
        self.progress.setValue(0)
        self._refresh()

    @Slot()
    def stop(self) -> None:
        """Give up the replay under way."""
        if self._job is not None:
            self._job.cancel()
        if self._request:
            self._client.send(StopWhatIf(self._request))
            self._request = ""
        self._refresh()

    @Slot()
    def _run_or_stop(self) -> None:
        if self._request:
            self.stop()
            self.detail.setText(self.tr("Stopped. Lines that were done stay."))
        else:
            self.look()

    # ------------------------------------------------------------------------------------- what came of it

    @Slot(object)
    def _progressed(self, event: WhatIfProgress) -> None:
        if event.request_id != self._request or self._present is None:
            return
        self.progress.setValue(round(1000 * event.fraction))
        self.detail.setText(event.detail)
        if len(event.lines) != len(self.chart.lines):
            self.chart.show_lines(event.lines, self._present)

    @Slot(object)
    def _answered(self, event: WhatIfResult) -> None:
        if event.request_id != self._request or self._present is None:
            return
        self._request = ""
        self.result_shown = event
        self.chart.show_lines(event.lines, self._present)
        self._show_words(event)
        self._refresh()

    @Slot(object)
    def _failed(self, event: Failed) -> None:
        if event.request_id == self._request != "":
            self._request = ""
            self._say(event.text)

    def _say(self, text: str) -> None:
        """Instead of the chart."""
        self.chart.lines = ()
        self.message.setText(text)
        self.page.setCurrentIndex(1)
        self._refresh()

    def _refresh(self) -> None:
        running, done = bool(self._request), self.result_shown is not None
        self.run_button.setText(
            self.tr("Stop") if running else self.tr("Replay again") if self.chart.lines else self.tr("Replay")
        )
        self.progress.setVisible(running)
        self.detail.setVisible(running or bool(self.chart.lines and not done))
        same = self._model is not None and self._present is not None
        same = same and self._model.signature == self._present.signature  # type: ignore[union-attr]
        for widget in (self.use_title, self.policy, self.size_choice, self.use_button):
            widget.setVisible(done and same)
        self._choice_changed()
        subtitle = self.tr("How often an expert would have been there when it was called, over memory for experts.")
        if self.result_shown is not None:
            subtitle = (
                self.tr("{name}: {answers}, {tokens} tokens, replayed under other choices.").format(
                    name=self.result_shown.model,
                    answers=self.tr("1 answer")
                    if self.result_shown.answers == 1
                    else self.tr("{count} answers").format(count=self.result_shown.answers),
                    tokens=format.count(self.result_shown.decode_tokens),
                )
                + " "
                + self.tr("Hit rate in decode over memory for experts.")
            )
        self.subtitle.setText(subtitle)

    def _show_words(self, result: WhatIfResult | None) -> None:
        told = sentences(result, self._present, self._rate) if result and self._present else []
        for text, words in zip(self.words, [*told, "", ""], strict=False):
            text.setText(words)
        for card, text in zip(self.cards, self.words, strict=True):
            card.setVisible(bool(text.text()))
        self.predictors.show_rows(result.foresight if result else ())
        if result is not None:
            self._offer(result)

    # ------------------------------------------------------------------------------------------- using it

    def _offer(self, result: WhatIfResult) -> None:
        present = self._present
        assert present is not None
        for box in (self.policy, self.size_choice):
            box.blockSignals(True)
            box.clear()
        for line in result.lines:
            if line.policy != BELADY:
                self.policy.addItem(line.policy)
                self.policy.setItemData(self.policy.count() - 1, POLICIES[line.policy], Qt.ItemDataRole.ToolTipRole)
        for point in result.lines[0].points:
            words = f"{format.size(point.slots * present.slot_bytes)}, {format.percent(point.slots / present.total)}"
            now = self.tr("{size} (now)").format(size=words)
            self.size_choice.addItem(now if point.slots == present.slots else words, point.slots)
        self.policy.setCurrentText(present.policy)
        self.size_choice.setCurrentIndex(self.size_choice.findData(present.slots))
        for box in (self.policy, self.size_choice):
            box.blockSignals(False)

    @Slot(str, int)
    def _picked(self, policy: str, place: int) -> None:
        if self.use_title.isVisibleTo(self):
            self.policy.setCurrentText(policy)
            self.size_choice.setCurrentIndex(place)

    @Slot()
    def _choice_changed(self) -> None:
        present, slots = self._present, self.size_choice.currentData()
        possible = self.use_title.isVisibleTo(self) and present is not None and slots is not None
        changed = present is not None and (self.policy.currentText(), slots) != (present.policy, present.slots)
        self.use_button.setEnabled(possible and changed)
        if possible:
            self.chart.choose(self.policy.currentText(), self.size_choice.currentIndex())

    @Slot()
    def _use(self) -> None:
        self.use_wanted.emit(self.policy.currentText(), f"{self.size_choice.currentData()} slots")

    # ----------------------------------------------------------------------------------------------- ends

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.stop()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            self.chart.update()


def _found(logs: list[Path], folder: Path | None, signature: str, stopped: object) -> tuple[list[Path], Setting | None]:
    """The logs that hold answers, and how the last of these ran. Raises SessionError."""
    assert callable(stopped)
    if folder is not None:
        logs = logs_of(folder, signature, stopped)
    settings = [(path, setting_in(path)) for path in logs]
    having = [(path, setting) for path, setting in settings if setting is not None]
    return [path for path, _ in having], having[-1][1] if having else None
