"""The Experts panel: who is on stage, who was called for this token, who had to be fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QEvent, QRect, QSize, Signal
from PySide6.QtGui import QColor, QHideEvent, QPainter, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QVBoxLayout, QWidget

from app.panels import cells, format, glyphs
from app.panels.cells import Mark, Mode
from app.panels.heatmap import Heatmap
from app.panels.legend import Entry, Legend, Picture
from app.panels.parts import Heading, Panel
from app.panels.player import Player
from app.panels.segmented import SegmentedSwitch
from app.theme import space
from engine.messages import Cell, ExpertSnapshot, ModelLoaded

if TYPE_CHECKING:
    from app.colors import Colors
    from app.theme import Theme

_GAP = space(2)
_MODES = (Mode.TOKEN, Mode.ANSWER, Mode.CHAT, Mode.TOTAL)


class ExpertsPanel(Panel):
    """Heading, mode switch, heatmap, legend, player. While an answer is replayed, what goes on now waits unseen."""

    was_hidden = Signal()
    pace = 0.0  # its words are few, and its cells move with every token

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._snapshot: ExpertSnapshot | None = None
        self._model: ModelLoaded | None = None
        self._moment: tuple[ExpertSnapshot, int] | None = None  # replayed, and of how many
        self._elsewhere = False  # what goes on now is of another chat than the one on the screen
        self._seen = 0  # bits of cells that there were: the legend explains a mark once there has been one
        self.switch = SegmentedSwitch(
            theme, [self.tr("This token"), self.tr("Answer"), self.tr("Chat"), self.tr("All time")]
        )
        self.switch.setAccessibleName(self.tr("Uses that the heatmap shows"))
        self.heatmap = Heatmap(theme)
        self.legend = Legend(theme)
        self.player = Player(theme)
        body = QWidget()
        column = QVBoxLayout(body)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(space(2))
        column.addWidget(self.switch)
        self._stage = _Stage(self.heatmap, self.legend)
        column.addWidget(self._stage, 1)
        column.addWidget(self.player)
        nothing = self.tr("Once a model is loaded, its experts appear here.")
        self.arrange(Heading(self.tr("Experts"), theme), body, nothing)
        self.switch.chosen.connect(self._choose)
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
        self._moment = None
        self._elsewhere = self.heatmap.elsewhere = False
        self._seen = 0
        self.show_body(model is not None)
        beside_a_card = model is not None and model.device != "CPU"
        self.heatmap.waiting = self.tr("in RAM or on disk") if beside_a_card else self.tr("on disk")
        self.heatmap.set_shape(model.layers if model else 0, model.experts if model else 0)
        self.heatmap.encoder_layers = model.encoder_layers if model else 0
        self._stage.updateGeometry()
        self._explain()
        self.mark_stale()
        self.refresh()

    def show_snapshot(self, snapshot: ExpertSnapshot) -> None:
        """Show the experts as they are now; costs nothing while hidden."""
        self._snapshot = snapshot
        self.mark_stale()

    def set_elsewhere(self, elsewhere: bool) -> None:
        """Whether the uses are those of another chat than the one on the screen."""
        if elsewhere != self._elsewhere:
            self._elsewhere = self.heatmap.elsewhere = elsewhere
            self.mark_stale()

    # ------------------------------------------------------------------------------------------ the past

    @property
    def replaying(self) -> bool:
        return self._moment is not None

    def begin_replay(self, layers: int, experts: int) -> None:
        """Moments of an answer follow; a log knows this token's and this answer's uses, no others."""
        if self.mode not in (Mode.TOKEN, Mode.ANSWER):
            self.set_mode(Mode.TOKEN)
        for button in self.switch.buttons()[2:]:
            button.setEnabled(False)
        self.show_body(True)
        nothing = np.zeros((layers, experts), np.uint8)
        none = np.zeros((layers, experts), np.uint32)
        self._moment = (ExpertSnapshot(nothing, none, none, none, "decode", 0), 0)
        self._explain()

    def show_moment(self, snapshot: ExpertSnapshot, moments: int) -> None:
        """Show the experts as a token of a past answer called them."""
        if self._moment is not None:
            self._moment = (snapshot, moments)
            self.mark_stale()

    def end_replay(self) -> None:
        """What goes on now again."""
        self._moment = None
        for button in self.switch.buttons():
            button.setEnabled(True)
        self.show_body(self._model is not None)
        if self._model is not None and self._snapshot is None:
            self.heatmap.set_shape(self._model.layers, self._model.experts)
        self._explain()
        self.mark_stale()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.was_hidden.emit()

    # ------------------------------------------------------------------------------------------ showing

    def show_now(self) -> None:
        if self._moment is not None:
            snapshot, moments = self._moment
            words = self.tr("token {token} of {tokens} · replay")
            self.heading.set_note(words.format(token=format.count(snapshot.token), tokens=format.count(moments)))
            self.heatmap.show_snapshot(snapshot, knows_where=False)
        elif self._model is None or self._snapshot is None:
            self.heading.set_note(self._shape_words())
            return
        else:
            snapshot = self._snapshot
            self.heading.set_note(self._now(snapshot))
            self.heatmap.show_snapshot(snapshot)
        seen = self._seen | int(np.bitwise_or.reduce(snapshot.cells, axis=None))
        if seen != self._seen:
            self._seen = seen
            self._explain()

    def _shape_words(self) -> str:
        if self._model is None:
            return ""
        layers, encoder = self._model.layers, self._model.encoder_layers
        words = self.tr("{layers} layers × {experts} experts")  # noqa: RUF001 - a multiplication sign
        if encoder:  # above each other, in this order
            words = self.tr("{encoder} encoder + {decoder} decoder layers × {experts} experts")  # noqa: RUF001
        return words.format(layers=layers, encoder=encoder, decoder=layers - encoder, experts=self._model.experts)

    def _now(self, snapshot: ExpertSnapshot) -> str:
        phase = {
            "prefill": self.tr("reading the prompt"),
            "decode": self.tr("decode"),
            "idle": self.tr("idle"),
        }[snapshot.phase]
        if snapshot.phase != "prefill" and snapshot.token:
            phase = self.tr("token {token} · {phase}").format(token=format.count(snapshot.token), phase=phase)
        return self.tr("another chat · {words}").format(words=phase) if self._elsewhere else phase

    def _choose(self, index: int) -> None:
        self.heatmap.set_mode(_MODES[index])
        self._explain()

    def _cell(self, state: int) -> Picture:
        """A cell as the heatmap paints it at its present size."""

        def draw(painter: QPainter, box: QRect, colors: Colors) -> None:
            placed = self.heatmap.placement()
            size = (placed.cell_width, placed.cell_height) if placed else (9, 9)
            ratio = painter.device().devicePixelRatio()
            painter.drawPixmap(box.topLeft(), glyphs.swatch(state, box.height(), ratio, colors, size))

        return draw

    def _explain(self) -> None:
        """The legend, in the very marks of the heatmap; what there has not been yet needs no explaining."""
        resident = cells.LEVELS // 2 | 16
        where = [
            Entry(self.tr("on the device"), self._cell(resident)),
            Entry(self.heatmap.waiting, self._cell(0 if self.mode is Mode.TOKEN else cells.LEVELS // 2)),
        ]
        if self.mode is Mode.TOKEN:
            entries = [
                Entry(self.tr("routed"), self._cell(Mark.HIT << 5 | resident)),
                Entry(self.tr("missed"), self._cell(Mark.MISS << 5 | resident)),
            ]
            for bit, words, state in (
                (Cell.PREFETCHED, self.tr("fetched ahead"), Mark.EARLY << 5),
                (Cell.LATE, self.tr("late"), Mark.LATE << 5),
                (Cell.WASTED, self.tr("wasted"), Mark.WASTED << 5),
                (Cell.PREDICTED, self.tr("predicted"), cells.PREDICTED),
            ):
                if self._seen & bit:
                    entries.append(Entry(words, self._cell(state | resident)))
        else:
            entries = [Entry(self.tr("few to many uses"), _ramp, 44)]
        if self._moment is None:
            entries += where
        elif self.mode is Mode.TOKEN:
            entries.append(Entry(self.tr("few to many uses so far"), _ramp, 44))
        if self.legend.texts != tuple(entry.text for entry in entries):
            self.legend.set_entries(entries)
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


def _ramp(painter: QPainter, box: QRect, colors: Colors) -> None:
    shades = glyphs.ramp(colors)
    for step in range(4):
        shade = QColor.fromRgba(int(shades[(step + 1) * (len(shades) - 1) // 4]))
        painter.fillRect(QRect(box.x() + step * 11, box.y(), box.height(), box.height()), shade)
