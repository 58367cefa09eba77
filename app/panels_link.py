"""What the panels know of the chat: its answers' figures, which answer can be replayed, and which token was clicked."""

from __future__ import annotations

from pathlib import Path

from app.chat.controller import ChatController
from app.panels.replay import Answer
from app.panels_column import PanelsColumn
from engine.messages import Timings


def connect_panels(panels: PanelsColumn, chat: ChatController) -> None:
    """Have the panels follow the chat on the screen. An answer under way in it can be replayed once it has ended."""

    def latest() -> Answer | None:
        session = chat.session
        if session.path is None or (chat.busy and not chat.busy_elsewhere):
            return None
        last = next((m for m in reversed(session.messages) if m.role == "assistant" and m.text), None)
        return Answer(session.path, last.id) if last is not None else None

    def clicked(answer: str, character: int) -> None:
        if chat.session.path is not None and not (chat.busy and not chat.busy_elsewhere):
            panels.replay.show_character(Answer(chat.session.path, answer), character)

    def answers() -> list[Timings]:
        return [turn.timings for turn in chat.session.turns if turn.role == "assistant" and turn.timings is not None]

    def log() -> Path | None:
        """The chat's log while it is complete and has an answer."""
        answer = latest()
        return answer.path if answer is not None and not chat.busy else None

    def follow() -> None:
        """What the engine counts is about the chat that it answered last, which may be another than is read now."""
        panels.answered = chat.writing_in or panels.answered
        panels.experts.set_elsewhere(panels.answered not in (None, chat.session.path))

    panels.replay.latest = latest
    panels.bound.log = log
    panels.speed.answers = answers
    chat.token_clicked.connect(clicked)
    chat.session_changed.connect(follow)
    chat.busy_changed.connect(follow)
    chat.session_changed.connect(panels.chat_changed)
    chat.busy_changed.connect(panels.chat_changed)
    panels.replay.refresh()
