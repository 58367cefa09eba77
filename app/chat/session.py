"""The conversation on the screen: its messages, and the log file they are in once there is something to keep."""

from __future__ import annotations

from pathlib import Path

from app.chat.reasoning import split
from engine.messages import ChatMessage, FinishReason
from engine.sessions.conversation import UNTITLED, Message, new_id, title_of
from engine.sessions.log import SessionLog
from engine.sessions.reader import read_conversation


class ChatSession:
    """One conversation, one path through it. The file is made with the first message, never for an empty chat."""

    def __init__(self, folder: Path, program: str) -> None:
        self._folder = folder
        self._program = program
        self._log: SessionLog | None = None
        self.path: Path | None = None
        self.messages: list[Message] = []
        self.damaged = 0  # lines of the file that could not be read

    @classmethod
    def open(cls, path: Path, program: str) -> ChatSession:
        """Read a saved conversation; SessionError when it cannot be. The file is only locked when it is added to."""
        session = cls(path.parent, program)
        conversation = read_conversation(path)
        leaf = conversation.chosen_leaf()
        session.messages = conversation.path_to(leaf.id if leaf else None)
        session.path = path
        session.damaged = conversation.damaged
        return session

    @property
    def title(self) -> str:
        return next((title_of(message.text) for message in self.messages if message.role == "user"), UNTITLED)

    @property
    def leaf(self) -> str | None:
        return self.messages[-1].id if self.messages else None

    def say(self, text: str) -> Message:
        """Add the user's message; it is on the disk when this returns, else SessionError."""
        if self._log is None:
            self._log = SessionLog.open(self.path) if self.path else SessionLog.create(self._folder, self._program)
            self.path = self._log.path
        message = Message(new_id(), self.leaf, "user", text)
        self._log.append_message(message.id, message.parent, message.role, message.text)
        self.messages.append(message)
        return message

    def answered(self, id: str, parent: str, text: str, reason: FinishReason) -> None:
        """The engine has answered, and has written the answer into the log itself."""
        self.messages.append(Message(id, parent, "assistant", text, reason=reason))

    def history(self) -> tuple[ChatMessage, ...]:
        """What the model is given, in turns that alternate: past thoughts, and answers without a word, are left out."""
        turns: list[ChatMessage] = []
        for message in self.messages:
            text = message.text
            if message.role == "assistant":
                text = split(text)[1] or text
            if not text:
                continue
            if turns and turns[-1].role == message.role:
                text = f"{turns.pop().text}\n\n{text}"
            turns.append(ChatMessage(message.role, text))
        return tuple(turns)

    def close(self) -> None:
        """Let go of the file."""
        if self._log is not None:
            self._log.close()
            self._log = None
