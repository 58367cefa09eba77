"""RAM between the disk and a card: what was fetched once comes from memory, within a budget, for many threads."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from engine.errors import ModelError
from engine.experts import card as card_module
from engine.experts import host_tier
from engine.experts.cache import ExpertCache
from engine.experts.card import cpus_near_card
from engine.experts.host_tier import HostTier
from engine.experts.layout import ExpertLayout, expert_layout
from engine.experts.on_miss import Calibration, Helper
from engine.experts.policies import make_policy
from engine.experts.store import DiskStore
from engine.loading import inspect
from tests.families import EXPERTS, make_tiny

LAYERS = 3
LAYOUT = expert_layout({"gate_up_proj": (32, 32), "down_proj": (32, 16)}, torch.float32)


class Counting:
    """A disk that counts its reads, fails where it is told to, and can be held up."""

    def __init__(self) -> None:
        self.reads: Counter[tuple[int, int]] = Counter()
        self.broken: set[tuple[int, int]] = set()
        self.may_read = threading.Event()
        self.may_read.set()
        self.reading = threading.Event()
        self.closed = False

    def read(self, layer: int, expert: int, blob: torch.Tensor) -> int:
        self.reads[layer, expert] += 1
        self.reading.set()
        assert self.may_read.wait(60)
        if (layer, expert) in self.broken:
            blob.fill_(0xEE)
            raise ModelError("the disk is gone")
        blob.copy_(content(layer, expert, blob.nbytes))
        return blob.nbytes

    def describe(self) -> str:
        return "a counting disk"

    def close(self) -> None:
        self.closed = True


class Pins:
    """Stands for the card's driver: pins so many chunks, then refuses or raises."""

    def __init__(self, allowed: int = 1000, error: type[Exception] | None = None) -> None:
        self.allowed, self.error = allowed, error
        self.tried: list[torch.Tensor] = []
        self.held: list[int] = []
        self.affinity: set[int] = set()

    def pin(self, memory: torch.Tensor) -> bool:
        self.tried.append(memory)
        if hasattr(os, "sched_getaffinity"):
            self.affinity = os.sched_getaffinity(0)
        if len(self.held) >= self.allowed:
            if self.error:
                raise self.error("no more")
            return False
        self.held.append(memory.data_ptr())
        return True

    def unpin(self, memory: torch.Tensor) -> None:
        self.held.remove(memory.data_ptr())


Make = Callable[..., HostTier]


@pytest.fixture
def disk() -> Counting:
    return Counting()


@pytest.fixture
def make(disk: Counting) -> Iterator[Make]:
    """A tier above the counting disk, with room for so many experts."""
    made: list[HostTier] = []

    def build(places: int, **options: object) -> HostTier:
        nbytes = places * LAYOUT.nbytes
        made.append(HostTier(disk, [LAYOUT] * LAYERS, nbytes, **options))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for tier in made:
        tier.close()


def content(layer: int, expert: int, nbytes: int) -> torch.Tensor:
    source = torch.Generator().manual_seed(layer * 100 + expert)
    return torch.randint(0, 256, (nbytes,), dtype=torch.uint8, generator=source)


def blob_of(layout: ExpertLayout = LAYOUT) -> torch.Tensor:
    return torch.zeros(layout.nbytes, dtype=torch.uint8)


def fetch(tier: HostTier, layer: int, expert: int) -> None:
    blob = blob_of()
    assert tier.read(layer, expert, blob) == LAYOUT.nbytes
    assert torch.equal(blob, content(layer, expert, LAYOUT.nbytes))


def who(tier: HostTier) -> set[tuple[int, int]]:
    return {(layer, expert) for layer in range(LAYERS) for expert in range(32) if tier.holds(layer, expert)}


# ------------------------------------------------------------------------------------------------------- contents


