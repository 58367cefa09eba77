"""An answer, step by step, from a real small model with a quarter of its experts in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.errors import OptionError
from engine.generation.generate import Decoded, Ended, Prefilled, PromptReady, Step, TextGenerator
from engine.loading import LoadedModel, load
from engine.messages import ChatMessage, LoadModel, Sampling

GREEDY = Sampling(temperature=0, max_tokens=12)
PROMPT = [5, 17, 40, 3, 88, 21, 9, 60, 11, 2]


@pytest.fixture
def loaded(tiny_chat_model: Path) -> Iterator[LoadedModel]:
    model = load(LoadModel(str(tiny_chat_model), experts="25%"))
    yield model
    model.close()


@pytest.fixture
def generator(loaded: LoadedModel) -> TextGenerator:
    return _endless(TextGenerator(loaded))


def _endless(generator: TextGenerator) -> TextGenerator:
    generator._ends = set()  # a random model says "end" at random
    return generator


def _run(steps: Iterator[Step]) -> tuple[PromptReady, list[Decoded], Ended]:
    done = list(steps)
    ready, ended = done[0], done[-1]
    assert isinstance(ready, PromptReady)
    assert isinstance(ended, Ended)
    return ready, [step for step in done if isinstance(step, Decoded)], ended


def _answer_tokens(generator: TextGenerator, prompt: list[int], sampling: Sampling = GREEDY) -> list[int]:
    """The answer's ids: all but the last are in the KV cache behind the prompt."""
    _run(generator.complete(prompt, sampling))
    return generator.past.tokens[len(prompt) :]


def test_greedy_answer_is_the_stock_models(tiny_chat_model: Path, generator: TextGenerator) -> None:
    stock = AutoModelForCausalLM.from_pretrained(tiny_chat_model, dtype=torch.float32, experts_implementation="eager")
    ids = list(PROMPT)
    for _ in range(GREEDY.max_tokens):
        ids.append(int(stock(torch.tensor([ids])).logits[0, -1].argmax()))
    assert _answer_tokens(generator, PROMPT) == ids[len(PROMPT) : -1]


def test_second_turn_prefills_only_the_new_suffix_and_equals_a_fresh_run(loaded: LoadedModel) -> None:
    kept = _endless(TextGenerator(loaded))
    first = _answer_tokens(kept, PROMPT)
    second_prompt = [*PROMPT, *first, 33, 7, 64]
    ready, tokens, _ = _run(kept.complete(second_prompt, GREEDY))
    assert ready.reused_tokens == len(PROMPT) + len(first)
    prefilled = loaded.runtime.observer.totals
    assert prefilled.hook_calls > 0
    answer = kept.past.tokens[len(second_prompt) :]

    fresh = _endless(TextGenerator(loaded))
    ready, _, _ = _run(fresh.complete(second_prompt, GREEDY))
    assert ready.reused_tokens == 0
    assert fresh.past.tokens[len(second_prompt) :] == answer
    assert len(tokens) == GREEDY.max_tokens


def test_prefill_counts_only_the_new_tokens(generator: TextGenerator) -> None:
    first = _answer_tokens(generator, PROMPT)
    steps = list(generator.complete([*PROMPT, *first, 33, 7], GREEDY))
    prefills = [step for step in steps if isinstance(step, Prefilled)]
    assert [step.record.tokens for step in prefills] == [2]
    assert int(prefills[0].record.counts.sum()) == 2 * 2 * 3  # tokens x top-k x layers


def test_changed_history_is_computed_again_from_the_change(generator: TextGenerator) -> None:
    _answer_tokens(generator, PROMPT)
    edited = [*PROMPT[:6], 77, 78, 79]
    ready, _, _ = _run(generator.complete(edited, GREEDY))
    assert ready.reused_tokens == 6
    assert generator.past.tokens[: len(edited)] == edited


