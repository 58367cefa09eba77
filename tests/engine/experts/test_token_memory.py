"""The memory of tokens, against the same thing written down the slow way."""

from __future__ import annotations

import numpy as np
import pytest

from engine.experts.policies.token_memory import TokenMemory

LAYERS = 6


class Small(TokenMemory):
    CAPACITY = 20
    NEIGHBOURS = 4


class Slow:
    """As TokenMemory, with lists of whole tokens and no ring."""

    def __init__(self, experts: int) -> None:
        self.tokens: list[np.ndarray] = []  # bool [layers, experts]
        self.chained: list[bool] = []  # follows the one before

    def chances(self, now: np.ndarray, told: int, chained: bool, prior: np.ndarray, weight: float) -> np.ndarray | None:
        kept = max(0, len(self.tokens) - Small.CAPACITY + 1)  # the present token has taken one entry
        last = len(self.tokens) - 1
        known = told / LAYERS
        scores: list[float] = []
        first: list[np.ndarray] = []
        second: list[np.ndarray | None] = []
        for number in range(kept, last):
            if not self.chained[number + 1]:
                continue
            score = (self.tokens[number][:told] & now[:told]).sum() * known**-Small.GROWTH
            if number > kept and self.chained[number] and chained:
                score += (self.tokens[number - 1] & self.tokens[-1]).sum() * Small.CARRY * (1 - known)
            scores.append(score)
            first.append(self.tokens[number + 1])
            on = number + 2 <= last and self.chained[number + 2]
            second.append(self.tokens[number + 2] if on else None)
        if not scores:
            return None
        slots = now[:told].sum()
        width = Small.WIDTH * max(1.0, slots * (1 - slots / now[:told].size) / known) ** 0.5
        best = np.argsort(scores)[-Small.NEIGHBOURS :]
        sums, totals = [weight * prior, weight * prior], [weight, weight]
        for one in best:
            share = np.exp((scores[one] - max(scores)) / width)
            for which, follower in enumerate((first[one], second[one])):
                if follower is not None:
                    sums[which] = sums[which] + share * follower
                    totals[which] += share
        return np.stack([total / count for total, count in zip(sums, totals, strict=True)])


def a_token(random: np.random.Generator, experts: int, top_k: int) -> np.ndarray:
    scores = random.random((LAYERS, experts)) + 0.3 * (np.arange(experts) % 3)
    return scores >= np.sort(scores, axis=1)[:, -top_k, np.newaxis]


@pytest.mark.parametrize(("experts", "top_k"), [(16, 5), (64, 8), (150, 9)])
def test_it_says_what_the_slow_way_says(experts: int, top_k: int) -> None:
    """Longer than it can remember, several requests, and after every layer."""
    random = np.random.default_rng(experts)
    memory, slow = Small(LAYERS, experts), Slow(experts)
    prior = random.random((LAYERS, experts))
    said = 0
    for number in range(55):
        if fresh := number in (0, 13, 31, 32):
            memory.break_off()
        now = a_token(random, experts, top_k)
        memory.begin_token()
        for layer in range(LAYERS):
            memory.tell(layer, np.flatnonzero(now[layer]))
            if number == 0:
                continue  # how many layers a token has is known when the first is over
            found = memory.chances(LAYERS, prior, 0.5)
            expected = slow.chances(now, layer + 1, not fresh, prior, 0.5)
            assert (found is None) == (expected is None)
            if found is not None and expected is not None and _clear_cut(memory):
                assert np.allclose(found, expected, atol=1e-5)
                said += 1
        slow.tokens.append(now)
        slow.chained.append(not fresh)
    assert said > 100


def _clear_cut(memory: TokenMemory) -> bool:
    """Nobody outside the neighbours is as similar as the last of them: else either choice is right."""
    known = memory._told / LAYERS
    score = memory._overlap * known**-memory.GROWTH + memory._barred
    score = np.sort(score + memory._carried * (memory.CARRY * (1 - known)))
    return bool(score[-memory.NEIGHBOURS] > score[-memory.NEIGHBOURS - 1] + 1e-4 or score[-memory.NEIGHBOURS] < 0)


def test_a_token_that_was_stopped_half_way_is_not_kept() -> None:
    random = np.random.default_rng(1)
    memory = Small(LAYERS, 16)
    tokens = [a_token(random, 16, 4) for _ in range(3)]

    def tell(token: np.ndarray, layers: int) -> None:
        memory.begin_token()
        for layer in range(layers):
            memory.tell(layer, np.flatnonzero(token[layer]))

    for token in tokens:
        tell(token, LAYERS)
    kept = memory._rows.sum()
    tell(tokens[0], 2)
    tell(tokens[0], LAYERS)
    assert memory._rows.sum() == kept + 4 * LAYERS
    assert memory._now == 3


def test_restored_it_goes_on_to_the_last_bit() -> None:
    random = np.random.default_rng(2)
    one, other = TokenMemory(LAYERS, 70), TokenMemory(LAYERS, 70)
    prior = random.random((LAYERS, 70))
    for number in range(12):
        if number == 8:
            other.restore(one.state())
        now = a_token(random, 70, 6)
        for memory in (one, other):
            memory.begin_token()
            for layer in range(LAYERS):
                memory.tell(layer, np.flatnonzero(now[layer]))
        if number >= 8:
            found, expected = one.chances(LAYERS, prior, 0.1), other.chances(LAYERS, prior, 0.1)
            assert found is not None
            assert expected is not None
            assert np.array_equal(found, expected)
            assert np.array_equal(one.state(), other.state())