def test_what_was_fetched_once_reads_no_disk_again(make: Make, disk: Counting) -> None:
    tier = make(4)
    for _ in range(3):
        fetch(tier, 1, 7)
    assert disk.reads == {(1, 7): 1}
    assert (tier.hits, tier.misses) == (2, 1)


def test_the_budget_is_kept(make: Make, disk: Counting) -> None:
    tier = make(5)
    for expert in range(20):
        fetch(tier, expert % LAYERS, expert)
    assert len(who(tier)) == tier.places == 5
    assert tier.nbytes == 5 * LAYOUT.nbytes


def test_who_was_asked_for_longest_ago_leaves(make: Make, disk: Counting) -> None:
    tier = make(3)
    for expert in (0, 1, 2, 0, 3):
        fetch(tier, 0, expert)
    assert who(tier) == {(0, 2), (0, 0), (0, 3)}


def test_the_cards_cache_says_who_stays_and_few_copies_of_what_it_has_do(make: Make, disk: Counting) -> None:
    tier = make(10)
    priority, on_card = np.zeros((LAYERS, 32)), np.zeros((LAYERS, 32), dtype=bool)
    tier.follow(LAYOUT, priority, lambda: on_card)
    priority[0] = np.arange(32)
    for expert in range(10):
        fetch(tier, 0, expert)
    fetch(tier, 0, 20)  # nobody is on the card: the lowest leaves
    assert who(tier) == {(0, expert) for expert in (*range(1, 10), 20)}
    on_card[0, [7, 8, 20]] = True
    fetch(tier, 0, 21)  # too many copies: the one that the card will keep longest
    assert who(tier) == {(0, expert) for expert in (*range(1, 10), 21)}
    on_card[0, [7, 8, 21]] = [False, True, False]
    fetch(tier, 0, 22)  # one copy of ten is its share: the lowest of those only here
    assert who(tier) == {(0, expert) for expert in (*range(2, 10), 21, 22)}
    on_card[:] = True
    fetch(tier, 0, 23)
    assert not tier.holds(0, 22)


def test_priorities_are_read_when_they_are_needed_not_copied(make: Make) -> None:
    tier = make(2)
    priority = np.zeros((LAYERS, 32))
    tier.follow(LAYOUT, priority, lambda: np.zeros((LAYERS, 32), dtype=bool))
    fetch(tier, 0, 0)
    fetch(tier, 0, 1)
    priority[0, 0] = 5
    fetch(tier, 0, 2)
    assert who(tier) == {(0, 0), (0, 2)}


def test_layers_of_different_layouts_share_the_budget_by_weight(disk: Counting) -> None:
    wide = expert_layout({"gate_up_proj": (64, 64), "down_proj": (64, 32)}, torch.float32)
    tier = HostTier(disk, [LAYOUT, wide, wide], 10 * (LAYOUT.nbytes + 2 * wide.nbytes))
    assert tier.places == 30
    for layer, layout in ((0, LAYOUT), (1, wide), (2, wide)):
        for expert in range(10):
            blob = blob_of(layout)
            tier.read(layer, expert, blob)
            assert torch.equal(blob, content(layer, expert, layout.nbytes))
    assert len(who(tier)) == 30
    tier.close()


def test_it_says_how_much_it_keeps_and_what_is_below(disk: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_tier, "CHUNK", 1 << 29)
    tier = HostTier(disk, [LAYOUT], 300_000_000, pinner=Pins())
    pinning_done()
    assert tier.describe() == "0.3 GB of experts kept in RAM, 0.3 GB of it pinned; below, a counting disk"
    tier.close()


def test_a_budget_below_one_expert_reads_through(make: Make, disk: Counting) -> None:
    tier = make(0)
    fetch(tier, 0, 0)
    fetch(tier, 0, 0)
    assert disk.reads == {(0, 0): 2}
    assert tier.lend(0, 0) is None


