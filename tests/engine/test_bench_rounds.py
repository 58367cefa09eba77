"""Turns: everybody after everybody, together where memory allows, and nobody's failure is everybody's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from engine.bench.contender import PathInfo, Sample, Unavailable
from engine.bench.rounds import Work, choose_kept, run_rounds


class Runner:
    """A contender that writes down what is done with it."""

    def __init__(self, name: str, need: int, diary: list[str], paths: int = 1, fault: Exception | None = None) -> None:
        self.name, self.need = name, need
        self.paths: Sequence[PathInfo] = [PathInfo(f"{name}{n}", "ours", "") for n in range(paths)]
        self.is_open = False
        self._diary, self._fault = diary, fault

    def open(self) -> None:
        if self._fault:
            raise self._fault
        self.is_open = True
        self._diary.append(f"open {self.name}")

    def run(self, path: PathInfo, prompt: list[int], steps: int) -> Sample:
        assert self.is_open
        self._diary.append(f"{path.key} {prompt[0]} {steps}")
        return Sample(1, 1.0, (1,) * steps, 1.0)

    def warm_up(self, asked: int) -> int:
        return asked

    def warmed_up(self) -> None:
        self._diary.append(f"warm {self.name}")

    def close(self) -> None:
        if self.is_open:
            self._diary.append(f"close {self.name}")
        self.is_open = False


def _work(warm_up: int = 0) -> Work:
    return Work(tokens=5, prompts=[[10], [20]], warm_up=warm_up, warm_up_prompts=[[1], [2]], context=100)


def test_the_disk_is_measured_around_every_answer_that_reads_from_it_alone() -> None:
    rates = iter([100.0, 300.0, 500.0, 900.0])
    cold, warm = Runner("a", 1, []), Runner("b", 1, [])
    cold.paths = [replace(path, held=True) for path in cold.paths]
    outcome = run_rounds([cold, warm], _work(), 10, lambda text: None, lambda: next(rates))
    assert [sample.disk_rate for sample in outcome.samples["a0"]] == [200.0, 700.0]
    assert [sample.disk_rate for sample in outcome.samples["b0"]] == [None, None]


def test_rounds_are_interleaved_and_each_has_its_own_prompt() -> None:
    diary: list[str] = []
    run_rounds([Runner("a", 1, diary, paths=2), Runner("b", 1, diary)], _work(), 10, lambda text: None)
    turns = [entry for entry in diary if entry[0] in "ab"]
    assert turns == ["a0 10 5", "a1 10 5", "b0 10 5", "a0 20 5", "a1 20 5", "b0 20 5"]


def test_the_warm_up_comes_first_goes_through_its_prompts_and_is_not_counted() -> None:
    diary: list[str] = []
    outcome = run_rounds([Runner("a", 1, diary)], _work(warm_up=150), 10, lambda text: None)
    assert diary[1:5] == ["a0 1 98", "a0 2 52", "warm a", "a0 10 5"]
    assert len(outcome.samples["a0"]) == 2


def test_who_does_not_fit_beside_the_others_is_loaded_for_each_turn() -> None:
    diary: list[str] = []
    outcome = run_rounds(
        [Runner("a", 4, diary), Runner("b", 5, diary), Runner("c", 6, diary)], _work(warm_up=1), 10, lambda text: None
    )
    assert outcome.reloaded == ["b", "c"]
    assert diary.count("open a") == 1
    assert diary.count("open b") == diary.count("close b") == 2
    assert diary.count("b0 1 1") == 2, "warmed up after every load"
    assert diary.index("close b") < diary.index("open c"), "memory is given back before the next takes it"


@pytest.mark.parametrize("room", range(1, 16))
@pytest.mark.parametrize("needs", [(4, 5, 6), (1, 1, 9), (6, 1, 2, 3), (5, 5)])
def test_memory_is_never_promised_twice(needs: tuple[int, ...], room: int) -> None:
    runners = [Runner(str(number), need, []) for number, need in enumerate(needs)]
    kept, in_turn, too_big = choose_kept(runners, room)
    assert len(kept) + len(in_turn) + len(too_big) == len(needs)
    assert sum(one.need for one in kept) + max((one.need for one in in_turn), default=0) <= room
    assert all(one.need > room for one in too_big)


def test_who_fits_nowhere_or_fails_is_left_out_with_the_reason_and_the_rest_goes_on() -> None:
    diary: list[str] = []
    outcome = run_rounds(
        [
            Runner("big", 11_000_000_000, diary),
            Runner("absent", 1, diary, fault=Unavailable("it is not installed")),
            Runner("broken", 1, diary, fault=RuntimeError("no kernel\nfor this")),
            Runner("fine", 1, diary),
        ],
        _work(),
        10_000_000_000,
        lambda text: None,
    )
    assert outcome.left_out == {
        "big0": "it needs 11.0 GB and 10.0 GB can be had",
        "absent0": "it is not installed",
        "broken0": "it failed: no kernel (RuntimeError)",
    }
    assert list(outcome.samples) == ["fine0"]


def test_everybody_is_closed_when_the_user_stops() -> None:
    diary: list[str] = []

    class Stopped(Runner):
        def run(self, path: PathInfo, prompt: list[int], steps: int) -> Sample:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_rounds([Runner("a", 1, diary), Stopped("b", 1, diary)], _work(), 10, lambda text: None)
    assert diary[-2:] == ["close a", "close b"]
