"""Session logs of held-out chats, answered by a model: ``python tests/benchmarks/demo_logs.py FOLDER [--model demo]``.

What the README's table of replacement policies is replayed from: 40 of the 100 held-out prompts, evenly spread over
their subjects, each answered in a log of its own. Greedy and in float32, so the routing is the same on every machine.
A log that is complete is kept, so a broken run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from engine.messages import (
    ChatMessage,
    Event,
    Failed,
    Finished,
    Generate,
    LoadModel,
    ModelLoaded,
    Sampling,
    ShutDown,
    Token,
)
from engine.service import EngineService
from engine.sessions.log import SessionLog
from engine.sessions.reader import read_records

ROOT = Path(__file__).resolve().parents[2]
CHATS = ROOT / "tests" / "data" / "held_out_chats.jsonl"

E = TypeVar("E")


def prompts(count: int) -> list[str]:
    """``count`` of the held-out prompts, evenly spread."""
    lines = CHATS.read_text("utf-8").splitlines()
    return [json.loads(lines[number * len(lines) // count])["prompt"] for number in range(count)]


def finished(path: Path, answer: str = "answer") -> bool:
    """Is the answer complete in this log?"""
    if not path.exists():
        return False
    return any(record["type"] == "message" and record["id"] == answer for record in read_records(path))


class Face:
    """The engine's events, waited for one after the other."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.service = EngineService(self._events.put)
        self.service.start()

    def wait_for(self, kind: type[E] | tuple[type[E], ...]) -> E:
        while True:
            event = self._events.get()
            if isinstance(event, kind):
                return event
            if isinstance(event, Failed):
                raise SystemExit(event.text)

    def answer(self, prompt: str, path: Path, tokens: int) -> Finished:
        """One chat of one question, in a log at ``path``."""
        with SessionLog.create_at(path, "greenroom benchmark") as log:
            log.append_message("question", None, "user", prompt)
            self.send(path, "answer", (ChatMessage("user", prompt),), tokens)
            return self.wait_for(Finished)

    def say(self, path: Path, answer: str, messages: tuple[ChatMessage, ...], tokens: int) -> str:
        """The words of an answer, in a log that exists."""
        self.send(path, answer, messages, tokens)
        words = ""
        while isinstance(event := self.wait_for((Token, Finished)), Token):
            words += event.text
        return words

    def send(self, path: Path, answer: str, messages: tuple[ChatMessage, ...], tokens: int) -> None:
        self.service.send(
            Generate(
                request_id=path.stem,
                messages=messages,
                sampling=Sampling(temperature=0, max_tokens=tokens),
                log=str(path),
                answer_id=answer,
                parent_id="question",
            )
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the logs go; made when missing")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--experts", default="100%", help="resident while answering; the routing does not depend on it")
    parser.add_argument("--chats", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=128, help="at most, for each answer")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    face = Face()
    face.service.send(LoadModel(options.model, options.experts, policy="lru", dtype="float32", threads=options.threads))
    face.wait_for(ModelLoaded)
    began = perf_counter()
    for number, prompt in enumerate(prompts(options.chats)):
        path = options.folder / f"chat-{number:02}.jsonl"
        if finished(path):
            continue
        path.unlink(missing_ok=True)
        done = face.answer(prompt, path, options.tokens)
        tokens = done.timings.answer_tokens
        print(f"{perf_counter() - began:6.0f} s  {path.name}  {tokens:4} tokens, {done.reason}: {prompt}", flush=True)
    face.service.send(ShutDown())
    face.service.join()


if __name__ == "__main__":
    if str(ROOT) not in os.environ.get("PYTHONPATH", ""):  # run from a checkout, wherever that is
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment).returncode)
    main()
