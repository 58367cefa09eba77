"""A face for tests: the real engine thread, and its events in order."""

from __future__ import annotations

import queue
from types import TracebackType
from typing import TypeVar

from engine.messages import Command, Event, Failed, ShutDown
from engine.service import EngineService

PATIENCE = 120.0  # seconds; only a hang takes them

E = TypeVar("E")


class Engine:
    """``with Engine() as engine: engine.send(...); engine.wait_for(Kind)``."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.seen: list[Event] = []
        self.service = EngineService(self.events.put)

    def __enter__(self) -> Engine:
        self.service.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.service.send(ShutDown())
        assert self.service.join(PATIENCE), "the engine thread did not end"

    def send(self, command: Command) -> None:
        self.service.send(command)

    def wait_for(self, kind: type[E], fail: bool = True) -> E:
        """The next event of ``kind``; a Failed on the way is an error unless that is what is waited for."""
        while True:
            event = self.events.get(timeout=PATIENCE)
            self.seen.append(event)
            if isinstance(event, kind):
                return event
            if fail and isinstance(event, Failed):
                raise AssertionError(event.text + event.details)

    def of(self, kind: type[E]) -> list[E]:
        """Everything of ``kind`` seen so far."""
        return [event for event in self.seen if isinstance(event, kind)]
