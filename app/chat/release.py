"""Waiting until nobody adds to a conversation's file any more."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, QTimer

from engine.sessions import appendfile

EVERY_MS, TRIES = 25, 80  # for the engine to close a log after its last event


def when_released(owner: QObject, path: Path, then: Callable[[], None], tries: int = TRIES) -> None:
    """Call ``then`` once the file is closed, or after two seconds; never once ``owner`` is gone."""
    if tries and appendfile.is_open(path):
        QTimer.singleShot(EVERY_MS, owner, partial(when_released, owner, path, then, tries - 1))
    else:
        then()
