"""The window's end of the queue to the engine thread.

The engine calls ``_put`` from its own thread, which only appends to a queue. A timer on the GUI thread drains it about
30 times a second and re-emits each event as a Qt signal, coalesced: the tokens of one tick are one signal, and of each
kind of snapshot only the latest is shown. When nothing goes on the timer slows down.

A load that is asked for while another is under way takes its place: the other is stopped, and its end is not told.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import Protocol

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot

from engine.messages import (
    CacheSnapshot,
    Command,
    DownloadDone,
    DownloadProgress,
    EngineReady,
    Event,
    ExpertSnapshot,
    Failed,
    Finished,
    Generate,
    LoadModel,
    MemoryPlanned,
    MemorySnapshot,
    ModelList,
    ModelLoaded,
    ModelOnHub,
    ModelUnloaded,
    PrefillProgress,
    ProfileFacts,
    Progress,
    ShutDown,
    Started,
    Stopped,
    Token,
    TokenCount,
    WhatIfProgress,
    WhatIfResult,
)

BUSY_MS = 33  # 30 Hz: as often as an eye sees a difference in text
IDLE_MS = 200
CALM_SECONDS = 1.0  # without an event, before the timer slows down


class Service(Protocol):
    """What the client needs of ``engine.service.EngineService``."""

    def start(self) -> None: ...
    def send(self, command: Command) -> None: ...
    def stop(self) -> None: ...
    def join(self, timeout: float | None = None) -> object: ...


def engine_service(emit: Callable[[Event], None]) -> Service:
    """The real engine. Imported late: only the thread it starts imports the heavy libraries."""
    from engine.service import EngineService

    return EngineService(emit)


class EngineClient(QObject):
    """Sends commands, re-emits events. Every signal carries the event itself, ``tokens`` what a tick collected."""

    ready = Signal(object)  # EngineReady
    progress = Signal(object)  # Progress
    model_list = Signal(object)  # ModelList
    memory_planned = Signal(object)  # MemoryPlanned
    model_on_hub = Signal(object)  # ModelOnHub
    download_progress = Signal(object)  # DownloadProgress
    download_done = Signal(object)  # DownloadDone
    model_loaded = Signal(object)  # ModelLoaded
    token_count = Signal(object)  # TokenCount
    model_unloaded = Signal()
    started = Signal(object)  # Started
    prefill_progress = Signal(object)  # PrefillProgress
    tokens = Signal(str, str, int)  # request id, new text, tokens of the answer so far
    finished = Signal(object)  # Finished
    expert_snapshot = Signal(object)
    cache_snapshot = Signal(object)
    memory_snapshot = Signal(object)
    profile_facts = Signal(object)  # ProfileFacts
    what_if_progress = Signal(object)  # WhatIfProgress
    what_if_result = Signal(object)  # WhatIfResult
    failed = Signal(object)  # Failed
    stopped = Signal()  # the engine thread has ended; nothing follows

    def __init__(
        self, make_service: Callable[[Callable[[Event], None]], Service] = engine_service, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._service = make_service(self._events.put)
        self._snapshots: dict[type[Event], Event] = {}  # the latest of each kind
        self._last_event = time.monotonic()
        self._running = False
        self._starting = True  # until EngineReady
        self._loads = 0  # asked for, and not ended yet
        self._answers: set[str] = set()  # likewise, by request id
        self._timer = QTimer(self)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._drain)
        self._deadline = QTimer(self)
        self._deadline.setSingleShot(True)
        self._deadline.timeout.connect(self._end)

    # ------------------------------------------------------------------------------------------- commands

    def start(self) -> None:
        """Start the engine thread; ``ready`` follows once its libraries are imported."""
        self._running = True
        self._service.start()
        self._hurry()

    def send(self, command: Command) -> None:
        if isinstance(command, Generate):
            self._answers.add(command.request_id)
        elif isinstance(command, LoadModel):
            if self._loads:
                self._service.stop()
            self._loads += 1
            self._forget_experts()
        self._service.send(command)
        self._hurry()

    def stop(self) -> None:
        """Stop the running load or answer at once, ahead of everything queued."""
        self._service.stop()
        self._hurry()

    def shut_down(self, timeout: float) -> None:
        """Stop whatever runs and end the thread. ``stopped`` follows, after ``timeout`` seconds at the latest."""
        if not self._running:
            self.stopped.emit()
            return
        self._service.stop()
        self._service.send(ShutDown())
        self._deadline.start(round(timeout * 1000))
        self._hurry()

    def join(self, timeout: float) -> bool:
        """Wait for the engine thread to end, for when the event loop is over. False when it did not."""
        return bool(self._service.join(timeout))

    @property
    def running(self) -> bool:
        """The engine thread was started and has not said that it ended."""
        return self._running

    def latest(self, kind: type[Event]) -> Event | None:
        """The last snapshot of this kind, for who comes late; None before the first since the model was loaded."""
        return self._snapshots.get(kind)

    def _forget_experts(self) -> None:
        """The model that they were of goes, or is gone."""
        for kind in (ExpertSnapshot, CacheSnapshot):
            self._snapshots.pop(kind, None)

    # --------------------------------------------------------------------------------------------- events

    def _hurry(self) -> None:
        self._last_event = time.monotonic()
        self._pace()

    def _pace(self) -> None:
        """Look often while something goes on, seldom when not, never once the engine has ended."""
        working = self._starting or self._loads or self._answers
        calm = not working and time.monotonic() - self._last_event > CALM_SECONDS
        interval = IDLE_MS if calm else BUSY_MS
        if not self._running:
            self._timer.stop()
        elif not self._timer.isActive() or self._timer.interval() != interval:
            self._timer.start(interval)

    @Slot()
    def _drain(self) -> None:
        snapshots: dict[type, Event] = {}
        text: list[str] = []
        last_token: Token | None = None
        last_progress: Progress | None = None

        def flush() -> None:
            nonlocal last_token, last_progress
            if last_progress is not None:
                self.progress.emit(last_progress)
                last_progress = None
            if last_token is not None:
                self.tokens.emit(last_token.request_id, "".join(text), last_token.count)
                text.clear()
                last_token = None

        for _ in range(self._events.qsize()):
            try:
                event = self._events.get_nowait()
            except queue.Empty:  # cannot happen: this is the only reader
                break
            self._last_event = time.monotonic()
            if isinstance(event, Token):
                if last_progress is not None or (last_token and last_token.request_id != event.request_id):
                    flush()
                text.append(event.text)
                last_token = event
            elif isinstance(event, Progress):
                if last_token is not None:
                    flush()
                if self._loads <= 1:
                    last_progress = event
            elif isinstance(event, ExpertSnapshot | CacheSnapshot | MemorySnapshot):
                if not self._loads or isinstance(event, MemorySnapshot):  # else of a model that is about to go
                    snapshots[type(event)] = event
            else:
                flush()
                if isinstance(event, ModelLoaded | ModelUnloaded):
                    snapshots = {kind: latest for kind, latest in snapshots.items() if kind is MemorySnapshot}
                    self._forget_experts()
                if not self._superseded(event):
                    self._emit(event)
        flush()
        self._snapshots.update(snapshots)
        for snapshot in snapshots.values():
            self._emit(snapshot)
        self._pace()

    def _superseded(self, event: Event) -> bool:
        """Whether this is the end of a load in whose place another one was asked for meanwhile."""
        if isinstance(event, ModelLoaded) or (isinstance(event, Failed) and event.doing == "load"):
            self._loads = max(0, self._loads - 1)
            return self._loads > 0
        return False

    def _emit(self, event: Event) -> None:
        if isinstance(event, EngineReady) or (isinstance(event, Failed) and event.doing == "start"):
            self._starting = False
        elif isinstance(event, Finished | Failed):
            self._answers.discard(event.request_id)
        match event:
            case EngineReady():
                self.ready.emit(event)
            case ModelList():
                self.model_list.emit(event)
            case MemoryPlanned():
                self.memory_planned.emit(event)
            case ModelOnHub():
                self.model_on_hub.emit(event)
            case DownloadProgress():
                self.download_progress.emit(event)
            case DownloadDone():
                self.download_done.emit(event)
            case ModelLoaded():
                self.model_loaded.emit(event)
            case TokenCount():
                self.token_count.emit(event)
            case ModelUnloaded():
                self.model_unloaded.emit()
            case Started():
                self.started.emit(event)
            case PrefillProgress():
                self.prefill_progress.emit(event)
            case Finished():
                self.finished.emit(event)
            case ExpertSnapshot():
                self.expert_snapshot.emit(event)
            case CacheSnapshot():
                self.cache_snapshot.emit(event)
            case MemorySnapshot():
                self.memory_snapshot.emit(event)
            case ProfileFacts():
                self.profile_facts.emit(event)
            case WhatIfProgress():
                self.what_if_progress.emit(event)
            case WhatIfResult():
                self.what_if_result.emit(event)
            case Failed():
                self.failed.emit(event)
            case Stopped():
                self._end()

    @Slot()
    def _end(self) -> None:
        if self._running:
            self._running = False
            self._deadline.stop()
            self._timer.stop()
            self.stopped.emit()
