"""One conversation's keys and values: which tokens they are of, and how to take some back."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel


class KvCache:
    """The model's cache and the tokens in it. Lives on between turns; a new prompt keeps the longest common prefix."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        # transformers 5.24 renamed the argument; a family may still have the older name
        arguments = inspect.signature(model.forward).parameters
        self._argument = "cache" if "cache" in arguments else "past_key_values"
        self.tokens: list[int] = []
        self._cache = self._fresh()

    def reuse(self, prompt: list[int]) -> int:
        """Keep what ``prompt`` shares with the cached tokens, and return how many that is.

        At least the last prompt token is left to compute: its logits are needed. Where the architecture cannot take
        tokens back (sliding windows that slid, linear attention), a partial match starts anew.
        """
        common = 0
        for ours, theirs in zip(self.tokens, prompt[:-1], strict=False):
            if ours != theirs:
                break
            common += 1
        self.trim(common)
        return len(self.tokens)

    def run(self, tokens: list[int], device: torch.device) -> torch.Tensor:
        """Feed ``tokens`` and return the logits after the last, ``[vocabulary]``.

        When the pass breaks half way (stopped, a read failed), the cache is as before.
        """
        ids = torch.tensor([tokens], device=device)
        before = len(self.tokens)
        arguments: dict[str, Any] = {self._argument: self._cache, "use_cache": True, "logits_to_keep": 1}
        try:
            out = self._model(input_ids=ids, **arguments)
        except BaseException:
            self.trim(before)
            raise
        self.tokens.extend(tokens)
        return out.logits[0, -1]

    def trim(self, length: int) -> None:
        """Take back everything after the first ``length`` tokens, in every layer; or all, where that cannot be done."""
        try:
            layers: list[Any] = list(self._cache.layers)
            for layer in layers:
                excess = layer.get_seq_length() - length
                if excess > 0:
                    layer.crop(-excess)
            del self.tokens[length:]
        except (RuntimeError, NotImplementedError, AttributeError):
            self.clear()

    def clear(self) -> None:
        self.tokens = []
        self._cache = self._fresh()

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values now."""
        total = 0
        for layer in self._cache.layers:
            for name in ("keys", "values"):
                tensor = getattr(layer, name, None)
                total += tensor.nbytes if isinstance(tensor, torch.Tensor) else 0
        return total

    def _fresh(self) -> DynamicCache:
        return DynamicCache(config=self._model.config)
