"""The panels: one above the other in the right column, in any order; or hidden; or each in a window of its own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QPoint, Qt, Signal, Slot
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QFrame, QMenu, QScrollArea, QVBoxLayout, QWidget

from app.background import Background
from app.engine_client import EngineClient
from app.panels.bound import Bound
from app.panels.cache import CachePanel
from app.panels.experts import ExpertsPanel
from app.panels.floating import PanelWindow
from app.panels.history import History
from app.panels.memory import MemoryPanel
from app.panels.parts import Feed, Panel
from app.panels.replay import Replay
from app.panels.speed import SpeedPanel
from app.settings import Settings
from app.theme import Theme, space
from engine.messages import CacheSnapshot, ExpertSnapshot, MemorySnapshot, ModelLoaded

NAMES = ("experts", "cache", "speed", "memory")
TEAR = 60  # px beyond the column's edge at which a dragged panel becomes a window


class PanelsColumn(QScrollArea):
    """Scrolls when the window is low. Each panel hears the engine only while it is seen.

    ``changed``: a panel was hidden, shown or moved; ``empty`` says whether the column itself has any left.
    """

    changed = Signal()

    def __init__(
        self,
        theme: Theme,
        client: EngineClient,
        settings: Settings,
        background: Background,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._theme, self._client, self._settings = theme, client, settings
        self.setObjectName("panels")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.history = History()
        self.experts = ExpertsPanel(theme)
        self.cache = CachePanel(theme, self.history)
        self.speed = SpeedPanel(theme, self.history)
        self.memory = MemoryPanel(theme, self.history)
        self.panels: dict[str, Panel] = {
            "experts": self.experts,
            "cache": self.cache,
            "speed": self.speed,
            "memory": self.memory,
        }
        self.replay = Replay(self.experts, background, self)
        self.bound = Bound(client, self.cache, self)
        self.answered: Path | None = None  # the chat that the present model answered last
        self.windows: dict[str, PanelWindow] = {}
        self._places: dict[str, str] = {}  # of windows, remembered
        self._shown = set(NAMES)
        self._order = list(NAMES)
        inside = QWidget()
        inside.setObjectName("panelsInside")
        self._inside = inside
        self._column = QVBoxLayout(inside)
        self._column.setContentsMargins(space(4), space(3), space(4), space(4))
        self._column.setSpacing(space(5))
        self._column.addStretch(1)
        self.setWidget(inside)
        self._floating: set[str] = set()
        self._recall()
        for name, panel in self.panels.items():
            panel.heading.button.clicked.connect(partial(self._pop_up, name))
            panel.heading.dragged.connect(partial(self._drag, name))
            panel.heading.dropped.connect(partial(self._drop, name))
        self._arrange()
        self._connect()

    def _connect(self) -> None:
        client = self._client
        # what is drawn over time is noted whether a panel is seen or not; everything else only then
        client.cache_snapshot.connect(self.history.add_cache)
        client.memory_snapshot.connect(self.history.add_memory)
        client.started.connect(self.history.started)
        client.prefill_progress.connect(self.history.prefilled)
        client.finished.connect(self.history.finished)
        cache = partial(client.latest, CacheSnapshot)
        self.experts.follow(
            Feed(client.expert_snapshot, self.experts.show_snapshot, partial(client.latest, ExpertSnapshot)),
            Feed(client.started, self.replay.leave),
        )
        self.cache.follow(Feed(client.cache_snapshot, self.cache.show_snapshot, cache), *self.bound.feeds())
        self.speed.follow(
            Feed(client.cache_snapshot, self.speed.show_snapshot, cache),
            Feed(client.prefill_progress, self.speed.mark_stale),
        )
        self.memory.follow(
            Feed(client.memory_snapshot, self.memory.show_snapshot, partial(client.latest, MemorySnapshot)),
            Feed(client.cache_snapshot, self.memory.show_slots, cache),
        )

    def set_model(self, model: ModelLoaded | None) -> None:
        """The model the panels are about; None: none."""
        self.answered = None
        self.replay.leave()
        self.bound.set_model(model)
        self.history.forget()
        self.experts.set_model(model)
        self.cache.set_model(model)
        self.speed.forget()
        self.memory.set_model(model)

    def chat_changed(self, *news: object) -> None:
        """Another conversation, or another answer in it: what is replayed may be gone."""
        recording, latest = self.replay.recording, self.replay.latest()
        if recording is not None and (latest is None or latest.path != recording.path):
            self.replay.leave()
        self.replay.refresh()
        self.bound.chat_changed()
        self.speed.mark_stale()

    # ------------------------------------------------------------------------------------------ where they are

    def is_shown(self, name: str) -> bool:
        """Whether the panel is in the column or in a window, rather than hidden."""
        return name in self._shown

    @property
    def order(self) -> tuple[str, ...]:
        return tuple(self._order)

    @property
    def empty(self) -> bool:
        """Whether nothing is left in the column itself."""
        return not self._shown - self._floating

    def show_panel(self, name: str, shown: bool) -> None:
        """Show or hide a panel, where it was last."""
        (self._shown.add if shown else self._shown.discard)(name)
        self._settle()

    def bring_back(self) -> None:
        """Show every hidden panel, and have all that float in the column."""
        self._shown = set(NAMES)
        self._floating.clear()
        self._settle()

    def float_panel(self, name: str, at: QPoint | None = None) -> None:
        """Give a panel a window of its own."""
        self._floating.add(name)
        self._settle()
        if at is not None:
            self.windows[name].move(at)

    def dock_panel(self, name: str) -> None:
        """Take a panel back into the column."""
        self._floating.discard(name)
        self._settle()

    def move_panel(self, name: str, steps: int) -> None:
        """Move a panel up (below zero) or down among those in the column."""
        docked = [other for other in self._order if other in self._shown and other not in self._floating]
        at = docked.index(name) + steps
        if 0 <= at < len(docked):
            other = docked[at]
            self._order.remove(name)
            self._order.insert(self._order.index(other) + (steps > 0), name)
            self._settle()

    def _settle(self) -> None:
        self._arrange()
        self._remember()
        self.changed.emit()

    def _arrange(self) -> None:
        """Put every panel where it belongs."""
        for name in NAMES:
            wants_window = name in self._floating and name in self._shown
            if name in self.windows and not wants_window:
                window = self.windows.pop(name)
                self._places[name] = window.place()
                window.release()
            elif name not in self.windows and wants_window:
                self._column.removeWidget(self.panels[name])
                window = self.windows[name] = PanelWindow(self.panels[name], self)
                window.closed.connect(partial(self.dock_panel, name))
                window.restore(self._places.get(name, ""))
                self.panels[name].show()
                window.setVisible(self.window().isVisible())
        docked = [name for name in self._order if name not in self.windows]
        for place, name in enumerate(docked):
            panel = self.panels[name]
            if self._column.indexOf(panel) != place:
                self._column.insertWidget(place, panel)
            panel.setVisible(name in self._shown)

    def show_windows(self, shown: bool) -> None:
        """The main window came or went."""
        for window in self.windows.values():
            window.setVisible(shown)

    # ------------------------------------------------------------------------------------------ by hand

    def _pop_up(self, name: str) -> None:
        button = self.panels[name].heading.button
        menu = self.menu(name)
        menu.exec(button.mapToGlobal(button.rect().bottomLeft()))
        menu.deleteLater()

    def menu(self, name: str) -> QMenu:
        """What can be done with a panel's place."""
        menu = QMenu(self.panels[name])
        docked = [other for other in self._order if other in self._shown and other not in self._floating]
        if name in self._floating:
            menu.addAction(self.tr("Back to the &column")).triggered.connect(partial(self.dock_panel, name))
        else:
            up = menu.addAction(self.tr("Move &up"))
            up.triggered.connect(partial(self.move_panel, name, -1))
            up.setEnabled(docked.index(name) > 0)
            down = menu.addAction(self.tr("Move &down"))
            down.triggered.connect(partial(self.move_panel, name, 1))
            down.setEnabled(docked.index(name) < len(docked) - 1)
            menu.addAction(self.tr("Window of its &own")).triggered.connect(partial(self.float_panel, name))
        menu.addSeparator()
        menu.addAction(self.tr("&Hide")).triggered.connect(partial(self.show_panel, name, False))
        return menu

    def actions_for(self, menu: QMenu) -> list[QAction]:
        """A check mark for each panel, kept true."""
        made = []
        for name in NAMES:
            action = menu.addAction(self.panels[name].heading.name)
            action.setCheckable(True)
            action.setChecked(name in self._shown)
            action.toggled.connect(partial(self.show_panel, name))
            made.append(action)

        def update() -> None:
            for name, action in zip(NAMES, made, strict=True):
                action.setChecked(name in self._shown)

        self.changed.connect(update)
        return made

    def _drag(self, name: str, at: QPoint) -> None:
        """Follow the pointer: among the others in the column, or off into a window."""
        window = self.windows.get(name)
        if window is not None:
            window.move(at - QPoint(window.width() // 2, space(6)))
            return
        inside = self.mapFromGlobal(at)
        if not -TEAR < inside.x() < self.width() + TEAR:
            self.float_panel(name, at - QPoint(self.width() // 2, space(6)))
            return
        docked = [other for other in self._order if other in self._shown and other not in self._floating]
        y, place = self._inside.mapFromGlobal(at).y(), docked.index(name)
        if place and y < self.panels[docked[place - 1]].geometry().center().y():
            self.move_panel(name, -1)
        elif place < len(docked) - 1 and y > self.panels[docked[place + 1]].geometry().center().y():
            self.move_panel(name, 1)

    def _drop(self, name: str, at: QPoint) -> None:
        """A window dropped over the column joins it."""
        if name in self.windows and self.isVisible() and self.rect().contains(self.mapFromGlobal(at)):
            self.dock_panel(name)

    # ------------------------------------------------------------------------------------------ remembered

    def _recall(self) -> None:
        stored: dict[str, dict[str, Any]] = self._settings.panels
        known = [name for name in stored if name in NAMES]
        self._order = known + [name for name in NAMES if name not in known]
        for name in known:
            if stored[name].get("shown") is False:
                self._shown.discard(name)
            if stored[name].get("window") is True:
                self._floating.add(name)
            place = stored[name].get("place")
            self._places[name] = place if isinstance(place, str) else ""

    def _remember(self) -> None:
        for name, window in self.windows.items():
            self._places[name] = window.place()
        self._settings.panels = {
            name: {
                "shown": name in self._shown,
                "window": name in self._floating,
                "place": self._places.get(name, ""),
            }
            for name in self._order
        }

    @Slot()
    def remember(self) -> None:
        """Keep where everything is, for the next start."""
        self._remember()
