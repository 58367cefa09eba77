"""``python -m engine chat``: the same engine thread the window talks to, at a prompt."""

from __future__ import annotations

import argparse
import json
import queue
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace

from engine.errors import GreenroomError
from engine.messages import (
    ChatMessage,
    Event,
    Failed,
    Finished,
    Generate,
    LoadModel,
    ModelLoaded,
    Progress,
    Sampling,
    ShutDown,
    Started,
    Token,
)
from engine.service import EngineService
from engine.sessions.conversation import new_id, turns
from engine.sessions.log import SessionLog
from engine.sessions.reader import read_conversation

LONGEST = 512  # tokens of an answer, where neither an option nor the model says
ANSWER_SHUTDOWN = 10.0  # seconds to wait for the engine thread at the end

_OPTIONS = (  # fields of Sampling that have one
    *("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "no_repeat_ngram_size", "seed", "max_tokens"),
)


class TerminalChat:
    """One conversation at a terminal. ``options``: what ``engine.cli`` parsed."""

    def __init__(self, command: LoadModel, options: argparse.Namespace) -> None:
        self._command = command
        self._options = options
        self._sampling = Sampling()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._service = EngineService(self._events.put)
        self._messages: list[ChatMessage] = []
        self._leaf: str | None = None
        self._log: SessionLog | None = None

    def run(self) -> int:
        """Chat until the prompt is answered or the input ends; the exit code. Raises GreenroomError."""
        self._check_sampling()
        self._open_log()
        if self._options.system and not self._messages:
            self._add("system", self._options.system)
        self._service.start()
        try:
            self._load()
            if self._options.prompt is not None:
                return 0 if self._answer(self._options.prompt).reason != "error" else 1
            self._talk()
            return 0
        finally:
            self._service.send(ShutDown())
            self._service.join(ANSWER_SHUTDOWN)
            if self._log is not None:
                self._log.close()

    def _check_sampling(self) -> None:
        """Before a log is begun and a model loaded, which takes minutes. Raises OptionError."""
        from engine.generation.sampling import check_sampling

        check_sampling(self._chosen(Sampling(), ()))

    def _talk(self) -> None:
        asking = "> " if sys.stdin.isatty() else ""  # what is piped in needs no asking, and what comes out no mark
        if asking:
            print("Type a message; Ctrl+C stops an answer, Ctrl+D ends.", file=sys.stderr)
        while True:
            try:
                text = input(asking).strip()
            except (EOFError, KeyboardInterrupt):
                print(file=sys.stderr)
                return
            if text:
                before, leaf = len(self._messages), self._leaf
                try:
                    self._answer(text)
                except GreenroomError as error:
                    # a question that could not be put, too long perhaps, must not be in the way of the next
                    del self._messages[before:]
                    self._leaf = leaf
                    print(f"greenroom: {error}", file=sys.stderr)

    def _open_log(self) -> None:
        path = self._options.log
        if path is None:
            return
        if not path.exists():
            from engine.session import program

            self._log = SessionLog.create_at(path, program())
            return
        self._log = SessionLog.open(path)
        conversation = read_conversation(path)
        leaf = conversation.chosen_leaf()
        self._leaf = leaf.id if leaf else None
        self._messages = [ChatMessage(turn.role, turn.text) for turn in turns(conversation.path_to(self._leaf))]

    def _add(self, role: str, text: str) -> None:
        self._messages.append(ChatMessage(role, text))  # type: ignore[arg-type]
        if self._log is not None:
            id = new_id()
            self._log.append_message(id, self._leaf, role, text)
            self._leaf = id

    def _load(self) -> None:
        self._service.send(self._command)
        while True:
            event = self._next("")
            if isinstance(event, Progress) and sys.stderr.isatty():
                print(f"\r\033[K{event.task}: {event.detail}", end="", file=sys.stderr, flush=True)
            elif isinstance(event, ModelLoaded):
                self._sampling = self._chosen(event.sampling, event.declared)
                if sys.stderr.isatty():
                    print("\r\033[K", end="", file=sys.stderr)
                print(
                    f"{event.name}: {event.slots} of {event.total_experts} experts in slots, {event.policy}, "
                    f"{event.dtype} on {event.device}",
                    file=sys.stderr,
                )
                for note in (*event.notes, *_declared_in_words(event), *self._about_thinking(event)):
                    print(note, file=sys.stderr)
                return

    def _chosen(self, advised: Sampling, declared: Sequence[str]) -> Sampling:
        """The options given, and the makers' advice for the rest. ``declared``: what of it they declare themselves."""
        if "max_tokens" not in declared:
            advised = replace(advised, max_tokens=LONGEST)
        given = {name: getattr(self._options, name) for name in _OPTIONS}
        chosen = {name: value for name, value in given.items() if value is not None}
        if "max_tokens" in chosen:  # instead of what they say of prompt and answer together, as in transformers
            chosen["max_length"] = 0
        return replace(advised, **chosen)

    def _about_thinking(self, event: ModelLoaded) -> list[str]:
        if self._options.thinking is None or event.thinking in ("on", "off"):
            return []
        if event.thinking == "effort":
            less = "This model's thinking can be shortened, not switched off; it will think as little as it can."
            return [] if self._options.thinking else [less]
        return ["This model's chat template has no switch for thinking; --thinking and --no-thinking change nothing."]

    def _answer(self, text: str) -> Finished:
        self._add("user", text)
        answer_id = new_id()
        log = str(self._log.path) if self._log else ""
        thinking: bool | None = self._options.thinking
        options = self._options
        self._service.send(
            Generate(
                answer_id,
                tuple(self._messages),
                self._sampling,
                log,
                answer_id,
                self._leaf or "",
                thinking,
                options.source_language,
                options.target_language,
            )
        )
        while True:
            try:
                event = self._next(answer_id)
            except KeyboardInterrupt:
                self._service.stop()
                continue
            if isinstance(event, Started):
                for note in event.notes:
                    print(note, file=sys.stderr)
            elif isinstance(event, Token) and not self._options.json:
                print(event.text, end="", flush=True)
            elif isinstance(event, Finished):
                self._finish(event)
                self._messages.append(ChatMessage("assistant", event.text))
                self._leaf = answer_id
                return event

    def _finish(self, event: Finished) -> None:
        if self._options.json:
            report = {
                **asdict(event),
                "decode_rate": event.timings.decode_rate,
                "hit_rate": event.cache.decode_hit_rate,
            }
            print(json.dumps(report, ensure_ascii=False, indent=2))
            return
        print()
        if event.error:
            print(f"greenroom: {event.error}", file=sys.stderr)
        rate, hits = event.timings.decode_rate, event.cache.decode_hit_rate
        figures = [f"{event.timings.answer_tokens} tokens"]
        figures += [f"{rate:.1f} tokens/s"] if rate else []
        figures += [f"hits {hits:.0%}"] if hits is not None else []
        figures += [f"seed {event.seed}"] if self._sampling.temperature else []
        figures += [event.reason] if event.reason != "end" else []
        print(" · ".join(figures), file=sys.stderr)

    def _next(self, request_id: str) -> Event:
        """The next event of this request, or of none. Raises GreenroomError when it, or a load, has failed; what else
        goes wrong is shown, and the answer goes on."""
        while True:
            event = self._events.get()
            if getattr(event, "request_id", "") not in ("", request_id):
                continue  # of one that is over
            if not isinstance(event, Failed):
                return event
            if event.request_id or event.doing in ("start", "load"):
                raise GreenroomError(event.text)
            print(f"greenroom: {event.text}", file=sys.stderr)


def _declared_in_words(event: ModelLoaded) -> list[str]:
    own = [f"{name} {getattr(event.sampling, name):,}" for name in event.declared]
    return [f"Declared by the model: {', '.join((*own, *event.rules))}."] if own or event.rules else []
