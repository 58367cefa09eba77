"""Where the next message is written: grows with the text, shows the context, and holds Send or Stop."""

from __future__ import annotations

import math
from dataclasses import replace

from PySide6.QtCore import QEvent, QRectF, QSize, Qt, Signal, Slot
from PySide6.QtGui import (
    QAction,
    QActionGroup,
    QColor,
    QFontMetricsF,
    QInputMethodEvent,
    QKeyEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QMenu, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from app.settings import Settings
from app.theme import Theme, font, space
from engine.messages import Sampling

MAX_LINES = 8
BAR_WIDTH = 120  # px, of the context meter
NEARLY_FULL = 0.9
LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)  # tokens an answer may have


def sampling(settings: Settings, advised: Sampling) -> Sampling:
    """How the next answer is sampled, from what the user chose; ``advised``: by the model's makers."""
    presets = {
        "advised": advised,
        "precise": Sampling(temperature=0.0),
        "balanced": Sampling(temperature=0.7, top_p=0.95),
        "creative": Sampling(temperature=1.0, top_p=0.98),
    }
    chosen = presets[settings.preset]
    return replace(chosen, max_tokens=settings.max_tokens)


class Input(QPlainTextEdit):
    """Enter sends, Shift+Enter breaks the line; while an input method composes, Enter is its own."""

    sent = Signal()
    paged = Signal(bool)  # Page Up (True) or Page Down: the conversation is meant, not this field
    height_changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFont(font("body"))
        self.setAccessibleName(self.tr("Message"))
        self.setTabChangesFocus(True)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        self.document().setDocumentMargin(0)
        self._composing = False
        self._lines = 0
        self._most = MAX_LINES
        self.textChanged.connect(self._measure)
        self._measure()

    def set_room(self, height: int) -> None:
        """Grow up to this height, px, and to MAX_LINES at most."""
        most = max(2, min(MAX_LINES, int(height / QFontMetricsF(self.font()).lineSpacing())))
        if most != self._most:
            self._most, self._lines = most, 0
            self._measure()

    @Slot()
    def _measure(self) -> None:
        lines = max(1, round(self.document().size().height()))
        if lines != self._lines:
            self._lines = lines
            scrolls = lines > self._most
            policy = Qt.ScrollBarPolicy
            self.setVerticalScrollBarPolicy(policy.ScrollBarAsNeeded if scrolls else policy.ScrollBarAlwaysOff)
            line = math.ceil(QFontMetricsF(self.font()).lineSpacing())
            self.setFixedHeight(min(lines, self._most) * line + 4)
            self.height_changed.emit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._measure()

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        self._composing = bool(event.preeditString())
        super().inputMethodEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        breaks = event.modifiers() & (Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.AltModifier)
        if enter and not self._composing and not breaks:
            self.sent.emit()
        elif enter and not self._composing:
            self.insertPlainText("\n")
            self.ensureCursorVisible()
        elif event.key() in (Qt.Key.Key_PageUp, Qt.Key.Key_PageDown):
            self.paged.emit(event.key() == Qt.Key.Key_PageUp)
        else:
            super().keyPressEvent(event)