def test_the_real_files_come_through_bit_for_bit(tmp_path: Path) -> None:
    found = inspect(str(make_tiny("qwen2_moe", tmp_path)))
    layouts = [expert_layout(module.parameters, torch.float32) for module in found.index.modules]
    plain = DiskStore(found.index, layouts, found.model)
    tier = HostTier(DiskStore(found.index, layouts, found.model), layouts, 7 * layouts[0].nbytes)
    for _ in range(2):
        for layer in range(found.layers):
            for expert in range(EXPERTS):
                direct, through = blob_of(layouts[layer]), blob_of(layouts[layer])
                plain.read(layer, expert, direct)
                tier.read(layer, expert, through)
                assert torch.equal(direct, through)
    tier.close()
    plain.close()


# -------------------------------------------------------------------------------------------------------- lending


def test_what_is_lent_stays_as_it_is_until_it_is_given_back(make: Make, disk: Counting) -> None:
    tier = make(2)
    lent = tier.lend(0, 0)
    assert lent is not None
    for expert in range(1, 6):
        fetch(tier, 0, expert)
    assert torch.equal(lent, content(0, 0, LAYOUT.nbytes))
    assert tier.holds(0, 0)
    tier.give_back(0, 0)
    fetch(tier, 0, 6)
    fetch(tier, 0, 7)
    assert not tier.holds(0, 0)


def test_a_loan_is_the_tiers_own_memory_and_a_second_one_the_same(make: Make, disk: Counting) -> None:
    tier = make(2)
    first, second = tier.lend(0, 0), tier.lend(0, 0)
    assert first is not None and second is not None
    assert first.data_ptr() == second.data_ptr()
    assert first.data_ptr() % 256 == 0
    tier.give_back(0, 0)
    fetch(tier, 0, 1)
    fetch(tier, 0, 2)
    assert tier.holds(0, 0)  # one of the two is still out
    tier.give_back(0, 0)
    with pytest.raises(ValueError, match="not lent"):
        tier.give_back(0, 0)


def test_when_all_is_lent_a_reader_goes_past_the_tier(make: Make, disk: Counting) -> None:
    tier = make(2)
    tier.lend(0, 0)
    tier.lend(0, 1)
    assert tier.lend(0, 2) is None
    fetch(tier, 0, 2)
    assert who(tier) == {(0, 0), (0, 1)}
    tier.give_back(0, 0)
    assert tier.lend(0, 2) is not None


def test_a_read_that_fails_leaves_no_trace(make: Make, disk: Counting) -> None:
    tier = make(2)
    disk.broken.add((0, 0))
    for _ in range(5):
        with pytest.raises(ModelError):
            tier.lend(0, 0)
    assert who(tier) == set()
    disk.broken.clear()
    fetch(tier, 0, 0)
    fetch(tier, 0, 1)
    assert len(who(tier)) == 2


# -------------------------------------------------------------------------------------------------------- threads


def test_two_who_want_the_same_expert_read_it_once(make: Make, disk: Counting) -> None:
    tier = make(2)
    disk.may_read.clear()
    with ThreadPoolExecutor(4) as pool:
        wanting = [pool.submit(fetch, tier, 0, 0) for _ in range(4)]
        assert disk.reading.wait(60)
        disk.may_read.set()
        for one in wanting:
            one.result(60)
    assert disk.reads == {(0, 0): 1}


def test_who_waits_for_a_read_that_fails_tries_himself(make: Make, disk: Counting) -> None:
    tier = make(2)
    disk.broken.add((0, 0))
    disk.may_read.clear()
    with ThreadPoolExecutor(3) as pool:
        wanting = [pool.submit(fetch, tier, 0, 0) for _ in range(3)]
        assert disk.reading.wait(60)
        disk.may_read.set()
        assert all(isinstance(one.exception(60), ModelError) for one in wanting)
    assert disk.reads[0, 0] == 3
    assert who(tier) == set()


