"""A conversation longer than the context loses its oldest turns, in the open, and not a few more every time."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from engine.generation.fit import fit_prompt
from engine.generation.prompt import prompt_tokens
from engine.messages import ChatMessage

SYSTEM = ChatMessage("system", "Be kind.")


@pytest.fixture(scope="module")
def tokenizer(tiny_chat_model: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tiny_chat_model)


def _turns(count: int) -> list[ChatMessage]:
    return [
        ChatMessage("user" if n % 2 == 0 else "assistant", f"This is message {n}, a few words long.")
        for n in range(count)
    ]


def _length(tokenizer: PreTrainedTokenizerBase, messages: list[ChatMessage]) -> int:
    return len(prompt_tokens(tokenizer, messages)[0])


def test_what_fits_is_left_alone(tokenizer: PreTrainedTokenizerBase) -> None:
    messages = [SYSTEM, *_turns(5)]
    prompt = fit_prompt(tokenizer, messages, 10_000, 1000)
    assert (prompt.ids, prompt.left_out, prompt.notes) == (prompt_tokens(tokenizer, messages)[0], 0, ())


def test_oldest_turns_go_and_the_system_message_and_the_last_stay(tokenizer: PreTrainedTokenizerBase) -> None:
    messages = [SYSTEM, *_turns(41)]
    context = _length(tokenizer, messages) // 2
    prompt = fit_prompt(tokenizer, messages, context, context // 8)
    text = str(tokenizer.decode(prompt.ids))
    assert len(prompt.ids) <= context - context // 8
    assert prompt.left_out % 2 == 0 and prompt.left_out > 0
    assert SYSTEM.text in text and messages[-1].text in text
    assert f"message {prompt.left_out - 1}," not in text and f"message {prompt.left_out}," in text
    assert str(prompt.left_out) in prompt.notes[-1]


def test_the_cut_stays_where_it_is_for_several_turns(tokenizer: PreTrainedTokenizerBase) -> None:
    context = _length(tokenizer, _turns(40))
    cuts = [fit_prompt(tokenizer, _turns(count), context, 0).left_out for count in range(41, 121, 2)]
    assert cuts == sorted(cuts) and cuts[0] > 0
    assert len(set(cuts)) <= len(cuts) / 4


def test_a_last_message_that_alone_is_too_long_is_kept_whole(tokenizer: PreTrainedTokenizerBase) -> None:
    messages = [*_turns(4), ChatMessage("user", "word " * 200)]
    prompt = fit_prompt(tokenizer, messages, 64, 16)
    assert prompt.ids == prompt_tokens(tokenizer, messages[-1:])[0]
    assert prompt.left_out == 4
