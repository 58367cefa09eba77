"""The conversation on the screen: its messages, and the log file they are in once there is something to keep."""

from __future__ import annotations

import logging
from pathlib import Path

from app.chat.reasoning import for_the_next_turn
from engine.errors import SessionError
from engine.messages import ChatMessage, Finished
from engine.sessions.conversation import Conversation, Message, Turn, new_id, turns
from engine.sessions.log import SessionLog
from engine.sessions.reader import read_conversation

log = logging.getLogger("greenroom.chat")


class ChatSession:
    """One conversation, and one path through its tree. The file is made with the first message, none for an empty chat.

    ``leaf`` is the end of the path: what is said next comes below it.
    """

    def __init__(self, folder: Path, program: str) -> None:
        self._folder = folder
        self._program = program
        self._log: SessionLog | None = None
        self.path: Path | None = None
        self.conversation = Conversation(id="")
        self.leaf: str | None = None
        self.turns: tuple[Turn, ...] = ()

    @classmethod
    def open(cls, path: Path, program: str) -> ChatSession:
        """Read a saved conversation; SessionError when it cannot be. The file is only locked when it is added to."""
        session = cls(path.parent, program)
        session.conversation = read_conversation(path)
        session.path = path
        session.follow()
        return session

    @property
    def messages(self) -> list[Message]:
        """The path, from the first message to the leaf."""
        return [message for turn in self.turns for message in turn.messages]

    @property
    def title(self) -> str:
        return self.conversation.title

    @property
    def damaged(self) -> int:
        """Lines of the file that could not be read."""
        return self.conversation.damaged

    # ------------------------------------------------------------------------------------------------ the path

    def follow(self, leaf: str | None = None) -> None:
        """Go along the chosen branch, or to this leaf."""
        if leaf is None:
            end = self.conversation.chosen_leaf()
            leaf = end.id if end else None
        self.leaf = leaf
        self.turns = tuple(turns(self.conversation.path_to(leaf)))

    def turn(self, id: str) -> Turn | None:
        """The turn on the path that begins with this message."""
        return next((turn for turn in self.turns if turn.id == id), None)

    def versions(self, id: str) -> list[str]:
        """Ids of a message and its alternatives, oldest first."""
        return [message.id for message in self.conversation.siblings(id)]

    def choose(self, id: str) -> None:
        """Turn to the branch with this message, and remember that; a file that cannot be added to costs the memory."""
        self.conversation.choose(id)
        self.follow()
        try:
            self._open_log().append_choice(id)
        except SessionError as error:
            log.info("the choice of branch is not remembered: %s", error)

    # ---------------------------------------------------------------------------------------------- saying

    def say(self, text: str, instead_of: str | None = None) -> Message:
        """Add the user's message at the end, or beside the message it replaces.

        It is on the disk when this returns, else SessionError and nothing has changed.
        """
        parent = self.leaf if instead_of is None else self.conversation.messages[instead_of].parent
        message = Message(new_id(), parent, "user", text)
        self._open_log().append_message(message.id, message.parent, message.role, message.text)
        self.conversation.add(message)
        self.follow(message.id)
        return message

    def rewind(self, id: str) -> None:
        """Go back to where this message was said, and leave it out: another one will be."""
        self.follow(self.conversation.messages[id].parent)

    def answered(self, id: str, parent: str, event: Finished) -> None:
        """The engine has answered, and has written the answer into the log itself."""
        answer = Message(
            id,
            parent,
            "assistant",
            event.text,
            reason=event.reason,
            timings=event.timings,
            cache=event.cache,
            seed=event.seed,
            error=event.error,
        )
        self.conversation.add(answer)
        self.follow(id)

    def rename(self, title: str) -> None:
        """Give the conversation a title, "" for the one it makes itself. SessionError when it could not be saved."""
        self._open_log().append_title(title)
        self.conversation.name = title

    def history(self, open_end: bool = False) -> tuple[ChatMessage, ...]:
        """What the model is given, in turns that alternate: past thoughts, and answers without a word, are left out.

        open_end: the last answer is to be continued, so it is given as the model wrote it.
        """
        given: list[ChatMessage] = []
        for turn in self.turns:
            last = open_end and turn is self.turns[-1]
            text = turn.text
            if turn.role == "assistant" and not last:
                text = for_the_next_turn(text)
            if not text:
                continue
            if given and given[-1].role == turn.role:
                text = f"{given.pop().text}\n\n{text}"
            given.append(ChatMessage(turn.role, text, open=last))
        return tuple(given)

    def _open_log(self) -> SessionLog:
        if self._log is None:
            self._log = SessionLog.open(self.path) if self.path else SessionLog.create(self._folder, self._program)
            self.path = self._log.path
        return self._log

    def close(self) -> None:
        """Let go of the file."""
        if self._log is not None:
            self._log.close()
            self._log = None
