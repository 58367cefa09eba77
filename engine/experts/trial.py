"""Does fetching ahead pay? Measured while the model answers, by taking turns; it is off where it loses.

Correct guesses alone do not make it pay: where the link is busy already, every early byte makes a demand wait.
"""

from __future__ import annotations

from statistics import median

from engine.messages import PrefetchState

WINDOW = 8  # tokens between changes, while it is measured
SKIP = 1  # tokens at the start of each window that still feel the one before
ROUNDS = 2  # windows of each kind that make a verdict
REST = 256  # tokens until the next measurement; twice as many whenever that brings the same verdict
LONGEST_REST = 4096
GAIN = 0.02  # of the time per token that it must save to be switched on
LOSS = 0.01  # that it must cost to be switched off; in between everything stays as it is


class Trial:
    """Whether to fetch ahead for the next decode token. mode: "auto", "on" or "off", see ``engine.messages.PREFETCH``.

    Costs are seconds per token: medians over the windows, so that one slow token decides nothing.
    """

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.on = mode != "off"
        self._verdict_on = self.on
        self._measuring = mode == "auto"
        self._age = 0  # tokens in this window, or of this rest
        self._windows = 0
        self._rest = REST
        self._seconds: dict[bool, list[float]] = {True: [], False: []}
        self._cost: dict[bool, float | None] = {True: None, False: None}
        self.verdicts = 0

    def token(self, seconds: float) -> bool:
        """A decode token is done: it took so long. True when the verdict is new."""
        if self.mode != "auto":
            return False
        self._age += 1
        if not self._measuring:
            if self._age >= self._rest:
                self._begin()
            return False
        if self._age > SKIP:
            self._seconds[self.on].append(seconds)
        if self._age < WINDOW:
            return False
        self._age = 0
        self._windows += 1
        if self._windows < 2 * ROUNDS:
            self.on = not self.on
            return False
        return self._judge()

    def state(self, accuracy: tuple[float | None, ...]) -> PrefetchState:
        """For the panels. accuracy: share of a layer's experts foreseen, by distance."""
        return PrefetchState(self._verdict_on, self.words(), self._cost[True], self._cost[False], accuracy)

    def words(self) -> str:
        """The verdict, for the user."""
        if self.mode == "off":
            return "Experts are not fetched ahead: it was switched off."
        if self.mode == "on":
            return "Experts are fetched ahead, whether it pays or not."
        if not self.verdicts:
            return "Measuring whether fetching ahead pays."
        with_it, without = self._cost[True], self._cost[False]
        assert with_it is not None and without is not None
        change = abs(1 - with_it / without) if without else 0.0
        if self._verdict_on and with_it < without:
            return f"Fetching ahead is on: it saves {change:.0%} of the time per token."
        if self._verdict_on:
            return "Fetching ahead is on: it costs next to nothing."
        if with_it > without:
            return f"Fetching ahead is off: it would cost {change:.0%} more time per token."
        return "Fetching ahead is off: it would save next to nothing."

    def _begin(self) -> None:
        self._measuring, self._age, self._windows = True, 0, 0
        self.on = not self._verdict_on  # what is not known of late comes first
        for kind in (True, False):
            self._seconds[kind].clear()

    def _judge(self) -> bool:
        with_it, without = (median(self._seconds[kind]) for kind in (True, False))
        self._cost = {True: with_it, False: without}
        before = self._verdict_on
        if with_it < without * (1 - GAIN):
            self._verdict_on = True
        elif with_it > without * (1 + LOSS):
            self._verdict_on = False
        first, self.verdicts = self.verdicts == 0, self.verdicts + 1
        self._rest = REST if first or self._verdict_on != before else min(2 * self._rest, LONGEST_REST)
        self.on, self._measuring, self._age = self._verdict_on, False, 0
        return first or self._verdict_on != before
