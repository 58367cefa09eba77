"""Going back in a conversation: by cutting, or to a checkpoint within a budget; a broken pass changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from transformers import PreTrainedModel

from engine.kv.past import EVERY, Past
from tests.families import make_tiny, stock

CPU = torch.device("cpu")
TOKENS = torch.randint(3, 120, (80,), generator=torch.Generator().manual_seed(2)).tolist()
PLENTY = 1 << 30
# appended rows, a window, a recurrent state, both at once, a pool beside a window, a cache class of its own
KINDS = ["qwen2_moe", "gpt_oss", "qwen3_next", "zaya", "deepseek_v4", "minimax"]


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PreTrainedModel:
    return stock(make_tiny(request.param, tmp_path_factory.mktemp(request.param)))


def fed(model: PreTrainedModel, *ends: int, budget: int = PLENTY) -> Past:
    """A past that was read in passes to each of ``ends``, with a checkpoint behind each."""
    past = Past(model, budget)
    for end in ends:
        run(past, end)
        past.checkpoint()
    return past


@torch.inference_mode()
def run(past: Past, end: int) -> torch.Tensor:
    return past.run(TOKENS[len(past.tokens) : end], CPU)


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return float((one - other).abs().max()) <= 1e-5 * float(other.abs().max())


@contextmanager
def broken(model: PreTrainedModel) -> Iterator[None]:
    """Passes break off before the last layer's experts."""

    def stop(*arguments: object) -> None:
        raise InterruptedError

    experts = [module for module in model.modules() if hasattr(module, "num_experts") and hasattr(module, "has_gate")]
    hook = experts[-1].register_forward_pre_hook(stop)
    try:
        yield
    finally:
        hook.remove()


def test_what_follows_a_return_is_what_was_there_before(model: PreTrainedModel) -> None:
    past = fed(model, 30, 40, 41, 60)
    before = run(fed(model, 30, 40), 70)
    past.go_back(45)
    assert len(past.tokens) == (45 if not past.needs_checkpoints else 41)
    assert same(run(past, 70), before)


def test_a_checkpoint_serves_more_than_once(model: PreTrainedModel) -> None:
    past, expected = fed(model, 30), run(fed(model, 30), 50)
    for _ in range(3):
        run(past, 50)
        past.go_back(30)
        assert len(past.tokens) == 30
        assert same(run(past, 50), expected)
        past.go_back(30)


@pytest.mark.parametrize("tokens", [1, 9])
def test_a_broken_pass_leaves_the_past_as_it_was(model: PreTrainedModel, tokens: int) -> None:
    past = fed(model, 30)
    with broken(model), pytest.raises(InterruptedError):
        run(past, 30 + tokens)
    assert len(past.tokens) == 30
    assert same(run(past, 50), run(fed(model, 30), 50))


def test_a_broken_first_pass_leaves_nothing(model: PreTrainedModel) -> None:
    past = Past(model, PLENTY)
    with broken(model), pytest.raises(InterruptedError):
        run(past, 20)
    assert past.tokens == []
    assert same(run(past, 50), run(Past(model), 50))


def test_the_longest_beginning_that_can_be_reached_is_reused(model: PreTrainedModel) -> None:
    past = fed(model, 30, 60)
    assert past.reuse([*TOKENS[:45], 1, 1]) == (30 if past.needs_checkpoints else 45)
    assert past.tokens == TOKENS[: len(past.tokens)]
    assert past.reuse([1, 2, 3]) == 0
    assert past.nbytes == 0


def test_the_last_token_of_a_prompt_is_computed_unless_its_logits_are_there(model: PreTrainedModel) -> None:
    past = fed(model, 29, 30)
    assert past.reuse(TOKENS[:30]) == 30
    run(past, 35)
    assert past.reuse(TOKENS[:30]) == 29


def test_checkpoints_keep_to_their_budget_and_the_latest_stays(model: PreTrainedModel) -> None:
    past = fed(model, 20, budget=PLENTY)
    if not past.needs_checkpoints:
        assert past.checkpoint_bytes == 0
        return
    one = fed(model, 70).checkpoint_bytes
    past = fed(model, 20, 30, 40, 50, 60, 70, budget=3 * one + one // 2)
    run(past, 75)
    assert 2 * one <= past.checkpoint_bytes <= past.budget
    assert past.reachable(74) == 70
    assert past.reachable(69) > 0
    none = fed(model, 20, 30, budget=one // 4)
    assert none.checkpoint_bytes == 0
    assert none.reachable(25) == 0


def test_an_answer_is_due_a_checkpoint_every_so_many_tokens(model: PreTrainedModel) -> None:
    past = fed(model, 20)
    past.tokens += [0] * EVERY  # as if they had been fed
    assert past.checkpoint_due is past.needs_checkpoints
