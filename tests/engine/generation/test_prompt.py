"""Chat templates of every temper."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from engine.errors import ModelError
from engine.generation.fit import fit_prompt
from engine.generation.prompt import prompt_tokens
from engine.messages import ChatMessage

NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}{% endfor %}"
)
ALTERNATING = (
    "{% for m in messages %}{% if m.role == 'system' or (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}"
)


@pytest.fixture
def tokenizer(tiny_chat_model: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tiny_chat_model)


def _text(tokenizer: PreTrainedTokenizerBase, messages: list[ChatMessage]) -> tuple[str, list[str]]:
    ids, notes = prompt_tokens(tokenizer, messages)
    return str(tokenizer.decode(ids)), notes


def test_ordinary_template_takes_messages_as_they_are(tokenizer: PreTrainedTokenizerBase) -> None:
    text, notes = _text(tokenizer, [ChatMessage("system", "Be kind."), ChatMessage("user", "Hello")])
    assert "system\nBe kind." in text
    assert text.endswith("assistant\n")
    assert notes == []


def test_half_characters_do_not_cost_the_conversation(tokenizer: PreTrainedTokenizerBase) -> None:
    """As a cut emoji leaves them, in a pasted text or an attached file."""
    talk = [ChatMessage("user", "one \ud83d two"), ChatMessage("assistant", "\udc00", open=True)]
    whole = [ChatMessage("user", "one \ufffd two"), ChatMessage("assistant", "\ufffd", open=True)]
    assert prompt_tokens(tokenizer, talk) == prompt_tokens(tokenizer, whole)
    asked = [ChatMessage("user", "\ud83d " * 200), ChatMessage("assistant", "Yes."), ChatMessage("user", "And?")]
    assert fit_prompt(tokenizer, asked, 100, 10).left_out == 2
    tokenizer.chat_template = None
    assert prompt_tokens(tokenizer, talk) == prompt_tokens(tokenizer, whole)


def test_template_without_system_role_gets_it_in_the_first_message(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = NO_SYSTEM
    text, notes = _text(tokenizer, [ChatMessage("system", "Be kind."), ChatMessage("user", "Hello")])
    assert text == "[user]Be kind.\n\nHello"
    assert len(notes) == 1
    assert "no system role" in notes[0]


def test_template_that_demands_alternation_gets_neighbours_joined(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = ALTERNATING
    turns = [ChatMessage("user", "One"), ChatMessage("user", "Two"), ChatMessage("assistant", "Yes")]
    text, notes = _text(tokenizer, [ChatMessage("system", "Be kind."), *turns])
    assert text == "[user]Be kind.\n\nOne\n\nTwo[assistant]Yes"
    assert len(notes) == 2


def test_model_without_template_continues_plain_text(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = None
    text, notes = _text(tokenizer, [ChatMessage("user", "Once upon"), ChatMessage("assistant", " a time")])
    assert text == "Once upon\n a time"
    assert notes == []


@pytest.mark.parametrize("template", ["its own", None])
def test_open_turn_is_what_the_model_wrote_after_the_prompt_it_was_answering(
    tokenizer: PreTrainedTokenizerBase, template: str | None
) -> None:
    if template is None:
        tokenizer.chat_template = None
    asked = [ChatMessage("user", "Tell me")]
    before, _ = prompt_tokens(tokenizer, asked)
    written = "<think>hm</think>\n Once upon a "  # a template would drop the thought and strip the space
    text, notes = _text(tokenizer, [*asked, ChatMessage("assistant", written, open=True)])
    assert text == str(tokenizer.decode(before)) + written
    assert notes == []


def test_broken_template_and_missing_tokenizer_are_sentences(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = "{{ raise_exception('never') }}"
    with pytest.raises(ModelError, match="refuses this conversation"):
        prompt_tokens(tokenizer, [ChatMessage("user", "Hello")])
    with pytest.raises(ModelError, match="no tokenizer"):
        prompt_tokens(None, [ChatMessage("user", "Hello")])
