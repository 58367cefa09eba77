"""Tokens -> text as they come, never half a character."""

from __future__ import annotations

import re
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

_HALF = "\ufffd"  # what a decoder shows for bytes that are no whole character
_LONGEST = 8  # tokens a character can be spread over; beyond that the bytes are simply not UTF-8

# Special tokens that say what is thought and what is answer; the reader of the text needs them.
_THOUGHT = (
    *("<think>", "</think>", "[THINK]", "[/THINK]", "<seed:think>", "</seed:think>"),
    *("<|START_THINKING|>", "<|END_THINKING|>"),
)
_SENTINEL = re.compile(r"<extra_id_\d+>")  # what T5 and its kin put between the parts of an answer
_CHANNELS = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>")  # gpt-oss; others have some of them and no channels


class TextStream:
    """Collects tokens until they end on a whole character. Special tokens give no text, but those around thoughts.

    after: the tokens before the first one, where the text goes on in the middle.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, after: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        # the last tokens already given out: some decoders need them to place a space
        self._shown = list(after[-_LONGEST:])
        self._waiting: list[int] = []
        self._marks = reasoning_marks(tokenizer)

    def push(self, token: int) -> str:
        """New text that ``token`` completes; often "" in the middle of a character."""
        mark = self._marks.get(token)
        if mark is not None:
            text = self.flush() + mark
            self._shown = [token]
            return text
        self._waiting.append(token)
        text = self._decode()
        if text.endswith(_HALF) and len(self._waiting) < _LONGEST:
            return ""
        self._shown, self._waiting = self._waiting, []
        return text

    def flush(self) -> str:
        """What is left at the end, without a last half character."""
        text = self._decode() if self._waiting else ""
        self._shown, self._waiting = [], []
        return text.rstrip(_HALF)

    def _decode(self) -> str:
        before = self._text(self._shown)
        return self._text(self._shown + self._waiting)[len(before) :]

    def _text(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def reasoning_marks(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """Special tokens to be shown, by id: empty for models whose marks are ordinary text, or that have none."""
    special = {str(token): number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    sentinels = tuple(name for name in special if _SENTINEL.fullmatch(name))
    wanted = _THOUGHT + sentinels + (_CHANNELS if _CHANNELS[0] in special else ())
    return {special[mark]: mark for mark in wanted if mark in special}
