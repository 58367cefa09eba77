"""Figures as words."""

from __future__ import annotations

import pytest

from app.panels import format


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (950, "950 B"),
        (12_300, "12 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (6_140_000, "6.1 MB"),
        (43_000_000, "43 MB"),
        (130_000_000, "0.13 GB"),
        (270_000_000, "0.27 GB"),
        (10_940_000_000, "10.9 GB"),
        (221_000_000_000, "221 GB"),
        (None, "–"),  # noqa: RUF001
    ],
)
def test_sizes_are_decimal(count: int | None, words: str) -> None:
    assert format.size(count) == words


def test_a_pair_shares_its_unit() -> None:
    assert format.used_of(10_900_000_000, 12_000_000_000) == "10.9 / 12.0 GB"


@pytest.mark.parametrize(
    ("share", "words"),
    [(None, "–"), (0.0, "0%"), (0.004, "<1%"), (0.8349, "83%"), (0.996, "99%"), (1.0, "100%")],  # noqa: RUF001
)
def test_only_all_is_a_hundred_percent(share: float | None, words: str) -> None:
    assert format.percent(share) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "–"), (0.0, "0 ms"), (0.00002, "<0.1 ms"), (0.0007, "0.7 ms"), (0.042, "42 ms"), (1.34, "1.3 s")],  # noqa: RUF001
)
def test_stalls(seconds: float | None, words: str) -> None:
    assert format.milliseconds(seconds) == words


def test_not_measured_is_not_zero() -> None:
    assert {format.rate(None), format.count(None), format.size(None)} == {format.NOTHING}
    assert format.rate(0.0) == "0.00"
