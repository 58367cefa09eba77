"""What stands in the middle while there is nothing to read yet: what goes on, and what to do."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QProgressBar, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from app.model_state import DEMO, ModelState
from app.theme import BODY, Theme, font, space
from engine.messages import ModelLoaded

PROMPT_WIDTH = 420  # px, with letters of the size they are designed in
TEXT_WIDTH = 640
ROOM_FOR_PROMPTS = 340  # px of height


class EmptyState(QWidget):
    """Follows the model's state. Emits what the user picks: a prompt, another model, the demo, or to stop loading."""

    prompt_chosen = Signal(str)
    choose_model = Signal()
    load_demo = Signal()
    cancelled = Signal()

    def __init__(self, theme: Theme, state: ModelState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme, self._state = theme, state
        self.title = _label("heading")
        self.title.setFont(font("title", size=20))
        self.text = _label("muted")
        self.detail = _label("faint")
        self.bar = QProgressBar()
        self.bar.setTextVisible(False)
        self.bar.setAccessibleName(self.tr("Loading"))
        self.bar.setFixedWidth(320)
        self.choose = QPushButton(self.tr("Choose a model…"))
        self.choose.clicked.connect(self.choose_model)
        self.demo = QPushButton(self.tr("Load the demo"))
        self.demo.setProperty("kind", "primary")
        self.demo.clicked.connect(self.load_demo)
        self.cancel = QPushButton(self.tr("Stop loading"))
        self.cancel.clicked.connect(self.cancelled)
        self.prompts = [
            self._prompt(self.tr("What is the capital of France?")),
            self._prompt(self.tr("Explain simply why the sky is blue.")),
            self._prompt(self.tr("Write a note to thank a friend for dinner.")),
        ]
        self.hint = _label("faint")
        buttons = QHBoxLayout()
        buttons.setSpacing(space(2))
        buttons.addStretch(1)
        for button in (self.demo, self.choose, self.cancel):
            buttons.addWidget(button)
        buttons.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setSpacing(space(3))
        layout.addStretch(3)
        layout.addWidget(self.title)
        layout.addWidget(self.text)
        layout.addWidget(self.bar, 0, Qt.AlignmentFlag.AlignHCenter)
        layout.addWidget(self.detail)
        layout.addSpacing(space(2))
        layout.addLayout(buttons)
        for prompt in self.prompts:
            row = QHBoxLayout()  # as wide as it may be, and in the middle
            row.addStretch(1)
            row.addWidget(prompt, 1000)
            row.addStretch(1)
            layout.addLayout(row)
        layout.addSpacing(space(2))
        layout.addWidget(self.hint)
        layout.addStretch(4)
        state.changed.connect(self.refresh)
        theme.changed.connect(self._set_margins)
        self._set_margins()
        self.refresh()

    @Slot()
    def _set_margins(self) -> None:
        """Sentences are no wider than one reads well."""
        scale = self._theme.font_size / BODY
        for prompt in self.prompts:
            prompt.setMaximumWidth(round(PROMPT_WIDTH * scale))
        side = max(space(6), (self.width() - round(TEXT_WIDTH * scale)) // 2)
        layout = self.layout()
        if layout is not None:
            layout.setContentsMargins(side, space(6), side, space(6))

    def _prompt(self, text: str) -> QPushButton:
        button = QPushButton(text)
        button.setProperty("kind", "wide")
        button.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        button.setCursor(Qt.CursorShape.PointingHandCursor)
        button.clicked.connect(lambda: self.prompt_chosen.emit(text))
        return button

    @Slot()
    def refresh(self) -> None:
        state = self._state
        model = state.model
        loading = model is None and not state.problem
        if model is not None:
            self._show(self.tr("What would you like to know?"), describe(model, self))
            panels = self.tr("The panels on the right show which experts are used, and what each token costs.")
            self.hint.setText("\n\n".join((*model.notes, panels)))
        elif state.problem:
            title = self.tr("The engine could not start") if state.broken else self.tr("No model is loaded")
            self._show(title, state.problem)
        elif state.loading is not None:
            detail = self.tr("stopping…") if state.stopping else state.loading.detail
            self._show(state.loading.task, "", detail)
            known = state.loading.fraction is not None and not state.stopping
            self.bar.setRange(0, 1000 if known else 0)
            self.bar.setValue(round(1000 * (state.loading.fraction or 0)))
        else:
            self._show(self.tr("Starting the engine"), "", self.tr("reading its libraries, a few seconds"))
            self.bar.setRange(0, 0)
        self.bar.setVisible(loading)
        self.cancel.setVisible(state.loading is not None)
        self.cancel.setEnabled(not state.stopping)
        self.choose.setVisible(bool(state.problem) and state.engine is not None)
        self.demo.setVisible(self.choose.isVisibleTo(self) and state.wanted_source != DEMO)
        self.hint.setVisible(model is not None)
        for prompt in self.prompts:
            prompt.setVisible(model is not None and self.height() >= ROOM_FOR_PROMPTS)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._set_margins()
        if (event.oldSize().height() >= ROOM_FOR_PROMPTS) != (self.height() >= ROOM_FOR_PROMPTS):
            self.refresh()

    def _show(self, title: str, text: str, detail: str = "") -> None:
        self.title.setText(title)
        self.text.setText(text)
        self.text.setVisible(bool(text))
        self.detail.setText(detail)
        self.detail.setVisible(bool(detail))


def describe(model: ModelLoaded, widget: QWidget) -> str:
    """The loaded model in one line."""
    share = 100 * model.slots / model.total_experts if model.total_experts else 100
    text = widget.tr("%1 is ready: %2 layers of %3 experts, %4 used for each token, %5% on the device.")
    words = (model.name, model.layers, model.experts, model.top_k, f"{min(share, 100):.0f}")
    for number, word in enumerate(words, 1):
        text = text.replace(f"%{number}", str(word), 1)
    return text


def _label(role: str) -> QLabel:
    label = QLabel()
    label.setProperty("role", role)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setAlignment(Qt.AlignmentFlag.AlignCenter)
    label.setWordWrap(True)
    return label
