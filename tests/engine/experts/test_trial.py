"""Does fetching ahead pay? First with plain numbers, then with the real runtime and a store that takes its time."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from statistics import median

import pytest

from engine.experts.foresight import Foresight
from engine.experts.trial import LONGEST_REST, REST, ROUNDS, WINDOW, Trial
from engine.prediction.prompter import Prompter
from engine.prediction.shape import Shape
from tests.engine.scripted import EXPERTS, LAYERS, TOP_K, NumberStore, Stage

MEASURING = 2 * ROUNDS * WINDOW  # tokens


def live(trial: Trial, with_it: float, without: float, tokens: int) -> list[int]:
    """Tokens at which a new verdict was told."""
    return [n for n in range(1, tokens + 1) if trial.token(with_it if trial.on else without)]


def words(trial: Trial) -> str:
    return trial.state(()).verdict


@pytest.mark.parametrize(
    ("with_it", "without", "on", "says"),
    [(0.8, 1.0, True, "saves 20%"), (1.3, 1.0, False, "cost 30% more"), (1.0, 1.0, True, "next to nothing")],
)
def test_the_verdict_stands_after_the_first_windows(with_it: float, without: float, on: bool, says: str) -> None:
    trial = Trial("auto")
    assert "Measuring" in words(trial)
    assert live(trial, with_it, without, MEASURING) == [MEASURING]
    assert MEASURING <= 64
    assert trial.on is on
    assert says in words(trial)
    state = trial.state((0.5,))
    assert (state.on, state.cost_with, state.cost_without, state.accuracy) == (on, with_it, without, (0.5,))


def test_windows_of_both_kinds_take_turns() -> None:
    trial = Trial("auto")
    seen = []
    for _ in range(MEASURING):
        seen.append(trial.on)
        trial.token(1.0)
    assert seen == ([True] * WINDOW + [False] * WINDOW) * ROUNDS


def test_one_slow_token_and_the_first_of_each_window_decide_nothing() -> None:
    trial = Trial("auto")
    for number in range(MEASURING):
        slow = number % WINDOW == 0 or number == 3
        trial.token(50.0 if slow else 0.9 if trial.on else 1.0)
    assert trial.on
    assert "saves 10%" in words(trial)


@pytest.mark.parametrize(("first", "again"), [(0.9, 1.005), (1.1, 0.985)])
def test_what_nearly_makes_no_difference_changes_nothing(first: float, again: float) -> None:
    trial = Trial("auto")
    live(trial, first, 1.0, MEASURING)
    before = trial.on
    assert live(trial, again, 1.0, REST + MEASURING) == []
    assert trial.verdicts == 2
    assert trial.on is before
    assert "next to nothing" in words(trial)


def test_the_verdict_turns_when_the_world_does() -> None:
    trial = Trial("auto")
    live(trial, 1.2, 1.0, MEASURING)
    assert not trial.on
    assert live(trial, 0.7, 1.0, REST + MEASURING) == [REST + MEASURING]
    assert trial.on
    assert live(trial, 1.2, 1.0, REST + MEASURING) == [REST + MEASURING]
    assert not trial.on


def test_the_same_verdict_again_doubles_the_rest_up_to_a_bound() -> None:
    trial = Trial("auto")
    rests, age, verdicts = [], 0, 0
    for _ in range(40_000):
        trial.token(2.0 if trial.on else 1.0)
        age += 1
        if trial.verdicts > verdicts:
            rests.append(age - MEASURING)
            age, verdicts = 0, trial.verdicts
    expected = [0, *(min(REST << n, LONGEST_REST) for n in range(len(rests) - 1))]
    assert rests == expected
    assert rests[-1] == LONGEST_REST


@pytest.mark.parametrize(("mode", "on"), [("on", True), ("off", False)])
def test_on_and_off_are_never_measured(mode: str, on: bool) -> None:
    trial = Trial(mode)
    assert live(trial, 5.0, 1.0, 3 * REST) == live(trial, 1.0, 5.0, 3 * REST) == []
    assert trial.on is on
    assert trial.verdicts == 0
    assert words(trial).endswith(".")
    assert trial.state(()).cost_with is None


# ------------------------------------------------------------------------------- the real runtime and a slow store


class Talk:
    """Tokens through a runtime with a real prompter and trial; each layer's compute takes ``compute`` seconds."""

    def __init__(self, mode: str, predictor: str, slots: int, compute: float, read: Callable[[int, int], None]) -> None:
        self.stage = Stage(slots, store=NumberStore(read))
        self.foresight = Foresight(Prompter(predictor, Shape(LAYERS, EXPERTS, TOP_K, 0)), Trial(mode))
        self.stage.runtime.foresee(self.foresight)
        self.foresight.begin_request()
        self._compute = compute

    @property
    def stall(self) -> float:
        return float(self.stage.counters().stall_seconds)

    def token(self, wanted: Sequence[Sequence[int]]) -> float:
        """Seconds it took."""
        runtime = self.stage.runtime
        runtime.begin_pass("decode", 1)
        began = time.perf_counter()
        for layer, experts in enumerate(wanted):
            for _ in self.stage.serve(layer, experts):
                pass
            time.sleep(self._compute)
        seconds = time.perf_counter() - began
        runtime.end_pass(seconds)
        return seconds


