"""Chats as rows of tokens: the chat template, packing, and the answers' tokens for evaluation."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROW = 448  # tokens per row; several documents share one
PADDING = -1


@dataclass(frozen=True)
class Rows:
    """Packed documents: ``ids`` and ``documents`` (number of the document, -1 for padding) are ``[rows, ROW]``.

    ``scored`` marks the tokens (of answers) whose likelihood is evaluated; a token is predicted from the one before.
    """

    ids: np.ndarray
    documents: np.ndarray
    scored: np.ndarray

    def batches(self, size: int) -> Iterator[Rows]:
        """All rows in order, ``size`` at a time; the last batch is filled up with empty rows."""
        for start in range(0, len(self.ids), size):
            part = [array[start : start + size] for array in (self.ids, self.documents, self.scored)]
            missing = ((0, size - len(part[0])), (0, 0))
            yield Rows(*(np.pad(a, missing, constant_values=v) for a, v in zip(part, (0, PADDING, 0), strict=True)))


def read_chats(path: Path) -> list[list[str]]:
    """Each chat as prompts and answers in turn; ``prompt``/``answer`` lines and ``turns`` lines are both read."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    chats = [json.loads(line) for line in content.decode("utf-8").strip().split("\n")]
    return [chat["turns"] if "turns" in chat else [chat["prompt"], chat["answer"]] for chat in chats]


def finished_flags(path: Path) -> list[bool]:
    """For ``prompt``/``answer`` lines: did the answer come to its own end?"""
    return [json.loads(line)["finished"] for line in path.read_text(encoding="utf-8").strip().split("\n")]


def join_some(chats: list[list[str]], share: float, seed: int) -> list[list[str]]:
    """Join a ``share`` of the single-turn chats, two or three at a time, into conversations of several turns."""
    order = random.Random(seed)
    chats = list(chats)
    order.shuffle(chats)
    count = int(len(chats) * share)
    joined, rest = chats[:count], chats[count:]
    while joined:
        size = 3 if order.random() < 0.3 else 2
        rest.append([turn for chat in joined[:size] for turn in chat])
        joined = joined[size:]
    order.shuffle(rest)
    return rest


def tokenise(tokenizer: Any, chat: list[str], ended: bool = True) -> tuple[list[int], list[bool]]:
    """Token ids of a chat under the model's template, and which of them belong to answers.

    ``ended``: whether the last answer is followed by its end-of-turn token.
    """
    ids: list[int] = []
    answer: list[bool] = []

    def add(text: str, scored: bool) -> None:
        new = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids.extend(new)
        answer.extend([scored] * len(new))

    for number in range(0, len(chat), 2):
        messages = [{"role": "user", "content": chat[number]}]
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        if number:  # the default system prompt comes once
            prompt = "\n" + prompt[prompt.index("<|im_start|>user") :]
        add(prompt, False)
        add(chat[number + 1] + ("<|im_end|>" if ended or number + 2 < len(chat) else ""), True)
    return ids, answer


def pack(documents: list[tuple[list[int], list[bool]]], seed: int | None = None) -> Rows:
    """Pack documents (cut at ROW tokens) into rows, the longest first, each where it fits best."""
    longest_first = sorted(range(len(documents)), key=lambda i: -min(len(documents[i][0]), ROW))
    rows: list[list[int]] = []
    free: list[int] = []
    for index in longest_first:
        size = min(len(documents[index][0]), ROW)
        fits = [row for row, space in enumerate(free) if space >= size]
        if fits:
            row = min(fits, key=lambda r: free[r])
        else:
            row = len(rows)
            rows.append([])
            free.append(ROW)
        rows[row].append(index)
        free[row] -= size
    if seed is not None:
        random.Random(seed).shuffle(rows)
    ids = np.zeros((len(rows), ROW), np.int64)
    numbers = np.full((len(rows), ROW), PADDING, np.int64)
    scored = np.zeros((len(rows), ROW), bool)
    for row, members in enumerate(rows):
        at = 0
        for index in members:
            tokens, answer = documents[index]
            size = min(len(tokens), ROW)
            ids[row, at : at + size] = tokens[:size]
            numbers[row, at : at + size] = index
            scored[row, at : at + size] = answer[:size]
            at += size
    return Rows(ids, numbers, scored)
