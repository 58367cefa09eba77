"""What a model declares about its answers, through the program, against ``generate`` of transformers: the same tokens.

One tiny model, a generation_config.json for each key, the file read by both; where it samples, the same seed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel

from engine.generation.generate import Ended, TextGenerator
from engine.generation.sampling import Sampler
from engine.loading import load
from engine.messages import LoadModel, ModelLoaded
from tests.families import copy_model, make_tiny

SEED = 7
PROMPT = [5, 17, 40, 3, 88, 21, 9, 60, 11, 2, 17, 40, 3]
ENDS = [0, 2]  # <|endoftext|> and <|im_end|>
LENGTH = {"max_new_tokens": 14}
DRAWN = {"do_sample": True, **LENGTH}

TEXT = "a piece of the plain answer"


@dataclass(frozen=True)
class At:
    """The plain answer's token at this place."""

    place: int


GREEDY: dict[str, dict[str, Any]] = {
    "max_new_tokens": {},
    "max_length": {"max_new_tokens": None, "max_length": 21},
    "both lengths": {"max_length": 200},
    "do_sample: false": {"do_sample": False, "temperature": 0.6, "top_p": 0.9},
    "no do_sample": {"temperature": 1.7, "top_k": 20},
    "temperature: 0": {"temperature": 0},
    "top_p: 0": {"top_p": 0},
    "repetition_penalty": {"repetition_penalty": 1.6},
    "a whole repetition_penalty": {"repetition_penalty": 2.0},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 2},
    "bad_words_ids": {"bad_words_ids": [[At(1)], [At(2), At(3)]]},
    "suppress_tokens": {"suppress_tokens": [At(1), At(4)]},
    "begin_suppress_tokens": {"begin_suppress_tokens": [At(0)]},
    "sequence_bias": {"sequence_bias": [[[At(1)], -9.0], [[77], 4.0]]},
    "min_new_tokens": {"eos_token_id": [0, 2, At(3)], "min_new_tokens": 9},
    "min_length": {"eos_token_id": [0, 2, At(3)], "min_length": 20},
    "an end token": {"eos_token_id": [0, 2, At(5)]},
    "forced_eos_token_id": {"forced_eos_token_id": 2},
    "exponential_decay_length_penalty": {"exponential_decay_length_penalty": [3, 1.9]},
    "remove_invalid_values": {"remove_invalid_values": True},
    "renormalize_logits": {"renormalize_logits": True},
    "stop_strings": {"stop_strings": [TEXT]},
    "several": {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3, "suppress_tokens": [At(1)], "min_new_tokens": 5},
}
UNCHANGED = {
    *("max_new_tokens", "both lengths", "do_sample: false", "no do_sample", "temperature: 0", "top_p: 0"),
    *("remove_invalid_values", "renormalize_logits"),
}
SAMPLED: dict[str, dict[str, Any]] = {
    "do_sample: true": {},
    "temperature": {"temperature": 0.3},
    "top_k": {"top_k": 4},
    "top_k: 0": {"top_k": 0},
    "top_p": {"top_p": 0.5},
    "top_p: 0": {"top_p": 0},
    "min_p": {"min_p": 0.3},
    "top_h": {"top_h": 0.4},
    "typical_p": {"typical_p": 0.5},
    "epsilon_cutoff": {"epsilon_cutoff": 0.02},
    "eta_cutoff": {"eta_cutoff": 0.3},
    "repetition_penalty": {"temperature": 0.3, "repetition_penalty": 1.5},
    "no_repeat_ngram_size": {"temperature": 0.3, "no_repeat_ngram_size": 1},
    "all of a usual file": {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05},
    "several": {"temperature": 1.4, "top_k": 60, "min_p": 0.01, "typical_p": 0.9, "renormalize_logits": True},
}


