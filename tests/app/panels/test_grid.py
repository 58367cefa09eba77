"""Every expert has its own whole pixels, whatever the size of the model and of the panel."""

from __future__ import annotations

import numpy as np
import pytest

from app.panels import grid

SHAPES = [(30, 32), (48, 128), (96, 512), (32, 8), (24, 60), (1, 4), (61, 384)]


@pytest.mark.parametrize(("layers", "experts"), SHAPES)
@pytest.mark.parametrize(
    ("width", "height", "scale"), [(334, 420, 1.0), (668, 840, 2.0), (500, 600, 1.5), (334, 300, 1.0)]
)
def test_all_experts_are_there_once_and_inside(
    layers: int, experts: int, width: int, height: int, scale: float
) -> None:
    placed = grid.fit(layers, experts, width, height, scale)
    assert placed.width <= width
    assert placed.height <= height
    taken = np.zeros((placed.height, placed.width), int)
    for layer in range(layers):
        for expert in range(experts):
            x, y, wide, high = placed.rectangle(layer, expert)
            taken[y : y + high, x : x + wide] += 1
    assert taken.max() == 1, "no two cells overlap"
    assert taken.sum() == layers * experts * placed.cell_width * placed.cell_height, "and none reaches outside"


@pytest.mark.parametrize(("layers", "experts"), SHAPES)
def test_pointing_at_a_cell_finds_it(layers: int, experts: int) -> None:
    placed = grid.fit(layers, experts, 334, 420)
    for layer in {0, layers // 2, layers - 1}:
        for expert in range(experts):
            x, y, width, height = placed.rectangle(layer, expert)
            assert placed.cell_at(x, y) == (layer, expert)
            assert placed.cell_at(x + width - 1, y + height - 1) == (layer, expert)
    assert placed.cell_at(-1, 0) is None
    assert placed.cell_at(0, placed.height) is None


def test_the_demo_has_cells_big_enough_for_marks() -> None:
    placed = grid.fit(30, 32, 334, 420)
    assert (placed.fold, placed.pitch_x, placed.pitch_y) == (1, 10, 10)


def test_a_double_screen_draws_the_same_grid_twice_as_fine() -> None:
    one, two = grid.fit(30, 32, 334, 420, 1.0), grid.fit(30, 32, 668, 840, 2.0)
    assert (two.pitch_x, two.pitch_y, two.gap_x) == (2 * one.pitch_x, 2 * one.pitch_y, 2 * one.gap_x)


@pytest.mark.parametrize(("layers", "experts"), SHAPES)
def test_fitting_a_grid_into_its_own_height_changes_nothing(layers: int, experts: int) -> None:
    placed = grid.fit(layers, experts, 334, 420)
    assert grid.fit(layers, experts, 334, placed.height) == placed


def test_experts_that_do_not_fit_side_by_side_lie_in_several_rows() -> None:
    placed = grid.fit(96, 512, 334, 420)
    assert placed.fold > 1
    first, last = placed.rectangle(3, 0), placed.rectangle(3, 511)
    assert first[1] < last[1] < placed.rectangle(4, 0)[1]
