"""Slots, shares and sizes mean the same memory; the context slider stops where people would."""

from __future__ import annotations

import pytest

from app.dialogs import budget


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("auto", None),
        ("nonsense", None),
        ("", None),
        ("25%", 240),
        ("64 slots", 64),
        ("240MB", 240),
        ("0.24 GB", 240),
        ("2GB", 960),
        ("0%", 1),
        ("5000 slots", 960),
    ],
)
def test_what_was_stored_is_understood(text: str, slots: int | None) -> None:
    assert budget.slots_of(text, 960, 10**6) == slots


def test_a_size_means_nothing_until_a_slots_size_is_known() -> None:
    assert budget.slots_of("2GB", 960) is None
    assert budget.slots_of("25%", 960) == 240
    assert budget.slots_of("25%", 0) is None


def test_words_name_size_slots_and_share() -> None:
    assert budget.words(240, 960, 541_000) == "0.13 GB · 240 of 960 · 25%"
    assert budget.words(240, 960) == "240 of 960 · 25%"


def test_context_stops_end_at_what_the_model_was_made_for() -> None:
    assert budget.context_stops(5000) == [512, 768, 1024, 1536, 2048, 3072, 4096, 5000]
    assert budget.context_stops(256) == [256]
    assert budget.context_stops(0) == []
    assert budget.nearest_stop(budget.context_stops(32768), 5000) == budget.context_stops(32768).index(4096)