class Both:
    """The tiny model, stock and through the program, under one generation_config.json."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.stock: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, experts_implementation="eager")
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.info: ModelLoaded | None = None

    def declare(self, values: dict[str, Any]) -> None:
        said = {"eos_token_id": ENDS, **values}
        said = {name: value for name, value in said.items() if value is not None}
        (self._folder / "generation_config.json").write_text(json.dumps(said))

    def generate(self, prompt_tokens: list[int] = PROMPT) -> list[int]:
        """The answer of transformers, without its end token."""
        self.stock.generation_config = GenerationConfig.from_pretrained(self._folder)
        ends = self.stock.generation_config.eos_token_id
        torch.manual_seed(SEED)
        prompt = torch.tensor([prompt_tokens])
        ids = self.stock.generate(prompt, attention_mask=torch.ones_like(prompt), tokenizer=self.tokenizer)
        answer: list[int] = ids[0, len(prompt_tokens) :].tolist()
        return answer[:-1] if answer[-1] in ends else answer

    def answer(self, prompt: list[int] = PROMPT, **own: float) -> tuple[list[int], Ended]:
        """The program's answer with the sampling that the model advises, but for the user's ``own``."""
        loaded = load(LoadModel(str(self._folder), experts="50%", dtype="float32"))
        self.info = loaded.info
        chosen: list[int] = []
        choose = Sampler.choose

        def noted(sampler: Sampler, logits: torch.Tensor, tokens: list[int]) -> int:
            chosen.append(choose(sampler, logits, tokens))
            return chosen[-1]

        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Sampler, "choose", noted)
                generator = TextGenerator(loaded)
                ended = list(generator.complete(prompt, replace(loaded.info.sampling, seed=SEED, **own)))[-1]
        finally:
            loaded.close()
        assert isinstance(ended, Ended)
        return chosen[: ended.timings.answer_tokens], ended


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    source = make_tiny("qwen2_moe", tmp_path_factory.mktemp("declared") / "source", tokenizer=True)
    yield Both(copy_model(source, tmp_path_factory.mktemp("declared") / "model"))


@pytest.fixture(scope="module")
def plain(both: Both) -> list[int]:
    """What the model answers greedily where nothing but the length is declared."""
    both.declare(LENGTH)
    return both.generate()


@pytest.fixture(scope="module")
def drawn(both: Both) -> list[int]:
    """What it draws where nothing else is declared."""
    both.declare(DRAWN)
    return both.generate()


def filled(value: Any, answer: list[int], text: str) -> Any:
    """A case with tokens and text of the plain answer in their places."""
    if isinstance(value, At):
        return answer[value.place]
    if isinstance(value, list):
        return [filled(item, answer, text) for item in value]
    return text if value == TEXT else value


@pytest.mark.parametrize("case", GREEDY)
def test_greedy_answers_are_those_of_generate(both: Both, plain: list[int], case: str) -> None:
    readable = [both.tokenizer.decode([token]) for token in plain[4:]]
    text = next(text for text in readable if text.isascii() and text.isalnum())
    both.declare(LENGTH | {name: filled(value, plain, text) for name, value in GREEDY[case].items()})
    tokens, ended = both.answer()
    assert tokens == both.generate()
    assert (tokens == plain) == (case in UNCHANGED)
    assert ended.reason == ("length" if len(tokens) == LENGTH["max_new_tokens"] or case == "max_length" else "end")


@pytest.mark.parametrize("case", SAMPLED)
def test_drawn_answers_are_those_of_generate(both: Both, drawn: list[int], case: str) -> None:
    both.declare(DRAWN | SAMPLED[case])
    tokens, _ = both.answer()
    assert tokens == both.generate()
    assert (tokens == drawn) == (case == "do_sample: true")


def test_a_first_token_is_forced_where_generate_forces_it(both: Both) -> None:
    both.declare(LENGTH | {"forced_bos_token_id": 33})
    tokens, _ = both.answer(PROMPT[:1])
    assert tokens == both.generate(PROMPT[:1])
    assert tokens[0] == 33


def test_temperature_0_of_a_model_that_samples_is_greedy_where_transformers_refuses(
    both: Both, plain: list[int]
) -> None:
    both.declare(DRAWN | {"temperature": 0})
    tokens, _ = both.answer()
    assert tokens == plain
    assert both.info is not None and any("temperature 0" in note for note in both.info.notes)
    with pytest.raises(ValueError, match="strictly positive"):
        both.generate()


def test_the_user_overrides_what_is_declared_field_by_field(both: Both, plain: list[int]) -> None:
    both.declare(DRAWN | {"top_k": 4, "suppress_tokens": plain[:1]})
    mine, _ = both.answer(temperature=0.3)
    assert mine != both.generate()
    both.declare(DRAWN | {"top_k": 4, "suppress_tokens": plain[:1], "temperature": 0.3})
    assert mine == both.generate()
