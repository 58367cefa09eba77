"""The same words whatever is cached, predicted or fetched ahead: greedy tokens against the stock model's.

Every policy meets every predictor; budgets and the way to prefetch take turns. The store delays and reorders.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.dense import load_dense, load_tokenizer
from engine.experience import Experience
from engine.experts.store import DiskStore
from engine.generation.generate import Decoded, Ended, TextGenerator
from engine.loading import LoadedModel, inspect, load
from engine.messages import POLICIES, PREDICTORS, LoadModel, Sampling
from engine.prediction.shape import State
from tests.families import make_tiny

PROMPT = [5, 9, 101, 44, 7, 3, 88, 23, 61, 90, 12, 35]
TOKENS = 12
BUDGETS = ("1 slots", "25%", "50%", "100%")
MEETINGS = [
    (policy, predictor, BUDGETS[number % len(BUDGETS)], ("on", "on", "auto", "off")[number // len(PREDICTORS) % 4])
    for number, (policy, predictor) in enumerate(itertools.product(POLICIES, PREDICTORS))
]


class Moody(DiskStore):
    """Takes its time over some experts, so that they arrive in any order."""

    quick = False

    source = random.Random(4)
    longest = 0.002  # seconds

    def read(self, layer: int, expert: int, blob: torch.Tensor) -> int:
        if self.source.random() < 0.3:
            time.sleep(self.source.random() * self.longest)
        return super().read(layer, expert, blob)


class Company:
    """A model to answer again and again, its stock tokens, and what the learnt predictors know of it."""

    def __init__(self, folder: Path, prompt: list[int], tokens: int) -> None:
        self.folder, self.prompt, self.tokens = folder, prompt, tokens
        self.expected = self._stock()
        self.tables = self._taught()

    def command(self, **choices: str) -> LoadModel:
        return replace(LoadModel(str(self.folder), dtype="float32", device="cpu", context=256), **choices)

    def load(self, tables: State | None = None, **choices: str) -> tuple[LoadedModel, Experience]:
        command = self.command(**choices)
        loaded = load(command)
        return loaded, Experience(loaded, command, tables=tables)

    def answer(self, loaded: LoadedModel, experience: Experience) -> list[int]:
        generator = TextGenerator(loaded)
        generator._ends = set()
        experience.begin_request()
        for step in generator.complete(self.prompt, Sampling(temperature=0, max_tokens=self.tokens)):
            assert not isinstance(step, Ended) or step.reason == "length"
            if isinstance(step, Decoded):
                experience.passed()
        experience.end_request()
        return generator.past.tokens[len(self.prompt) :]

    def _stock(self) -> list[int]:
        model = AutoModelForCausalLM.from_pretrained(
            self.folder, dtype=torch.float32, experts_implementation="eager"
        ).eval()
        ids = torch.tensor([self.prompt])
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=self.tokens, eos_token_id=None
        )
        return out[0, len(self.prompt) : -1].tolist()

    def _taught(self) -> State:
        """From prompts of random words."""
        loaded, experience = self.load(experts="100%", predictor="blend", prefetch="off")
        prompter = experience.foresight.prompter
        words = torch.Generator().manual_seed(1)
        try:
            with torch.inference_mode():
                for _ in range(3):
                    prompt = torch.randint(3, 128, (1, 128), generator=words)
                    experience.begin_request()
                    loaded.runtime.begin_answer(new_chat=True)
                    loaded.runtime.begin_pass("prefill", prompt.shape[1])
                    loaded.model(prompt)
                    loaded.runtime.end_pass(0.1)
                    experience.foresight.end_request()
                    while prompter.learn(0.1):
                        pass
            return prompter.state()
        finally:
            experience.close()
            loaded.close()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Company]:
    root = tmp_path_factory.mktemp("exact")
    return {family: Company(make_tiny(family, root / family), PROMPT, TOKENS) for family in ("qwen2_moe", "mixtral")}


@pytest.fixture
def moody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.loading.DiskStore", Moody)


@pytest.mark.usefixtures("moody")
@pytest.mark.parametrize("family", ["qwen2_moe", "mixtral"])
def test_tiny_models_say_what_the_stock_model_says(tiny: dict[str, Company], family: str) -> None:
    company, spoke, used = tiny[family], set(), 0
    for policy, predictor, experts, prefetch in MEETINGS:
        loaded, experience = company.load(
            company.tables, experts=experts, policy=policy, predictor=predictor, prefetch=prefetch
        )
        try:
            assert company.answer(loaded, experience) == company.expected, (policy, predictor, experts, prefetch)
            counters = loaded.runtime.observer.counters(0)
            ahead = counters.prefetch_used + counters.prefetch_late + counters.prefetch_wasted
            if prefetch == "off" or predictor == "none":
                assert ahead == 0
            if ahead:
                spoke.add(predictor)
            used += counters.prefetch_used
        finally:
            experience.close()
            loaded.close()
    assert used > 0
    assert spoke == set(PREDICTORS) - {"none"}


@pytest.fixture(scope="module")
def demo(demo_folder: Path) -> Iterator[Company]:
    before = torch.get_num_threads()
    yield Company(demo_folder, [*range(1000, 1006)], 4)
    torch.set_num_threads(before)


@pytest.mark.usefixtures("moody")
def test_the_demo_says_what_the_stock_model_says(demo: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    """One dense part serves all, with slots, cache and link of its own for each meeting; every third of them, in which
    everybody still meets all budgets, since what the learnt predictors know of this model takes a second to solve."""
    monkeypatch.setattr(Moody, "longest", 0.0004)
    used = 0
    found = inspect(str(demo.folder))
    dense = load_dense(found.folder, found.skeleton, found.index.names, torch.float32, torch.device("cpu"))
    tokenizer = load_tokenizer(found.folder)
    monkeypatch.setattr("engine.loading.inspect", lambda source: found)
    monkeypatch.setattr("engine.loading.load_dense", lambda *arguments: dense)
    monkeypatch.setattr("engine.loading.load_tokenizer", lambda folder: tokenizer)
    for policy, predictor, experts, prefetch in MEETINGS[::3]:
        loaded, experience = demo.load(
            demo.tables, experts=experts, policy=policy, predictor=predictor, prefetch=prefetch
        )
        try:
            assert demo.answer(loaded, experience) == demo.expected, (policy, predictor, experts, prefetch)
            used += loaded.runtime.observer.counters(0).prefetch_used
        finally:
            experience.close()
            loaded.close()
    assert used > 0
