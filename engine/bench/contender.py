"""What is measured: a model in memory, one or more ways to run it, and what one run gave."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from engine.bench.disk import cached_share, drop_pages, fill_pages
from engine.hardware.disk import Span
from engine.messages import CacheCounters

Kind = Literal["ours", "transformers", "accelerate", "llama.cpp"]


@dataclass(frozen=True, slots=True)
class PathInfo:
    """One way to run a model. held: before every token the cached pages of its files are dropped, so that what the
    budget leaves out is in no memory; else all of them are cached before an answer. what: for the reader of a table."""

    key: str  # "ours 25%"
    kind: Kind
    what: str
    held: bool = False
    experts: str = ""  # the amount of memory for experts, as asked for
    ahead: bool = False  # experts are fetched before they are called


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer. tokens: what was fed to the decode steps, the prefill's choice first; seconds: of those steps, on the
    wall; cpu_seconds: of all threads of this process in them, None where another process ran them."""

    prompt_tokens: int
    prefill_seconds: float
    tokens: tuple[int, ...]
    seconds: float
    cpu_seconds: float | None = None
    decode: CacheCounters | None = None  # ours: what decode alone cost
    cached_share: float | None = None  # of its files, in the file cache: held, at a token, at most; else at the start
    link_seconds: float | None = None  # ours: in which something was fetched, of ``seconds``
    disk_rate: float | None = None  # what the disk gave a plain reader right before and after, bytes per second

    @property
    def steps(self) -> int:
        return len(self.tokens)

    @property
    def rate(self) -> float:
        """Tokens per second of decode."""
        return self.steps / self.seconds


class Stopwatch:
    """Adds up wall and processor time of what happens inside its ``with`` blocks."""

    def __init__(self) -> None:
        self.seconds = self.cpu_seconds = 0.0

    def __enter__(self) -> Stopwatch:
        self._cpu, self._wall = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds += time.perf_counter() - self._wall
        self.cpu_seconds += time.process_time() - self._cpu


TOUCH = 16  # decode steps after which memory is touched and libraries have chosen their kernels


class Peer:
    """What is the same for everybody who learns nothing."""

    def warm_up(self, asked: int) -> int:
        return min(asked, TOUCH)

    def warmed_up(self) -> None:
        return None


class Unavailable(Exception):
    """This contender cannot take part here; the text says why, for the report's notes."""


class Contender(Protocol):
    """A model that can be opened and closed again, and the ways to run it."""

    name: str
    need: int  # bytes it holds while open
    paths: Sequence[PathInfo]

    def open(self) -> None:
        """Load it. Raises Unavailable or GreenroomError; then it is closed."""

    def warm_up(self, asked: int) -> int:
        """Decode steps before it is timed, of those ``asked`` for: what learns wants all of them, and once."""

    def warmed_up(self) -> None:
        """Those are over."""

    def run(self, path: PathInfo, prompt: list[int], steps: int) -> Sample:
        """Prefill ``prompt`` into an empty KV cache, then decode ``steps`` tokens greedily, past any end token."""

    def close(self) -> None:
        """Give the memory back; may be opened again."""


class Pages:
    """What of a path's files is in the file cache: nothing, at every token, when the path is held; else all of it when
    the answer begins, as far as memory goes. spans: the bytes that matter."""

    def __init__(self, spans: Sequence[Span], held: bool) -> None:
        self._spans = spans
        self._files = sorted({span.file for span in spans})
        self._held = held
        self.share: float | None = None  # cached when it was looked at; held: the most that was found after a drop

    def before_answer(self) -> None:
        """Off the clock."""
        if self._held:
            drop_pages(self._files)
        elif (cached_share(self._spans) or 0.0) < 1.0:
            fill_pages(self._files)
        self.look()

    def before_token(self) -> None:
        """Off the clock."""
        if self._held:
            drop_pages(self._files)

    def look(self) -> None:
        """Note how much is cached; a look costs time, so now and then."""
        share = cached_share(self._spans) if self._spans else None
        if share is not None:
            self.share = max(share, self.share or 0.0) if self._held else share
