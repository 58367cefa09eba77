"""Long prompts, early experts and changes of size: who stays, who leaves, and that the books always agree."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Sequence

import numpy as np
import pytest

from engine.experts.cache import RING, ExpertCache, Lease
from engine.experts.policies import POLICIES, make_policy
from engine.experts.stages import stage_of

LAYERS, EXPERTS, TOP_K = 4, 16, 2
KEYS = LAYERS * EXPERTS
NOBODY = np.zeros(KEYS, dtype=bool)


def new_cache(slots: int, policy: str = "lru") -> ExpertCache:
    return ExpertCache(slots, LAYERS, EXPERTS, make_policy(policy, LAYERS, EXPERTS))


def residents(cache: ExpertCache) -> set[int]:
    return set(np.flatnonzero(cache.resident_mask()).tolist())


def begin(cache: ExpertCache, phase: str, tokens: int) -> bool:
    """Begin a pass as the runtime does; whether it streams."""
    cache.policy.begin_pass(phase, tokens)  # type: ignore[arg-type]
    cache.begin_pass(phase)  # type: ignore[arg-type]
    return phase == "prefill" and cache.streams(TOP_K, tokens)


def dispatch(cache: ExpertCache, layer: int, wanted: Sequence[int], streaming: bool = False) -> list[Lease]:
    """As the runtime does it: the next lease is taken as soon as it may be, the oldest is released when it must be."""
    leases, opened = [], deque()
    for lease in cache.waves(layer, np.array(sorted(wanted)), streaming=streaming):
        leases.append(lease)
        opened.append(lease)
        while cache.must_wait(len(opened), streaming):
            cache.release(opened.popleft())
    for lease in opened:
        cache.release(lease)
    return leases


def decode(cache: ExpertCache, source: random.Random, tokens: int) -> None:
    for _ in range(tokens):
        begin(cache, "decode", 1)
        for layer in range(LAYERS):
            dispatch(cache, layer, source.sample(range(EXPERTS), TOP_K))


# --------------------------------------------------------------------------------------------- long prompts


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("slots", [8, 20, 48])
def test_a_prompt_larger_than_the_cache_leaves_what_decode_lives_on(policy: str, slots: int) -> None:
    """But for a ring's worth, and however many passes the prompt takes."""
    cache = new_cache(slots, policy)
    decode(cache, random.Random(3), 40)
    before = residents(cache)
    assert len(before) == slots
    cache.begin_request()
    for _ in range(4):
        streaming = begin(cache, "prefill", 512)
        assert streaming
        for layer in range(LAYERS):
            served = [e for lease in dispatch(cache, layer, range(EXPERTS), streaming) for e in lease.experts.tolist()]
            assert sorted(served) == list(range(EXPERTS))
    ring = min(RING, slots // 4 + 1)
    assert len(before - residents(cache)) <= ring
    assert cache.resident == slots


def test_what_streamed_in_is_a_resident_like_others_once_decode_goes_on() -> None:
    cache, last = new_cache(8), LAYERS - 1
    decode(cache, random.Random(3), 10)
    for layer in range(LAYERS):
        dispatch(cache, layer, range(EXPERTS), begin(cache, "prefill", 512))
    late = np.flatnonzero(cache.resident_mask()[last]).tolist()
    begin(cache, "decode", 1)
    assert not np.concatenate([lease.missing for lease in dispatch(cache, last, late)]).any()
    dispatch(cache, 0, [0, 1])
    assert cache.resident_mask()[last, late].all()  # lru: decode used them last but two


def test_misses_of_a_prompt_take_empty_slots_first() -> None:
    cache = new_cache(40)
    streaming = begin(cache, "prefill", 512)
    assert streaming
    for layer in range(2):
        dispatch(cache, layer, range(EXPERTS), streaming)
    assert (cache.resident, cache.evictions) == (32, 0)


def test_two_waves_of_a_prompt_overlap() -> None:
    """The second is on its way while the first is computed; the third waits for the first to end."""
    cache = new_cache(20)
    decode(cache, random.Random(3), 20)
    streaming = begin(cache, "prefill", 512)
    hits = {key for key in residents(cache) if key < EXPERTS}
    waves = cache.waves(0, np.arange(EXPERTS), streaming=streaming)
    first = next(waves)
    assert set(first.experts.tolist()) == hits
    cache.release(first)
    one = next(waves)
    assert not cache.must_wait(1, streaming)
    other = next(waves)
    assert cache.must_wait(2, streaming)
    assert not set(one.slots.tolist()) & set(other.slots.tolist())
    assert one.missing.all()
    cache.release(one)
    third = next(waves)
    assert not set(third.slots.tolist()) & set(other.slots.tolist())


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_the_smallest_caches_get_through_any_prompt(policy: str, slots: int) -> None:
    source = random.Random(slots)
    cache = new_cache(slots, policy)
    for _ in range(30):
        streaming = begin(cache, "prefill", source.choice([2, 9, 512]))
        for layer in range(LAYERS):
            wanted = source.sample(range(EXPERTS), source.randint(1, EXPERTS))
            served = [e for lease in dispatch(cache, layer, wanted, streaming) for e in lease.experts.tolist()]
            assert sorted(served) == sorted(wanted)
        decode(cache, source, 2)


@pytest.mark.parametrize("tokens", [1, 2, 40, 512])
def test_a_prompt_streams_when_more_experts_are_expected_than_fit(tokens: int) -> None:
    source = np.random.default_rng(tokens)
    chosen = [
        {(layer, e) for layer in range(LAYERS) for _ in range(tokens) for e in source.choice(EXPERTS, TOP_K, False)}
        for _ in range(5 if tokens > 40 else 50)
    ]
    expected = float(np.mean([len(experts) for experts in chosen]))
    for slots in (int(expected * 0.8), int(expected * 1.2) + 1):
        if slots >= 1:
            assert new_cache(slots).streams(TOP_K, tokens) is (tokens > 1 and slots < expected)


# -------------------------------------------------------------------------------------------- early experts


def test_an_early_expert_stays_until_it_was_used_or_let_go() -> None:
    cache = new_cache(4)
    cache.bring(50, -1)
    cache.bring(51, -1)
    for layer in range(3):
        dispatch(cache, layer, range(TOP_K))
    assert {50, 51} <= residents(cache)
    dispatch(cache, *divmod(50, EXPERTS)[:1], [50 % EXPERTS])  # used
    cache.let_go(51)
    for layer in range(3):
        dispatch(cache, layer, range(4, 6))
    assert not {50, 51} & residents(cache)
    assert cache.wasted == [51]


def test_early_experts_hold_up_no_dispatch_that_wants_every_slot() -> None:
    cache = new_cache(6)
    for key in (40, 41, 42, 43):
        cache.bring(key, -1)
    leases = dispatch(cache, 2, range(EXPERTS))  # 2:8..2:11 are the early ones themselves
    assert sorted(e for lease in leases for e in lease.experts.tolist()) == list(range(EXPERTS))
    for key in (50, 51, 52, 53):
        cache.bring(key, int(cache.room_for(1, NOBODY)[0]))
    leases = dispatch(cache, 0, range(EXPERTS))
    assert max(len(lease.experts) for lease in leases) == 2
    assert {50, 51, 52, 53} <= residents(cache)
    leases = dispatch(cache, 1, range(EXPERTS), begin(cache, "prefill", 512))
    assert sorted(e for lease in leases for e in lease.experts.tolist()) == list(range(EXPERTS))
    assert {50, 51, 52, 53} <= residents(cache)


def test_nobody_is_brought_twice_or_into_a_slot_that_is_taken() -> None:
    cache = new_cache(2)
    cache.bring(5, -1)
    for key, leaving in ((5, -1), (6, 5), (6, 40)):
        with pytest.raises(ValueError, match="cannot take the slot"):
            cache.bring(key, leaving)
    lease = next(cache.waves(1, np.array([3])))
    with pytest.raises(ValueError, match="cannot take the slot"):
        cache.bring(6, EXPERTS + 3)
    cache.release(lease)
    cache.bring(6, EXPERTS + 3)
    with pytest.raises(ValueError, match="no slot is empty"):
        cache.bring(7, -1)
    assert residents(cache) == {5, 6}


@pytest.mark.parametrize("policy", POLICIES)
def test_whoever_could_leave_is_told_next_to_leave_first(policy: str) -> None:
    cache = new_cache(12, policy)
    decode(cache, random.Random(4), 6)
    protected = NOBODY.copy()
    protected[list(residents(cache))[:3]] = True
    order = [key for key in cache.by_eviction_order().tolist() if not protected[key]]
    assert cache.room_for(5, protected).tolist() == order[:5]
    assert cache.room_for(50, protected).tolist() == order
    cache.forget(*divmod(order[0], EXPERTS))
    assert cache.room_for(3, protected).tolist() == [-1, *order[1:3]]


def test_who_left_for_a_fetch_that_never_began_is_there_again() -> None:
    cache = new_cache(3)
    for layer in range(3):
        dispatch(cache, layer, [layer])
    order = cache.by_eviction_order().tolist()
    seats = [int(cache._slot_of[key]) for key in order]
    cache.bring(50, order[0])
    cache.bring(51, order[1])
    cache.take_back(50, order[0])
    assert residents(cache) == {order[0], 51, order[2]}
    assert (int(cache._slot_of[order[0]]), cache.evictions) == (seats[0], 1)
    assert cache.room_for(3, NOBODY).tolist() == [order[0], order[2]], "and may leave as before"
    dispatch(cache, *divmod(order[1], EXPERTS)[:1], [order[1] % EXPERTS])  # got the slot of order[0]
    cache.take_back(51, order[1])
    assert residents(cache) == {order[1], order[2]}, "it is there already: the slot is empty"
    assert cache.room_for(1, NOBODY).tolist() == [-1]
    for key, left in ((51, order[0]), (order[1], -1)):
        with pytest.raises(ValueError, match="no slot to give back"):
            cache.take_back(key, left)
    assert residents(cache) == {order[1], order[2]}


def test_an_early_expert_that_is_back_was_not_wasted() -> None:
    cache = new_cache(1)
    cache.bring(50, -1)
    cache.let_go(50)
    cache.bring(51, 50)
    assert cache.wasted == [50]
    cache.take_back(51, 50)
    assert cache.wasted == []
    dispatch(cache, *divmod(50, EXPERTS)[:1], [50 % EXPERTS])
    assert cache.found == [50]


# -------------------------------------------------------------------------------------------- changes of size


@pytest.mark.parametrize("policy", POLICIES)
def test_with_fewer_slots_the_lowest_leave_and_the_rest_moves_down(policy: str) -> None:
    cache = new_cache(16, policy)
    decode(cache, random.Random(5), 8)
    order = cache.by_eviction_order().tolist()
    seats = {key: int(cache._slot_of[key]) for key in order}
    moves = dict(cache.resize(10))
    assert residents(cache) == set(order[6:])
    for key in order[6:]:
        assert cache._slot_of[key] == moves.get(seats[key], seats[key]) < 10
    assert all(start >= 10 > end for start, end in moves.items())
    assert cache.resize(20) == []
    assert residents(cache) == set(order[6:])
    decode(cache, random.Random(6), 20)
    assert cache.resident == 20


def test_slots_in_use_cannot_go() -> None:
    cache = new_cache(4)
    lease = next(cache.waves(0, np.array([1, 2])))
    with pytest.raises(ValueError, match="cannot become"):
        cache.resize(2)
    cache.release(lease)
    with pytest.raises(ValueError, match="cannot become"):
        cache.resize(0)
    cache.resize(1)
    assert residents(cache) == {2}


# ------------------------------------------------------------------------------------------------- everything


class Books:
    """What may be seen of a cache, kept beside it with sets, and compared after each step."""

    def __init__(self, cache: ExpertCache) -> None:
        self.cache = cache
        self.here: set[int] = set()
        self.left_for: dict[int, int] = {}  # whoever was brought -> who left, -1: nobody
        self.unused: set[int] = set()  # brought, not used yet
        self.stuck: set[int] = set()  # of them, not let go
        self.pinned: Counter[int] = Counter()
        self.wasted: Counter[int] = Counter()
        self.evictions = 0

    def check(self, came: set[int], forgotten: set[int] = frozenset(), chosen: set[int] | None = None) -> None:  # type: ignore[assignment]
        """``came`` are in slots now; whoever left for them could. chosen: who was to leave; None: the lowest."""
        cache, before = self.cache, self.here
        after = residents(cache)
        left = before - after - forgotten
        assert came <= after
        assert after == (before - forgotten - left) | came
        assert not left & set(+self.pinned)
        assert not left & self.stuck
        self.evictions += len(left)
        assert cache.evictions == self.evictions
        self.wasted.update(left & self.unused)
        assert Counter(cache.wasted) == self.wasted
        self.unused -= left | forgotten
        self.stuck -= left | forgotten
        self.here = after
        if chosen is not None:
            assert left == chosen
        slots = [int(cache._slot_of[key]) for key in after]
        assert len(set(slots)) == len(slots) == cache.resident <= cache.slots
        assert all(cache._key_in[slot] == key for slot, key in zip(slots, after, strict=True))
        assert int((cache._key_in >= 0).sum()) == len(after)
        assert cache._brought == len(self.unused)

    def take_back(self, key: int) -> None:
        left = self.left_for[key]
        self.cache.take_back(key, left)
        back = {left} - self.here
        self.evictions -= len(back)
        if self.wasted[left] and back:
            self.wasted[left] -= 1
            self.wasted = +self.wasted
            self.unused.add(left)
        self.check(back, forgotten={key})

    def lowest(self, came: set[int], wanted: set[int]) -> set[int]:
        """Who leaves when ``came`` get slots, by the policy's own table."""
        count = len(came) - (self.cache.slots - len(self.here))
        eligible = sorted(
            self.here - wanted - set(+self.pinned) - self.stuck,
            key=lambda key: (self.cache.policy.priority.reshape(-1)[key], key),
        )
        return set(eligible[: max(0, count)])

    def dispatch(self, layer: int, wanted: list[int], streaming: bool) -> None:
        keys = {layer * EXPERTS + expert for expert in wanted}
        missing, opened = keys - self.here, deque()
        overlap = 0
        for lease in self.cache.waves(layer, np.array(sorted(wanted)), streaming=streaming):
            taken = {layer * EXPERTS + expert for expert in lease.experts.tolist()}
            came = {layer * EXPERTS + expert for expert in lease.experts[lease.missing].tolist()}
            assert came == taken & missing
            self.unused -= taken
            self.stuck -= taken
            self.check(came, chosen=None if streaming else self.lowest(came, taken))
            self.pinned.update(taken)
            opened.append((lease, taken))
            overlap = max(overlap, len(opened))
            assert len(set(lease.slots.tolist())) == len(taken)
            while self.cache.must_wait(len(opened), streaming):
                self.release(*opened.popleft())
            keys -= taken
        while opened:
            self.release(*opened.popleft())
        assert not keys
        assert overlap <= 2

    def release(self, lease: Lease, taken: set[int]) -> None:
        self.cache.release(lease)
        self.pinned.subtract(taken)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("slots", [1, 2, 3, 7, 16, 40])
def test_the_books_agree_after_every_step_of_a_random_life(policy: str, slots: int) -> None:
    source = random.Random(slots)
    cache = new_cache(slots, policy)
    books = Books(cache)
    streaming = False
    for _ in range(250):
        deed = source.choice(
            ["decode", "decode", "dispatch", "dispatch", "bring", "bring", "let go", "forget", "size", "take back"]
        )
        if deed == "decode":
            streaming = begin(cache, "decode", 1)
        elif deed == "dispatch":
            if source.random() < 0.3:
                streaming = begin(cache, "prefill", source.choice([2, 30, 512]))
            most = EXPERTS if streaming or source.random() < 0.2 else TOP_K
            books.dispatch(source.randrange(LAYERS), source.sample(range(EXPERTS), source.randint(1, most)), streaming)
        elif deed == "bring":
            absent = source.sample(sorted(set(range(KEYS)) - books.here), 2)
            most = min(len(absent), max(0, cache.slots - TOP_K - len(books.stuck)))
            for key, leaving in zip(absent, cache.room_for(most, NOBODY).tolist(), strict=False):
                cache.bring(key, leaving)
                books.unused.add(key)
                books.stuck.add(key)
                books.left_for[key] = leaving
                books.check({key}, chosen={leaving} - {-1})
        elif deed == "let go" and books.stuck:
            key = source.choice(sorted(books.stuck))
            cache.let_go(key)
            books.stuck.discard(key)
            books.check(set())
        elif deed == "take back" and (begun := [key for key in sorted(books.stuck) if books.left_for[key] >= 0]):
            books.take_back(source.choice(begun))
        elif deed == "forget":
            key = source.randrange(KEYS)
            cache.forget(*divmod(key, EXPERTS))
            books.check(set(), forgotten={key} & books.here)
        elif deed == "size":
            for key in sorted(books.stuck):
                cache.let_go(key)
            books.stuck.clear()
            before = cache.slots
            leaving = set(cache.by_eviction_order().tolist())
            wanted = max(1, slots + source.randint(-slots // 2, slots // 2))
            stay = set(cache.by_eviction_order().tolist()[max(0, cache.resident - wanted) :])
            cache.resize(wanted)
            books.check(set(), chosen=leaving - stay if wanted < before else set())
            assert cache.slots == wanted


# ------------------------------------------------------------------------------------------------ several devices


@pytest.mark.parametrize(("layers", "experts"), [(16, 64), (27, 64), (48, 128), (3, 8), (30, 32)])
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_every_layers_experts_are_spread_over_all_devices(layers: int, experts: int, stages: int) -> None:
    owners = np.stack([stage_of(layer, experts, stages) for layer in range(layers)])
    assert owners.min() == 0
    assert owners.max() == stages - 1
    for owner in owners:
        counts = np.bincount(owner, minlength=stages)
        assert counts.max() <= 2 * experts / stages
    assert np.bincount(owners.reshape(-1), minlength=stages).max() <= 1.3 * layers * experts / stages