def test_many_readers_get_the_right_bytes_while_experts_come_and_go(make: Make, disk: Counting) -> None:
    tier = make(6)
    priority, on_card = np.random.default_rng(0).random((LAYERS, 32)), np.zeros((LAYERS, 32), dtype=bool)
    tier.follow(LAYOUT, priority, lambda: on_card)

    def work(seed: int) -> int:
        random = np.random.default_rng(seed)
        wrong = 0
        for layer, expert in zip(random.integers(LAYERS, size=300), random.integers(12, size=300), strict=True):
            on_card[layer, expert] = bool(expert % 2)
            lent = tier.lend(int(layer), int(expert))
            if lent is None:
                fetch(tier, int(layer), int(expert))
                continue
            wrong += not torch.equal(lent, content(int(layer), int(expert), LAYOUT.nbytes))
            tier.give_back(int(layer), int(expert))
        return wrong

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 0
    assert len(who(tier)) == 6
    assert all(
        tier.lend(layer, expert) is not None for layer, expert in who(tier)
    )  # nothing is still lent or half read


# -------------------------------------------------------------------------------------------------------- pinning


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_tier, "CHUNK", 2 * LAYOUT.nbytes)


def pinning_done() -> None:
    for thread in threading.enumerate():
        if thread.name == "greenroom-pin":
            thread.join(60)


