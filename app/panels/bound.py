"""The best that an expert cache of the present size could have done on this chat: Belady's rule, replayed.

Asked for when an answer ends and somebody looks at the Cache panel; called off when the next answer begins, which has
the machine to itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Slot

from app.engine_client import EngineClient
from app.panels.cache import CachePanel
from app.panels.parts import Feed
from engine.messages import CacheSnapshot, Failed, ModelLoaded, StopWhatIf, WhatIf, WhatIfResult

BELADY = "belady"


class Bound(QObject):
    """Keeps the panel's ``show_best`` true. ``log``: the conversation on the screen, None while there is none."""

    def __init__(self, client: EngineClient, panel: CachePanel, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._client = client
        self._panel = panel
        self._numbers = itertools.count(1)
        self._signature = ""  # of the present model
        self._asked = ""  # the request under way
        self._known: tuple[Path, int] | None = None  # log and slots that what is shown, or asked for, is about
        self.log: Callable[[], Path | None] = lambda: None
        client.what_if_result.connect(self._told)
        client.failed.connect(self._failed)

    def set_model(self, model: ModelLoaded | None) -> None:
        """Another model, or none: slots mean something else."""
        self._signature = model.signature if model is not None else ""
        self.call_off()

    def feeds(self) -> tuple[Feed, ...]:
        """What this hears while the panel is seen."""
        return (
            Feed(self._client.started, self.call_off),
            Feed(self._client.cache_snapshot, self._look, lambda: self._client.latest(CacheSnapshot)),
        )

    @Slot()
    def chat_changed(self, *news: object) -> None:
        """Another conversation, or an answer begins or ends in it: nothing is known of it yet."""
        log = self.log()
        if self._known is not None and self._known[0] != log:
            self.call_off()
            self._panel.show_best(None)
        if self._panel.isVisible():
            self._look(self._client.latest(CacheSnapshot))

    def call_off(self, *news: object) -> None:
        """The machine is wanted for something else."""
        self._known = None
        if self._asked:
            self._client.send(StopWhatIf(self._asked))
            self._asked = ""

    def _look(self, snapshot: object) -> None:
        """Ask, unless that was done, or an answer is under way."""
        log = self.log()
        if log is None or not isinstance(snapshot, CacheSnapshot) or self._known == (log, snapshot.slots):
            return
        self.call_off()
        self._known = (log, snapshot.slots)
        self._asked = f"bound-{next(self._numbers)}"
        self._client.send(WhatIf(self._asked, (str(log),), (), (f"{snapshot.slots} slots",)))

    @Slot(object)
    def _told(self, result: WhatIfResult) -> None:
        if result.request_id == self._asked:
            self._asked = ""
            line = next((line for line in result.lines if line.policy == BELADY), None)
            known = line is not None and bool(line.points) and result.signature == self._signature
            # what another model was asked for says nothing about this one's slots
            self._panel.show_best(line.points[0].hit_rate if line is not None and known else None)

    @Slot(object)
    def _failed(self, event: Failed) -> None:
        """A log of several models, or nothing decoded: the bound stays unknown."""
        if self._asked and event.request_id == self._asked:
            self._asked = ""
            self._panel.show_best(None)
