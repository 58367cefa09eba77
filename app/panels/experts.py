"""The Experts panel: who is on stage, who was called for this token, who had to be fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QEvent, QRect, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QVBoxLayout, QWidget

from app.panels import cells, format, glyphs
from app.panels.cells import Mark, Mode
from app.panels.heatmap import Heatmap
from app.panels.legend import Entry, Legend, Picture
from app.panels.parts import Heading, Panel, label
from app.panels.segmented import SegmentedSwitch
from app.theme import space
from engine.messages import Cell, ExpertSnapshot, ModelLoaded

if TYPE_CHECKING:
    from app.colors import Colors
    from app.theme import Theme

_GAP = space(2)
_MODES = (Mode.TOKEN, Mode.ANSWER, Mode.CHAT, Mode.TOTAL)


class ExpertsPanel(Panel):
    """Heading, mode switch, heatmap, legend. Hidden it keeps the latest snapshot and does nothing else."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._snapshot: ExpertSnapshot | None = None
        self._model: ModelLoaded | None = None
        self._predicts = False  # the legend explains the dot once there has been one
        self.heading = Heading(self.tr("Experts"))
        self.switch = SegmentedSwitch(
            theme, [self.tr("This token"), self.tr("Answer"), self.tr("Chat"), self.tr("All time")]
        )
        self.switch.setAccessibleName(self.tr("Uses that the heatmap shows"))
        self.heatmap = Heatmap(theme)
        self.legend = Legend(theme)
        self._empty = label(self.tr("Load a model to see its experts"), "muted")
        self._empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._body = QWidget()
        body = QVBoxLayout(self._body)
        body.setContentsMargins(0, 0, 0, 0)
        body.setSpacing(space(2))
        body.addWidget(self.switch)
        self._stage = _Stage(self.heatmap, self.legend)
        body.addWidget(self._stage, 1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(space(2))
        column.addWidget(self.heading)
        column.addWidget(self._body)
        column.addWidget(self._empty)
        self._empty.setMinimumHeight(space(24))
        self.switch.chosen.connect(self._choose)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Maximum)
        self.set_model(None)
        self._explain()

    @property
    def mode(self) -> Mode:
        return self.heatmap.mode

    def set_mode(self, mode: Mode) -> None:
        self.switch.choose(_MODES.index(mode))

    def set_model(self, model: ModelLoaded | None) -> None:
        """Another model, or none: what was shown is gone."""
        self._model = model
        self._snapshot = None
        self._body.setVisible(model is not None)
        self._empty.setVisible(model is None)
        self.heatmap.set_shape(model.layers if model else 0, model.experts if model else 0)
        self._stage.updateGeometry()
        self.mark_stale()
        self.refresh()

    def show_snapshot(self, snapshot: ExpertSnapshot) -> None:
        """Show the experts as they are now; costs nothing while hidden."""
        self._snapshot = snapshot
        self.mark_stale()

    def show_now(self) -> None:
        snapshot = self._snapshot
        if self._model is None or snapshot is None:
            self.heading.set_note(self._shape_words())
            return
        self.heading.set_note(self._moment(snapshot))
        self.heatmap.show_snapshot(snapshot)
        if not self._predicts and bool(np.any(snapshot.cells & Cell.PREDICTED)):
            self._predicts = True
            self._explain()

    def _shape_words(self) -> str:
        if self._model is None:
            return ""
        return self.tr("{layers} layers × {experts} experts").format(  # noqa: RUF001 - a multiplication sign
            layers=self._model.layers, experts=self._model.experts
        )

    def _moment(self, snapshot: ExpertSnapshot) -> str:
        phase = {
            "prefill": self.tr("reading the prompt"),
            "decode": self.tr("decode"),
            "idle": self.tr("idle"),
        }[snapshot.phase]
        if snapshot.phase == "prefill" or not snapshot.token:
            return phase
        return self.tr("token {token} · {phase}").format(token=format.count(snapshot.token), phase=phase)

    def _choose(self, index: int) -> None:
        self.heatmap.set_mode(_MODES[index])
        self._explain()

    def _explain(self) -> None:
        """The legend, in the very marks of the heatmap."""
        resident = cells.LEVELS // 2 | 16
        if self.mode is Mode.TOKEN:
            entries = [
                Entry(self.tr("routed"), _cell(Mark.HIT << 5 | resident)),
                Entry(self.tr("missed"), _cell(Mark.MISS << 5 | resident)),
                Entry(self.tr("predicted"), _cell(Mark.PREDICTED << 5 | resident)) if self._predicts else None,
                Entry(self.tr("on the device"), _cell(resident)),
                Entry(self.tr("on disk"), _cell(0)),
            ]
        else:
            entries = [
                Entry(self.tr("few to many uses"), _ramp, 44),
                Entry(self.tr("on the device"), _cell(resident)),
                Entry(self.tr("on disk"), _cell(cells.LEVELS // 2)),
            ]
        self.legend.set_entries([entry for entry in entries if entry is not None])
        self._stage.updateGeometry()


class _Stage(QWidget):
    """The heatmap and right below its last row the legend, wherever whole cells let that row end."""

    def __init__(self, heatmap: Heatmap, legend: Legend) -> None:
        super().__init__()
        self._heatmap, self._legend = heatmap, legend
        heatmap.setParent(self)
        legend.setParent(self)
        legend.raise_()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Maximum)

    def sizeHint(self) -> QSize:
        return self._with_legend(self._heatmap.sizeHint())

    def minimumSizeHint(self) -> QSize:
        return self._with_legend(self._heatmap.minimumSizeHint())

    def _with_legend(self, size: QSize) -> QSize:
        return QSize(size.width(), size.height() + _GAP + self._legend.minimumHeight())

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.LayoutRequest:
            self.updateGeometry()
            self._arrange()
        return super().event(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._arrange()

    def _arrange(self) -> None:
        below = self._legend.minimumHeight()
        self._heatmap.setGeometry(0, 0, self.width(), max(1, self.height() - _GAP - below))
        self._legend.setGeometry(0, self._heatmap.used_height() + _GAP, self.width(), below)


def _cell(state: int) -> Picture:
    def draw(painter: QPainter, box: QRect, colors: Colors) -> None:
        painter.drawPixmap(
            box.topLeft(), glyphs.swatch(state, box.height(), painter.device().devicePixelRatio(), colors)
        )

    return draw


def _ramp(painter: QPainter, box: QRect, colors: Colors) -> None:
    shades = glyphs.ramp(colors)
    for step in range(4):
        shade = QColor.fromRgba(int(shades[(step + 1) * (len(shades) - 1) // 4]))
        painter.fillRect(QRect(box.x() + step * 11, box.y(), box.height(), box.height()), shade)
