"""A long prompt leaves decode what it lives on, whatever the policy: an answer that it interrupts goes on hitting."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from engine.experts.records import PassRecord
from engine.generation.generate import Decoded, TextGenerator
from engine.loading import load
from engine.messages import POLICIES, LoadModel, Sampling
from tests.families import make_tiny

WINDOW = 64  # tokens of an answer whose hits are counted
PROMPT = 1500  # tokens
POINTS = 0.03


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sparse, as models of today are: 4 of 64 experts to a token."""
    changes = {"num_experts": 64, "num_experts_per_tok": 4, "max_position_embeddings": 2048}
    return make_tiny("qwen2_moe", tmp_path_factory.mktemp("sparse") / "model", changes=changes)


class Scripted:
    """Says what it was told to, whatever the logits."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = list(tokens)

    def choose(self, logits: object, tokens: list[int]) -> int:
        return self._tokens.pop(0)


def say(generator: TextGenerator, prompt: Sequence[int], answer: Sequence[int]) -> list[PassRecord]:
    """Answer; the decode passes, one for each token but the last."""
    steps = generator.complete(list(prompt), Sampling(max_tokens=len(answer)), chooser=Scripted(answer))
    return [step.record for step in steps if isinstance(step, Decoded) and step.record is not None]


def hit_rate(records: Sequence[PassRecord]) -> float:
    return 1 - sum(int(record.missed.sum()) for record in records) / sum(
        int((record.counts > 0).sum()) for record in records
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_decode_hits_after_a_long_prompt_what_it_hit_before(folder: Path, policy: str) -> None:
    """The same words again and again, as frequent as words are; between two times, another chat's long prompt."""
    random = np.random.default_rng(0)
    words, frequency = 3 + random.permutation(125), 1 / np.arange(1, 126) ** 1.2
    verse = random.choice(words, WINDOW, p=frequency / frequency.sum()).tolist()
    other = random.integers(3, 128, PROMPT).tolist()
    loaded = load(LoadModel(str(folder), "25%", policy=policy, dtype="float32", device="cpu", predictor="none"))
    try:
        generator = TextGenerator(loaded, ends=set())
        question, answer = [5, 6, 7], 3 * verse
        before = say(generator, question, [*answer, 3])[-WINDOW:]
        say(generator, other, [3])
        after = say(generator, [*question, *answer], [*verse, 3])
    finally:
        loaded.close()
    assert len(before) == len(after) == WINDOW
    assert hit_rate(before) > 0.5
    assert hit_rate(after) > hit_rate(before) - POINTS
