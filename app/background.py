"""Work that takes longer than a key press and needs no engine: done on a thread of its own, one piece after another.

Every piece ends with one call on the GUI thread: ``done`` with what came out, or ``failed`` with a sentence. A piece
that was cancelled ends in silence.

    right   background.run(partial(search, text), self._show)         (plain functions and plain data)
    wrong   background.run(self.widget.search, self._show)            (the thread would touch a widget)
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from PySide6.QtCore import QObject, Signal, Slot

from engine.errors import GreenroomError, explain

log = logging.getLogger("greenroom.background")

Stopped: TypeAlias = Callable[[], bool]
Work: TypeAlias = Callable[[Stopped], Any]


class Job:
    """A piece of work under way."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        """Nobody wants it any more: it ends as soon as it asks, and nothing is called."""
        self.cancelled = True


@dataclass(slots=True)
class _Ends:
    job: Job
    done: Callable[[Any], None]
    failed: Callable[[str], None]


class Background(QObject):
    """The thread, which starts with the first piece of work and ends with ``close`` or the program."""

    _ended = Signal(int, object, str)  # number, what came out, a sentence when nothing did

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._queue: queue.SimpleQueue[tuple[int, Work, Job] | None] = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        # What is called in the end stays on this side: the thread must never drop the last reference to a widget.
        self._ends: dict[int, _Ends] = {}
        self._thread: threading.Thread | None = None
        self.at_end: list[Work] = []  # what the thread does last, such as closing what it opened
        self._ended.connect(self._finish)

    def run(self, work: Work, done: Callable[[Any], None], failed: Callable[[str], None] = lambda text: None) -> Job:
        """Call ``work`` with a function that says whether to stop; then ``done`` or ``failed`` here."""
        job = Job()
        number = next(self._numbers)
        self._ends[number] = _Ends(job, done, failed)
        self._queue.put((number, work, job))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="greenroom-background", daemon=True)
            self._thread.start()
        return job

    @property
    def busy(self) -> bool:
        return bool(self._ends)

    def close(self, seconds: float = 2.0) -> None:
        """Cancel everything and end the thread; one that is stuck in a system call is left to the program's end."""
        for ends in self._ends.values():
            ends.job.cancel()
        if self._thread is not None:
            for work in self.at_end:
                self.run(work, lambda result: None)
            self._queue.put(None)
            self._thread.join(seconds)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            number, work, job = item
            result, problem = None, ""
            try:
                if not job.cancelled:
                    result = work(lambda: job.cancelled)  # noqa: B023  # called before the next piece begins
            except GreenroomError as error:
                problem = str(error)
            except Exception as error:
                log.exception("a piece of background work failed")
                problem = explain(error)
            self._ended.emit(number, result, problem)

    @Slot(int, object, str)
    def _finish(self, number: int, result: object, problem: str) -> None:
        ends = self._ends.pop(number)
        if ends.job.cancelled:
            return
        if problem:
            ends.failed(problem)
        else:
            ends.done(result)
