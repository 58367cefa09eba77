"""What the cache asks of a policy: a table of priorities. The resident with the lowest priority leaves.

A table, not a question per eviction: one token evicts hundreds of times, while a priority changes only when its layer
is served or a pass begins. Nothing here knows tensors, slots or what is resident, so a replay of a log runs the very
same code, and caches of several sizes may share one policy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from engine.experts.records import Phase


class Policy(ABC):
    """Watches what is wanted and keeps ``priority`` ``[layers, experts]``, float64; always the same array.

    Order of calls: ``begin_request``, then for each forward pass ``begin_pass`` and ``used`` for each layer in turn.
    Among equal priorities the lower ``layer * experts + expert`` leaves. Everything is deterministic: two policies
    with equal ``state()`` that are told the same do the same, to the last bit.
    """

    name: ClassVar[str]
    knows_the_future: ClassVar[bool] = False  # and so does better than a ring when a prompt streams through
    STATE: ClassVar[tuple[str, ...]]  # attributes (arrays and numbers) that ``state`` is made of, ``priority`` first

    def __init__(self, layers: int, experts: int) -> None:
        self.layers, self.experts = layers, experts
        self.priority = np.zeros((layers, experts))

    def begin_request(self) -> None:  # noqa: B027 (most policies do not care)
        """An answer begins. Calling it twice changes nothing more."""

    def begin_pass(self, phase: Phase, tokens: int) -> None:  # noqa: B027
        """A forward pass over ``tokens`` tokens begins; one that was stopped half way just ends."""

    @abstractmethod
    def used(self, layer: int, experts: np.ndarray, counts: np.ndarray) -> None:
        """``experts`` (int64, distinct, ascending, at least one) of ``layer`` are wanted now, by ``counts`` tokens."""

    def state(self) -> np.ndarray:
        """Everything it remembers, as float64 ``[n]``; n depends on policy, layers and experts only."""
        return np.concatenate([np.ravel(getattr(self, name)).astype(np.float64) for name in self.STATE])

    def restore(self, state: np.ndarray) -> None:
        """Go on where the policy that gave ``state`` was. ValueError when it is not one of this shape."""
        if state.shape != (sum(np.size(getattr(self, name)) for name in self.STATE),):
            raise ValueError(f"a state of {state.size} numbers is not one of {self.name}")
        start = 0
        for name in self.STATE:
            value = getattr(self, name)
            if isinstance(value, np.ndarray):
                value[...] = state[start : start + value.size].reshape(value.shape)
                start += value.size
            else:
                setattr(self, name, type(value)(state[start]))
                start += 1
