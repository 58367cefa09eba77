"""One text in, one text out: an encoder-decoder translates it, or fills in what was left out of it."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from copy import deepcopy
from typing import cast

import torch
from transformers import GenerationConfig, PreTrainedTokenizerBase

from engine.errors import ModelError, OptionError
from engine.generation.fit import Prompt
from engine.generation.generate import Clock, Prefilled, Step, TextGenerator
from engine.generation.prompt import whole_characters
from engine.kv.encoded import EncodedPast
from engine.kv.pasts import Pasts
from engine.kv.store import PastStore
from engine.loading import LoadedModel
from engine.messages import ChatMessage

_LANGUAGE = re.compile(r"[a-z]{2,3}_[A-Z][A-Za-z]+")  # "eng_Latn", "en_XX"


def text_generator(loaded: LoadedModel, store: PastStore | None = None, ends: set[int] | None = None) -> TextGenerator:
    """What answers with ``loaded``: a chat, or one text at a time."""
    kind = TextToText if loaded.info.one_text else TextGenerator
    return kind(loaded, ends, store)


def language_codes(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """The languages that the tokenizer has a token for, as it calls them; none where they are no part of a text."""
    special = (str(token) for token in tokenizer.added_tokens_decoder.values())
    return sorted(token for token in special if _LANGUAGE.fullmatch(token))


class TextToText(TextGenerator):
    """Encodes the last message and decodes an answer from it. Each text stands alone: earlier ones are not sent."""

    def __init__(self, loaded: LoadedModel, ends: set[int] | None = None, store: PastStore | None = None) -> None:
        super().__init__(loaded, ends)
        self.past = EncodedPast(loaded.model)
        self.pasts = Pasts(self.past)
        self._codes = language_codes(loaded.tokenizer) if loaded.tokenizer is not None else []
        self._source = self._target = ""
        self._written: list[int] = []  # of an answer that is gone on with

    def translate(self, source: str, target: str) -> None:
        """From here on, from language ``source`` to ``target``; "" for the first. Raises OptionError for one that the
        model does not know."""
        for code in (source, target):
            if code and code not in self._codes:
                known = ", ".join(self._codes[:8]) + (", ..." if len(self._codes) > 8 else "")
                raise OptionError(f"The model knows no language {code!r}" + (f"; it knows {known}." if known else "."))
        first = self._codes[0] if self._codes else ""
        self._source, self._target = source or first, target or first

    def prompt(self, messages: Sequence[ChatMessage], max_tokens: int, thinking: bool | None = None) -> Prompt:
        """The last text of the user's, in tokens; in the language that ``translate`` named. Raises ModelError."""
        tokenizer = self._loaded.tokenizer
        if tokenizer is None:
            raise ModelError("This model has no tokenizer, so it cannot read. Add the tokenizer files to its folder.")
        texts = [whole_characters(message.text) for message in messages if message.role == "user"]
        text = texts[-1] if texts else ""
        if not self._codes:
            return Prompt(list(tokenizer(text)["input_ids"]), (), len(texts[:-1]))
        source = cast(int, tokenizer.convert_tokens_to_ids(self._source or self._codes[0]))
        ends = [cast(int, tokenizer.eos_token_id)] if tokenizer.eos_token_id is not None else []
        return Prompt([source, *self._ids(text), *ends], (), len(texts[:-1]))

    def _ids(self, text: str) -> list[int]:
        assert self._loaded.tokenizer is not None
        return list(self._loaded.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _target_token(self) -> list[int]:
        """The token of the target language, where there are languages."""
        if not self._codes or self._loaded.tokenizer is None:
            return []
        return [cast(int, self._loaded.tokenizer.convert_tokens_to_ids(self._target or self._codes[0]))]

    def _begin(self, messages: Sequence[ChatMessage]) -> None:
        """An open last message is what the decoder has written so far."""
        goes_on = self._loaded.tokenizer is not None and bool(messages) and messages[-1].open
        self._written = self._target_token() + self._ids(messages[-1].text) if goes_on else []

    def _before(self, prompt: list[int]) -> int:
        return 1 + len(self._written)

    def _declared(self) -> GenerationConfig:
        """The first token is the target language."""
        declared, target = super()._declared(), self._target_token()
        if not target:
            return declared
        asked = deepcopy(declared)
        asked.forced_bos_token_id = target[0]
        return asked

    def _prefill(self, prompt: list[int], clock: Clock) -> Generator[Step, None, torch.Tensor]:
        """Encode the text, then give the decoder its first token, and what it wrote already."""
        _, record = yield from self._pass(prompt, "prefill")
        clock.prefilled()
        yield Prefilled(record, len(prompt), len(prompt))
        begun = [self.first_token, *self._written]
        logits, record = yield from self._pass(begun, "prefill" if self._written else "decode")
        yield Prefilled(record, len(prompt), len(prompt))
        return logits

    @property
    def first_token(self) -> int:
        """What the decoder starts with. Raises ModelError where the model names none."""
        declared, config = self._loaded.model.generation_config, self._loaded.model.config
        for holder in (declared, config):
            for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id"):
                value = getattr(holder, name, None)
                if isinstance(value, int):
                    return value
        raise ModelError("The model names no token that its decoder starts with (decoder_start_token_id).")
