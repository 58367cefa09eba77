"""A conversation in memory: a tree of messages, because a regenerated answer or an edited question starts a branch.

An answer under an answer goes on with it: the first was cut, and the user let the model continue. Together they are one
``Turn``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields

from engine.messages import CacheCounters, FinishReason, Role, Timings
from engine.sessions.records import now

TITLE_LENGTH = 60
UNTITLED = "New chat"


@dataclass(frozen=True, slots=True)
class Message:
    """One turn as it was saved. ``reason`` and what follows is known of answers only."""

    id: str
    parent: str | None
    role: Role
    text: str
    time: str = ""  # ISO 8601, UTC
    reason: FinishReason | None = None
    timings: Timings | None = None
    cache: CacheCounters | None = None
    seed: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side said in one go: a message, or an answer with its continuations. Never empty."""

    messages: tuple[Message, ...]

    @property
    def id(self) -> str:
        """Of the first message: the one that has siblings."""
        return self.messages[0].id

    @property
    def last(self) -> Message:
        return self.messages[-1]

    @property
    def role(self) -> Role:
        return self.messages[0].role

    @property
    def text(self) -> str:
        return "".join(message.text for message in self.messages)

    @property
    def timings(self) -> Timings | None:
        """Tokens and seconds of decoding are sums; the prompt's figures are the first request's."""
        known = [message.timings for message in self.messages if message.timings is not None]
        return joined_timings(known) if known else None

    @property
    def cache(self) -> CacheCounters | None:
        known = [message.cache for message in self.messages if message.cache is not None]
        return joined_counters(known) if known else None


def turns(path: Iterable[Message]) -> list[Turn]:
    """A path of messages as turns, in the same order."""
    found: list[list[Message]] = []
    for message in path:
        if found and message.role == "assistant" and found[-1][0].role == "assistant":
            found[-1].append(message)
        else:
            found.append([message])
    return [Turn(tuple(messages)) for messages in found]


def joined_timings(parts: Sequence[Timings]) -> Timings:
    """Of an answer that was given in several parts."""
    first = parts[0]
    return Timings(
        first.prompt_tokens,
        first.reused_tokens,
        sum(part.answer_tokens for part in parts),
        first.first_token_seconds,
        first.prefill_seconds,
        sum(part.decode_seconds for part in parts),
    )


def joined_counters(parts: Sequence[CacheCounters]) -> CacheCounters:
    """What several requests cost together."""
    return CacheCounters(*(sum(getattr(part, item.name) for part in parts) for item in fields(CacheCounters)))


@dataclass(slots=True)
class Conversation:
    """All messages of one file, in the order in which they began. Of each branching, one branch is the chosen one:
    that in which something was added last, or which the user turned to since."""

    id: str
    created: str = ""
    name: str = ""  # the title that the user gave it
    messages: dict[str, Message] = field(default_factory=dict)
    models: tuple[str, ...] = ()  # names of the models that answered, in order
    damaged: int = 0  # lines that could not be read and were skipped
    torn: bool = False  # the last line was cut short by a crash
    _replies: dict[str, list[str]] = field(default_factory=dict, repr=False)  # ids under each parent's id
    _chosen: dict[str | None, str] = field(default_factory=dict, repr=False)  # the reply shown under each id
    _tip: str | None = field(default=None, repr=False)  # the message that was added last, while its branch is chosen

    @property
    def title(self) -> str:
        """The user's, else from the first thing the user said."""
        return self.name or next((title_of(m.text) for m in self.messages.values() if m.role == "user"), UNTITLED)

    def add(self, message: Message) -> None:
        """Add a message, or replace the one with its id, which keeps its place."""
        before = self.messages.get(message.id)
        self.messages[message.id] = message
        if before is not None and before.parent == message.parent:
            return
        if before is not None and before.parent is not None:
            self._replies[before.parent].remove(message.id)
        if message.parent is not None:
            self._replies.setdefault(message.parent, []).append(message.id)
        if message.parent is not None and message.parent == self._tip:
            self._chosen[message.parent] = message.id  # all above is chosen already
        else:
            self.choose(message.id)
        self._tip = message.id

    def remove(self, id: str) -> None:
        """Forget a message, in memory only. What replied to it becomes a root."""
        message = self.messages.pop(id)
        if message.parent is not None:
            self._replies[message.parent].remove(id)

    def branch(self, parent: str | None, role: Role, text: str) -> Message:
        """A new message under ``parent``, beside whatever is there already; None begins a new root."""
        message = Message(id=new_id(), parent=parent, role=role, text=text, time=now())
        self.add(message)
        return message

    def children(self, id: str | None) -> list[Message]:
        """Direct replies to a message, oldest first; None gives the roots. A lost parent makes a root."""
        if id is None:
            return [m for m in self.messages.values() if m.parent is None or m.parent not in self.messages]
        return [self.messages[reply] for reply in self._replies.get(id, ())]

    def siblings(self, id: str) -> list[Message]:
        """The message and its alternatives, oldest first."""
        message = self.messages[id]
        known = message.parent is not None and message.parent in self.messages
        return self.children(message.parent if known else None)

    def choose(self, id: str) -> None:
        """From here on the branch with this message is the one shown."""
        seen: set[str] = set()
        child: str | None = id
        while child is not None and child in self.messages and child not in seen:
            seen.add(child)  # a damaged file might go round in circles
            above = self.messages[child].parent
            parent = above if above in self.messages else None
            self._chosen[parent] = child
            child = parent
        self._tip = None

    def chosen_leaf(self, under: str | None = None) -> Message | None:
        """The end of the chosen branch; with ``under``, of what follows that message. None when there is no message."""
        leaf = self.messages[under] if under is not None else None
        seen: set[str] = set()
        while True:
            here = leaf.id if leaf is not None else None
            replies = [reply for reply in self.children(here) if reply.id not in seen]
            if not replies:
                return leaf
            chosen = self._chosen.get(here)
            leaf = next((reply for reply in replies if reply.id == chosen), replies[-1])
            seen.add(leaf.id)

    def path_to(self, leaf: str | None) -> list[Message]:
        """From the root down to ``leaf``: what the model is shown. Empty for None."""
        path: list[Message] = []
        seen: set[str] = set()
        while leaf is not None and leaf in self.messages and leaf not in seen:
            seen.add(leaf)  # a damaged file might go round in circles
            path.append(self.messages[leaf])
            leaf = self.messages[leaf].parent
        path.reverse()
        return path


def new_id() -> str:
    """An id for a message."""
    return uuid.uuid4().hex


def title_of(text: str, otherwise: str = UNTITLED) -> str:
    """The first line that says something, shortened."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), otherwise)
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"
