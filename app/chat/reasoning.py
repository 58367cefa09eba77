"""What a reasoning model thinks before it answers: found in its text as it streams, and kept apart.

Models write it between marks at the very start: ``<think>…</think>`` and its kin. With some templates the opening mark
is part of the prompt, and only the closing one is seen, on a line of its own. gpt-oss writes channels instead, each
with a head and a body: ``<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…``; what
is not in the channel "final" is thought. Some put what follows a thought between marks as well, which say nothing more.
A mark anywhere else is text like any other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

MARKS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
    "<|START_THINKING|>": "<|END_THINKING|>",
}
_ALONE = re.compile("\n(?:" + "|".join(map(re.escape, MARKS.values())) + ")\n|" + re.escape("<|END_THINKING|>"))
_ALONE_LENGTH = max(map(len, MARKS.values())) + 2
_WRAPS = {"<answer>": "</answer>", "<response>": "</response>"}  # of what follows a thought

CHANNEL, MESSAGE, START = "<|channel|>", "<|message|>", "<|start|>"
_CHANNEL_MARKS = (CHANNEL, MESSAGE, START, "<|end|>", "<|return|>", "<|call|>", "<|constrain|>")
_CHANNEL_MARK = re.compile("|".join(map(re.escape, _CHANNEL_MARKS)))
_HARMONY = (CHANNEL, f"{START}assistant{CHANNEL}")

State = Literal["start", "thought", "answer"]


@dataclass(frozen=True, slots=True)
class Piece:
    """New text. ``restart``: all shown before was thought, ``thought`` repeats it whole, and ``answer`` begins anew."""

    thought: str = ""
    answer: str = ""
    restart: bool = False


class ReasoningStream:
    """Takes text as it comes, gives it back as thought and answer."""

    def __init__(self) -> None:
        self.state: State = "start"
        self._held = ""  # text that may be part of a mark
        self._close = ""  # the mark that ends the thought
        self._answer = ""  # all of it, while a closing mark may still make it a thought
        self._watching = True
        self._channels: _Channels | None = None
        self._unwrapped = True  # whether it is known if the answer stands between marks
        self._wrap = ""  # the mark that then ends it

    def feed(self, text: str) -> Piece:
        """What ``text`` adds to the thought and to the answer."""
        self._held += text
        if self.state == "start" and not self._begin():
            return Piece()
        if self._channels is not None:
            held, self._held = self._held, ""
            return self._channel(self._channels.feed(held))
        return self._think() if self.state == "thought" else self._say()

    def finish(self) -> Piece:
        """No more text comes: what was held back is text after all."""
        held, self._held = self._held, ""
        if self._channels is not None:
            return self._channel(self._channels.finish())
        if self.state == "start":
            self.state = "answer"
        if self._wrap and held.strip() == self._wrap:
            held = ""
        return Piece(thought=held) if self.state == "thought" else Piece(answer=held)

    def _begin(self) -> bool:
        """Whether enough has come to know how the text starts."""
        start = self._held.lstrip()
        for mark, close in MARKS.items():
            if start.startswith(mark):
                self.state, self._close, self._watching = "thought", close, False
                self._held = start.removeprefix(mark).lstrip()
                return True
        if start.startswith(_HARMONY):
            self.state, self._channels, self._held = "thought", _Channels(), start
            return True
        for close in MARKS.values():  # the thought that began in the prompt is empty
            if start.startswith(close):
                self.state, self._watching, self._unwrapped = "answer", False, False
                self._held = start.removeprefix(close).lstrip()
                return True
        if any(mark.startswith(start) for mark in (*MARKS, *MARKS.values(), *_HARMONY)):
            return False
        self.state = "answer"
        return True

    def _channel(self, piece: Piece) -> Piece:
        if piece.answer:
            self.state = "answer"
        return piece

    def _think(self) -> Piece:
        thought, mark, rest = self._held.partition(self._close)
        if mark:
            self.state, self._held, self._unwrapped = "answer", rest.lstrip(), False
            return Piece(thought.rstrip(), self._say().answer)
        cut = len(self._held) - _half_mark(self._held, (self._close,))
        thought, self._held = self._held[:cut], self._held[cut:]
        return Piece(thought)

    def _say(self) -> Piece:
        if not self._watching:
            return Piece(answer=self._unwrap())
        new, self._held = self._held, ""
        look_from = max(0, len(self._answer) - _ALONE_LENGTH)
        self._answer += new
        found = _ALONE.search(self._answer, look_from)
        if found is None:
            return Piece(answer=new)
        self._watching = False
        thought, answer = self._answer[: found.start()].strip(), self._answer[found.end() :].lstrip()
        self._answer, self._held, self._unwrapped = "", answer, False
        return Piece(thought, self._unwrap(), restart=True)

    def _unwrap(self) -> str:
        """What of the held text is answer for sure, without the marks around it."""
        if not self._unwrapped:
            start = self._held.lstrip()
            if any(mark.startswith(start) and mark != start for mark in _WRAPS):
                return ""
            self._unwrapped = True
            mark = next((mark for mark in _WRAPS if start.startswith(mark)), "")
            if mark:
                self._wrap, self._held = _WRAPS[mark], start.removeprefix(mark)
        cut = len(self._held)
        if self._wrap:  # the last mark, or half of it, waits for what follows
            body = self._held.rstrip()
            half = len(self._wrap) if body.endswith(self._wrap) else _half_mark(body, (self._wrap,))
            cut = len(body[: len(body) - half].rstrip())
        answer, self._held = self._held[:cut], self._held[cut:]
        return answer


class _Channels:
    """gpt-oss's format: heads between "channel" and "message", bodies up to the next mark."""

    def __init__(self) -> None:
        self._held = ""
        self._head = ""
        self._in_head = False
        self._name = ""
        self._bodies = 0  # of the thought

    def feed(self, text: str) -> Piece:
        self._held += text
        thought: list[str] = []
        answer: list[str] = []
        while (found := _CHANNEL_MARK.search(self._held)) is not None:
            self._take(self._held[: found.start()], thought, answer)
            self._held = self._held[found.end() :]
            self._mark(found.group(), thought)
        cut = len(self._held) - _half_mark(self._held, _CHANNEL_MARKS)
        self._take(self._held[:cut], thought, answer)
        self._held = self._held[cut:]
        return Piece("".join(thought), "".join(answer))

    def finish(self) -> Piece:
        thought: list[str] = []
        answer: list[str] = []
        self._take(self._held, thought, answer)
        self._held = ""
        return Piece("".join(thought), "".join(answer))

    def _mark(self, mark: str, thought: list[str]) -> None:
        if mark in (CHANNEL, START):
            self._in_head, self._head = True, ""
        elif mark == MESSAGE:
            words = self._head.split()
            self._name = words[0] if words else "final"
            self._in_head = False
            if self._name != "final":
                self._bodies += 1
                if self._bodies > 1:
                    thought.append("\n\n")
        else:
            self._in_head = mark == "<|constrain|>"

    def _take(self, text: str, thought: list[str], answer: list[str]) -> None:
        if self._in_head:
            self._head += text
        elif text:
            (answer if self._name == "final" else thought).append(text)


def _half_mark(text: str, marks: tuple[str, ...]) -> int:
    """How many characters at the end may be the beginning of a mark."""
    longest = max(map(len, marks)) - 1
    for length in range(min(longest, len(text)), 0, -1):
        if any(mark.startswith(text[-length:]) for mark in marks):
            return length
    return 0


def split(text: str) -> tuple[str, str]:
    """Thought and answer of a complete text; the thought is empty when there is none."""
    stream = ReasoningStream()
    pieces = [stream.feed(text), stream.finish()]
    return "".join(piece.thought for piece in pieces), "".join(piece.answer for piece in pieces)


def for_the_next_turn(text: str) -> str:
    """An answer as the model is reminded of it: without its thought, unless there was nothing else."""
    thought, answer = split(text)
    return answer if answer.strip() else thought