@pytest.mark.usefixtures("small_chunks")
def test_memory_is_pinned_chunk_by_chunk_in_whole_pages(make: Make) -> None:
    pins, told = Pins(), list[str]()
    tier = make(9, pinner=pins, tell=told.append)
    pinning_done()
    assert [chunk.nbytes for chunk in pins.tried] == [2 * LAYOUT.nbytes] * 4 + [LAYOUT.nbytes]
    pages = [
        page
        for chunk in pins.tried
        for page in range(chunk.data_ptr() // 4096, -(-(chunk.data_ptr() + chunk.nbytes) // 4096))
    ]
    assert len(set(pages)) == len(pages)
    assert all(chunk.data_ptr() % 4096 == 0 for chunk in pins.tried)
    assert tier.pinned_bytes == tier.nbytes == 9 * LAYOUT.nbytes
    assert told == []


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("error", [None, RuntimeError])
def test_a_pin_that_fails_costs_one_chunk_and_is_told_once(
    make: Make, disk: Counting, error: type[Exception] | None
) -> None:
    pins, told = Pins(2, error), list[str]()
    tier = make(10, pinner=pins, tell=told.append)
    pinning_done()
    assert len(pins.tried) == 3  # two held, one refused, the rest never asked
    assert tier.pinned_bytes == 4 * LAYOUT.nbytes
    assert len(told) == 1
    assert told[0].startswith("The system pins only")
    for expert in range(10):
        fetch(tier, 0, expert)
        fetch(tier, 0, expert)
    assert tier.hits == 10  # pinned or not, all of it serves


@pytest.mark.usefixtures("small_chunks")
def test_experts_are_served_while_memory_is_being_pinned(make: Make) -> None:
    class Slow(Pins):
        go_on, began = threading.Event(), threading.Event()

        def pin(self, memory: torch.Tensor) -> bool:
            self.began.set()
            return self.go_on.wait(60) and super().pin(memory)

    pins = Slow()
    tier = make(6, pinner=pins)
    assert pins.began.wait(60)
    for expert in range(12):
        fetch(tier, 0, expert)
    assert tier.pinned_bytes == 0
    pins.go_on.set()
    pinning_done()
    assert tier.pinned_bytes == tier.nbytes
    for expert in range(6, 12):
        fetch(tier, 0, expert)
    assert tier.hits == 6


@pytest.mark.usefixtures("small_chunks")
def test_closing_ends_pinning_and_unpins_what_was_pinned(disk: Counting) -> None:
    class Watched(Pins):
        go_on = threading.Event()

        def pin(self, memory: torch.Tensor) -> bool:
            return self.go_on.wait(60) and super().pin(memory)

    pins = Watched()
    tier = HostTier(disk, [LAYOUT] * LAYERS, 20 * LAYOUT.nbytes, pinner=pins)
    closing = threading.Thread(target=tier.close)
    closing.start()
    assert tier._closing.wait(60)  # its first act
    pins.go_on.set()
    closing.join(60)
    assert len(pins.tried) <= 1
    assert pins.held == []
    assert disk.closed


@pytest.mark.usefixtures("small_chunks")
def test_a_card_that_gave_up_keeps_nobody_from_closing_the_files(disk: Counting) -> None:
    class GaveUp(Pins):
        def unpin(self, memory: torch.Tensor) -> None:
            super().unpin(memory)
            raise RuntimeError("CUDA error: device lost")

    pins = GaveUp()
    tier = HostTier(disk, [LAYOUT] * LAYERS, 20 * LAYOUT.nbytes, pinner=pins)
    pinning_done()
    assert len(pins.held) > 1
    tier.close()
    assert pins.held == []
    assert disk.closed


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux binds threads this way")
def test_pinning_stays_near_the_card_and_the_others_stay_free(make: Make) -> None:
    before, pins = os.sched_getaffinity(0), Pins()
    near = frozenset({max(before)})
    make(2, pinner=pins, cpus=near)
    pinning_done()
    assert pins.affinity == near
    assert os.sched_getaffinity(0) == before


def test_nothing_is_pinned_where_nobody_asked(make: Make) -> None:
    tier = make(4)
    assert not any(thread.name == "greenroom-pin" for thread in threading.enumerate())
    assert "pinned" not in tier.describe()


def test_a_system_with_less_memory_than_promised_makes_a_smaller_tier(
    make: Make, disk: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_tier, "CHUNK", 2 * LAYOUT.nbytes)
    honest, given = host_tier._pages, list[int]()

    def scarce(nbytes: int) -> torch.Tensor | None:
        given.append(nbytes)
        return honest(nbytes) if len(given) <= 2 else None

    monkeypatch.setattr(host_tier, "_pages", scarce)
    told: list[str] = []
    tier = make(10, tell=told.append)
    assert len(told) == 1 and told[0].startswith("RAM gave only")
    assert tier.places == 4
    for expert in range(6):
        fetch(tier, 0, expert)
    assert len(who(tier)) == 4


def test_the_processors_near_a_card_are_found_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(card_module, "cpus_near", lambda address: asked.append(address) or frozenset({3}))
    card = SimpleNamespace(pci_domain_id=0, pci_bus_id=0x65, pci_device_id=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    assert cpus_near_card(torch.device("cuda:1")) == {3}
    assert asked == ["0000:65:00.0"]
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace())
    assert cpus_near_card(torch.device("cuda:1")) == frozenset()


def test_who_left_between_two_looks_is_fetched_and_nobody_stays_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute on miss asks who is in RAM, and a reader may send one of them away before the loan."""
    disk = Counting()
    tier = HostTier(disk, [LAYOUT] * LAYERS, 4 * LAYOUT.nbytes)
    tier.lend(0, 1)
    tier.give_back(0, 1)
    disk.broken.add((0, 2))
    monkeypatch.setattr(HostTier, "holds", lambda self, layer, expert: True)
    cache = ExpertCache(4, LAYERS, EXPERTS, make_policy("lru", LAYERS, EXPERTS))
    helper = Helper(Calibration((1, 64), (1e-6, 1e-6), 1.0, 0.0, 0.0), tier)
    lent = helper.lend(cache, 0, np.array([1, 2]), np.ones(2, np.uint32))
    assert list(lent) == [1]
    assert disk.reads == {(0, 1): 1}
    helper.give_back(0, lent)
    assert sum(int(shelf.loans.sum()) for shelf in tier._shelf_of.values()) == 0
    tier.close()
