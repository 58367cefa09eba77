"""Link and processor share what a dispatch misses, so that both are done at about the same time."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from torch.nn.functional import linear, silu

from engine.experts import on_miss
from engine.experts.layout import expert_layout
from engine.experts.on_miss import MARGIN, Calibration, calibrate, split

MS = 1e-3


def costs(computing: float, fetching: float, latency: float = 0.0, handing_over: float = 0.0) -> Calibration:
    """Milliseconds of one expert with one row; a row more costs a tenth more."""
    table = tuple(computing * MS * (1 + (rows - 1) / 10) for rows in (1, 11))
    return Calibration((1, 11), table, fetching * MS, latency * MS, handing_over * MS)


def ones(count: int) -> np.ndarray:
    return np.ones(count, dtype=np.int64)


def test_without_a_calibration_everything_is_fetched() -> None:
    shared = split(None, ones(5))
    assert shared.link.tolist() == [0, 1, 2, 3, 4]
    assert shared.processor.tolist() == []


def test_equals_share_half_and_half() -> None:
    shared = split(costs(1.0, 1.0), ones(8))
    assert (len(shared.link), len(shared.processor)) == (4, 4)
    assert shared.seconds == pytest.approx(4 * MS)


def test_the_faster_one_does_more() -> None:
    shared = split(costs(computing=3.0, fetching=1.0), ones(8))
    assert (len(shared.link), len(shared.processor)) == (6, 2)
    shared = split(costs(computing=1.0, fetching=3.0), ones(8))
    assert (len(shared.link), len(shared.processor)) == (2, 6)


def test_a_slow_processor_is_left_alone() -> None:
    slow = costs(computing=9.0, fetching=1.0)
    assert len(split(slow, ones(8)).processor) == 0
    assert not slow.pays
    assert "fetched" in slow.describe()


def test_what_is_hardly_won_is_not_worth_it() -> None:
    assert len(split(costs(computing=7.3, fetching=1.0), ones(8)).processor) == 0  # 7.3 instead of 8
    assert len(split(costs(computing=7.1, fetching=1.0), ones(8)).processor) == 1


def test_a_full_queue_sends_more_to_the_processor() -> None:
    machine = costs(2.0, 1.0)
    shares = [len(split(machine, ones(6), link_queue=queue).processor) for queue in (0, 4, 20)]
    assert shares == [2, 3, 6]


def test_a_busy_processor_gets_less() -> None:
    machine = costs(1.0, 1.0)
    shares = [len(split(machine, ones(6), processor_busy=busy * MS).processor) for busy in (0, 2, 20)]
    assert shares == [3, 2, 0]


def test_handing_over_is_paid_once() -> None:
    assert len(split(costs(1.0, 1.0, handing_over=2.0), ones(8)).processor) == 3
    assert len(split(costs(1.0, 1.0, handing_over=2.0), ones(2)).processor) == 0


def test_experts_with_many_rows_are_fetched() -> None:
    shared = split(costs(1.0, 1.0), np.array([40, 1, 40, 1]))
    assert shared.link.tolist() == [0, 2]
    assert shared.processor.tolist() == [1, 3]


def test_only_what_waits_in_ram_can_be_computed_there() -> None:
    shared = split(costs(0.1, 1.0), ones(4), in_ram=np.array([False, True, False, True]))
    assert shared.link.tolist() == [0, 2]
    assert shared.processor.tolist() == [1, 3]


def test_among_equals_the_one_the_cache_wants_least_is_not_fetched() -> None:
    shared = split(costs(1.0, 1.0), ones(4), wanted_again=np.array([0.1, 0.9, 0.2, 0.8]))
    assert shared.processor.tolist() == [0, 2]


def test_nothing_missing_is_nothing_to_do() -> None:
    shared = split(costs(1.0, 1.0), ones(0))
    assert len(shared.link) == len(shared.processor) == 0
    assert shared.seconds == 0


@pytest.mark.parametrize("seed", range(20))
def test_no_other_split_is_done_sooner(seed: int) -> None:
    random = np.random.default_rng(seed)
    machine = costs(*random.uniform(0.2, 3.0, 4))
    rows = random.integers(1, 30, size=7)
    in_ram = random.random(7) < 0.7
    queue, busy = int(random.integers(0, 4)), float(random.uniform(0, 2)) * MS
    shared = split(machine, rows, in_ram=in_ram, link_queue=queue, processor_busy=busy)

    def seconds(on_processor: np.ndarray) -> float:
        fetched = int((~on_processor).sum())
        link = machine.fetch_latency + machine.fetching * (queue + fetched) if fetched else 0.0
        mine = machine.on_processor(rows[on_processor]).sum()
        return max(link, mine + busy + machine.handing_over if on_processor.any() else 0.0)

    every = [np.array(bits) for bits in product([False, True], repeat=7)]
    best = min(seconds(bits) for bits in every if not (bits & ~in_ram).any())
    alone = seconds(np.zeros(7, dtype=bool))
    assert shared.seconds == pytest.approx(best if best <= MARGIN * alone else alone)
    chosen = np.isin(np.arange(7), shared.processor)
    assert seconds(chosen) == pytest.approx(shared.seconds)
    assert sorted([*shared.link, *shared.processor]) == list(range(7))


def test_beyond_the_table_time_grows_with_the_rows() -> None:
    machine = Calibration((1, 8), (1 * MS, 2 * MS), 1 * MS, 0.0, 0.0)
    assert machine.on_processor(np.array([1, 8, 16, 80])) == pytest.approx([1 * MS, 2 * MS, 4 * MS, 20 * MS])


def test_the_verdict_is_a_sentence_with_both_times() -> None:
    said = costs(0.5, 2.0).describe()
    assert "0.50 ms" in said
    assert "2.00 ms" in said
    assert costs(0.5, 2.0).pays


# ---------------------------------------------------------------------------------------------------- calibration

LAYOUT = expert_layout({"gate_up_proj": (128, 64), "down_proj": (64, 64)}, torch.float32)


def compute(parameters: dict[str, torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
    gate, up = linear(rows, parameters["gate_up_proj"]).chunk(2, dim=-1)
    return linear(silu(gate) * up, parameters["down_proj"])


def blobs(count: int) -> list[torch.Tensor]:
    return [torch.randint(0, 50, (LAYOUT.nbytes,), dtype=torch.uint8) for _ in range(count)]


def test_calibration_measures_with_real_tensors() -> None:
    waiting, slots, seen = blobs(6), blobs(6), set()

    def watched(parameters: dict[str, torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
        seen.add((parameters["down_proj"].data_ptr(), len(rows)))
        return compute(parameters, rows)

    measured = calibrate(LAYOUT, waiting, slots, watched, hidden=64, rows=(1, 4))
    assert {rows for _, rows in seen} == {1, 4}
    assert len({place for place, _ in seen}) == 6
    assert all(torch.equal(source, slot) for source, slot in zip(waiting, slots, strict=True))
    assert measured.rows == (1, 4)
    assert min(measured.computing) > 0
    assert measured.fetching > 0
    assert measured.fetch_latency >= 0
    assert measured.handing_over > 0


def test_calibration_takes_the_fastest_run(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(np.cumsum([0, 9, 0, 3, 0, 7]).tolist())  # three runs that take 9, 3 and 7
    monkeypatch.setattr(on_miss.time, "perf_counter", lambda: next(now))
    assert on_miss._fastest(lambda: None) == 3


def test_two_ways_that_are_told_apart_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(on_miss.time, "perf_counter", lambda: clock[0])

    def slow(parameters: dict[str, torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
        clock[0] += 0.010 + 0.001 * len(rows)
        return rows

    real = torch.Tensor.copy_

    def timed(self: torch.Tensor, *arguments: object, **options: object) -> torch.Tensor:
        clock[0] += 0.002
        return real(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.Tensor, "copy_", timed)
    measured = calibrate(LAYOUT, blobs(5), blobs(5), slow, hidden=64, rows=(1, 10))
    assert measured.computing == pytest.approx((0.011, 0.020))
    assert measured.fetching == pytest.approx(0.002)
    assert measured.fetch_latency == pytest.approx(0)
    assert not measured.pays
