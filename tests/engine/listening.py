"""Faces for tests: the real engine thread with its events in order, and a conversation with it."""

from __future__ import annotations

import queue
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from engine.messages import ChatMessage, Command, Event, Failed, Finished, Generate, Sampling, ShutDown, Token
from engine.service import EngineService
from engine.sessions.log import SessionLog

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

    def wait_for(self, kind: type[E] | tuple[type[E], ...], fail: bool = True) -> E:
        """The next event of ``kind``, or of one of several; a Failed on the way is an error unless that is what is
        waited for."""
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


class Talk:
    """A conversation with the real engine, in a log of its own."""

    def __init__(self, engine: Engine, folder: Path, name: str) -> None:
        self._engine, self._name = engine, name
        self._messages: list[ChatMessage] = []
        self.path = folder / f"{name}.jsonl"
        SessionLog.create_at(self.path, "greenroom test").close()

    def ask(self, text: str, tokens: int = 20, stop: bool = False, fail: bool = True) -> Finished:
        """fail: a Failed on the way is an error."""
        self._messages.append(ChatMessage("user", text))
        number = len(self._messages)
        sampling = Sampling(temperature=1.5, top_p=1.0, seed=number, max_tokens=200 if stop else tokens)
        ids = f"{self._name}-{number}"
        self._engine.send(Generate(ids, tuple(self._messages), sampling, str(self.path), ids, "question"))
        if stop:
            self._engine.wait_for(Token, fail)
            self._engine.service.stop()
        finished = self._engine.wait_for(Finished, fail)
        self._messages.append(ChatMessage("assistant", finished.text or "Well."))
        return finished
