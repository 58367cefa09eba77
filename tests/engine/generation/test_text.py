"""Half characters are never shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders
from tokenizers.models import WordLevel
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from engine.generation.text import TextStream, reasoning_marks

TEXTS = ["Grüße, 世界! 🎭🎟️ done", "👩‍👩‍👧‍👦 family", "a\n\n\tb  c", "Ελληνικά и русский", "é" * 40]


@pytest.fixture(scope="module")
def tokenizer(tiny_chat_model: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tiny_chat_model)


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_join_to_the_text_and_show_no_half_character(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert len(ids) > len(text.split())  # a small vocabulary splits characters
    stream = TextStream(tokenizer)
    pieces = [stream.push(token) for token in ids]
    assert "".join(pieces) + stream.flush() == text
    assert all("\ufffd" not in piece for piece in pieces)


def test_cut_off_character_is_dropped_at_the_end(tokenizer: PreTrainedTokenizerBase) -> None:
    ids = tokenizer("ok 🎭", add_special_tokens=False)["input_ids"]
    stream = TextStream(tokenizer)
    shown = "".join(stream.push(token) for token in ids[:-1]) + stream.flush()
    assert shown == "ok "


def test_special_tokens_give_no_text(tokenizer: PreTrainedTokenizerBase) -> None:
    stream = TextStream(tokenizer)
    assert tokenizer.eos_token_id is not None
    assert stream.push(tokenizer.eos_token_id) == ""


def test_special_tokens_around_thoughts_are_shown(tiny_chat_model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_chat_model)
    thought = ["[THINK]", "[/THINK]", "<|START_THINKING|>", "<|END_THINKING|>"]
    marks = ["<|start|>", "<|end|>", *thought]
    tokenizer.add_special_tokens({"additional_special_tokens": marks})
    assert set(reasoning_marks(tokenizer).values()) == set(thought)  # no channels without their own token
    tokenizer.add_special_tokens({"additional_special_tokens": [*marks, "<|channel|>", "<|message|>"]})
    text = "<|channel|>analysis<|message|>Grüße 🎭<|end|><|start|>assistant<|channel|>final<|message|>Hello"
    stream = TextStream(tokenizer)
    pieces = [stream.push(token) for token in tokenizer(text, add_special_tokens=False)["input_ids"]]
    assert "".join(pieces) + stream.flush() == text
    assert tokenizer.eos_token_id is not None
    assert stream.push(tokenizer.eos_token_id) == ""


def test_space_at_the_seam_belongs_to_what_follows() -> None:
    words = Tokenizer(WordLevel({"▁once": 0, "▁upon": 1}, unk_token="▁once"))
    words.decoder = decoders.Metaspace()  # this kind drops the space before a text's first word
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words)
    assert TextStream(tokenizer).push(1) == "upon"
    assert TextStream(tokenizer, after=[0]).push(1) == " upon"
