"""The picker's right side: what the chosen model is, what it would take, and how it shall be loaded."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from PySide6.QtCore import QSignalBlocker, Qt, QTimer, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QScrollArea, QSlider, QVBoxLayout, QWidget

from app.dialogs import budget, verdict
from app.dialogs.advanced import Advanced
from app.dialogs.check_box import CheckBox
from app.dialogs.model_list import precision
from app.dialogs.plan_bars import PlanBars
from app.panels import format
from app.panels.parts import ElidedLabel, label
from app.theme import space
from engine.messages import LoadModel, MemoryPlanned, ModelSummary, PlanMemory

if TYPE_CHECKING:
    from app.theme import Theme


class ModelDetails(QScrollArea):
    """Shows one ``ModelSummary`` and its plan; ``choice`` is how it would be loaded.

    ``changed`` follows every move of the user's: the plan shown is then old, until ``show_plan`` brings the new one.
    """

    changed = Signal()
    download_wanted = Signal(str)  # the rest of this model

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._model: ModelSummary | None = None
        self._choice = LoadModel("")
        self._plan: MemoryPlanned | None = None
        self._used: datetime | None = None
        self._stops: list[int] = []
        self.name = ElidedLabel(role="heading")
        self.facts = label(role="muted")
        self.facts.setWordWrap(True)
        self.source = ElidedLabel(role="faint")
        self.bars = PlanBars(theme)
        self.options = QWidget()
        self.experts = Wish(theme, self.tr("Experts kept in memory"), self.tr("As many as fit"))
        self.context = Wish(theme, self.tr("Context"), self.tr("As long as fits, up to 8,192 tokens"))
        self.advanced = Advanced(theme)
        self.note = Card()
        self.rest = QPushButton(self.tr("Download the rest…"))
        self.rest.setAutoDefault(False)
        self.rest.clicked.connect(lambda: self.download_wanted.emit(self._model.source if self._model else ""))
        self._lay_out()
        for wish in (self.experts, self.context):
            wish.slider.valueChanged.connect(self._moved)
            wish.auto.toggled.connect(self._moved)
        self.advanced.changed.connect(self._moved)
        self.advanced.fold.toggled.connect(self._unfolded)
        theme.changed.connect(self._dress)
        self._dress()
        self.show_model(None)

    def _lay_out(self) -> None:
        inside = QWidget()
        column = QVBoxLayout(inside)
        column.setContentsMargins(space(6), space(5), space(6), space(5))
        column.setSpacing(space(1))
        column.addWidget(self.name)
        column.addWidget(self.facts)
        column.addWidget(self.source)
        column.addSpacing(space(3))
        column.addWidget(self.bars)
        column.addSpacing(space(3))
        column.addWidget(self.options)
        column.addWidget(self.note)
        column.addWidget(self.rest, 0, Qt.AlignmentFlag.AlignLeft)
        column.addSpacing(space(3))
        column.addWidget(self.advanced)
        column.addStretch(1)
        options = QVBoxLayout(self.options)
        options.setContentsMargins(0, 0, 0, space(3))
        options.setSpacing(space(3))
        options.addWidget(self.experts)
        options.addWidget(self.context)
        inside.setObjectName("modelDetails")
        inside.setStyleSheet("QWidget#modelDetails { background: transparent; }")
        self.setWidget(inside)
        self.viewport().setAutoFillBackground(False)
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)

    # ------------------------------------------------------------------------------------------ the choice

    @property
    def model(self) -> ModelSummary | None:
        return self._model

    @property
    def choice(self) -> LoadModel:
        """How the model would be loaded."""
        return self._choice

    @property
    def plan(self) -> MemoryPlanned | None:
        """The plan of the present choice, None until it is there."""
        return self._plan if self._plan is not None and self._plan.question == question(self._choice) else None

    def _moved(self) -> None:
        model = self._model
        if model is None or model.problem:
            return
        experts, context = self.experts, self.context
        self._choice = replace(
            self.advanced.apply(self._choice),
            experts=budget.AUTO if experts.auto.isChecked() else budget.option(experts.slider.value()),
            context=0 if context.auto.isChecked() or not self._stops else self._stops[context.slider.value()],
        )
        self._place()
        self._say()
        self.changed.emit()

    def _unfolded(self, open_: bool) -> None:
        """Bring what was unfolded into sight, once it has its place."""
        if open_:
            QTimer.singleShot(0, lambda: self.ensureWidgetVisible(self.advanced, 0, space(4)))

    # ------------------------------------------------------------------------------------------ what is shown

    def show_model(
        self,
        model: ModelSummary | None,
        choice: LoadModel | None = None,
        plan: MemoryPlanned | None = None,
        used: datetime | None = None,
    ) -> None:
        """Show another model with the choice that was made for it, or nothing."""
        self._model, self._choice, self._plan, self._used = model, choice or LoadModel(""), plan, used
        usable = model is not None and not model.problem
        self.name.setText(model.name if model else "")
        self.source.setText(model.source if model and model.source != "demo" else "")
        self.source.setVisible(bool(self.source.text()))
        self.rest.setVisible(bool(model and model.partial))
        self.advanced.setVisible(usable)
        self.advanced.show_choice(self._choice)
        self._choice = self.advanced.apply(self._choice)  # a card that is gone is no choice any more
        self._show_plan()
        self.verticalScrollBar().setValue(0)

    def show_plan(self, plan: MemoryPlanned) -> None:
        """A plan for this model has come; a size or a share that was wanted becomes slots now."""
        self._plan = plan
        self._show_plan()

    def _show_plan(self) -> None:
        model, plan = self._model, self._plan
        usable = model is not None and not model.problem
        self.options.setVisible(usable and bool(model and model.layers))  # the demo before its first load has no size
        self.bars.setVisible(usable and plan is not None)
        self.bars.show_plan(plan if usable else None)
        if plan is not None:
            self._stops = budget.context_stops(plan.longest_context)
        elif not usable:
            self._stops = []
        self._place()
        self._say()

    def _place(self) -> None:
        """Sliders and their figures, by the choice; where that is "auto", by the plan."""
        model, plan, choice = self._model, self._plan, self._choice
        if model is None:
            return
        total = plan.total_experts if plan else model.layers * model.experts
        slot = plan.slot_bytes if plan else 0
        wanted = budget.slots_of(choice.experts, total, slot)
        slots = wanted or (plan.slots if plan else 0)
        self.experts.show_value(wanted is None, 1, max(1, total), slots)
        self.experts.slider.setSingleStep(max(1, total // 100))
        self.experts.slider.setPageStep(max(1, total // 10))
        waits = self.tr("as many as fit")
        self.experts.say(budget.words(slots, total, slot) if slots else waits)
        tokens = choice.context or (plan.context if plan else 0)
        self.context.show_value(
            not choice.context, 0, max(0, len(self._stops) - 1), budget.nearest_stop(self._stops, tokens)
        )
        self.context.setVisible(bool(self._stops) or plan is None)
        figure = self.tr("{count} tokens").format(count=format.count(tokens)) if tokens else self.tr("as long as fits")
        if plan and plan.kv_bytes and tokens == plan.context:
            figure += f" · {format.size(plan.kv_bytes)}"
        self.context.say(figure)

    def _say(self) -> None:
        model, plan = self._model, self._plan
        self.facts.setText(self._facts(model) if model and not model.problem else "")
        self.facts.setVisible(bool(self.facts.text()))
        if model is None:
            self.note.say("", "note")
        elif model.problem:
            self.note.say(model.problem, "note" if model.partial else "error")
        elif not model.built:
            self.note.say(self.tr("Not built yet: the first load builds it, once, and shows how far it is."), "note")
        elif plan is None:
            self.note.say(self.tr("Working out what fits…"), "note")
        else:
            words = [*verdict.sentences(plan, model, self._choice.policy), *model.notes]
            self.note.say(" ".join(words), "error" if plan.verdict == "too big" else "note")

    def _facts(self, model: ModelSummary) -> str:
        computed = precision(self._plan.dtype) if self._plan else ""
        stored = precision(model.dtype)
        shape = self.tr("{layers} layers × {experts} experts, {top_k} per token")  # noqa: RUF001
        pieces = [
            model.family,
            shape.format(layers=model.layers, experts=model.experts, top_k=model.top_k) if model.layers else "",
            format.size(model.total_bytes) if model.total_bytes else "",
            self.tr("{stored}, computes in {computed}").format(stored=stored, computed=computed)
            if computed and stored and computed != stored
            else stored,
            model.license or (self.tr("no licence named") if model.built else ""),
            (self.tr("chat template") if model.has_template else self.tr("no chat template")) if model.built else "",
            verdict.used_when(self._used, datetime.now().astimezone()) if model.built else "",
        ]
        return " · ".join(piece for piece in pieces if piece)

    def _dress(self) -> None:
        for wish in (self.experts, self.context):
            wish.dress()


def question(choice: LoadModel) -> PlanMemory:
    """What to ask about a choice."""
    return PlanMemory(choice.source, choice.experts, choice.context, choice.device, choice.dtype)


class Wish(QWidget):
    """A slider with its figure, and a box that leaves it to the plan."""

    def __init__(self, theme: Theme, name: str, auto: str) -> None:
        """auto: what the plan does when it is left to it."""
        super().__init__()
        self._theme, self._name = theme, name
        self.figure = label(role="small", figures="small")
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.auto = CheckBox(self.tr("Auto"), theme)
        self.auto.setToolTip(auto)
        self.auto.setAccessibleDescription(auto)
        self.auto.setChecked(True)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(space(1))
        title = label(name)
        title.setBuddy(self.slider)
        row = QHBoxLayout()
        row.setSpacing(space(3))
        row.addWidget(title)
        row.addWidget(self.auto)
        row.addStretch(1)
        row.addWidget(self.figure)
        column.addLayout(row)
        column.addWidget(self.slider)

    def show_value(self, auto: bool, low: int, high: int, value: int) -> None:
        """Without telling anybody."""
        with QSignalBlocker(self.slider), QSignalBlocker(self.auto):
            self.slider.setRange(low, high)
            self.slider.setValue(value)
            self.slider.setEnabled(not auto)
            self.auto.setChecked(auto)
        self.auto.update()

    def say(self, figure: str) -> None:
        self.figure.setText(figure)
        self.slider.setAccessibleName(f"{self._name}: {figure}")
        self.auto.setAccessibleName(f"{self._name}, {self.auto.text()}")

    def dress(self) -> None:
        colors = self._theme.colors
        self.slider.setStyleSheet(
            f"QSlider::sub-page:horizontal:disabled {{ background: {colors.border}; }}"
            "QSlider::handle:horizontal { width: 14px; height: 14px; margin: -6px 0; border-radius: 8px;"
            f" background: {colors.text}; border: 1px solid {colors.window}; }}"
            f"QSlider::handle:horizontal:disabled {{ background: {colors.text_faint}; }}"
            f"QSlider::handle:horizontal:focus {{ background: {colors.accent}; border: 1px solid {colors.accent}; }}"
            "QSlider { border: none; }"
        )


class Card(QFrame):
    """A rounded box with a sentence in it, gone when there is nothing to say."""

    def __init__(self) -> None:
        super().__init__()
        self.text: QLabel = label()
        self.text.setWordWrap(True)
        row = QHBoxLayout(self)
        row.setContentsMargins(space(3.5), space(3), space(3.5), space(3))
        row.addWidget(self.text)

    def say(self, sentence: str, card: str) -> None:
        self.text.setText(sentence)
        self.setVisible(bool(sentence))
        if self.property("card") != card:
            self.setProperty("card", card)
            self.style().unpolish(self)
            self.style().polish(self)
