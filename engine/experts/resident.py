"""Every expert of the model has its slot on one card: then the card itself picks a token's experts.

On the usual way the host reads each layer's routed ids, because it has to know whom to fetch: the host waits for the
card and the card then waits for the host, once per layer. Where nobody can be missing, the ids stay on the card. A
layer's experts lie in the order of their numbers in one piece of memory, so an id is also a place; the ids of all
layers come to the host in one copy when the pass is over, and caches, policies, counters and logs are told then.

Picking copies the blobs of k experts, and what is computed on the copies are the very calls that the usual way makes on
the slots: the result is the same to the last bit. (torch's grouped products would read in place. But they are another
kernel, which rounds otherwise, so an answer would depend on the budget; and where the card has none, torch reads the
group sizes on the host.) The copy takes the card some time and the host none: which way wins depends on which of the
two is slower, so ``Race`` tries both.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from statistics import median

import numpy as np
import torch

from engine.experts.layout import ExpertLayout, Parameters

ROUNDS = 4  # passes of each way before the faster one stays; the first of each does not count


class Resident:
    """One loaded model's experts, all of them on one card. Only the engine thread calls it.

    stacks: for each layer uint8 ``[experts, layout.nbytes]``, on the card.
    """

    def __init__(self, stacks: Sequence[torch.Tensor], layouts: Sequence[ExpertLayout]) -> None:
        self._words = [stack.view(torch.int64) for stack in stacks]  # a byte at a time would be copied slowly
        self._layouts = layouts
        self._routed: list[tuple[int, torch.Tensor]] = []  # layer, ids on the card
        self.race = Race()

    def pick(self, layer: int, ids: torch.Tensor, weights: torch.Tensor) -> tuple[list[Parameters], torch.Tensor]:
        """Parameters of the experts ``ids`` (int64 ``[k]``, on the card) in ascending order, and their weights in that
        order. Queued; nobody waits. A number beyond the last expert means nobody: his weight is 0."""
        self._routed.append((layer, ids))
        ascending, order = ids.sort()
        words, layout = self._words[layer], self._layouts[layer]
        blobs = words.index_select(0, ascending.clamp(max=len(words) - 1)).view(torch.uint8)
        sorted_weights = weights.index_select(0, order).masked_fill(ascending >= len(words), 0)
        return [layout.views(blob) for blob in blobs.unbind(0)], sorted_weights

    def forget(self) -> None:
        """A pass begins: what is left of one that broke off is of no use."""
        self._routed = []

    def routed(self) -> list[tuple[int, list[int]]]:
        """(layer, ids as the router gave them) of the layers that ran since the last call; waits for the card."""
        routed, self._routed = self._routed, []
        if not routed:
            return []
        all_ids = iter(torch.cat([ids for _, ids in routed]).tolist())
        return [(layer, list(itertools.islice(all_ids, len(ids)))) for layer, ids in routed]


class Race:
    """Tries two ways in turn and keeps the faster: ``by_card`` says which one the next pass takes."""

    def __init__(self) -> None:
        self._seconds: dict[bool, list[float]] = {True: [], False: []}
        self.by_card = True

    @property
    def over(self) -> bool:
        return len(self._seconds[True]) == len(self._seconds[False]) == ROUNDS

    def took(self, seconds: float) -> None:
        """The pass took so long, card and all."""
        if self.over:
            return
        self._seconds[self.by_card].append(seconds)
        self.by_card = not self.by_card
        if self.over:
            medians = {way: median(found[1:]) for way, found in self._seconds.items()}
            self.by_card = medians[True] <= medians[False]


def cycles(source: np.ndarray) -> list[list[int]]:
    """A permutation as its cycles: each place takes what is in the next one, the last what was in the first."""
    found: list[list[int]] = []
    seen = source == np.arange(len(source))
    for start in range(len(source)):
        cycle: list[int] = []
        place = start
        while not seen[place]:
            seen[place] = True
            cycle.append(place)
            place = int(source[place])
        if cycle:
            found.append(cycle)
    return found
