"""The progress window drawn with Qt, for Pythons without tkinter once PySide6 is installed. See window_state.py."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import window_state
from PySide6.QtCore import QPointF, QRectF, Qt, QTimer
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QIcon, QKeySequence, QPainter, QPen, QShortcut
from PySide6.QtWidgets import QApplication, QHBoxLayout, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget
from window_state import AGAIN, HEIGHT, LINGER, WIDTH, Feed, State

_TICK = 40  # ms
_PAD = 28
_ROWS_TOP, _ROW = 112, 34
_BAR_TOP = 288


class ProgressWindow(QWidget):
    """Paints the state; its children are the buttons and, after a failure, the text that can be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.state, self.feed, self.code = State(), Feed(), 0
        self.colors = window_state.colors()
        self.setWindowTitle("Greenroom")
        self.setFixedSize(WIDTH, HEIGHT)
        self.setStyleSheet(_style(self.colors))
        self._icon = QIcon(str(window_state.ICON / "greenroom.svg")).pixmap(60, 60, QIcon.Mode.Normal)
        column = QVBoxLayout(self)
        column.setContentsMargins(_PAD, _ROWS_TOP, _PAD, 24)
        self.text = QPlainTextEdit(readOnly=True)
        self.text.hide()
        column.addWidget(self.text, 1)
        column.addStretch()
        self.row = QHBoxLayout()
        self.row.setSpacing(10)
        self.row.addStretch()
        column.addSpacing(12)
        column.addLayout(self.row)
        self.buttons: list[QPushButton] = []
        self._show_buttons([("Stop", self.close)])
        self._ended = False
        self._timer = QTimer(self, interval=_TICK)
        self._timer.timeout.connect(self._tick)
        self._timer.start()

    def _tick(self) -> None:
        messages, ended = self.feed.take()
        for message in messages:
            self.state.apply(message, time.monotonic())
        if ended and not self._ended and not self.state.last_word:
            self._ended = True
            QTimer.singleShot(LINGER if self.state.opening else 0, self.close)
        if self.state.last_word and not self.text.isVisible():
            self._show_last_word()
        self.update()

    def _show_last_word(self) -> None:
        QShortcut(QKeySequence(Qt.Key.Key_Escape), self, self.close)  # not before: a stray key must not stop what works
        self.text.setPlainText(self.state.last_word)
        self.text.show()
        log = self.state.log
        self._show_buttons(
            [
                ("Copy", self._copy),
                *([("Open the log", lambda: window_state.open_file(log))] if log else []),
                ("Close", self.close),
                *([("Try again", self._again)] if self.state.again else []),
            ]
        )
        primary = self.buttons[-1]
        primary.setProperty("primary", True)
        primary.setStyleSheet(self.styleSheet())
        primary.setFocus()
        self.raise_()
        QApplication.alert(self)

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.state.to_copy())
        self.buttons[0].setText("Copied")

    def _again(self) -> None:
        self.code = AGAIN
        self.close()

    def _show_buttons(self, wanted: list[tuple[str, Callable[[], object]]]) -> None:
        for button in self.buttons:
            button.hide()
            button.deleteLater()
        self.buttons = []
        for text, act in wanted:
            button = QPushButton(text, self, autoDefault=True)
            button.clicked.connect(act)
            self.row.addWidget(button)
            self.buttons.append(button)
        if len(wanted) == 1:
            self.buttons[0].setAutoDefault(False)  # a stray Enter must not stop what works
            self.setFocus()

    def paintEvent(self, event: object) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.drawPixmap(_PAD, _PAD, self._icon)
        left, state = _PAD + 60 + 20, self.state
        self._write(painter, left, 30, state.heading, "text", 19, bold=True)
        self._write(painter, left, 60, state.below, "text_muted", 14)
        if state.last_word:
            return
        now = time.monotonic()
        for number, row in enumerate(state.rows.values()):
            top = _ROWS_TOP + _ROW * number
            self._mark(painter, QPointF(_PAD + 8, top + _ROW / 2), row.status)
            strong = row.status == "running"
            self._write(painter, _PAD + 30, top + 7, row.label, "text" if strong else "text_muted", 14)
            self._write(painter, _PAD, top + 8, row.passed(now), "text_faint", 12, right=True)
        self._bar(painter, now)
        self._write(painter, _PAD, _BAR_TOP - 26, state.detail, "text", 12)
        self._write(painter, _PAD, _BAR_TOP + 16, state.why, "text_muted", 12)

    def _write(
        self,
        painter: QPainter,
        x: int,
        y: int,
        text: str,
        color: str,
        size: int,
        bold: bool = False,
        right: bool = False,
    ) -> None:
        font = QFont(self.font())
        font.setPixelSize(size)
        font.setWeight(QFont.Weight.DemiBold if bold else QFont.Weight.Normal)
        painter.setFont(font)
        painter.setPen(QColor(self.colors[color]))
        flags = Qt.TextFlag.TextWordWrap | (Qt.AlignmentFlag.AlignRight if right else Qt.AlignmentFlag.AlignLeft)
        painter.drawText(QRectF(x, y, WIDTH - _PAD - x, 60), int(flags), text)

    def _mark(self, painter: QPainter, middle: QPointF, status: str) -> None:
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if status == "done":
            pen = QPen(QColor(self.colors["accent"]), 2, c=Qt.PenCapStyle.RoundCap, j=Qt.PenJoinStyle.RoundJoin)
            painter.setPen(pen)
            painter.drawPolyline([middle + QPointF(-5, 0), middle + QPointF(-1, 4), middle + QPointF(5, -4)])
        elif status == "running":
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(self.colors["accent"]))
            painter.drawEllipse(middle, 5, 5)
        else:
            painter.setPen(QColor(self.colors["text_faint"]))
            painter.drawEllipse(middle, 5, 5)

    def _bar(self, painter: QPainter, now: float) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        whole = QRectF(_PAD, _BAR_TOP, WIDTH - 2 * _PAD, 4)
        painter.setBrush(QColor(self.colors["border"]))
        painter.drawRoundedRect(whole, 2, 2)
        part = QRectF(whole)
        if self.state.share is None:  # no end is known: a light that walks
            part.setWidth(whole.width() / 4)
            part.moveLeft(whole.left() - part.width() + (now / 1.6 % 1) * (whole.width() + part.width()))
            part = part.intersected(whole)
        else:
            part.setWidth(whole.width() * min(1.0, self.state.share))
        painter.setBrush(QColor(self.colors["accent"]))
        painter.drawRoundedRect(part, 2, 2)


