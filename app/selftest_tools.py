"""What the steps of the self-test are written with."""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import QEventLoop, QTimer


class StepFailed(Exception):
    """A step did not hold; the text says what was seen instead."""


def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Run the event loop until the condition holds; StepFailed when it does not in time."""
    if condition():
        return
    loop = QEventLoop()
    deadline = time.monotonic() + seconds
    timer = QTimer()
    timer.setInterval(5)
    timer.timeout.connect(lambda: loop.quit() if condition() or time.monotonic() > deadline else None)
    timer.start()
    loop.exec()
    timer.stop()
    if not condition():
        raise StepFailed(f"waited {seconds:.0f} s for {what}")


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise StepFailed(otherwise)
