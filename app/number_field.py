"""One number of the sampling, as the sheet beside the chat shows it."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSignalBlocker, Qt, Signal, Slot
from PySide6.QtWidgets import QLabel, QSizePolicy, QSlider, QWidget

from app.answer_style import LIMITS, WHOLE
from app.number_box import RealBox, WholeBox
from app.theme import space

STEPS = 200  # of a slider


class Field(QWidget):
    """One number of the sampling: its name, a slider where that helps, and the figure. A dot: it was changed."""

    chosen = Signal(str, object)  # the field, the new value

    def __init__(self, name: str, meaning: str, field: str, step: float, slider: float = 0.0) -> None:
        super().__init__()
        self.field, self._name = field, name
        low, high = LIMITS[field]
        self._whole = field in WHOLE
        self._low, self._high = low, slider or high
        self.label = QLabel(name)
        self.label.setProperty("role", "muted")
        self.label.setTextFormat(Qt.TextFormat.PlainText)
        self.spin: WholeBox | RealBox
        if self._whole:
            whole = self.spin = WholeBox()
            whole.setRange(-1 if field == "seed" else int(low), int(high))
            whole.setSingleStep(int(step))
            whole.setSuffix(self.tr(" tokens") if field == "no_repeat_ngram_size" else "")
            whole.valueChanged.connect(self._spun)
        else:
            real = self.spin = RealBox()
            real.setDecimals(2)
            real.setRange(low, high)
            real.setSingleStep(step)
            real.valueChanged.connect(self._spun)
        off = dict.fromkeys(("top_k", "min_p", "no_repeat_ngram_size"), self.tr("off"))
        self.spin.setSpecialValueText(({"seed": self.tr("random")} | off).get(field, ""))
        self.spin.setKeyboardTracking(False)
        self.spin.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.spin.setSizePolicy(QSizePolicy.Policy.Minimum, QSizePolicy.Policy.Fixed)
        self.slider: QSlider | None = None
        if field not in ("no_repeat_ngram_size", "max_tokens", "seed"):
            self.slider = QSlider(Qt.Orientation.Horizontal)
            self.slider.setRange(0, STEPS)
            self.slider.setMinimumWidth(space(16))
            self.slider.setFocusPolicy(Qt.FocusPolicy.ClickFocus)  # the figure is the keyboard's way
            self.slider.valueChanged.connect(self._slid)
        for widget in (self.label, self.spin, self.slider):
            if widget is not None:
                widget.setToolTip(meaning)
                widget.setAccessibleName(name)
                widget.installEventFilter(self)
        self.spin.setAccessibleDescription(meaning)

    def show_value(self, value: float | None, changed: bool) -> None:
        """Show a value, and whether it is another than the preset's."""
        with QSignalBlocker(self.spin):
            self.spin.setValue(-1 if value is None else value)  # type: ignore[arg-type]
        if self.slider is not None and value is not None:
            with QSignalBlocker(self.slider):
                self.slider.setValue(round(STEPS * (value - self._low) / (self._high - self._low)))
        self.label.setText(f"{self._name}  •" if changed else self._name)

    def set_enabled(self, enabled: bool) -> None:
        for widget in (self.label, self.spin, self.slider):
            if widget is not None:
                widget.setEnabled(enabled)

    @Slot()
    def _spun(self) -> None:
        value = self.spin.value()
        if self.field == "seed":
            self.chosen.emit(self.field, None if value < 0 else value)
        else:
            self.chosen.emit(self.field, value if self._whole else round(value, 2))

    @Slot(int)
    def _slid(self, place: int) -> None:
        value = self._low + (self._high - self._low) * place / STEPS
        low, high = LIMITS[self.field]
        value = min(high, max(low, value))
        self.chosen.emit(self.field, round(value) if self._whole else round(value, 2))

    def eventFilter(self, watched: QWidget, event: QEvent) -> bool:  # type: ignore[override]
        if event.type() == QEvent.Type.Wheel and not watched.hasFocus():
            event.ignore()
            return True  # scrolling past a number must not change it
        return super().eventFilter(watched, event)