class ContextMeter(QWidget):
    """How much of the conversation's room is taken: a small bar and the figures."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme = theme
        self._used, self._total = 0, 0
        self._compact = False
        self.setFont(font("small", tabular=True))
        self.setMinimumHeight(20)
        theme.changed.connect(self.update)
        self.hide()

    def set_context(self, used: int, total: int) -> None:
        """Tokens used and the most there may be; 0 in total: unknown, nothing is shown."""
        self._used, self._total = used, total
        self.setVisible(total > 0)
        text = self._words()
        self.setAccessibleName(self.tr("Context: %1 tokens").replace("%1", text))
        self.setToolTip(self.tr("Tokens of this conversation, of those the model was given room for"))
        self.updateGeometry()
        self.update()

    def set_compact(self, compact: bool) -> None:
        """Only the figures, where there is no room for more."""
        if self._compact != compact:
            self._compact = compact
            self.updateGeometry()
            self.update()

    def _words(self) -> str:
        return self.tr("%1 of %2").replace("%1", f"{self._used:,}").replace("%2", f"{self._total:,}")

    def sizeHint(self) -> QSize:
        metrics = self.fontMetrics()
        words = metrics.horizontalAdvance(self._words()) + 2
        label = metrics.horizontalAdvance(self.tr("context")) + space(6) + BAR_WIDTH
        return QSize(words if self._compact else words + label, 20)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self.theme.colors
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(self.font())
        painter.setPen(QColor(colors.text_faint))
        words, label = self._words(), self.tr("context")
        share = min(1.0, self._used / self._total) if self._total else 0.0
        row = QRectF(0, 0, self.width(), self.height())
        aligned = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft
        if not self._compact:
            painter.drawText(row, aligned, label)
            left = self.fontMetrics().horizontalAdvance(label) + space(3)
            bar = QRectF(left, self.height() / 2 - 2, BAR_WIDTH, 4)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(colors.border))
            painter.drawRoundedRect(bar, 2, 2)
            painter.setBrush(QColor(colors.warn if share > NEARLY_FULL else colors.accent))
            if share > 0:
                painter.drawRoundedRect(QRectF(bar.left(), bar.top(), max(4.0, bar.width() * share), 4), 2, 2)
            row.setLeft(bar.right() + space(3))
        painter.setPen(QColor(colors.warn if share > NEARLY_FULL else colors.text_faint))
        painter.drawText(row, aligned, words)
        painter.end()


class Composer(QWidget):
    """Emits ``sent`` with the text, and ``stopped``. The text stays until ``clear`` is called."""

    sent = Signal(str)
    stopped = Signal()

    def __init__(self, theme: Theme, settings: Settings, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme = theme
        self._settings = settings
        self._busy = False
        self._ready = False
        self.input = Input(self)
        self.input.sent.connect(self._send)
        self.input.textChanged.connect(self._update)
        self.input.installEventFilter(self)
        self.meter = ContextMeter(theme, self)
        self.options = QPushButton(self)
        self.options.setProperty("kind", "quiet")
        self.options.setMenu(self._make_menu())
        self.action = QPushButton(self)
        self.action.setProperty("kind", "strong")
        self.action.clicked.connect(self._act)
        row = QHBoxLayout()
        row.setSpacing(space(3))
        row.addWidget(self.meter)
        row.addWidget(self.options)
        row.addStretch(1)
        self.hint = QLabel(self)
        self.hint.setProperty("role", "faint")
        row.addWidget(self.hint)
        row.addWidget(self.action)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(space(4), space(3.5), space(3), space(3))
        layout.setSpacing(space(3))
        layout.addWidget(self.input)
        layout.addLayout(row)
        self.setFocusProxy(self.input)
        theme.changed.connect(self.update)
        self._name_options()
        self._update()

    # -------------------------------------------------------------------------------------------- state

    def set_state(self, ready: bool, busy: bool, placeholder: str) -> None:
        """ready: a model could answer. busy: an answer is under way, the button stops it."""
        self._ready, self._busy = ready, busy
        if placeholder != self.input.placeholderText():
            self.input.setPlaceholderText(placeholder)
            self.input.viewport().update()  # Qt does not paint anew when only the words change
        self._update()

    @property
    def text(self) -> str:
        return self.input.toPlainText()

    def clear(self) -> None:
        self.input.clear()

    @Slot()
    def _update(self) -> None:
        self.action.setText(self.tr("Stop") if self._busy else self.tr("Send"))
        can_send = self._ready and bool(self.text.strip())
        self.action.setEnabled(self._busy or can_send)
        keys = self.tr("Esc stops") if self._busy else self.tr("Enter sends, Shift+Enter breaks")
        self.hint.setText(keys if self.width() > 620 and (self._busy or self.text) else "")

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.meter.set_compact(self.width() < 480)
        self._update()

    def set_room(self, height: int) -> None:
        """The text may take about this much height, px, before it scrolls."""
        self.input.set_room(height)

    @Slot()
    def _act(self) -> None:
        if self._busy:
            self.stopped.emit()
        else:
            self._send()

    @Slot()
    def _send(self) -> None:
        if self._ready and not self._busy and self.text.strip():
            self.sent.emit(self.text.strip("\n"))

    def eventFilter(self, watched: QWidget, event: QEvent) -> bool:  # type: ignore[override]
        if watched is self.input and event.type() in (QEvent.Type.FocusIn, QEvent.Type.FocusOut):
            self.update()
        return super().eventFilter(watched, event)

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self.theme.colors
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QColor(colors.accent if self.input.hasFocus() else colors.border))
        painter.setBrush(QColor(colors.surface_raised))
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 12, 12)
        painter.end()

    # ------------------------------------------------------------------------------------------ sampling

    def _make_menu(self) -> QMenu:
        menu = QMenu(self)
        self._presets = QActionGroup(self)
        for name, text in (
            ("advised", self.tr("As the model's makers advise")),
            ("precise", self.tr("Precise: the likeliest word, always the same")),
            ("balanced", self.tr("Balanced: temperature 0.7")),
            ("creative", self.tr("Creative: temperature 1.0")),
        ):
            self._add_choice(menu, self._presets, text, name, name == self._settings.preset)
        menu.addSeparator()
        lengths = menu.addMenu(self.tr("Longest answer"))
        self._lengths = QActionGroup(self)
        for count in sorted({*LENGTHS, self._settings.max_tokens}):
            text = self.tr("%1 tokens").replace("%1", f"{count:,}")
            self._add_choice(lengths, self._lengths, text, count, count == self._settings.max_tokens)
        self._presets.triggered.connect(self._choose_preset)
        self._lengths.triggered.connect(self._choose_length)
        return menu

    @staticmethod
    def _add_choice(menu: QMenu, group: QActionGroup, text: str, data: object, chosen: bool) -> None:
        action = QAction(text, menu)
        action.setCheckable(True)
        action.setData(data)
        action.setChecked(chosen)
        group.addAction(action)
        menu.addAction(action)

    @Slot(QAction)
    def _choose_preset(self, action: QAction) -> None:
        self._settings.preset = action.data()
        self._name_options()

    @Slot(QAction)
    def _choose_length(self, action: QAction) -> None:
        self._settings.max_tokens = action.data()
        self._name_options()

    def _name_options(self) -> None:
        names = {
            "advised": self.tr("as advised"),
            "precise": self.tr("precise"),
            "balanced": self.tr("balanced"),
            "creative": self.tr("creative"),
        }
        name = names[self._settings.preset]
        self.options.setText(f"{name} ▾")
        self.options.setAccessibleName(self.tr("Style of the answer: %1").replace("%1", name))
        self.options.setToolTip(
            self.tr("Style of the answer; at most %1 tokens").replace("%1", f"{self._settings.max_tokens:,}")
        )
