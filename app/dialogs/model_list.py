"""The list of models in the picker: its data, its filter, and how a row is drawn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import (
    QAbstractListModel,
    QCoreApplication,
    QModelIndex,
    QPersistentModelIndex,
    QRect,
    QSize,
    QSortFilterProxyModel,
    Qt,
)
from PySide6.QtGui import QColor, QFontMetrics, QPainter
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from app.dialogs import verdict
from app.panels import format
from app.panels.parts import plain_tip
from app.theme import RADIUS, font, space
from engine.messages import MemoryPlanned, ModelSummary

if TYPE_CHECKING:
    from app.theme import Theme

SummaryRole = Qt.ItemDataRole.UserRole + 1
PlanRole = Qt.ItemDataRole.UserRole + 2
_ROW = 60
_PRECISIONS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
Index = QModelIndex | QPersistentModelIndex


def precision(dtype: str) -> str:
    """ "bf16" for "bfloat16"; what has no short name stays."""
    return _PRECISIONS.get(dtype, dtype)


def second_line(model: ModelSummary) -> str:
    """ "30 × 32 · 0.27 GB · bf16"; why it cannot be used, where it cannot."""  # noqa: RUF002 - a multiplication sign
    if model.problem:
        return " ".join(model.problem.split())
    if not model.built:
        return QCoreApplication.translate("ModelPicker", "made on this computer at the first load")
    pieces = []
    if model.layers and model.experts:
        pieces.append(f"{model.layers} × {model.experts}")  # noqa: RUF001 - a multiplication sign
    if model.total_bytes:
        pieces.append(format.size(model.total_bytes))
    if model.dtype:
        pieces.append(precision(model.dtype))
    return " · ".join(pieces)


def status(model: ModelSummary, plan: MemoryPlanned | None = None) -> str:
    """What can be done with it, in a word or two; with a plan, whether it fits."""
    if model.partial:
        return QCoreApplication.translate("ModelPicker", "not complete")
    if model.problem:
        return QCoreApplication.translate("ModelPicker", "cannot be used")
    if model.built and plan is not None:
        return verdict.short(plan)
    if model.built:
        return QCoreApplication.translate("ModelPicker", "ready")
    return QCoreApplication.translate("ModelPicker", "not built yet")


class ModelsModel(QAbstractListModel):
    """The summaries, the demo first, the unusable last, the rest in the engine's order."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._models: list[ModelSummary] = []
        self._plans: dict[str, MemoryPlanned] = {}

    @property
    def models(self) -> tuple[ModelSummary, ...]:
        return tuple(self._models)

    def replace(self, models: Iterable[ModelSummary]) -> None:
        self.beginResetModel()
        self._models = sorted(models, key=lambda model: (model.source != "demo", bool(model.problem)))
        self.endResetModel()

    def merge(self, model: ModelSummary) -> None:
        """Add one, in place of what was known about the same source."""
        self.replace([*(known for known in self._models if known.source != model.source), model])

    def plan_of(self, source: str) -> MemoryPlanned | None:
        """The latest plan for a source."""
        return self._plans.get(source)

    def show_plan(self, plan: MemoryPlanned) -> None:
        """Keep a plan, and show its verdict in the row of its source."""
        source = plan.question.source
        self._plans[source] = plan
        row = self.row_of(source)
        if row >= 0:
            self.dataChanged.emit(self.index(row, 0), self.index(row, 0))

    def forget_plans(self) -> None:
        """Folders and free memory may have changed."""
        self._plans.clear()

    def row_of(self, source: str) -> int:
        """The row of a source, -1 when it is not there."""
        return next((row for row, model in enumerate(self._models) if model.source == source), -1)

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 - Qt's own signature
        return 0 if parent.isValid() else len(self._models)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        model = self._models[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return model.name
        if role == Qt.ItemDataRole.ToolTipRole:
            return plain_tip(model.source if model.source != "demo" else "")
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return f"{model.name}, {second_line(model)}, {status(model, self.plan_of(model.source))}"
        if role == PlanRole:
            return self.plan_of(model.source)
        return model if role == SummaryRole else None


class ModelsFilter(QSortFilterProxyModel):
    """Rows that hold every typed word in name, source or family, whatever its case."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._words: list[str] = []

    def set_text(self, text: str) -> None:
        self._words = text.casefold().split()
        self.invalidate()

    def filterAcceptsRow(self, row: int, parent: Index) -> bool:
        model = self.sourceModel().index(row, 0, parent).data(SummaryRole)
        found = f"{model.name} {model.source} {model.family}".casefold()
        return all(word in found for word in self._words)


class ModelDelegate(QStyledItemDelegate):
    """Name over a quiet second line, the status on the right. All text is drawn as it is, never as markup."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(200, _ROW)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        model: ModelSummary = index.data(SummaryRole)
        colors = self._theme.colors
        box: QRect = option.rect.adjusted(0, 1, 0, -1)
        state: QStyle.StateFlag = option.state
        selected = bool(state & QStyle.StateFlag.State_Selected)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if selected or state & QStyle.StateFlag.State_MouseOver:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(colors.accent_soft if selected else colors.surface))
            painter.drawRoundedRect(box, RADIUS, RADIUS)
        if selected:
            painter.setBrush(QColor(colors.accent))
            painter.drawRoundedRect(QRect(box.left(), box.top() + space(4), 3, box.height() - space(8)), 1.5, 1.5)
        self._write(painter, box.adjusted(space(3), space(2), -space(3), -space(2)), model, index.data(PlanRole))
        painter.restore()

    def _write(self, painter: QPainter, box: QRect, model: ModelSummary, plan: MemoryPlanned | None) -> None:
        colors = self._theme.colors
        left, right = Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignRight
        middle = Qt.AlignmentFlag.AlignVCenter
        small = font("small", tabular=True)
        state = status(model, plan)
        status_width = QFontMetrics(small).horizontalAdvance(state)
        half = box.height() // 2
        upper = QRect(box.left(), box.top(), box.width() - status_width - space(3), half)
        lower = QRect(box.left(), box.top() + half, box.width(), half)

        title = font("title")
        painter.setFont(title)
        painter.setPen(QColor(colors.text_muted if model.problem else colors.text))
        name = QFontMetrics(title).elidedText(_one_line(model.name), Qt.TextElideMode.ElideMiddle, upper.width())
        painter.drawText(upper, int(left | middle | Qt.TextFlag.TextSingleLine), name)

        painter.setFont(small)
        painter.setPen(QColor(colors.text_muted))
        detail = QFontMetrics(small).elidedText(second_line(model), Qt.TextElideMode.ElideRight, lower.width())
        painter.drawText(lower, int(left | middle | Qt.TextFlag.TextSingleLine), detail)
        painter.setPen(QColor(getattr(colors, _tone(model, plan))))
        painter.drawText(QRect(box.left(), box.top(), box.width(), half), int(right | middle), state)


def _tone(model: ModelSummary, plan: MemoryPlanned | None) -> str:
    """The field of ``Colors`` for a status."""
    if (model.problem and not model.partial) or (plan and plan.verdict == "too big"):
        return "danger"
    return "warn" if model.partial or not model.built or (plan and plan.on_disk) else "accent"


def _one_line(text: str) -> str:
    return " ".join(text.split())
