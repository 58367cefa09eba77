"""One conversation's past while it is being answered: tokens, the model's cache, and checkpoints to go back to."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache

from engine.kv import state as states
from engine.kv.kept import KeptPast, Reach, common_prefix
from engine.kv.kind import PastKind, cache_argument
from engine.kv.state import State

EVERY = 256  # tokens of an answer after which a checkpoint is due
RECENT = 256  # tokens: how far back is still "just now" when a checkpoint has to go


class Past:
    """The tokens that were fed and what the layers keep of them.

    A pass that breaks off leaves it as it was. ``budget``: bytes that checkpoints may take; models whose layers can be
    cut need none.
    """

    def __init__(self, model: PreTrainedModel, budget: int = 0, kind: PastKind | None = None) -> None:
        """kind: as ``check_past`` found it; None is right for every model, and may copy more than it must."""
        self._model = model
        self._kind = kind or PastKind(DynamicCache)
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
        if self._cache is None:
            self._begin(out[self._argument])
        self.tokens.extend(tokens)
        self.logits = out.logits[0, -1]
        return self.logits

    def _begin(self, cache: Cache) -> None:
        self._cache, self._cuttable = cache, states.can_be_cut(cache)
        states.replace_states(cache)

    def _before(self) -> State | None:
        """What a broken pass is undone with, where cutting does not do."""
        if self._cache is None or self._cuttable:
            return None
        return states.take(self._cache, len(self.tokens), in_place=self._kind.in_place)

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
        lengths = tuple(state.length for state in self._checkpoints)
        return Reach(self.tokens, lengths, self._cuttable).below(length)

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

    # --------------------------------------------------------------------------------- put away, taken back

    def put_away(self) -> KeptPast | None:
        """A copy of it all in RAM, to be taken back later; None where there is nothing."""
        if self._cache is None or not self.tokens:
            return None
        cpu = torch.device("cpu")
        whole = states.keep(states.take(self._cache, len(self.tokens), whole=True), cpu)
        checkpoints = tuple(states.keep(state, cpu) for state in self._checkpoints)
        return KeptPast(tuple(self.tokens), whole, checkpoints, self._cuttable)

    def take_back(self, kept: KeptPast, length: int) -> None:
        """Become ``kept``, as far as its first ``length`` tokens can be reached; what was here is gone."""
        self.clear()
        device = self._model.device
        made = self._kind.cache_class
        cache = DynamicCache(config=self._model.config) if made is DynamicCache else made()
        states.put_back(cache, states.keep(kept.state, device))
        self._begin(cache)
        self._checkpoints = [states.keep(state, device) for state in kept.checkpoints]
        self.tokens = list(kept.tokens)
        self.go_back(length)

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
