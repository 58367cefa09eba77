"""Who sits where: pins, waves, and eviction order against a reference that a child could follow."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from engine.errors import OptionError
from engine.experts.cache import ExpertCache
from engine.experts.policies import POLICIES, make_policy

LAYERS, EXPERTS = 4, 8


def new_cache(slots: int, policy: str = "lru") -> ExpertCache:
    return ExpertCache(slots, LAYERS, EXPERTS, make_policy(policy, LAYERS, EXPERTS))


def use(cache: ExpertCache, layer: int, experts: Sequence[int]) -> list[list[int]]:
    """One dispatch, done as the runtime does it; returns the experts that were missing, wave by wave."""
    missing = []
    for lease in cache.waves(layer, np.array(sorted(experts))):
        missing.append(lease.experts[lease.missing].tolist())
        cache.release(lease)
    return missing


def residents(cache: ExpertCache) -> set[tuple[int, int]]:
    return {(int(layer), int(expert)) for layer, expert in np.argwhere(cache.resident_mask())}


class Reference:
    """The same promise, told with a row of seats: hits first, then misses in waves of what fits.

    Free seats are taken from the left; where none is free the lowest rank leaves, among equals the lowest key.
    """

    def __init__(self, slots: int, policy: str) -> None:
        self.seats: list[tuple[int, int] | None] = [None] * slots
        self.policy = policy
        self.last: dict[tuple[int, int], int] = {}
        self.uses: dict[tuple[int, int], int] = {}
        self.clock = self.evictions = 0

    def rank(self, key: tuple[int, int]) -> tuple[int, ...]:
        return (self.last[key],) if self.policy == "lru" else (self.uses[key], self.last[key])

    def use(self, layer: int, experts: Sequence[int]) -> list[list[int]]:
        self.clock += 1
        wanted = [(layer, expert) for expert in sorted(experts)]
        for key in wanted:
            self.last[key] = self.clock
            self.uses[key] = self.uses.get(key, 0) + 1
        order = [key for key in wanted if key in self.seats] + [key for key in wanted if key not in self.seats]
        waves = []
        for start in range(0, len(order), len(self.seats)):
            wave = order[start : start + len(self.seats)]
            missing = [key for key in wave if key not in self.seats]
            free = [seat for seat, key in enumerate(self.seats) if key is None]
            others = [(self.rank(key), key, seat) for seat, key in enumerate(self.seats) if key and key not in wave]
            leaving = [seat for _, _, seat in sorted(others)][: max(0, len(missing) - len(free))]
            self.evictions += len(leaving)
            for seat, key in zip(free + leaving, missing, strict=False):
                self.seats[seat] = key
            waves.append([expert for _, expert in missing])
        return waves


@pytest.mark.parametrize("policy", ["lru", "lfu"])
@pytest.mark.parametrize("slots", [1, 3, 7, 16, LAYERS * EXPERTS])
def test_misses_and_evictions_are_the_reference_ones(policy: str, slots: int) -> None:
    """Random dispatches of every size, smaller and larger than the cache."""
    source = random.Random(slots)
    cache, reference = new_cache(slots, policy), Reference(slots, policy)
    for _ in range(400):
        layer = source.randrange(LAYERS)
        experts = source.sample(range(EXPERTS), source.choice([1, 1, 2, 3, EXPERTS]))
        assert use(cache, layer, experts) == reference.use(layer, experts)
        assert residents(cache) == {key for key in reference.seats if key}
        assert cache.evictions == reference.evictions
        assert cache.resident == len(residents(cache))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("slots", [1, 3, 7, 16])
def test_dispatches_of_any_size_keep_the_books(policy: str, slots: int) -> None:
    """Whatever the policy: no lease larger than the cache, nobody seated twice, no hit lost to its own dispatch."""
    source = random.Random(slots)
    cache = new_cache(slots, policy)
    for _ in range(300):
        layer = source.randrange(LAYERS)
        experts = sorted(source.sample(range(EXPERTS), source.randint(1, EXPERTS)))
        before = residents(cache)
        hits = [expert for expert in experts if (layer, expert) in before]
        served: list[int] = []
        for number, lease in enumerate(cache.waves(layer, np.array(experts))):
            assert len(lease.experts) <= slots
            assert len(set(lease.slots.tolist())) == len(lease.experts)
            assert (lease.missing == [expert not in hits for expert in lease.experts.tolist()]).all()
            assert {(layer, expert) for expert in lease.experts.tolist()} <= residents(cache)
            if number == 0:
                assert hits == lease.experts.tolist()[: len(hits)]  # nothing wanted was thrown out for its own dispatch
            served += lease.experts.tolist()
            cache.release(lease)
        assert sorted(served) == experts
        assert cache.resident == len(residents(cache)) <= slots
        slots_of = [tuple(pair) for pair in np.argwhere(cache.resident_mask())]
        assert len(slots_of) == cache.resident


def test_a_pinned_expert_never_leaves() -> None:
    cache = new_cache(4)
    pinned = next(cache.waves(0, np.array([0, 1])))
    for expert in range(EXPERTS):
        use(cache, 1, [expert])
        assert {(0, 0), (0, 1)} <= residents(cache)
    cache.release(pinned)
    use(cache, 2, [0, 1, 2, 3])
    assert residents(cache) == {(2, 0), (2, 1), (2, 2), (2, 3)}


def test_two_leases_on_one_expert_pin_it_twice() -> None:
    cache = new_cache(1)
    first, second = next(cache.waves(0, np.array([5]))), next(cache.waves(0, np.array([5])))
    cache.release(first)
    with pytest.raises(RuntimeError):
        next(cache.waves(0, np.array([6])))
    cache.release(second)
    assert use(cache, 0, [6]) == [[6]]


def test_a_forgotten_expert_is_missed_again_and_its_slot_reused() -> None:
    """A read failed while the cache was still filling: the slots still have room for everybody."""
    cache = new_cache(4)
    use(cache, 0, [0, 1, 2])
    cache.forget(0, 1)
    assert residents(cache) == {(0, 0), (0, 2)}
    cache.forget(0, 1)  # once more changes nothing
    assert cache.resident == 2
    assert use(cache, 1, [4, 5]) == [[4, 5]]
    assert cache.evictions == 0
    assert use(cache, 0, [0, 1, 2, 3]) == [[1, 3]]
    assert residents(cache) == {(0, 0), (0, 1), (0, 2), (0, 3)}


def test_a_dispatch_as_large_as_the_cache_after_a_forgotten_read() -> None:
    cache = new_cache(4)
    for expert in (0, 1, 2):
        use(cache, 0, [expert])
    cache.forget(0, 0)
    assert use(cache, 1, [0, 1, 2, 3]) == [[0, 1, 2, 3]]
    assert residents(cache) == {(1, 0), (1, 1), (1, 2), (1, 3)}


def test_a_slot_forgotten_under_its_lease_is_not_given_away_before_the_release() -> None:
    cache = new_cache(2)
    lease = next(cache.waves(0, np.array([3])))
    cache.forget(0, 3)
    other = next(cache.waves(1, np.array([3])))
    assert other.slots.tolist() != lease.slots.tolist()
    cache.release(lease)
    cache.release(other)
    assert use(cache, 2, [1]) == [[1]]
    assert cache.evictions == 0


@pytest.mark.parametrize(("policy", "leaving"), [("lru", (0, 1)), ("lfu", (2, 3))])
def test_who_leaves_first(policy: str, leaving: tuple[int, int]) -> None:
    """0:1 was used most and longest ago, 2:3 once and last."""
    cache = new_cache(3, policy)
    for layer, expert in [(0, 1), (0, 1), (0, 1), (1, 2), (1, 2), (2, 3)]:
        use(cache, layer, [expert])
    first = int(cache.by_eviction_order()[0])
    assert divmod(first, EXPERTS) == leaving
    use(cache, 3, [0])
    assert leaving not in residents(cache)
    assert len(cache.by_eviction_order()) == 3


def test_plain_lru_never_hits_below_one_tokens_cycle() -> None:
    """Known of LRU, and why it is not the last word: a cycle longer than the cache has always just lost its next."""
    cache = new_cache(LAYERS * 2 - 2)
    for _ in range(5):
        misses = [use(cache, layer, [0, 1]) for layer in range(LAYERS)]
    assert misses == [[[0, 1]]] * LAYERS
    cache = new_cache(LAYERS * 2)
    for _ in range(2):
        misses = [use(cache, layer, [0, 1]) for layer in range(LAYERS)]
    assert misses == [[[]]] * LAYERS


def test_a_cache_has_at_least_one_slot() -> None:
    with pytest.raises(ValueError, match="at least one slot"):
        new_cache(0)


def test_an_unknown_policy_lists_those_there_are() -> None:
    with pytest.raises(OptionError) as caught:
        make_policy("fifo", LAYERS, EXPERTS)
    assert all(name in str(caught.value) for name in POLICIES)
