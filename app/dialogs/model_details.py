"""The picker's right side: what the chosen model is, and how it shall be loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QSlider,
    QVBoxLayout,
    QWidget,
)

from app.dialogs import budget
from app.dialogs.check_box import CheckBox
from app.dialogs.model_list import precision
from app.panels import bars, format
from app.panels.bars import Segment, SegmentedBar
from app.panels.legend import Entry, Legend
from app.panels.parts import ElidedLabel, label
from app.panels.segmented import SegmentedSwitch
from app.theme import font, space
from engine.messages import POLICIES, ModelSummary

if TYPE_CHECKING:
    from app.theme import Theme


class ModelDetails(QWidget):
    """Shows one ``ModelSummary``; ``experts()`` and ``policy()`` are what the user chose for it."""

    changed = Signal()

    def __init__(self, theme: Theme, experts: str, policy: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._model: ModelSummary | None = None
        self._wanted = experts  # of the last load; understood anew for each model
        self.name = ElidedLabel(role="heading")
        self.facts = label(role="muted")
        self.facts.setWordWrap(True)
        self.source = ElidedLabel(role="faint")
        self.weights = QWidget()
        self.options = QWidget()
        self.bar = SegmentedBar(theme)
        self.bar.setAccessibleName(self.tr("Size by kind"))
        self.legend = Legend(theme)
        self.total = label(role="small")
        self.kept = label(role="small")
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setAccessibleName(self.tr("Experts kept in memory, in slots"))
        self.auto = CheckBox(self.tr("Auto: as many as fit beside everything else"), theme)
        self._policy_words = POLICIES
        self.policies = SegmentedSwitch(theme, list(self._policy_words))
        self.policies.setMinimumWidth(space(40))
        self.policies.setAccessibleName(self.tr("Who leaves when a slot is needed"))
        self.policy_words = label(role="small")
        self.policy_words.setWordWrap(True)
        self.note = _Card()
        for number in (self.total, self.kept):
            number.setFont(font("small", tabular=True))
        if policy in self._policy_words:
            self.policies.choose(list(self._policy_words).index(policy))
        self.auto.setChecked(True)
        self._lay_out()
        self.slider.valueChanged.connect(self._tell)
        self.auto.toggled.connect(self._tell)
        self.policies.chosen.connect(self._tell)
        theme.changed.connect(self._dress)
        self._dress()
        self.show_model(None)

    def _lay_out(self) -> None:
        column = QVBoxLayout(self)
        column.setContentsMargins(space(6), space(5), space(6), space(5))
        column.setSpacing(space(1))
        column.addWidget(self.name)
        column.addWidget(self.facts)
        column.addWidget(self.source)
        column.addSpacing(space(4))
        column.addWidget(self.weights)
        column.addWidget(self.options)
        column.addWidget(self.note)
        column.addStretch(1)
        inner = QVBoxLayout(self.weights)
        inner.setContentsMargins(0, 0, 0, space(4))
        inner.setSpacing(space(1))
        inner.addLayout(_pair(label(self.tr("Weights"), "small"), self.total))
        inner.addWidget(self.bar)
        inner.addWidget(self.legend)
        inner = QVBoxLayout(self.options)
        inner.setContentsMargins(0, 0, 0, space(4))
        inner.setSpacing(space(1))
        inner.addLayout(_pair(label(self.tr("Experts kept in memory")), self.kept))
        inner.addWidget(self.slider)
        inner.addWidget(self.auto)
        inner.addSpacing(space(4))
        inner.addWidget(label(self.tr("Who leaves when a slot is needed")))
        inner.addWidget(self.policies)
        inner.addWidget(self.policy_words)

    # ------------------------------------------------------------------------------------------ the choice

    def experts(self) -> str:
        """``LoadModel.experts``."""
        return budget.AUTO if self.auto.isChecked() else budget.option(self.slider.value())

    def policy(self) -> str:
        """``LoadModel.policy``."""
        return list(self._policy_words)[self.policies.index]

    # ------------------------------------------------------------------------------------------ the model

    @property
    def model(self) -> ModelSummary | None:
        return self._model

    def show_model(self, model: ModelSummary | None) -> None:
        """Show another model, with the budget that was wanted last, or nothing."""
        self._model = model
        usable = model is not None and not model.problem
        self.options.setVisible(usable)
        self.weights.setVisible(usable and bool(model and model.total_bytes))
        self.name.setText(model.name if model else "")
        self.source.setText(model.source if model and model.source != "demo" else "")
        self.source.setVisible(bool(self.source.text()))
        self.facts.setText(self._facts(model) if model and not model.problem else "")
        self.facts.setVisible(bool(self.facts.text()))
        if model is None:
            self.note.say("", "note")
        elif model.problem:
            self.note.say(model.problem, "error")
        else:
            self._show_usable(model)
        self.changed.emit()

    def _show_usable(self, model: ModelSummary) -> None:
        dense = max(0, model.total_bytes - model.expert_bytes)
        self.total.setText(format.size(model.total_bytes))
        self.bar.show_segments([Segment("dense", dense), Segment("experts", model.expert_bytes)], model.total_bytes)
        self.legend.set_entries(
            [
                Entry(self.tr("always in memory {size}").format(size=format.size(dense)), bars.picture("dense")),
                Entry(self.tr("experts {size}").format(size=format.size(model.expert_bytes)), bars.picture("experts")),
            ]
        )
        total = budget.total_experts(model)
        wanted = budget.slots_of(self._wanted, model)
        self.slider.blockSignals(True)
        self.slider.setRange(1, max(1, total))
        self.slider.setSingleStep(max(1, total // 100))
        self.slider.setPageStep(max(1, total // 10))
        self.slider.setValue(wanted or max(1, total // 4))
        self.slider.blockSignals(False)
        self.slider.setVisible(total > 0)  # the demo before its first load: nobody knows its size yet
        self.auto.blockSignals(True)
        self.auto.setEnabled(total > 0)
        self.auto.setChecked(wanted is None)
        self.auto.blockSignals(False)
        if total:
            self._wanted = self._share()
        self._show_budget()

    def _share(self) -> str:
        """The choice in a form that carries over to another model."""
        assert self._model is not None
        return budget.AUTO if self.auto.isChecked() else budget.share(self.slider.value(), self._model)

    def _facts(self, model: ModelSummary) -> str:
        pieces = [
            model.family,
            self.tr("{layers} layers × {experts} experts, {top_k} per token").format(  # noqa: RUF001
                layers=model.layers, experts=model.experts, top_k=model.top_k
            )
            if model.layers
            else "",
            precision(model.dtype),
            model.license,
            (self.tr("chat template") if model.has_template else self.tr("no chat template")) if model.built else "",
        ]
        return " · ".join(piece for piece in pieces if piece)

    def _tell(self) -> None:
        """The user moved something."""
        if self._model is not None and not self._model.problem:
            self._wanted = self._share()
            self._show_budget()
        self.changed.emit()

    def _show_budget(self) -> None:
        assert self._model is not None
        auto = self.auto.isChecked()
        self.slider.setEnabled(not auto)
        self.kept.setText(self.tr("as much as fits") if auto else budget.words(self.slider.value(), self._model))
        self.policy_words.setText(self._policy_words[self.policy()])
        self.note.say(self._verdict(self._model, None if auto else self.slider.value()), "note")

    def _verdict(self, model: ModelSummary, slots: int | None) -> str:
        one_token = budget.one_token(model)
        sentences = []
        if not model.built:
            sentences.append(self.tr("Not built yet: the first load builds it, once, and shows how far it is."))
        if slots is not None and slots >= budget.total_experts(model):
            sentences.append(self.tr("Every expert stays in memory: after its first use none is fetched again."))
        elif one_token:
            sentences.append(
                self.tr("Each token wants {count} experts, {top_k} in each of {layers} layers.").format(
                    count=format.count(one_token), top_k=model.top_k, layers=model.layers
                )
            )
            if slots is not None and slots < one_token and self.policy() == "lru":
                sentences.append(
                    self.tr(
                        "With fewer slots than that, lru throws out just what comes next: keep more, or take next-use."
                    )
                )
        return " ".join(sentences)

    def _dress(self) -> None:
        colors = self._theme.colors
        self.slider.setStyleSheet(
            f"QSlider::sub-page:horizontal:disabled {{ background: {colors.border}; }}"
            "QSlider::handle:horizontal { width: 14px; height: 14px; margin: -6px 0; border-radius: 8px;"
            f" background: {colors.text}; border: 1px solid {colors.window}; }}"
            f"QSlider::handle:horizontal:disabled {{ background: {colors.text_faint}; }}"
            f"QSlider::handle:horizontal:focus {{ background: {colors.accent}; border: 1px solid {colors.accent}; }}"
            "QSlider { border: none; }"
        )


class _Card(QFrame):
    """A rounded box with a sentence in it, gone when there is nothing to say."""

    def __init__(self) -> None:
        super().__init__()
        self.text = label()
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


def _pair(left: QWidget, right: QWidget) -> QHBoxLayout:
    row = QHBoxLayout()
    row.addWidget(left)
    row.addStretch(1)
    row.addWidget(right)
    return row
