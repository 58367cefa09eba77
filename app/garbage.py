"""Python's cyclic garbage is collected here, on the GUI thread, and nowhere else.

The collector runs on whatever thread happens to allocate. On the engine thread it could find a dead cycle with a Qt
object in it and delete that there, which crashes. So automatic collection is off, and a timer does it in the window's
thread. A full collection walks through everything the heavy libraries made (300 ms), so what lives when they have been
imported is set aside for good, and full collections wait until nothing goes on or a model has gone.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Slot

INTERVAL_MS = 1000
FULL_SECONDS = 60.0
YOUNG = 700  # objects made since the last collection that make one worth while


class GarbageCollector(QObject):
    """``busy`` says whether something goes on that a pause would disturb."""

    def __init__(self, busy: Callable[[], bool], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._busy = busy
        self._last_full = time.monotonic()
        self._full_next = False
        gc.disable()
        self._timer = QTimer(self)
        self._timer.setInterval(INTERVAL_MS)
        self._timer.timeout.connect(self._collect)
        self._timer.start()

    def close(self) -> None:
        """Python collects by itself again, as it did before."""
        self._timer.stop()
        gc.unfreeze()
        gc.enable()

    @Slot()
    def set_aside(self) -> None:
        """Everything alive now is here to stay; collections need not look at it again."""
        gc.freeze()

    @Slot()
    def collect_soon(self) -> None:
        """Something big was let go: the next collection is a full one, busy or not."""
        self._full_next = True

    @Slot()
    def _collect(self) -> None:
        if self._full_next:
            self._full_next = False
            gc.collect()
        elif not self._busy() and time.monotonic() - self._last_full > FULL_SECONDS:
            self._last_full = time.monotonic()
            gc.collect()
        elif gc.get_count()[0] > YOUNG:
            gc.collect(1)
