"""The demo model itself, end to end: what a user of the first start is promised."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.cli import main
from engine.generation.generate import Decoded, Prefilled, PromptReady, TextGenerator
from engine.kv.past import Past
from engine.loading import LoadedModel, load
from engine.messages import ChatMessage, LoadModel, Sampling

GREEDY = Sampling(temperature=0, max_tokens=24)


@pytest.fixture(scope="module", autouse=True)
def both_cores() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def loaded(demo_folder: Path) -> Iterator[LoadedModel]:
    model = load(LoadModel(str(demo_folder), experts="25%"))
    yield model
    model.close()


def test_capital_of_france_with_a_quarter_of_the_experts(demo_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["chat", str(demo_folder), "--prompt", "What is the capital of France?", "--experts", "25%"]
    assert main([*ask, "--temperature", "0", "--max-tokens", "40"]) == 0
    shown = capsys.readouterr()
    assert "Paris" in shown.out
    assert "240 of 960 experts" in shown.err


@pytest.mark.parametrize("policy", ["lru", "lfu", "next-use"])
@pytest.mark.parametrize("experts", ["1 slots", "25%", "100%"])
def test_greedy_tokens_are_the_stock_models(
    demo_folder: Path, capsys: pytest.CaptureFixture[str], experts: str, policy: str
) -> None:
    command = ["verify", str(demo_folder), "--experts", experts, "--policy", policy, "--max-tokens", "8", "--json"]
    assert main(command) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["equal"] is True
    assert verdict["steps"][0]["tokens"] == 8
    assert verdict["max_logit_diff"] < 1e-3


def test_bf16_logits_are_the_same_bits_whatever_the_budget_and_policy(demo_folder: Path) -> None:
    prompt = list(range(1000, 1040))
    seen: list[torch.Tensor] = []
    for experts, policy in (("1 slots", "lru"), ("25%", "lfu"), ("50%", "next-use"), ("100%", "lru")):
        model = load(LoadModel(str(demo_folder), experts=experts, policy=policy, dtype="bfloat16"))
        try:
            past = Past(model.model)
            with torch.inference_mode():
                rows = [past.run(prompt, model.device), *(past.run([token], model.device) for token in (11, 500, 7))]
            seen.append(torch.stack(rows))
        finally:
            model.close()
    assert all(torch.equal(rows, seen[0]) for rows in seen[1:])


def test_second_turn_of_a_chat_prefills_only_what_is_new_and_equals_a_fresh_run(loaded: LoadedModel) -> None:
    generator = TextGenerator(loaded)
    first = [ChatMessage("user", "What is the capital of France?")]
    text = "".join(step.text for step in generator.answer(first, GREEDY) if isinstance(step, Decoded))
    second = [*first, ChatMessage("assistant", text), ChatMessage("user", "And of Italy?")]
    steps = list(generator.answer(second, GREEDY))
    ready = steps[0]
    assert isinstance(ready, PromptReady)
    assert ready.reused_tokens > 40  # the template's own system turn, the question and the answer
    prefilled = sum(step.record.tokens for step in steps if isinstance(step, Prefilled))
    assert prefilled == ready.prompt_tokens - ready.reused_tokens < 25
    answer = [step.text for step in steps if isinstance(step, Decoded)]
    fresh = [step.text for step in TextGenerator(loaded).answer(second, GREEDY) if isinstance(step, Decoded)]
    assert answer == fresh