def test_long_prompt_is_prefilled_in_chunks_with_the_same_answer(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = PROMPT * 5
    whole = _answer_tokens(_endless(TextGenerator(loaded)), prompt)
    monkeypatch.setattr("engine.generation.passes.CHUNK", 16)
    steps = list(_endless(TextGenerator(loaded)).complete(prompt, GREEDY))
    assert [step.done_tokens for step in steps if isinstance(step, Prefilled)] == [16, 32, 48, 50]
    assert _answer_tokens(_endless(TextGenerator(loaded)), prompt) == whole


def test_stop_in_decode_keeps_the_text_so_far(generator: TextGenerator) -> None:
    seen = 0

    def stop() -> bool:
        return seen >= 4

    decoded = []
    for step in generator.complete(PROMPT, Sampling(temperature=0, max_tokens=100), stop):
        if isinstance(step, Decoded):
            decoded.append(step)
            seen += 1
    assert isinstance(step, Ended)
    assert step.reason == "stopped"
    assert len(decoded) == 4
    assert step.timings.answer_tokens == 4


def test_stop_acts_between_layers_of_a_prefill(loaded: LoadedModel, generator: TextGenerator) -> None:
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 2  # the third of three layers

    ready, decoded, ended = _run(generator.complete(PROMPT, GREEDY, stop))
    assert ready.prompt_tokens == len(PROMPT)
    assert (decoded, ended.reason) == ([], "stopped")
    assert len(ended.records) == 1
    assert ended.records[0].counts[:2].sum() > 0
    assert ended.records[0].counts[2].sum() == 0  # the last layer never ran
    assert generator.past.tokens == []


def test_answer_after_a_stop_is_right(loaded: LoadedModel, generator: TextGenerator) -> None:
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 14  # in the middle of a decode pass

    _, decoded, ended = _run(generator.complete(PROMPT, Sampling(temperature=0, max_tokens=50), stop))
    assert ended.reason == "stopped"
    assert decoded
    resumed = _answer_tokens(generator, PROMPT)
    assert resumed == _answer_tokens(_endless(TextGenerator(loaded)), PROMPT)


def test_end_token_ends_the_answer_and_gives_no_text(loaded: LoadedModel) -> None:
    generator = _endless(TextGenerator(loaded))
    answer = _answer_tokens(generator, PROMPT)
    ending = answer[3]
    generator = TextGenerator(loaded)
    generator._ends = {ending}
    _, decoded, ended = _run(generator.complete(PROMPT, GREEDY))
    assert ended.reason == "end"
    assert len(decoded) == answer.index(ending)


def test_declared_end_tokens_are_all_honoured(loaded: LoadedModel) -> None:
    from engine.generation.generate import end_tokens

    assert loaded.tokenizer is not None
    assert loaded.tokenizer.eos_token_id in end_tokens(loaded)
    loaded.model.generation_config.eos_token_id = [3, 4]
    assert {3, 4, loaded.tokenizer.eos_token_id} <= end_tokens(loaded)


def test_seed_repeats_and_greedy_does_not_need_one(loaded: LoadedModel) -> None:
    def sample(seed: int) -> list[int]:
        sampling = Sampling(temperature=1.5, top_p=1.0, seed=seed, max_tokens=12)
        return _answer_tokens(_endless(TextGenerator(loaded)), PROMPT, sampling)

    assert sample(1) == sample(1)
    assert sample(1) != sample(2)


def test_a_new_seed_is_reported_so_that_it_can_be_used_again(loaded: LoadedModel) -> None:
    sampling = Sampling(temperature=1.5, max_tokens=8)
    generator = _endless(TextGenerator(loaded))
    _, _, ended = _run(generator.complete(PROMPT, sampling))
    again = Sampling(temperature=1.5, max_tokens=8, seed=ended.seed)
    assert generator.past.tokens[len(PROMPT) :] == _answer_tokens(_endless(TextGenerator(loaded)), PROMPT, again)


def test_prompt_longer_than_the_context_is_refused_in_words(tiny_chat_model: Path) -> None:
    loaded = load(LoadModel(str(tiny_chat_model), context=32))
    try:
        with pytest.raises(OptionError, match=r"40 tokens and the context holds 32"):
            list(TextGenerator(loaded).complete(PROMPT * 4, GREEDY))
        _, decoded, ended = _run(_endless(TextGenerator(loaded)).complete(PROMPT * 3, Sampling(max_tokens=99)))
        assert (len(decoded), ended.reason) == (2, "length")
    finally:
        loaded.close()


def test_chat_messages_go_through_the_template(generator: TextGenerator) -> None:
    ready, _, _ = _run(generator.answer([ChatMessage("user", "Hello")], GREEDY))
    longer, _, _ = _run(generator.answer([ChatMessage("system", "Be brief."), ChatMessage("user", "Hello")], GREEDY))
    assert longer.prompt_tokens > ready.prompt_tokens > 3


def test_open_answer_goes_on_where_it_was_cut(generator: TextGenerator) -> None:
    asked = ChatMessage("user", "Hello")
    first, _, cut = _run(generator.answer([asked], GREEDY))
    assert cut.reason == "length"
    written = "once upon a"
    before = generator._loaded.tokenizer(written, add_special_tokens=False)["input_ids"]  # type: ignore[misc]
    ready, more, ended = _run(generator.answer([asked, ChatMessage("assistant", written, open=True)], GREEDY))
    assert ready.prompt_tokens == first.prompt_tokens + len(before)
    assert ready.reused_tokens >= first.prompt_tokens
    new = "".join(step.text for step in more) + ended.text
    cached = generator._loaded.tokenizer.decode(generator.past.tokens[first.prompt_tokens :])  # type: ignore[union-attr]
    assert (written + new).startswith(str(cached).rstrip("\ufffd"))


def test_continued_greedy_answer_is_the_one_that_was_never_cut(demo_folder: Path) -> None:
    loaded = load(LoadModel(str(demo_folder), experts="50%"))
    try:
        generator = TextGenerator(loaded)
        asked = ChatMessage("user", "Write two sentences about lighthouses.")

        def answer(messages: list[ChatMessage], tokens: int) -> tuple[PromptReady, str]:
            ready, decoded, ended = _run(generator.answer(messages, Sampling(temperature=0, max_tokens=tokens)))
            return ready, "".join(step.text for step in decoded) + ended.text

        _, whole = answer([asked], 24)
        _, half = answer([asked], 12)
        ready, rest = answer([asked, ChatMessage("assistant", half, open=True)], 12)
        assert half + rest == whole
        assert rest
        assert ready.prompt_tokens - ready.reused_tokens == 1
    finally:
        loaded.close()
