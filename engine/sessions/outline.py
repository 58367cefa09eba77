"""A conversation in reading order: the branch that is shown, then each other version of a part of it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from engine.sessions.conversation import Conversation, Message, Turn, turns


@dataclass(frozen=True, slots=True)
class Section:
    """Turns that follow each other. ``instead_of``: the turn that the first one is another version of."""

    turns: tuple[Turn, ...]
    instead_of: Turn | None = None


def outline(conversation: Conversation, leaf: str | None = None, whole: bool = False) -> list[Section]:
    """The branch that ends at ``leaf`` (None: the chosen one); with ``whole``, all other branches after it.

    Every message is in one section, at the place where its branch leaves one that came before.
    """
    if leaf is None:
        chosen = conversation.chosen_leaf()
        leaf = chosen.id if chosen else None
    found = [Section(tuple(turns(conversation.path_to(leaf))))]
    if not whole:
        return found
    seen = {message.id for turn in found[0].turns for message in turn.messages}
    waiting = deque(found)
    while waiting:
        for turn in waiting.popleft().turns:
            for message in turn.messages:
                for other in conversation.siblings(message.id):
                    if other.id not in seen:
                        section = Section(tuple(turns(_from(conversation, other.id))), turn)
                        seen.update(one.id for part in section.turns for one in part.messages)
                        found.append(section)
                        waiting.append(section)
    return found


def has_branches(conversation: Conversation) -> bool:
    """Whether any message has another version."""
    return any(len(conversation.siblings(id)) > 1 for id in conversation.messages)


def _from(conversation: Conversation, id: str) -> list[Message]:
    """The chosen branch below a message, that message first."""
    end = conversation.chosen_leaf(under=id)
    path = conversation.path_to(end.id if end else id)
    return path[next(place for place, message in enumerate(path) if message.id == id) :]