def test_where_it_must_lose_it_is_off_soon_and_costs_nothing_from_then_on() -> None:
    """Reads take turns on one slow link, and the guesses are wrong: each early byte makes a demand wait."""
    links = [threading.Lock(), threading.Lock()]

    def reader(link: threading.Lock) -> Callable[[int, int], None]:
        def read(layer: int, expert: int) -> None:
            with link:
                time.sleep(0.003)

        return read

    auto, never = (
        Talk(mode, "next-index", 12, 0.001, reader(link)) for mode, link in zip(("auto", "off"), links, strict=True)
    )
    source = random.Random(1)

    def both(number: int) -> float:
        """The next token on both, each first in turn; how much longer ours took."""
        wanted = [source.sample(range(2, EXPERTS), TOP_K) for _ in range(LAYERS)]  # next-index names 0 and 1
        took = {talk: talk.token(wanted) for talk in ((auto, never) if number % 2 else (never, auto))}
        return took[auto] / took[never]

    off_after = next((number for number in range(1, 65) if both(number) and auto.foresight.trial.verdicts), None)
    assert off_after is not None
    state = auto.foresight.state()
    assert not state.on
    assert "Fetching ahead is off" in state.verdict
    assert state.cost_with > state.cost_without
    assert auto.stage.counters().prefetch_wasted > 0
    assert never.stage.counters().prefetch_bytes == 0
    for number in range(8):
        both(number)  # what was brought leaves
    # a machine that does other things as well adds to either: one quiet stretch of several is enough to see it
    assert any(median(both(number) for number in range(32)) < 1.03 for _ in range(5))
    for talk in (auto, never):
        talk.stage.close()


def test_where_it_must_win_it_is_on_and_stalls_less() -> None:
    """The link idles while layers compute, the guesses are right, and the cache alone would miss everybody."""

    def read(layer: int, expert: int) -> None:
        time.sleep(0.002)

    auto, never = (Talk(mode, "previous-token", LAYERS * TOP_K - 1, 0.006, read) for mode in ("auto", "off"))
    wanted = [[layer, layer + 4] for layer in range(LAYERS)]
    for _ in range(MEASURING + 8):
        auto.token(wanted)
        never.token(wanted)
    state = auto.foresight.state()
    assert state.on
    assert "saves" in state.verdict
    before = auto.stall, never.stall
    for _ in range(24):
        auto.token(wanted)
        never.token(wanted)
    assert auto.stall - before[0] < 0.8 * (never.stall - before[1])
    assert auto.stage.counters().prefetch_used > 0
    for talk in (auto, never):
        talk.stage.close()
