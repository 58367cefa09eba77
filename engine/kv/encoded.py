"""What an encoder-decoder keeps while it answers one text: the encoder's states, and the decoder's tokens and cache."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import EncoderDecoderCache

from engine.kv import state as states
from engine.kv.kind import cache_argument
from engine.kv.state import State


class EncodedPast:
    """The first pass takes the text to be encoded, those that follow take the decoder's tokens. tokens: the decoder's.

    A pass that breaks off leaves it as it was. Nothing is kept for the next text.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self.logits: torch.Tensor | None = None
        self._argument = cache_argument(model)
        self.clear()

    def clear(self) -> None:
        self.tokens: list[int] = []
        self._encoded: Any = None
        self._cache: EncoderDecoderCache | None = None

    def reuse(self, prompt: list[int]) -> int:
        """Each text stands alone."""
        self.clear()
        return 0

    def run(self, tokens: list[int], device: torch.device) -> torch.Tensor:
        """Encode ``tokens``, or feed them to the decoder; its logits after the last, ``[vocabulary]`` (none of the
        encoder)."""
        ids = torch.tensor([tokens], device=device)
        if self._encoded is None:
            mask = torch.ones_like(ids)
            self._encoded = self._model.get_encoder()(input_ids=ids, attention_mask=mask, return_dict=True)
            self._mask = mask
            return torch.empty(0)
        before = self._take()
        arguments: dict[str, Any] = {self._argument: self._cache, "use_cache": True, "decoder_input_ids": ids}
        try:
            out = self._model(encoder_outputs=self._encoded, attention_mask=self._mask, **arguments)
        except BaseException:
            self._put_back(before)
            raise
        self._cache = out[self._argument]
        self.tokens.extend(tokens)
        return out.logits[0, -1]

    def _take(self) -> tuple[State, State, dict[int, bool]] | None:
        cache = self._cache
        if cache is None:
            return None
        halves = (cache.self_attention_cache, cache.cross_attention_cache)
        ours, theirs = (states.take(half, len(self.tokens)) for half in halves)
        return ours, theirs, dict(cache.is_updated)

    def _put_back(self, before: tuple[State, State, dict[int, bool]] | None) -> None:
        if before is None or self._cache is None:
            self._cache = None
            return
        states.put_back(self._cache.self_attention_cache, before[0])
        states.put_back(self._cache.cross_attention_cache, before[1])
        self._cache.is_updated = before[2]

    @property
    def checkpoint_due(self) -> bool:
        return False

    def checkpoint(self) -> None:
        """There is nothing to go back to."""

    @property
    def nbytes(self) -> int:
        """Bytes of the encoder's states, keys and values now."""
        encoded = self._encoded.last_hidden_state.nbytes if self._encoded is not None else 0
        if self._cache is None:
            return int(encoded)
        halves = (self._cache.self_attention_cache, self._cache.cross_attention_cache)
        return int(encoded) + sum(map(states.cache_bytes, halves))
