"""Decode hits before and after a long prompt: ``python tests/benchmarks/after_prompt.py FOLDER [--model demo]``.

Six times an answer is interrupted by another chat's prompt of about 1,500 tokens and goes on after it; then comes a
second such prompt and is answered. The model answers once, into logs, greedily and in float32; each policy then runs
through them in a replay, and once more as if no long prompt had been read (*unread*).

before: hits in the last 64 tokens before the prompt. after: in the first 64 after it, of the same answer; mean, and
worst of the six. answer: in the first 64 of the second prompt's answer. Its subject is new, which costs hits whether
the cache read the prompt or not: what the prompt itself costs is the difference to *unread*.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
from demo_logs import CHATS, ROOT, Face, finished

from engine.experts.cache import ExpertCache
from engine.experts.policies import POLICIES, make_policy
from engine.messages import ChatMessage, LoadModel, ModelLoaded, ShutDown
from engine.replay.compare import parse_budgets
from engine.replay.trace import Request, Step, Trace, read_trace
from engine.sessions.log import SessionLog

WINDOW = 64  # tokens
PROMPTS = 6
CHARACTERS = 6300  # of a prompt: about 1,500 tokens
BEFORE, PROMPT, AFTER, ANSWER = "before", "prompt", "after", "answer"


def questions_and_prompts() -> list[tuple[str, str]]:
    """Questions that are answered at length, and for each a text of other questions and answers."""
    chats = [json.loads(line) for line in CHATS.read_text("utf-8").splitlines()]
    lengthy = [number for number, chat in enumerate(chats) if len(chat["answer"]) > 850]
    found = []
    for asked in lengthy[:: len(lengthy) // PROMPTS][:PROMPTS]:
        others = [chats[(asked + number) % len(chats)] for number in range(1, 25)]
        text = "\n\n".join(f"{chat['prompt']}\n{chat['answer']}" for chat in others)
        found.append((chats[asked]["prompt"], f"{text[:CHARACTERS]}\n\nWhat is the most important of all this?"))
    return found


def record(face: Face, path: Path, question: str, prompt: str) -> None:
    """One log: an answer, the prompt, the rest of the answer, the prompt in other words and its answer."""
    asked = ChatMessage("user", question)
    with SessionLog.create_at(path, "greenroom benchmark") as log:
        log.append_message("question", None, "user", question)
        begun = face.say(path, BEFORE, (asked,), 2 * WINDOW)
        face.say(path, PROMPT, (ChatMessage("user", prompt),), 1)
        face.say(path, AFTER, (asked, ChatMessage("assistant", begun, open=True)), WINDOW + 1)
        face.say(path, ANSWER, (ChatMessage("user", f"Read this, please.\n\n{prompt}"),), WINDOW + 1)


def passes(trace: Trace, unread: bool) -> Iterator[tuple[str, Request | Step]]:
    """What happened in which answer; without the long prompts, and with the answer in one piece, when ``unread``."""
    answer = ""
    for one in trace.happenings:
        if isinstance(one, Request):
            answer = one.answer
            if not unread or answer in (BEFORE, ANSWER):
                yield answer, one
        elif isinstance(one, Step) and not (unread and answer != BEFORE and one.phase == "prefill"):
            yield answer, one


def hits(trace: Trace, policy: str, slots: int, unread: bool = False) -> dict[str, np.ndarray]:
    """By answer: percent of hits in its window, for each of the six."""
    shape = trace.model.layers, trace.model.experts
    cache = ExpertCache(slots, *shape, make_policy(policy, *shape))
    decoded: list[tuple[str, int, int]] = []  # of each decode token: answer, uses, misses
    for answer, one in passes(trace, unread):
        if isinstance(one, Request):
            cache.policy.begin_request()
            cache.begin_request()
            continue
        cache.policy.begin_pass(one.phase, one.tokens)
        cache.begin_pass(one.phase)
        streaming = one.phase == "prefill" and cache.streams(trace.model.top_k, one.tokens)
        missed = sum(cache.touch(layer, experts, counts, streaming) for layer, experts, counts in one.wanted)
        if one.phase == "decode":
            decoded.append((answer, sum(len(experts) for _, experts, _ in one.wanted), missed))
    shares: dict[str, list[float]] = {BEFORE: [], AFTER: [], ANSWER: []}
    for answer, tokens in groupby(decoded, key=lambda token: token[0]):
        counted = [(uses, misses) for _, uses, misses in tokens]
        uses, misses = np.sum(counted[-WINDOW:] if answer == BEFORE else counted[:WINDOW], axis=0)
        shares[answer].append(100 * (1 - misses / uses))
    return {answer: np.array(each) for answer, each in shares.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the logs go; made when missing")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--experts", default="25%,50%,75%", help="budgets to replay")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    paths = [options.folder / f"prompt-{number}.jsonl" for number in range(PROMPTS)]
    if not all(finished(path, ANSWER) for path in paths):
        face = Face()
        face.service.send(LoadModel(options.model, "100%", policy="lru", dtype="float32", threads=options.threads))
        face.wait_for(ModelLoaded)
        for path, (question, prompt) in zip(paths, questions_and_prompts(), strict=True):
            if not finished(path, ANSWER):
                path.unlink(missing_ok=True)
                record(face, path, question, prompt)
                print(path.name, question, flush=True)
        face.service.send(ShutDown())
        face.service.join()
    trace = read_trace(paths)
    for budget in parse_budgets(options.experts, trace.model):
        print(f"\n{f'hits, %, at {budget.text}':18}  before   after   worst  unread   answer  unread")
        for policy in POLICIES:
            read, unread = (hits(trace, policy, budget.slots, unread) for unread in (False, True))
            worst = (read[AFTER] - read[BEFORE]).min()
            figures = [float(each.mean()) for each in (read[BEFORE], read[AFTER], unread[AFTER], read[ANSWER])]
            before, after, undisturbed, answer = figures
            print(
                f"{policy:18}  {before:6.1f}  {after:6.1f}  {worst:+6.1f}  {undisturbed:6.1f}   {answer:6.1f}"
                f"  {unread[ANSWER].mean():6.1f}",
                flush=True,
            )


if __name__ == "__main__":
    if str(ROOT) not in os.environ.get("PYTHONPATH", ""):  # run from a checkout, wherever that is
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment).returncode)
    main()
