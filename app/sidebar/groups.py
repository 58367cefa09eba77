"""Under which heading a conversation stands."""

from __future__ import annotations

from datetime import date, datetime, timedelta

from PySide6.QtCore import QLocale, QObject


def heading(modified: float, today: date, words: QObject) -> str:
    """For a conversation last added to at ``modified`` (seconds since 1970); ``words`` translates."""
    try:
        day = datetime.fromtimestamp(modified).date()
    except (ValueError, OverflowError, OSError):  # a clock gone wild
        day = today if modified > 0 else date(1970, 1, 1)
    if day >= today:
        return words.tr("Today")
    if day == today - timedelta(days=1):
        return words.tr("Yesterday")
    if day >= today - timedelta(days=7):
        return words.tr("Previous 7 days")
    month = QLocale().standaloneMonthName(day.month)
    return month if day.year == today.year else f"{month} {day.year}"