def _style(colors: dict[str, str]) -> str:
    return f"""
        ProgressWindow {{ background: {colors["window"]}; }}
        QPlainTextEdit {{
            background: {colors["surface"]}; color: {colors["text"]}; border: none; border-radius: 8px; padding: 8px;
            font-size: 14px; selection-background-color: {colors["accent"]};
            selection-color: {colors["on_accent"]};
        }}
        QPushButton {{
            background: {colors["surface"]}; color: {colors["text"]}; border: 2px solid {colors["surface"]};
            border-radius: 8px; padding: 6px 16px; font-size: 14px;
        }}
        QPushButton:hover {{ border-color: {colors["border"]}; }}
        QPushButton:focus {{ border-color: {colors["accent"]}; }}
        QPushButton[primary="true"] {{
            background: {colors["accent"]}; color: {colors["on_accent"]}; border-color: {colors["accent"]};
        }}
        QPushButton[primary="true"]:focus {{ border-color: {colors["text"]}; }}
    """


def main() -> int:
    """Show the window until it is closed; its exit code."""
    application = QApplication(sys.argv[:1])
    application.setApplicationName("greenroom")
    QGuiApplication.setDesktopFileName("greenroom")
    application.setWindowIcon(QIcon(str(window_state.ICON / "greenroom.png")))
    for font in (window_state.ICON.parent / "fonts").glob("Inter-*.otf"):
        QFontDatabase.addApplicationFont(str(font))
    if "Inter" in QFontDatabase.families():
        application.setFont(QFont("Inter"))
    window = ProgressWindow()
    window.show()
    QTimer.singleShot(0, window_state.shown)
    application.exec()
    return window.code


if __name__ == "__main__":
    sys.exit(main())
