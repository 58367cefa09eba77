"""The row below the heatmap that replays an answer: play, a slider over its tokens, and the words around the token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QColor, QFontMetrics, QFontMetricsF, QHideEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QSizePolicy, QSlider, QVBoxLayout, QWidget

from app.chat.harmless import harmless
from app.panels import format
from app.panels.icons import SignButton
from app.panels.parts import label
from app.theme import font, space

if TYPE_CHECKING:
    from app.theme import Theme

STEP_MS = 125  # eight tokens a second
_NOW = 1000  # positions of the slider while nothing is replayed; its end is now


class Player(QWidget):
    """Emits ``asked(share)`` when the user reaches for the past, ``moved(moment)`` in it, and ``left`` to come back."""

    asked = Signal(float)  # where, 0 the beginning and 1 the end
    moved = Signal(int)  # from 1
    left = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._moments = 0  # 0: nothing is replayed
        self._setting = False
        self.play = SignButton(theme, "play", self.tr("Replay the last answer"))
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setAccessibleName(self.tr("Token of the answer"))
        self.place = label(self.tr("live"), "small", figures="small")
        self.now = QPushButton(self.tr("Live"))
        self.now.setProperty("kind", "quiet")
        self.now.setToolTip(self.tr("Back to what goes on now"))
        self.caption = TokenCaption(theme)
        row = QHBoxLayout()
        row.setSpacing(space(1.5))
        row.addWidget(self.play)
        row.addWidget(self.slider, 1)
        row.addWidget(self.place)
        row.addWidget(self.now)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.caption)
        column.addLayout(row)
        self._timer = QTimer(self)
        self._timer.setInterval(STEP_MS)
        self._timer.timeout.connect(self._step)
        self.play.clicked.connect(self._toggle)
        self.slider.valueChanged.connect(self._slid)
        self.now.clicked.connect(self.left)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.show_now(False)

    # ------------------------------------------------------------------------------------------ what is shown

    @property
    def moment(self) -> int:
        """From 1; 0 while nothing is replayed."""
        return self.slider.value() if self._moments else 0

    @property
    def playing(self) -> bool:
        return self._timer.isActive()

    def show_now(self, possible: bool) -> None:
        """Nothing is replayed. possible: there is an answer that could be."""
        self._timer.stop()
        self._moments = 0
        self._set_slider(0, _NOW, _NOW)
        self.place.setText(self.tr("live"))
        self.now.hide()
        self.caption.hide()
        self._name_play()
        for widget in (self.play, self.slider):
            widget.setEnabled(possible)

    def show_answer(self, moments: int, moment: int) -> None:
        """An answer of so many moments is replayed, now at ``moment``, from 1."""
        self._moments = moments
        for widget in (self.play, self.slider):
            widget.setEnabled(True)
        self._set_slider(1, moments, moment)
        self.now.show()
        self._tell()

    def show_words(self, before: str, token: str, after: str, otherwise: str = "") -> None:
        """The text around the token; ``otherwise`` when there is none to tell."""
        self.caption.show_words(before, token, after, otherwise)
        self.caption.show()

    def start(self) -> None:
        """Go on from here, token by token; from the beginning when this is the end."""
        if self._moments:
            if self.slider.value() == self._moments:
                self.slider.setValue(1)
            self._timer.start()
            self._name_play()

    def pause(self) -> None:
        self._timer.stop()
        self._name_play()

    def _set_slider(self, low: int, high: int, value: int) -> None:
        self._setting = True
        self.slider.setRange(low, high)
        self.slider.setPageStep(max(1, (high - low) // 10))
        self.slider.setValue(value)
        self._setting = False

    def _tell(self) -> None:
        self.place.setText(
            self.tr("{moment} of {moments}").format(
                moment=format.count(self.slider.value()), moments=format.count(self._moments)
            )
        )

    def _name_play(self) -> None:
        if self.playing:
            self.play.set_sign("pause", self.tr("Pause"))
        else:
            self.play.set_sign("play", self.tr("Play") if self._moments else self.tr("Replay the last answer"))

    # ------------------------------------------------------------------------------------------ what is done

    @Slot()
    def _toggle(self) -> None:
        if not self._moments:
            self.asked.emit(0.0)
        elif self.playing:
            self.pause()
        else:
            self.start()

    @Slot(int)
    def _slid(self, value: int) -> None:
        if self._setting:
            return
        if not self._moments:
            self.asked.emit(value / _NOW)
            return
        self._tell()
        self.moved.emit(value)

    @Slot()
    def _step(self) -> None:
        if self.slider.value() >= self._moments:
            self.pause()
        else:
            self.slider.setValue(self.slider.value() + 1)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.pause()


class TokenCaption(QWidget):
    """One line of text with one token of it marked, in the middle as far as the text allows."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._words = ("", "", "")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self._fit)
        self._fit()

    def _fit(self) -> None:
        self.setFixedHeight(max(space(6), QFontMetrics(font("small")).height() + space(2)))
        self.update()

    def show_words(self, before: str, token: str, after: str, otherwise: str) -> None:
        if not token and not before:
            before, token, after = "", "", otherwise
        # a window's width of text is enough, and a long answer costs no more than a short one
        self._words = (_one_line(before[-200:]), _one_line(token) or "∅" * bool(before), _one_line(after[:200]))
        self.setAccessibleName("".join(self._words))
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(320, self.height())

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(font("small"))
        metrics = QFontMetricsF(painter.font())
        before, token, after = self._words
        wide, left = metrics.horizontalAdvance(token), metrics.horizontalAdvance(before)
        x = min(left, (self.width() - wide) / 2) if token else 0.0
        middle = Qt.AlignmentFlag.AlignVCenter
        box = QRectF(x, 0, max(wide, 1), self.height())
        if token:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(colors.accent_soft))
            painter.drawRoundedRect(box.adjusted(-3, 3, 3, -3), 3, 3)
            painter.setBrush(QColor(colors.accent))
            painter.drawRect(QRectF(x - 3, self.height() - 3, wide + 6, 1.5))
        painter.setPen(QColor(colors.text_muted))
        painter.drawText(QRectF(x - left, 0, left, self.height()), middle | Qt.AlignmentFlag.AlignRight, before)
        room = QRectF(x + wide, 0, self.width() - x - wide, self.height())
        shown = metrics.elidedText(after, Qt.TextElideMode.ElideRight, room.width())
        painter.drawText(room, middle | Qt.AlignmentFlag.AlignLeft, shown)
        painter.setPen(QColor(colors.text))
        painter.drawText(box, middle | Qt.AlignmentFlag.AlignLeft, token)


def _one_line(text: str) -> str:
    return harmless(text).replace("\n", "⏎").replace("\t", "⇥")
