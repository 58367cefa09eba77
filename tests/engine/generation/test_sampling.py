"""Choosing a token at the edges of what settings and logits can be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from engine.errors import ModelError, OptionError
from engine.generation.sampling import Sampler, answer_limit
from engine.messages import Sampling

LOGITS = torch.tensor([0.5, 3.0, -2.0, 2.999])


@pytest.mark.parametrize("temperature", [1e-3, 1e-9, 1e-39, 5e-324])
def test_the_coldest_answers_are_the_greedy_one(temperature: float) -> None:
    sampler = Sampler(Sampling(temperature=temperature, top_p=1.0, seed=1))
    assert {sampler.choose(LOGITS * 100, [0]) for _ in range(20)} == {1}


@pytest.mark.parametrize("options", [{"top_k": 10**12}, {"top_p": 1e-12}, {"min_p": 0.999}, {"top_k": 1}])
def test_filters_as_narrow_or_wide_as_can_be_leave_a_token(options: dict[str, Any]) -> None:
    assert Sampler(Sampling(**({"top_p": 1.0, "seed": 3} | options))).choose(LOGITS, [0]) in range(4)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_model_that_computes_no_numbers_is_told(temperature: float, wrong: float) -> None:
    logits = LOGITS.clone()
    logits[2] = wrong
    with pytest.raises(ModelError, match="computed no numbers"):
        Sampler(Sampling(temperature=temperature)).choose(logits, [0])


def test_tokens_that_a_model_rules_out_are_no_fault() -> None:
    logits = torch.tensor([-torch.inf, 1.0, -torch.inf])
    assert Sampler(Sampling(temperature=1.0, seed=2)).choose(logits, [0]) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, float("nan")) for name in ("temperature", "top_p", "min_p", "typical_p", "top_h", "repetition_penalty")]
    + [("temperature", float("inf")), ("repetition_penalty", float("inf")), ("seed", 2**64), ("seed", -(2**63) - 1)],
)
def test_numbers_that_mean_nothing_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(OptionError, match=f"{name} is "):
        Sampler(Sampling(**{name: value}))  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_penalty_that_leaves_nothing_is_told(temperature: float) -> None:
    with pytest.raises(OptionError, match="repetition penalty"):
        Sampler(Sampling(temperature=temperature, repetition_penalty=1e-39)).choose(LOGITS, [1])


def test_a_model_that_declares_to_bear_nonsense_is_answered_from_the_rest() -> None:
    """As transformers does it: NaN counts as 0, infinity as the largest number there is."""
    logits = torch.tensor([-1.0, torch.nan, -2.0])
    declared = GenerationConfig(remove_invalid_values=True)
    assert Sampler(Sampling(temperature=0), declared).choose(logits, [0]) == 1


def test_time_that_is_up_ends_an_answer_as_its_length_does() -> None:
    assert Sampler(Sampling(), GenerationConfig(max_time=1e-9)).over([1, 2], 3) == "length"
    assert Sampler(Sampling(), GenerationConfig(max_time=1e9)).over([1, 2], 3) is None


def test_what_prompt_and_answer_may_have_together_holds_where_the_prompt_leaves_any() -> None:
    sampling = Sampling(max_tokens=50, max_length=60)
    assert [answer_limit(sampling, prompt, 1000) for prompt in (5, 20, 60, 80)] == [50, 40, 50, 50]
    assert answer_limit(sampling, 90, 100) == 10
