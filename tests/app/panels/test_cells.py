"""What a cell says equals what the snapshot says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from app.panels import cells
from app.panels.cells import Mark, Mode
from engine.messages import Cell, ExpertSnapshot

Routed = Callable[..., ExpertSnapshot]


def expected_mark(cell: int) -> Mark:
    for bit, mark in (
        (Cell.MISS, Mark.MISS),
        (Cell.LATE, Mark.LATE),
        (Cell.PREFETCHED, Mark.EARLY),
        (Cell.ROUTED, Mark.HIT),
        (Cell.WASTED, Mark.WASTED),
    ):
        if cell & bit:
            return mark
    return Mark.NONE


@pytest.mark.parametrize("shape", [(30, 32), (48, 128), (96, 512)])
def test_this_token_shows_each_bit_of_each_cell(routed: Routed, shape: tuple[int, int]) -> None:
    snapshot = routed(*shape)
    states = cells.states(snapshot, Mode.TOKEN)
    for place, cell in np.ndenumerate(snapshot.cells):
        mark, predicted, resident, level = cells.split(int(states[place]))
        assert mark is expected_mark(int(cell))
        assert predicted == bool(cell & Cell.PREDICTED)
        assert resident == bool(cell & Cell.RESIDENT)
        assert (level > 0) == resident


@pytest.mark.parametrize("mode", [Mode.ANSWER, Mode.CHAT, Mode.TOTAL])
def test_other_modes_rank_experts_by_their_uses(routed: Routed, mode: Mode) -> None:
    snapshot = routed(48, 128)
    uses = {Mode.ANSWER: snapshot.answer, Mode.CHAT: snapshot.chat, Mode.TOTAL: snapshot.total}[mode]
    states = cells.states(snapshot, mode)
    level = states & 15
    assert ((states & 16) > 0).tolist() == ((snapshot.cells & Cell.RESIDENT) > 0).tolist()
    assert not (states >> 5).any(), "marks belong to one token"
    assert ((level == 0) == (uses == 0)).all()
    order = np.argsort(uses, axis=None)
    assert (np.diff(level.ravel()[order].astype(int)) >= 0).all()
    assert level.max() == 15 and len(np.unique(level)) > 8, "the whole ramp is in use"


def test_the_first_use_of_an_answer_does_not_flash() -> None:
    uses = np.array([[1, 0]], np.uint32)
    assert cells.levels(uses).tolist() == [[1, 0]]


def test_huge_counts_stay_in_the_ramp() -> None:
    uses = np.array([[2**32 - 1, 1, 0]], np.uint32)
    assert cells.levels(uses).tolist() == [[15, 1, 0]]
