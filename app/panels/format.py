"""Figures as words: sizes, shares, rates. Decimal units (1 GB = 1e9 bytes); what was never measured is an en dash."""

from __future__ import annotations

NOTHING = "–"  # noqa: RUF001 - an en dash: not measured, which is not zero


def _scaled(value: float, decimals_below_ten: int = 1) -> str:
    """Three figures or so: 0.27, 6.1, 10.9, 221."""
    if value < 0.995:
        return f"{value:.2f}"
    if value < 99.95:
        return f"{value:.{decimals_below_ten}f}"
    return f"{value:,.0f}"


def size(count: float | None) -> str:
    """Bytes: "12 kB", "6.1 MB", "43 MB", "0.27 GB", "10.9 GB", "221 GB"."""
    if count is None:
        return NOTHING
    if count >= 99.5e6:
        return f"{_scaled(count / 1e9)} GB"
    if count >= 9.95e6:
        return f"{count / 1e6:.0f} MB"
    if count >= 999_500:
        return f"{count / 1e6:.1f} MB"
    if count >= 1000:
        return f"{count / 1e3:.0f} kB"
    return f"{count:.0f} B"


def gigabytes(count: float) -> str:
    """Always GB, for a pair or a column that shares one unit: "0.27", "10.9", "221"."""
    return _scaled(count / 1e9)


def used_of(used: float, total: float) -> str:
    """ "10.9 / 12.0 GB"."""
    return f"{gigabytes(used)} / {gigabytes(total)} GB"


def percent(share: float | None) -> str:
    """A share 0..1 as "83%". Only a whole 1 is "100%" and only a whole 0 is "0%"."""
    if share is None:
        return NOTHING
    if 0 < share < 0.01:
        return "<1%"
    if 0.99 < share < 1:
        return "99%"
    return f"{100 * share:.0f}%"


def milliseconds(seconds: float | None) -> str:
    """ "0.7 ms", "42 ms", "1.3 s"."""
    if seconds is None:
        return NOTHING
    if seconds >= 0.9995:
        return f"{seconds:.1f} s"
    value = seconds * 1e3
    if value == 0:
        return "0 ms"
    if value < 0.05:
        return "<0.1 ms"
    return f"{value:.1f} ms" if value < 9.95 else f"{value:.0f} ms"


def rate(per_second: float | None) -> str:
    """Tokens per second without the unit: "0.42", "14.2", "142"."""
    return NOTHING if per_second is None else _scaled(per_second)


def count(number: int | None) -> str:
    """ "12,345"."""
    return NOTHING if number is None else f"{number:,}"
