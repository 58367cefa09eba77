"""How long the window stood still: the time between two ticks of a fast timer, by what went on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from PySide6.QtCore import QObject, Qt, QTimer, Slot

TICK_MS = 5


class GapMeter(QObject):
    """Ticks on the GUI thread. A gap counts for the phase in which it began.

    clock: seconds; ``time.thread_time`` instead leaves out what other programs on the machine took.
    """

    def __init__(
        self, phase: str, clock: Callable[[], float] = time.perf_counter, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._clock = clock
        self.longest_ms: dict[str, float] = {}
        self._gaps: dict[str, list[float]] = {}
        self._phase = phase
        self._began_in = phase
        self._last = self._clock()
        self._timer = QTimer(self)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setInterval(TICK_MS)
        self._timer.timeout.connect(self._tick)
        self._timer.start()

    @property
    def phase(self) -> str:
        return self._phase

    @phase.setter
    def phase(self, name: str) -> None:
        self._phase = name
        self.longest_ms.setdefault(name, 0.0)  # it may be over before the next tick

    @property
    def p99_ms(self) -> dict[str, float]:
        """By phase, the gap that 99 of 100 do not exceed."""
        found = {phase: sorted(gaps) for phase, gaps in self._gaps.items()}
        return {phase: gaps[math.ceil(0.99 * len(gaps)) - 1] for phase, gaps in found.items()}

    @Slot()
    def _tick(self) -> None:
        now = self._clock()
        gap = 1000 * (now - self._last)
        self.longest_ms[self._began_in] = max(gap, self.longest_ms.get(self._began_in, 0.0))
        self._gaps.setdefault(self._began_in, []).append(gap)
        self._last, self._began_in = now, self._phase

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What happens inside is not the program's doing and does not count."""
        self._timer.stop()
        try:
            yield
        finally:
            self._last, self._began_in = self._clock(), self._phase
            self._timer.start()

    def stop(self) -> None:
        """The end: what has passed since the last tick counts too."""
        self._timer.stop()
        self._tick()
        self._tick()
