"""How much of the context is taken, before and while a message is sent."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.theme import Theme, font, space
from engine.messages import TokenCount

BAR_WIDTH = 120  # px
NEARLY_FULL = 0.9


class ContextMeter(QWidget):
    """How much of the conversation's room is taken: a small bar and the figures."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme = theme
        self._used, self._total = 0, 0
        self._count: TokenCount | None = None
        self._compact = False
        self.setFont(font("small", tabular=True))
        self.setMinimumHeight(20)
        theme.changed.connect(self._say)
        self.hide()

    def set_context(self, used: int, total: int) -> None:
        """Tokens used and the most there may be; 0 in total: unknown, nothing is shown."""
        self._used, self._total = used, total
        self._say()

    def set_count(self, count: TokenCount | None) -> None:
        """What the draft and everything before it come to; None: there is no draft, or nobody has counted yet."""
        self._count = count
        self._say()

    @property
    def shown(self) -> int:
        """The tokens that are shown."""
        return self._count.tokens if self._count is not None else self._used

    def _say(self) -> None:
        self.setVisible(self._total > 0)
        self.setAccessibleName(self.tr("Context: %1 tokens").replace("%1", self._words()))
        tip = self.tr("Tokens of this conversation, of those the model was given room for")
        if self._count is not None:
            left = max(0, self._count.context - self._count.tokens)
            tip = self.tr("Tokens of the conversation with this message; %1 are left for the answer")
            tip = tip.replace("%1", f"{left:,}")
        self.setToolTip(tip)
        self.updateGeometry()
        self.update()

    def set_compact(self, compact: bool) -> None:
        """Only the figures, where there is no room for more."""
        if self._compact != compact:
            self._compact = compact
            self.updateGeometry()
            self.update()

    def _words(self) -> str:
        return self.tr("%1 of %2").replace("%1", f"{self.shown:,}").replace("%2", f"{self._total:,}")

    def wide(self, compact: bool) -> int:
        """Its width with the figures alone or with all, px; 0 while it shows nothing."""
        if self._total == 0:
            return 0
        metrics = self.fontMetrics()
        words = metrics.horizontalAdvance(self._words()) + 2
        return words if compact else words + metrics.horizontalAdvance(self.tr("context")) + space(6) + BAR_WIDTH

    def sizeHint(self) -> QSize:
        return QSize(self.wide(self._compact), 20)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self.theme.colors
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(self.font())
        painter.setPen(QColor(colors.text_faint))
        words, label = self._words(), self.tr("context")
        share = min(1.0, self.shown / self._total) if self._total else 0.0
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
