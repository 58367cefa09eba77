"""What a chat reads twice: nothing of a turn that goes on, little of one that goes back, in families of every kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from engine.generation.generate import Prefilled, PromptReady, TextGenerator
from engine.loading import LoadedModel, load
from engine.messages import ChatMessage, LoadModel, Sampling
from tests.families import make_tiny

# appended rows; windows; recurrent layers; a pool beside windows
FAMILIES = ["qwen2_moe", "gpt_oss", "qwen3_next", "deepseek_v4"]
AFTER_A_MESSAGE = 12  # tokens of "<|im_end|>\n<|im_start|>assistant\n" in the tiny tokenizer, at most

DROPS_THOUGHTS = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'].split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

LONG = " ".join(["The green room is where actors wait until they are called."] * 20)
ANSWER = "The capital of France is Paris."


class Scripted:
    """Says what it was told to, whatever the logits."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = list(tokens)

    def choose(self, logits: torch.Tensor, tokens: list[int]) -> int:
        return self._tokens.pop(0)


@pytest.fixture(params=FAMILIES)
def loaded(request: pytest.FixtureRequest, tmp_path: Path):  # type: ignore[no-untyped-def]
    folder = make_tiny(request.param, tmp_path, tokenizer=True, changes={"max_position_embeddings": 2048})
    model = load(LoadModel(str(folder), experts="25%", dtype="float32", device="cpu"))
    yield model
    model.close()


class Talk:
    """Messages, answered with scripted words."""

    def __init__(self, loaded: LoadedModel) -> None:
        assert loaded.tokenizer is not None
        self.tokenizer = loaded.tokenizer
        self.generator = TextGenerator(loaded)
        self.ready: PromptReady
        self.read = 0  # tokens of prompt passes

    def say(self, *messages: ChatMessage, answer: str = ANSWER) -> None:
        words = self.tokenizer(answer, add_special_tokens=False)["input_ids"]
        chooser = Scripted([*words, self.tokenizer.eos_token_id])
        self.read = 0
        for step in self.generator.answer(messages, Sampling(max_tokens=500), chooser=chooser):
            if isinstance(step, PromptReady):
                self.ready = step
            elif isinstance(step, Prefilled):
                self.read += step.record.tokens

    def length(self, *messages: ChatMessage) -> int:
        return len(self.generator.prompt(messages, 0).ids)


def user(text: str) -> ChatMessage:
    return ChatMessage("user", text)


def model(text: str) -> ChatMessage:
    return ChatMessage("assistant", text)


def test_a_second_turn_reads_what_is_new(loaded: LoadedModel) -> None:
    talk = Talk(loaded)
    talk.say(user(LONG))
    before = talk.ready.prompt_tokens
    talk.say(user(LONG), model(ANSWER), user("And of Italy?"))
    assert talk.ready.reused_tokens > before
    answer_tokens = talk.ready.reused_tokens - before
    assert answer_tokens == len(talk.tokenizer(ANSWER, add_special_tokens=False)["input_ids"])
    assert talk.read == talk.ready.prompt_tokens - talk.ready.reused_tokens < 60


def test_an_answer_that_goes_on_reads_nothing_again(loaded: LoadedModel) -> None:
    talk = Talk(loaded)
    talk.say(user(LONG))
    talk.say(user(LONG), ChatMessage("assistant", ANSWER, open=True))
    assert talk.read == 0
    assert talk.ready.reused_tokens == talk.ready.prompt_tokens


def test_a_regenerated_answer_begins_behind_the_last_message(loaded: LoadedModel) -> None:
    talk = Talk(loaded)
    talk.say(user(LONG), answer=LONG[:300])
    talk.say(user(LONG))
    assert talk.read <= AFTER_A_MESSAGE
    talk.say(user(LONG))
    assert talk.read <= AFTER_A_MESSAGE


def test_an_edited_message_is_read_from_the_message_before_it(loaded: LoadedModel) -> None:
    talk = Talk(loaded)
    talk.say(user(LONG))
    talk.say(user(LONG), model(ANSWER), user("And of Italy?"))
    talk.say(user(LONG), model(ANSWER), user("And of Spain, if you please?"))
    unchanged = talk.length(user(LONG))
    assert talk.read <= talk.ready.prompt_tokens - unchanged + AFTER_A_MESSAGE
    assert talk.ready.reused_tokens >= unchanged - AFTER_A_MESSAGE


def test_a_template_that_drops_thoughts_costs_the_answer_without_them(loaded: LoadedModel) -> None:
    talk = Talk(loaded)
    talk.tokenizer.chat_template = DROPS_THOUGHTS
    thought = f"<think>{LONG[:300]}</think>{ANSWER}"
    talk.say(user(LONG), answer=thought)
    first = talk.ready.prompt_tokens
    talk.say(user(LONG), model(thought), user("And of Italy?"))
    assert talk.ready.reused_tokens >= first - AFTER_A_MESSAGE
    assert talk.read <= talk.ready.prompt_tokens - first + AFTER_A_MESSAGE < 120


def test_a_stop_in_the_prompt_keeps_what_was_read(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.generation.passes.CHUNK", 64)
    talk = Talk(loaded)
    asked, layers = 0, loaded.info.layers

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3 * layers + 1  # in the fourth piece

    prompt = [user(LONG)]
    done = list(talk.generator.answer(prompt, Sampling(), stop))
    assert sum(isinstance(step, Prefilled) for step in done) == 3
    talk.say(*prompt)
    assert talk.ready.reused_tokens >= 64 * 3
