"""Policies against their formulas, written down the slow way."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from engine.experts.cache import ExpertCache
from engine.experts.lowest import lowest
from engine.experts.policies import POLICIES, Policy, make_policy
from engine.experts.policies.activation import ActivationRatio
from engine.experts.policies.frequency import AgedFrequency
from engine.experts.policies.next_use import NextUse

LAYERS, EXPERTS = 4, 16
Told = tuple[str, int, list[tuple[np.ndarray, np.ndarray]]]


def a_life(seed: int, passes: int = 40, every: int = 9) -> list[Told]:
    """Requests with a prompt each, then tokens: phase, tokens, and for each layer who is wanted by how many."""
    random = np.random.default_rng(seed)
    life: list[Told] = []
    for number in range(passes):
        phase, tokens = ("prefill", int(random.integers(2, 40))) if number % every == 0 else ("decode", 1)
        layers = []
        for _ in range(LAYERS):
            size = EXPERTS if phase == "prefill" else 3
            experts = np.sort(random.choice(EXPERTS, size, replace=False))
            counts = random.integers(1, tokens + 1, size) if phase == "prefill" else np.ones(size)
            layers.append((experts, counts.astype(np.uint32)))
        life.append((phase, tokens, layers))
    return life


def tell(policy: Policy, life: list[Told], each: Callable[[int, int], None] = lambda number, layer: None) -> None:
    for number, (phase, tokens, layers) in enumerate(life):
        if phase == "prefill":
            policy.begin_request()
        policy.begin_pass(phase, tokens)  # type: ignore[arg-type]
        for layer, (experts, counts) in enumerate(layers):
            policy.used(layer, experts, counts)
            each(number, layer)


@pytest.mark.parametrize("name", POLICIES)
def test_a_restored_policy_goes_on_to_the_last_bit(name: str) -> None:
    life = a_life(1, 60)
    for cut in (0, 1, 9, 30):  # before anything, after a prompt, between, in the middle of an answer
        one, other = make_policy(name, LAYERS, EXPERTS), make_policy(name, LAYERS, EXPERTS)
        tell(one, life[:cut])
        one.begin_request()
        state = one.state()
        tell(other, a_life(2, 5))  # what it saw before is forgotten
        other.restore(state)
        assert np.array_equal(other.state(), state)
        tell(one, life[cut:])
        tell(other, life[cut:])
        assert np.array_equal(one.priority, other.priority)
        assert np.array_equal(one.state(), other.state())


@pytest.mark.parametrize("name", POLICIES)
def test_a_state_of_another_shape_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        make_policy(name, LAYERS, EXPERTS).restore(make_policy(name, LAYERS, EXPERTS + 1).state())


@pytest.mark.parametrize("name", POLICIES)
def test_the_table_stays_the_same_array_and_a_request_may_begin_twice(name: str) -> None:
    policy = make_policy(name, LAYERS, EXPERTS)
    table = policy.priority
    tell(policy, a_life(3))
    assert policy.priority is table
    assert np.isfinite(table).all()
    policy.begin_request()
    state = policy.state()
    policy.begin_request()
    assert np.array_equal(policy.state(), state)


def test_aged_counts_halve_with_every_half_life() -> None:
    policy, life = make_policy("lfu-aged", LAYERS, EXPERTS), a_life(4, 3000)  # long enough to be scaled down
    tell(policy, life)
    expected, age = np.zeros((LAYERS, EXPERTS)), 0.0
    for phase, tokens, layers in reversed(life[-800:]):
        counted = min(tokens, AgedFrequency.PROMPT_WORTH) if phase == "prefill" else 1
        for layer, (experts, counts) in enumerate(layers):
            expected[layer, experts] += 2 ** (-age / AgedFrequency.HALF_LIFE) * counted / tokens * counts
        age += counted
    scale = policy.priority.max() / expected.max()
    assert np.allclose(policy.priority / scale, expected, rtol=1e-5)


def test_the_activation_ratio_is_the_papers() -> None:
    policy = make_policy("eam", LAYERS, EXPERTS)
    prompt, answer = np.zeros((LAYERS, EXPERTS)), np.zeros((LAYERS, EXPERTS))
    prompt_tokens = answer_tokens = 0
    weight = 1 - np.arange(LAYERS)[:, np.newaxis] / LAYERS
    for told in a_life(5):
        phase, tokens, layers = told
        before = policy.priority.copy()
        tell(policy, [told])
        if phase == "prefill":
            prompt[:], answer[:], prompt_tokens, answer_tokens = 0, 0, tokens, 0
            assert np.array_equal(policy.priority, before)  # what decode lives on stays while the prompt goes through
        else:
            answer_tokens += 1
        for layer, (experts, counts) in enumerate(layers):
            (prompt if phase == "prefill" else answer)[layer, experts] += counts
        if answer_tokens:
            worth = ActivationRatio.PROMPT_WORTH
            share = (prompt / prompt_tokens * worth + answer) / (worth + answer_tokens)
            assert np.allclose(policy.priority, (share + ActivationRatio.EPSILON) * weight)


def test_next_use_expects_what_its_formula_says() -> None:
    """d + L (1 - p1) (1 + (1 - p2) / p) layer steps ahead, from whatever layer it is asked; with an empty memory."""
    policy = NextUse(LAYERS, EXPERTS)
    policy.LEARNING_RATE = 0.0  # type: ignore[misc]
    shares = np.full((LAYERS, 3, EXPERTS), NextUse.FIRST_SHARE)
    life = [told for told in a_life(6, 3) if told[0] == "decode"]
    step, served = 0, np.zeros(LAYERS)

    def check(number: int, layer: int) -> None:
        nonlocal step
        step += 1
        served[layer] = step
        for age, lifetime in enumerate(NextUse.LIFETIMES):
            shares[layer, age] *= 1 - 1 / lifetime
            shares[layer, age, life[number][2][layer][0]] += 1 / lifetime
        if number != 1:  # in the first not every layer was served; from the third on, the memory has its say
            return
        for other in range(LAYERS):
            logits = np.log((shares[other] + NextUse.FLOOR) / (1 + NextUse.FLOOR - shares[other]))
            average = logits.mean(axis=0)
            chance, first = 1 / (1 + np.exp(-average)), 1 / (1 + np.exp(-2 * average))
            distance = (other - layer) % LAYERS or LAYERS
            expected = distance + LAYERS * (1 - first) * (1 + (1 - chance) / chance)
            assert np.allclose(-policy.priority[other] - step, expected)

    tell(policy, life, check)


def test_next_use_remembers_what_followed_tokens_that_routed_alike() -> None:
    """A song of tokens drawn at random, sung again and again: how often each was used tells nothing, the memory all."""
    random = np.random.default_rng(12)
    song = [np.sort(random.permuted(np.tile(np.arange(EXPERTS), (LAYERS, 1)), axis=1)[:, :5]) for _ in range(24)]
    policy = NextUse(LAYERS, EXPERTS)
    policy.begin_request()
    right = []
    for number in range(5 * len(song)):
        policy.begin_pass("decode", 1)
        for layer in range(LAYERS):
            policy.used(layer, song[number % len(song)][layer], np.ones(5))
        coming = song[(number + 1) % len(song)]
        named = np.argsort(-policy.priority - policy._served, axis=1)[:, :5]
        right.append(np.mean([np.isin(named[layer], coming[layer]).mean() for layer in range(LAYERS)]))
    assert np.mean(right[: len(song)]) < 0.45  # 5 of 16 by chance
    assert np.mean(right[-len(song) :]) > 0.95


def test_next_use_learns_which_memory_a_layer_lives_on() -> None:
    """Layer 0 repeats its last choice, layer 1 has eternal favourites: the weights tell them apart."""
    random = np.random.default_rng(7)
    policy = NextUse(2, EXPERTS)
    lasting = np.sort(random.choice(EXPERTS, 6, replace=False))
    fleeting = lasting
    for token in range(1500):
        if token % 4 == 0:
            fleeting = np.sort(random.choice(EXPERTS, 3, replace=False))
        policy.begin_pass("decode", 1)
        policy.used(0, fleeting, np.ones(3))
        policy.used(1, np.sort(random.choice(lasting, 3, replace=False)), np.ones(3))
    shortest, longest = policy._weights[:, 0] + policy._weights[:, 3], policy._weights[:, 2]
    assert shortest[0] > shortest[1] + 0.2
    assert longest[1] > longest[0] + 0.2


def test_least_stale_spares_who_is_still_to_come() -> None:
    policy = make_policy("least-stale", 3, 4)
    one = np.array([0]), np.ones(1)
    policy.begin_pass("decode", 1)
    for layer in range(3):
        policy.used(layer, np.array([0, 1]), np.ones(2))
    policy.begin_pass("decode", 1)
    policy.used(0, *one)
    policy.used(1, *one)
    order = [divmod(int(key), 4) for key in np.argsort(policy.priority, axis=None, kind="stable")]
    order = [key for key in order if key[1] < 2]
    stale, current, upcoming = order[:2], order[2:4], order[4:]
    assert stale == [(0, 1), (1, 1)]  # had their turn, were not called: first in, first out
    assert current == [(0, 0), (1, 0)]
    assert upcoming == [(2, 0), (2, 1)]
    policy.begin_pass("decode", 1)
    used = policy.priority[:, :2]
    assert used[0].min() > used[1].max() and used[1].min() > used[2].max()  # the farthest leaves first
    assert used.min() > policy.priority[:, 2:].max()  # what was never used leaves before all


@pytest.mark.parametrize("name", POLICIES)
def test_a_long_prompt_leaves_what_decode_lives_on(name: str) -> None:
    """The answer has favourites, half of what fits; 500 tokens of prompt then want every expert of every layer."""
    policy = make_policy(name, LAYERS, EXPERTS)
    cache = ExpertCache(40, LAYERS, EXPERTS, policy)
    random = np.random.default_rng(8)
    favourites = [np.sort(random.choice(EXPERTS, 5, replace=False)) for _ in range(LAYERS)]

    def decode(tokens: int) -> int:
        misses = 0
        for _ in range(tokens):
            policy.begin_pass("decode", 1)
            misses += sum(cache.touch(layer, favourites[layer]) for layer in range(LAYERS))
        return misses

    policy.begin_request()
    decode(40)
    assert decode(1) == 0
    policy.begin_request()
    policy.begin_pass("prefill", 500)
    for layer in range(LAYERS):
        cache.touch(layer, np.arange(EXPERTS), random.integers(100, 160, EXPERTS))
    assert cache.resident == 40
    kept = cache.resident_mask()
    assert sum(int(kept[layer, favourites[layer]].sum()) for layer in range(LAYERS)) >= 0.9 * 5 * LAYERS
    assert decode(1) <= 2


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("slots", [2, 7, 30])
def test_touching_is_leasing_and_releasing(name: str, slots: int) -> None:
    leased, touched = (ExpertCache(slots, LAYERS, EXPERTS, make_policy(name, LAYERS, EXPERTS)) for _ in range(2))
    for phase, tokens, layers in a_life(9):
        for cache in (leased, touched):
            cache.policy.begin_pass(phase, tokens)  # type: ignore[arg-type]
        for layer, (experts, counts) in enumerate(layers):
            missing = 0
            for lease in leased.waves(layer, experts, counts):
                missing += int(lease.missing.sum())
                leased.release(lease)
            assert touched.touch(layer, experts, counts) == missing
            assert np.array_equal(leased.resident_mask(), touched.resident_mask())
            assert leased.evictions == touched.evictions


@pytest.mark.parametrize("name", POLICIES)
def test_a_cache_filled_anew_goes_on_in_the_same_way(name: str) -> None:
    life = a_life(10)
    old = ExpertCache(11, LAYERS, EXPERTS, make_policy(name, LAYERS, EXPERTS))
    tell_cache(old, life[:20])
    new = ExpertCache(11, LAYERS, EXPERTS, make_policy(name, LAYERS, EXPERTS))
    new.fill(old.by_eviction_order())
    new.policy.restore(old.policy.state())
    assert np.array_equal(new.by_eviction_order(), old.by_eviction_order())
    assert tell_cache(new, life[20:]) == tell_cache(old, life[20:])


def tell_cache(cache: ExpertCache, life: list[Told]) -> list[int]:
    misses = []
    for phase, tokens, layers in life:
        if phase == "prefill":
            cache.policy.begin_request()
        cache.policy.begin_pass(phase, tokens)  # type: ignore[arg-type]
        misses += [cache.touch(layer, experts, counts) for layer, (experts, counts) in enumerate(layers)]
    return misses


def test_a_cache_takes_only_what_fits_and_only_once() -> None:
    for keys in ([1, 2, 3], [1, 1], [LAYERS * EXPERTS]):
        with pytest.raises(ValueError, match="do not fit"):
            ExpertCache(2, LAYERS, EXPERTS, make_policy("lru", LAYERS, EXPERTS)).fill(np.array(keys))
    cache = ExpertCache(2, LAYERS, EXPERTS, make_policy("lru", LAYERS, EXPERTS))
    cache.fill(np.array([5]))
    with pytest.raises(ValueError, match="1 are taken"):
        cache.fill(np.array([6]))
    assert cache.touch(0, np.array([5])) == 0


def test_the_lowest_are_those_of_a_stable_sort() -> None:
    random = np.random.default_rng(11)
    for _ in range(200):
        values = random.integers(0, 6, 30) * 1.0
        values[random.integers(0, 30)] = -math.inf
        count = int(random.integers(1, 31))
        expected = np.argsort(values, kind="stable")[:count]
        assert sorted(lowest(values, count)) == sorted(expected)


@pytest.mark.parametrize("name", POLICIES)
def test_a_router_that_names_one_expert_twice_leaves_numbers(name: str) -> None:
    policy = make_policy(name, 2, 4)
    policy.begin_request()
    for _ in range(20):
        policy.begin_pass("prefill", 3)
        policy.used(0, np.array([1, 2]), np.array([6, 3]))  # three tokens, six uses
        policy.begin_pass("decode", 1)
        policy.used(0, np.array([1, 2]), np.ones(2))
    assert np.isfinite(policy.priority).all()
