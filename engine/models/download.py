"""Downloads in a thread of their own: looking a model up on the hub, fetching it, stopping.

The thread begins with the first command, so a program that never downloads never has it. One thing at a time; a stop
acts at once on what runs and on what waits. No error ends the thread: each becomes a ``Failed`` with a sentence.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from engine.errors import GreenroomError, explain
from engine.messages import (
    DownloadDone,
    DownloadModel,
    DownloadProgress,
    Event,
    Failed,
    LookUpModel,
    MemoryPlanned,
    ModelOnHub,
    ModelSummary,
)
from engine.models import hub, hub_files
from engine.models.folder import hub_cache_dir

log = logging.getLogger("greenroom.download")

REPORT_S = 0.1  # between two reports
RATE_S = 5.0  # the rate is that of so many last seconds

Plan: TypeAlias = Callable[[hub.HubModel], tuple[ModelSummary, MemoryPlanned | None]]
"""What a model on the hub is, and whether it would fit; known from its config and sizes."""


class Downloads:
    """``send`` and ``stop`` return at once. emit: as the engine's. plan: answers whether a model would fit."""

    def __init__(self, emit: Callable[[Event], None], plan: Plan) -> None:
        self._emit, self._plan = emit, plan
        self._commands: queue.SimpleQueue[tuple[int, LookUpModel | DownloadModel | None]] = queue.SimpleQueue()
        self._sent = 0
        self._stopped_up_to = 0
        self._thread: threading.Thread | None = None
        self._found: dict[str, hub.HubModel] = {}

    def send(self, command: LookUpModel | DownloadModel) -> None:
        self._sent += 1
        self._commands.put((self._sent, command))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="greenroom-download", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop what was asked for so far. What is on the disk stays there."""
        self._stopped_up_to = self._sent

    def close(self) -> None:
        """Stop, and end the thread once it has stopped."""
        self.stop()
        self._commands.put((self._sent, None))

    def _run(self) -> None:
        while True:
            number, command = self._commands.get()
            if command is None:
                return
            doing = "look up" if isinstance(command, LookUpModel) else "download"
            try:
                if isinstance(command, LookUpModel):
                    self._look_up(command.name, number)
                else:
                    self._fetch(command.name, number)
            except Exception as error:
                details = "" if isinstance(error, GreenroomError) else traceback.format_exc()
                if details:
                    log.error("unexpected fault while trying to %s\n%s", doing, details)
                self._emit(Failed(doing, explain(error), command.name, details))

    def _look_up(self, name: str, number: int) -> None:
        model = hub.look_up(name, lambda: number <= self._stopped_up_to)
        self._found[name] = model
        summary, plan = self._plan(model)
        self._emit(
            ModelOnHub(
                name,
                summary,
                plan,
                files=len(model.files),
                total_bytes=model.total_bytes,
                present_bytes=hub_files.present_bytes(model),
                free_bytes=hub_files.free_on_disk(),
                folder=str(hub_cache_dir()),
            )
        )

    def _fetch(self, name: str, number: int) -> None:
        # what was looked up is what is fetched: the user agreed to that size
        def stopped() -> bool:
            return number <= self._stopped_up_to

        model = self._found.get(name) or hub.look_up(name, stopped)
        meter = _Meter(hub_files.present_bytes(model))
        due = 0.0

        def report(file: str, done: int) -> None:
            nonlocal due
            now = time.monotonic()
            if now >= due:
                due = now + REPORT_S
                self._emit(DownloadProgress(name, file, done, model.total_bytes, meter.rate(now, done)))

        hub_files.fetch(model, report, stopped)
        self._found.pop(name, None)
        self._emit(DownloadProgress(name, "", model.total_bytes, model.total_bytes, None))
        self._emit(DownloadDone(name))


class _Meter:
    """Bytes per second over the last seconds; None until there are some, 0 once none came for so long."""

    def __init__(self, done: int) -> None:
        self._marks = deque([(time.monotonic(), done)])

    def rate(self, now: float, done: int) -> float | None:
        while len(self._marks) > 1 and now - self._marks[1][0] >= RATE_S:
            self._marks.popleft()
        since, before = self._marks[0]
        self._marks.append((now, done))
        elapsed = now - since
        if done > before:
            return (done - before) / elapsed if elapsed > 0.5 else None
        return 0.0 if elapsed >= RATE_S else None
