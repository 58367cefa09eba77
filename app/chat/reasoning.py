"""What a reasoning model thinks before it answers: found in its text as it streams, and kept apart.

Models write it as ``<think>…</think>`` at the very start. With some templates the opening mark is part of the prompt,
and only the closing one is seen, on a line of its own. A mark anywhere else is text like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OPEN, CLOSE = "<think>", "</think>"
_ALONE = f"\n{CLOSE}\n"


@dataclass(frozen=True, slots=True)
class Piece:
    """New text. ``restart``: all shown before was thought, ``thought`` repeats it whole, and ``answer`` begins anew."""

    thought: str = ""
    answer: str = ""
    restart: bool = False


class ReasoningStream:
    """Takes text as it comes, gives it back as thought and answer."""

    def __init__(self) -> None:
        self.state: Literal["start", "thought", "answer"] = "start"
        self._held = ""  # text that may be part of a mark
        self._answer = ""  # all of it, while a closing mark may still make it a thought
        self._watching = True

    def feed(self, text: str) -> Piece:
        self._held += text
        if self.state == "start":
            start = self._held.lstrip()
            if start.startswith(OPEN):
                self.state, self._held, self._watching = "thought", start.removeprefix(OPEN).lstrip(), False
            elif not OPEN.startswith(start):
                self.state = "answer"
            else:
                return Piece()
        if self.state == "thought":
            return self._think()
        return self._say()

    def finish(self) -> Piece:
        """No more text comes: what was held back is text after all."""
        held, self._held = self._held, ""
        if self.state == "start":
            self.state = "answer"
        return Piece(thought=held) if self.state == "thought" else Piece(answer=held)

    def _think(self) -> Piece:
        thought, mark, rest = self._held.partition(CLOSE)
        if mark:
            self.state, self._held = "answer", ""
            return Piece(thought.rstrip(), rest.lstrip())
        keep = max((n for n in range(1, len(CLOSE)) if self._held.endswith(CLOSE[:n])), default=0)
        cut = len(self._held) - keep
        thought, self._held = self._held[:cut], self._held[cut:]
        return Piece(thought)

    def _say(self) -> Piece:
        new, self._held = self._held, ""
        if not self._watching:
            return Piece(answer=new)
        look_from = max(0, len(self._answer) - len(_ALONE))
        self._answer += new
        place = self._answer.find(_ALONE, look_from)
        if place < 0:
            return Piece(answer=new)
        self._watching = False
        thought, answer = self._answer[:place].strip(), self._answer[place + len(_ALONE) :].lstrip()
        self._answer = ""
        return Piece(thought, answer, restart=True)


def split(text: str) -> tuple[str, str]:
    """Thought and answer of a complete text; the thought is empty when there is none."""
    stream = ReasoningStream()
    pieces = [stream.feed(text), stream.finish()]
    return "".join(piece.thought for piece in pieces), "".join(piece.answer for piece in pieces)
