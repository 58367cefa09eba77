"""A prompt's passes: few and large, and they end where one may have to return."""

import pytest

from engine.generation.passes import CHUNK, message_ends, pass_ends


def test_without_marks_every_pass_is_as_long_as_can_be() -> None:
    assert pass_ends(0, 2 * CHUNK + 3, ()) == [CHUNK, 2 * CHUNK, 2 * CHUNK + 3]
    assert pass_ends(100, 110, ()) == [110]
    assert pass_ends(5, 5, ()) == []


def test_the_last_mark_ends_a_pass_and_costs_one_more() -> None:
    assert pass_ends(0, 100, [95]) == [95, 100]
    assert pass_ends(0, CHUNK + 100, [CHUNK + 95]) == [CHUNK, CHUNK + 95, CHUNK + 100]


def test_other_marks_end_a_pass_where_that_costs_none() -> None:
    marks = [40, 300, 700, 900, 1290]
    ends = pass_ends(0, 1300, marks)
    assert ends[-2:] == [1290, 1300]
    assert 300 in ends and 40 not in ends
    assert max(b - a for a, b in zip([0, *ends], ends, strict=False)) <= CHUNK


def test_marks_that_are_already_read_do_not_count() -> None:
    assert pass_ends(50, 100, [40, 50]) == [100]


def test_a_model_that_only_works_from_nothing_reads_all_in_one_pass() -> None:
    assert pass_ends(0, 3 * CHUNK, [5], in_pieces=False) == [3 * CHUNK]
    assert pass_ends(10, 13, [], in_pieces=False) == [11, 12, 13]


@pytest.mark.parametrize(
    ("prompt", "ends"),
    [
        ([1, 2, 9, 3, 4, 9, 5, 6], [3, 6]),
        ([1, 2, 9], [2]),  # an end token that is last begins the answer: no message ends there
        ([1, 2, 3], [2]),
        ([9, *range(10, 200)], [1, 190]),  # the last message's end is not known: right before the last token
    ],
)
def test_messages_end_behind_end_tokens(prompt: list[int], ends: list[int]) -> None:
    assert message_ends(prompt, {9}) == ends
