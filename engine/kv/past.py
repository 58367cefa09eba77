"""One conversation's past while it is being answered: tokens, the model's cache, and checkpoints to go back to."""

from __future__ import annotations

import inspect
from bisect import bisect_right
from itertools import pairwise
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from engine.kv import state as states
from engine.kv.state import State

EVERY = 256  # tokens of an answer after which a checkpoint is due
RECENT = 256  # tokens: how far back is still "just now" when a checkpoint has to go


class Past:
    """The tokens that were fed and what the layers keep of them.

    A pass that breaks off leaves it as it was. ``budget``: bytes that checkpoints may take; models whose layers can be
    cut need none.
    """

    def __init__(self, model: PreTrainedModel, budget: int = 0) -> None:
        self._model = model
        self._argument = cache_argument(model)
        self.budget = budget
        self.tokens: list[int] = []
        self._cache: Cache | None = None  # the model makes one of its own kind in the first pass
        self._checkpoints: list[State] = []  # by rising length
        self._cuttable = False  # known once there is a cache
        self.logits: torch.Tensor | None = None  # after the last token, while the last pass is the latest event

    # ------------------------------------------------------------------------------------------ forward

    def run(self, tokens: list[int], device: torch.device) -> torch.Tensor:
        """Feed ``tokens`` and return the logits after the last, ``[vocabulary]``.

        When the pass breaks off (stopped, a read failed, no memory), the past is as before.
        """
        ids = torch.tensor([tokens], device=device)
        before = self._before()
        arguments: dict[str, Any] = {self._argument: self._cache, "use_cache": True, "logits_to_keep": 1}
        try:
            out = self._model(input_ids=ids, **arguments)
        except BaseException:
            self._undo(before)
            raise
        self._cache = out[self._argument]
        self._cuttable = states.can_be_cut(self._cache)
        self.tokens.extend(tokens)
        self.logits = out.logits[0, -1]
        return self.logits

    def _before(self) -> State | None:
        """What a broken pass is undone with, where cutting does not do."""
        if self._cache is None or self._cuttable:
            return None
        return states.take(self._cache, len(self.tokens))

    def _undo(self, before: State | None) -> None:
        if self._cache is None:
            return
        if before is None:
            states.cut(self._cache, len(self.tokens))
        else:
            states.put_back(self._cache, before)

    # ------------------------------------------------------------------------------------------ going back

    def reuse(self, prompt: list[int]) -> int:
        """Keep what ``prompt`` has in common with the tokens, as far as it can be reached; how many tokens that is.

        The last token of the prompt is left to compute, unless its logits are still there: they are needed.
        """
        if self.logits is None or self.tokens != prompt:
            self.go_back(self.common(prompt))
        return len(self.tokens)

    def common(self, prompt: list[int]) -> int:
        """How many tokens the past and ``prompt``, without its last, begin with alike."""
        return common_prefix(self.tokens, prompt[:-1])

    def reachable(self, length: int) -> int:
        """The most tokens, at most ``length``, that ``go_back(length)`` would leave."""
        if length >= len(self.tokens) or self._cuttable:
            return min(length, len(self.tokens))
        place = bisect_right(self._checkpoints, length, key=lambda state: state.length)
        return self._checkpoints[place - 1].length if place else 0

    def go_back(self, length: int) -> None:
        """Take back everything after the first ``length`` tokens, or more, down to the nearest checkpoint."""
        target = self.reachable(length)
        if target == len(self.tokens):
            return
        self.logits = None
        if not target or self._cache is None:
            self.clear()
            return
        if self._cuttable:
            states.cut(self._cache, target)
        else:
            self._checkpoints = [state for state in self._checkpoints if state.length <= target]
            states.put_back(self._cache, states.keep(self._checkpoints[-1]))
        del self.tokens[target:]

    def checkpoint(self) -> None:
        """Keep the layers' state here, where it would be needed to come back and the budget allows it."""
        here = len(self.tokens)
        if self._cache is None or self._cuttable or (self._checkpoints and self._checkpoints[-1].length == here):
            return
        state = states.take(self._cache, here)
        size = state.nbytes
        if size > self.budget:
            return
        while sum(kept.nbytes for kept in self._checkpoints) + size > self.budget:
            self._drop_one()
        self._checkpoints.append(states.keep(state))

    @property
    def checkpoint_due(self) -> bool:
        """Whether so many tokens were fed since the last checkpoint that another is worth its bytes."""
        last = self._checkpoints[-1].length if self._checkpoints else 0
        return self.needs_checkpoints and len(self.tokens) - last >= EVERY

    @property
    def needs_checkpoints(self) -> bool:
        """Whether going back takes more than cutting; known after the first pass."""
        return self._cache is not None and not self._cuttable

    def _drop_one(self) -> None:
        """Drop the checkpoint that would be missed least: near the one before it, and long ago."""
        lengths = [0, *(state.length for state in self._checkpoints)]
        now = len(self.tokens)
        worth = [(there - before) / (now - there + RECENT) for before, there in pairwise(lengths)]
        del self._checkpoints[worth.index(min(worth))]

    def clear(self) -> None:
        self.tokens, self._checkpoints = [], []
        self._cache = self.logits = None

    # ------------------------------------------------------------------------------------------ bytes

    @property
    def nbytes(self) -> int:
        """Bytes of keys, values and states now, checkpoints among them."""
        return (states.cache_bytes(self._cache) if self._cache is not None else 0) + self.checkpoint_bytes

    @property
    def checkpoint_bytes(self) -> int:
        return sum(state.nbytes for state in self._checkpoints)


def common_prefix(one: list[int], other: list[int]) -> int:
    """How many numbers two lists begin with alike."""
    for place, (ours, theirs) in enumerate(zip(one, other, strict=False)):
        if ours != theirs:
            return place
    return min(len(one), len(other))


def cache_argument(model: PreTrainedModel) -> str:
    """What the model's forward calls its cache: transformers 5.24 renamed it; a family may have the older name."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
