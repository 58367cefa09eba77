"""Slots, shares and sizes mean the same memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.dialogs import budget
from engine.messages import ModelSummary

Summary = Callable[..., ModelSummary]


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("auto", None),
        ("nonsense", None),
        ("", None),
        ("25%", 240),
        ("64 slots", 64),
        ("130MB", 240),
        ("0.13 GB", 240),
        ("2GB", 960),
        ("0%", 1),
        ("5000 slots", 960),
    ],
)
def test_what_was_stored_is_understood(summary: Summary, text: str, slots: int | None) -> None:
    assert budget.slots_of(text, summary()) == slots


def test_words_name_size_slots_and_share(summary: Summary) -> None:
    assert budget.words(240, summary()) == "0.13 GB · 240 of 960 · 25%"


def test_a_share_carries_over_to_another_model(summary: Summary) -> None:
    large = summary(layers=48, experts=128, expert_bytes=58 * 10**9)
    for slots in (1, 240, 317, 960):
        assert budget.slots_of(budget.share(slots, summary()), summary()) == slots
    assert budget.slots_of(budget.share(240, summary()), large) == 1536


def test_a_model_of_unknown_size_has_no_budget_but_auto(summary: Summary) -> None:
    unknown = ModelSummary("demo", "Demo", built=False)
    assert budget.slots_of("25%", unknown) is None
    assert budget.share(1, unknown) == "auto"
    assert budget.kept_bytes(10, unknown) == 0
