"""Fetching ahead: each early expert ends as used, late or wasted and is counted so; nobody leaves for a less likely
one; a dispatch always finds slots; what fails is served from no slot."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from engine.errors import Cancelled, MemoryPlanError, ModelError
from engine.experts.device import CpuDevice
from engine.experts.records import Deed
from engine.experts.transfer import READERS
from tests.engine.scripted import EXPERTS, LAYERS, LAYOUT, PATIENCE, TOP_K, NumberStore, Stage

SIZE = LAYOUT.nbytes


@pytest.fixture
def stage() -> Iterator[Callable[..., Stage]]:
    made: list[Stage] = []

    def make(*place: Any, **named: Any) -> Stage:
        made.append(Stage(*place, **named))
        return made[-1]

    yield make
    for one in made:
        one.close()


def after(layer: int, script: dict[int, dict[int, float]]) -> Callable[[int], Any]:
    """A prompter that says this after ``layer`` and nothing else."""
    return lambda now: script if now == layer else {}


# ------------------------------------------------------------------------------------------- used, late, wasted


def test_an_expert_that_is_there_in_time_is_a_hit_and_used(stage: Callable[..., Stage]) -> None:
    one = stage(16, after(0, {1: {5: 0.9}}))
    record = one.token([0, 1], [5, 6], [0], [0])
    assert record.early[1, 5]
    assert record.early.sum() == 1
    assert not record.missed[1, 5]
    assert record.missed[1, 6]
    counters = one.counters()
    assert (counters.prefetch_used, counters.prefetch_late, counters.prefetch_wasted) == (1, 0, 0)
    assert counters.prefetch_bytes == SIZE
    assert counters.prefetch_wasted_bytes == 0
    assert counters.decode_misses == 5
    assert counters.fetched_bytes == 6 * SIZE == record.fetched_bytes
    assert one.store.begun.count((1, 5)) == 1


def test_an_expert_that_is_still_on_the_way_is_late_and_waited_for_once(stage: Callable[..., Stage]) -> None:
    one = stage(16, after(0, {1: {5: 0.9}}))
    one.token([0], [6], [0], [0])
    one.store.held.add((1, 5))
    one.runtime.begin_answer(new_chat=False)
    list(one.serve(0, [0]))  # whoever was let go is out of the way; 1:5 comes anew
    one.runtime.begin_pass("decode", 1)
    one.runtime._rooms[0].cache.forget(1, 5)
    list(one.serve(0, [0]))
    one.store.wait_until_begun(1, 5)
    serving = one.serve(1, [5, 6])
    assert next(serving) == [6]  # who is here goes first
    one.store.let_through()
    assert list(serving) == [[5]]
    record = one.runtime.end_pass(0.01)
    assert record.late[1, 5]
    assert not record.early.any()
    assert not record.missed[1].any()
    assert record.stall_seconds > 0
    assert one.counters().prefetch_late == 1


def test_the_next_token_is_fetched_for_while_this_one_ends(stage: Callable[..., Stage]) -> None:
    """After the last layer comes the next token's first: who is brought for it stays until it had its turn."""
    one = stage(16, after(LAYERS - 1, {0: {5: 0.9, 6: 0.8}}))
    record = one.token([0], [0], [0], [0])
    assert [(note.layer, note.deed) for note in record.notes] == [(LAYERS - 1, Deed.BRING)] * 2
    assert one.out == {(0, 5), (0, 6)}, "the end of the pass is not the end of their turn"
    assert one.runtime.predicted[0].nonzero()[0].tolist() == [], "the panel shows this pass"
    record = one.token([5], [0], [0], [0])
    assert record.early[0, 5]
    assert not record.missed[0].any()
    assert (record.notes[0].layer, record.notes[0].deed, record.notes[0].key) == (1, Deed.LET_GO, 6)
    assert one.counters().prefetch_used == 1
    assert one.runtime.predicted[0].nonzero()[0].tolist() == [5, 6]


def test_who_is_brought_for_a_token_that_never_comes_is_let_go(stage: Callable[..., Stage]) -> None:
    one = stage(16, after(LAYERS - 1, {0: {5: 0.9}}))
    one.token([0], [0], [0], [0])
    assert one.out == {(0, 5)}
    one.runtime.begin_answer(new_chat=True)
    assert one.out == set()
    assert one.resident(0, 5)
    assert one.runtime._rooms[0].cache._may_leave[5]


def test_when_an_answer_ends_nothing_is_under_way_any_more(stage: Callable[..., Stage]) -> None:
    """What a reader has begun is waited for and counts; what has not begun is taken back, as is who left for it."""
    one = stage(6, after(LAYERS - 1, {0: {5: 0.9, 6: 0.8}, 1: {7: 0.9}}))
    one.store.held |= {(0, 5), (0, 6)}  # one for each reader that may read ahead
    record = one.token([0], [1], [2, 3], [4, 5], wait=False)
    one.store.wait_until_begun(0, 5)
    one.store.wait_until_begun(0, 6)
    brought = {note.key: note.leaving for note in record.notes}
    last = EXPERTS + 7
    assert set(brought) == {5, 6, last}
    left, evictions = brought[last], one.counters().evictions
    assert left >= 0
    ends = threading.Timer(0.1, one.store.let_through)
    ends.start()
    settled = one.runtime.end_answer()
    ends.join()
    assert settled is not None
    assert {note.key: (note.layer, note.deed) for note in settled.notes} == {
        5: (-1, Deed.LET_GO),
        6: (-1, Deed.LET_GO),
        last: (-1, Deed.TAKE_BACK),
    }
    assert settled.fetched_bytes == 2 * SIZE
    assert one.out == set()
    assert (1, 7) not in one.store.begun
    assert one.resident(*divmod(left, EXPERTS))
    assert one.runtime.resident == 6
    counters = one.counters()
    assert counters.evictions == evictions - 1
    assert counters.prefetch_bytes == 2 * SIZE
    assert counters.fetched_bytes == record.fetched_bytes + settled.fetched_bytes == 8 * SIZE
    assert one.runtime.end_answer() is None, "once"
    one.runtime.foresee(None)
    assert not one.token([5, 6], [], [], []).missed.any()
    assert one.counters().prefetch_used == 2


def test_for_the_next_token_nobody_leaves_whom_it_expects_too(stage: Callable[..., Stage]) -> None:
    """And for this one's layers even those may leave: they are wanted later."""
    one = stage(6, after(LAYERS - 1, {0: {0: 0.9, 5: 0.9}}), policy="lru")
    one.token([0], [0], [0, 1], [0, 1])
    assert one.resident(0, 0)
    assert one.out == {(0, 5)}, "0:0 was the longest unused, and is expected: another one left"
    one = stage(6, lambda layer: {3: {7: 0.9}, 0: {0: 0.9}} if layer == 2 else {}, policy="lru")
    record = one.token([0], [0], [0, 1, 2, 3], [7])
    assert record.early[3, 7]
    assert not one.resident(0, 0)


def test_an_expert_that_leaves_unused_was_wasted(stage: Callable[..., Stage]) -> None:
    one = stage(8, after(0, {1: {5: 0.9}}))
    record = one.token([0], [6], [0], [0])
    assert one.resident(1, 5)
    assert tuple(note.deed for note in record.notes if note.key == EXPERTS + 5) == (Deed.BRING, Deed.LET_GO)
    assert one.counters().prefetch_wasted == 0  # it may still be of use
    one.runtime.foresee(None)
    record = one.token([], [], range(EXPERTS))  # others push it out
    assert not one.resident(1, 5)
    assert record.wasted == (EXPERTS + 5,)
    counters = one.counters()
    assert (counters.prefetch_used, counters.prefetch_late, counters.prefetch_wasted) == (0, 0, 1)
    assert (counters.prefetch_bytes, counters.prefetch_wasted_bytes) == (SIZE, SIZE)


@pytest.mark.parametrize("way", ["leased", "at once"])
def test_an_expert_let_go_and_used_later_was_no_waste(stage: Callable[..., Stage], way: str) -> None:
    one = stage(8, after(0, {1: {5: 0.9}}))
    one.token([0], [6], [0], [0])
    one.runtime.foresee(None)
    if way == "leased":
        record = one.token([0], [5], [0], [0])
    else:
        one.runtime.begin_pass("decode", 1)
        assert one.runtime.at_once(1, np.array([5])) is not None
        record = one.runtime.end_pass(0.01)
    assert np.argwhere(record.early).tolist() == [[1, 5]]  # there when it was wanted, if by a later token
    one.token([], [], range(EXPERTS))
    assert not one.resident(1, 5)
    counters = one.counters()
    assert (counters.prefetch_used, counters.prefetch_late, counters.prefetch_wasted) == (1, 0, 0)


def test_every_early_fetch_ends_in_one_way_and_is_counted_once(stage: Callable[..., Stage]) -> None:
    random = np.random.default_rng(4)

    def says(layer: int) -> dict[int, dict[int, float]]:
        return {layer + 1: dict.fromkeys(random.choice(EXPERTS, 2, replace=False).tolist(), 0.9)} if layer < 3 else {}

    one, brought, dropped = stage(20, says), 0, 0
    for number in range(60):
        if number % 7 == 0:
            one.runtime.begin_answer(new_chat=False)
        layers = [random.choice(EXPERTS, 2, replace=False).tolist() for _ in range(LAYERS)]
        deeds = [note.deed for note in one.token(*layers, wait=number % 3 > 0).notes]
        brought += deeds.count(Deed.BRING)
        dropped += deeds.count(Deed.DROP) + deeds.count(Deed.TAKE_BACK)
    one.arrived()
    there = int(np.count_nonzero(one.runtime._rooms[0].cache._early))
    counters = one.counters()
    ended = counters.prefetch_used + counters.prefetch_late + counters.prefetch_wasted
    assert ended + there + dropped == brought > 60
    assert min(counters.prefetch_used, counters.prefetch_wasted) > 0


def test_what_was_taken_back_before_it_began_counts_as_nothing(stage: Callable[..., Stage]) -> None:
    one = stage(16, after(0, {2: {4: 0.95}, 3: {5: 0.9, 6: 0.8}}))
    one.store.held |= {(2, 4), (3, 5)}  # one for each reader that may read ahead
    record = one.token([0], [0], [0], [0], wait=False)
    one.store.wait_until_begun(2, 4)
    one.store.wait_until_begun(3, 5)
    assert [note.deed for note in record.notes if note.key == 3 * EXPERTS + 6] == [Deed.BRING, Deed.DROP]
    assert not one.resident(3, 6)
    one.store.let_through()
    one.arrived()
    one.runtime.begin_answer(new_chat=False)
    one.runtime.foresee(None)
    one.token([], [], range(EXPERTS), range(EXPERTS))
    counters = one.counters()
    assert (3, 6) not in one.store.begun[: one.store.begun.index((3, 5)) + 1]
    # 2:4 and 3:5 were let go, and of use after all
    assert (counters.prefetch_used, counters.prefetch_late, counters.prefetch_wasted) == (2, 0, 0)
    assert counters.prefetch_bytes == 2 * SIZE


# ----------------------------------------------------------------------------------------------- who leaves


@pytest.mark.parametrize("policy", ["lru", "lfu", "next-use"])
@pytest.mark.parametrize("slots", [4, 9, 20])
def test_nobody_leaves_for_one_who_is_less_likely(stage: Callable[..., Stage], policy: str, slots: int) -> None:
    """Chances against the share of late tokens that used whoever leaves, recounted here."""
    source = random.Random(slots)
    said: dict[int, float] = {}

    def says(layer: int) -> Any:
        script = {
            target: {expert: source.random() for expert in source.sample(range(EXPERTS), TOP_K)}
            for target in range(layer + 1, min(layer + 3, LAYERS))
        }
        said.update({t * EXPERTS + e: chance for t, named in script.items() for e, chance in named.items()})
        return script

    one = stage(slots, says, policy)
    share = np.zeros((LAYERS, EXPERTS), np.float32)
    brought = kept = 0
    for _ in range(60):
        wanted = [source.sample(range(EXPERTS // 2), TOP_K) for _ in range(LAYERS)]
        said.clear()
        one.runtime.begin_pass("decode", 1)
        for layer in range(LAYERS):
            one.arrived()
            before = share.copy()
            list(one.serve(layer, wanted[layer]))
            share[layer] *= 0.9
            share[layer, wanted[layer]] += 0.1
            notes = [note for note in one.runtime._ahead.notes if note.deed is Deed.BRING and note.layer == layer]
            for note in notes:
                assert said[note.key] > 0.3
                if note.leaving >= 0:
                    assert min(share.flat[note.leaving], before.flat[note.leaving]) <= said[note.key] + 1e-6
                    assert note.leaving not in [t * EXPERTS + e for t in [layer] for e in wanted[layer]]
            brought += len(notes)
            kept += len(one.out)
        one.runtime.end_pass(0.01)
    assert brought > 0
    assert kept > 0


def test_one_who_is_used_by_every_token_stays_where_a_doubtful_one_would_come(stage: Callable[..., Stage]) -> None:
    chance = 0.5
    one = stage(TOP_K + 2, lambda layer: {1: {7: chance}} if layer == 0 else {})
    regulars = ([0, 1], [0, 1])  # fill the cache
    for _ in range(30):
        record = one.token(*regulars)
    assert not record.missed.any()  # their share is near 1 by now
    assert not record.notes
    chance = 0.99
    assert [note.key for note in one.token(*regulars).notes if note.deed is Deed.BRING] == [EXPERTS + 7]


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("slots", [1, 2, 3, 5, 8, 17])
def test_a_dispatch_always_finds_slots(stage: Callable[..., Stage], slots: int, devices: int) -> None:
    """However much is expected, and though prompts come right after; every expert served is who it should be."""
    source = random.Random(slots)
    one = stage(
        slots,
        lambda layer: {t: dict.fromkeys(source.sample(range(EXPERTS), TOP_K), 1.0) for t in range(layer + 1, LAYERS)},
        devices=devices,
    )
    for number in range(60):
        if number % 9 == 8:  # no begin_answer: whoever is on the way keeps his slot
            one.runtime.begin_pass("prefill", 6)
            for layer in range(LAYERS):
                list(one.serve(layer, source.sample(range(EXPERTS), 6)))
            one.runtime.end_pass(0.02)
        one.token(*[source.sample(range(EXPERTS), TOP_K) for _ in range(LAYERS)], wait=number % 2 == 0)
    assert one.runtime.resident <= one.runtime.slots
    if slots > TOP_K + 1:
        assert one.counters().prefetch_used > 0
    one.runtime.begin_answer(new_chat=True)
    assert not one.out


def test_what_is_expected_does_not_leave_for_what_is_expected(stage: Callable[..., Stage]) -> None:
    one = stage(6, after(0, {1: {2: 0.9, 3: 0.9}, 2: {4: 0.9, 5: 0.9}}))
    for _ in range(4):
        record = one.token([0, 1], [2, 3], [4, 5], [])
        expected = {EXPERTS + 2, EXPERTS + 3, 2 * EXPERTS + 4, 2 * EXPERTS + 5}
        assert not expected & {note.leaving for note in record.notes if note.layer == 0}


# ------------------------------------------------------------------------------------------ what goes wrong


def test_an_early_read_that_failed_is_read_again_when_it_is_wanted(stage: Callable[..., Stage]) -> None:
    one = stage(16, after(0, {1: {5: 0.9}}))
    one.store.broken.add((1, 5))
    one.runtime.begin_pass("decode", 1)
    list(one.serve(0, [0]))
    one.arrived()
    with pytest.raises(ModelError, match="disk is gone"):
        list(one.serve(1, [5]))
    assert not one.resident(1, 5)
    one.runtime.begin_answer(new_chat=False)
    one.runtime.begin_pass("decode", 1)
    list(one.serve(0, [0]))
    one.arrived()
    one.store.broken.clear()
    assert list(one.serve(1, [5])) == [[5]]  # a miss: nothing is served from where the early read failed
    record = one.runtime.end_pass(0.01)
    assert record.missed[1, 5]
    assert [note.deed for note in record.notes] == [Deed.BRING, Deed.DROP]
    assert one.counters().prefetch_used == one.counters().prefetch_wasted == 0


def test_an_early_read_that_fails_while_it_is_waited_for_is_told(stage: Callable[..., Stage]) -> None:
    one = stage(16, after(0, {1: {5: 0.9}}))
    one.store.broken.add((1, 5))
    one.store.held.add((1, 5))
    one.runtime.begin_pass("decode", 1)
    list(one.serve(0, [0]))
    one.store.wait_until_begun(1, 5)
    serving = one.serve(1, [5])
    threading.Timer(0.01, one.store.let_through).start()
    with pytest.raises(ModelError, match="disk is gone"):
        next(serving)
    assert not one.resident(1, 5)
    one.store.broken.clear()
    one.runtime.begin_answer(new_chat=False)
    one.token([0], [5], range(EXPERTS), range(EXPERTS))


def test_a_stop_in_the_middle_of_a_pass_leaves_everything_in_order(stage: Callable[..., Stage]) -> None:
    one = stage(8, lambda layer: {t: {6: 0.9, 7: 0.9} for t in range(layer + 1, LAYERS)})
    for layers in range(LAYERS):
        one.runtime.begin_answer(new_chat=False)
        one.store.held |= {(3, 6)}
        asked = iter([False] * layers + [True])
        one.runtime.stop_when(lambda asked=asked: next(asked))
        one.runtime.begin_pass("decode", 1)
        with pytest.raises(Cancelled):
            for layer in range(LAYERS):
                list(one.serve(layer, [0, 1]))
        record = one.runtime.end_pass(0.0)
        assert record.counts.any(axis=1).tolist() == [layer < layers for layer in range(LAYERS)]
        one.runtime.stop_when(lambda: False)
        one.store.let_through()
        one.token(*[[layers, 7]] * LAYERS)
        one.token(*[[0, 1]] * LAYERS)
    one.runtime.begin_answer(new_chat=False)
    assert not one.out
    one.token(*[range(EXPERTS)] * LAYERS)  # nobody stays pinned


def test_closing_waits_for_early_reads_under_way_and_lets_the_memory_go() -> None:
    before = set(threading.enumerate())
    one = Stage(16, after(0, {1: {4: 0.9, 5: 0.9}}))
    one.store.held |= {(1, 4), (1, 5)}
    one.runtime.begin_pass("decode", 1)
    list(one.serve(0, [0]))
    one.store.wait_until_begun(*min((1, 4), (1, 5)))
    closing = threading.Thread(target=one.runtime.close)
    closing.start()
    assert not one.store.closed
    one.store.let_through()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    assert one.store.closed
    assert set(threading.enumerate()) <= before
    assert not one.out
    assert one.runtime.arena_bytes == 0


def test_the_engine_never_waits_for_what_it_does_not_want(stage: Callable[..., Stage]) -> None:
    """Every early read hangs; tokens that want others go on, served by the reader that is left for demands."""
    one = stage(16, lambda layer: {t: {6: 0.9, 7: 0.9} for t in range(layer + 1, LAYERS)})
    one.store.held |= {(layer, expert) for layer in range(LAYERS) for expert in (6, 7)}
    for number in range(20):
        one.token(*[[number % 6, (number + 1) % 6]] * LAYERS, wait=False)
    assert one.counters().hook_calls == 20 * LAYERS
    assert len([key for key in one.store.begun if key in one.store.held]) == READERS - 1


# ---------------------------------------------------------------------------------------- what the link carries


def test_likely_and_near_experts_are_read_first(stage: Callable[..., Stage]) -> None:
    """0.9 two layers ahead is worth 0.9 x 2/4, 0.5 in the next layer 0.5 x 3/4."""
    one = stage(24, lambda layer: {-1: {1: {7: 0.9}}, 0: {1: {1: 0.5}, 2: {3: 0.9}}}.get(layer, {}))
    one.store.held.add((1, 7))  # the others wait behind it
    one.runtime.begin_pass("decode", 1)
    list(one.serve(0, [0]))
    one.store.let_through()
    one.arrived()
    assert [key for key in one.store.begun if key[0]] == [(1, 7), (2, 3), (1, 1)]
    one.runtime.end_pass(0.01)


def test_a_prompt_and_a_stopped_pass_say_nothing_about_the_time_a_token_leaves(stage: Callable[..., Stage]) -> None:
    one = stage(16, after(0, {1: {5: 0.9}}))
    for number in range(5):
        one.token([number], [5], [number], [number])
    link = one.runtime._ahead._link(one.runtime._rooms[0])
    known = (one.runtime._ahead._layer_seconds, link.rate, link.allowance)
    assert min(known) > 0
    one.runtime.begin_pass("prefill", 40)
    for layer in range(LAYERS):
        list(one.serve(layer, range(EXPERTS)))
    one.runtime.end_pass(30.0)
    one.runtime.begin_pass("decode", 1)
    one.runtime.end_pass(0.0)
    assert (one.runtime._ahead._layer_seconds, link.rate, link.allowance) == known


def test_a_busy_link_is_given_less_than_an_idle_one() -> None:
    def ordered(token_seconds: float, read_seconds: float) -> int:
        one = Stage(
            32,
            lambda layer: {t: {6: 0.9, 7: 0.9} for t in range(layer + 1, LAYERS)},
            store=NumberStore(lambda layer, expert: threading.Event().wait(read_seconds) and None),
        )
        for number in range(4):
            one.token(*[[number % 6]] * LAYERS, seconds=token_seconds)
        for layer in range(LAYERS):
            for expert in (6, 7):
                one.runtime._rooms[0].cache.forget(layer, expert)
        record = one.token(*[[5]] * LAYERS, seconds=token_seconds)
        one.close()
        return sum(note.deed is Deed.BRING and note.layer < 0 for note in record.notes)

    assert ordered(10.0, 0.002) > ordered(0.008, 0.002) > 0


# ------------------------------------------------------------------------------------------- a growing conversation


@pytest.mark.parametrize("devices", [1, 2])
def test_experts_stay_who_they_are_while_arenas_shrink_and_grow(stage: Callable[..., Stage], devices: int) -> None:
    """Every expert served is checked for its numbers; what moved between slots was copied."""
    source = random.Random(devices)

    def said(layer: int) -> Any:
        return {t: dict.fromkeys(source.sample(range(EXPERTS), 2), 0.9) for t in range(layer + 1, LAYERS)}

    one = stage(30, said, devices=devices)
    context = 0
    one.runtime.share_with_kv(lambda tokens: max(3, 30 - tokens))
    sizes = []
    for number in range(120):
        context = 0 if number % 50 == 49 else min(context + source.randint(0, 2), 40)
        if context == 0:
            one.runtime.begin_answer(new_chat=True)
        one.runtime.begin_pass("decode", 1, context)
        for layer in range(LAYERS):
            list(one.serve(layer, source.sample(range(EXPERTS), TOP_K)))
        one.runtime.end_pass(0.01)
        sizes.append(one.runtime.slots)
        assert one.runtime.arena_bytes == one.runtime.slots * SIZE
        assert one.runtime.resident == one.runtime.resident_mask().sum() <= one.runtime.slots
    assert max(sizes) == 30
    assert min(sizes) <= 6
    assert sizes[49] == 30


def test_slots_that_cannot_be_had_again_are_done_without(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = stage(16)
    one.runtime.share_with_kv(lambda tokens: 16 - tokens)
    one.token([0], [1], [2], [3])
    one.runtime.begin_pass("decode", 1, 10)
    one.runtime.end_pass(0.01)
    assert one.runtime.slots == 6

    def full(*_: Any) -> None:
        raise MemoryPlanError("RAM ran out.")

    monkeypatch.setattr(CpuDevice, "allocate", full)
    for _ in range(2):  # not tried again for every token
        one.token(range(4), range(4), range(4), range(4))
        assert one.runtime.slots == 6
        monkeypatch.undo()


@pytest.mark.parametrize("readers", [0, 1])
def test_readers_that_cannot_be_started_leave_no_expert_that_is_not_there(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch, readers: int
) -> None:
    honest, started = threading.Thread.start, [0]

    def start(self: threading.Thread) -> None:
        started[0] += 1
        if started[0] > readers:
            raise RuntimeError("can't start new thread")
        honest(self)

    one = stage(16)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        one.runtime.begin_pass("decode", 1)
        if readers:
            assert list(one.serve(0, [3, 4]))  # one reader does
        else:
            with pytest.raises(RuntimeError, match="new thread"):
                list(one.serve(0, [3, 4]))
    cache = one.runtime._rooms[0].cache
    assert (cache.resident, cache._pins.sum()) == (2 * readers, 0)
    one.token([3, 4], [5])  # read at last, each found to be himself
    assert one.resident(0, 3)


@pytest.mark.parametrize("ahead", [True, False])
def test_readers_that_cannot_be_started_before_the_first_demand_leave_nobody_either(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    """Fetched ahead, or before the first word: an expert that nobody brought must not be hit."""
    one = stage(16, lambda layer: {0: {5: 0.9}} if ahead and layer == -1 else {})

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="new thread"):
            if ahead:
                one.runtime.begin_pass("decode", 1)
            else:
                one.runtime.warm(np.array([5, 6, EXPERTS + 1]))
    cache = one.runtime._rooms[0].cache
    assert (cache.resident, cache._brought) == (0, 0)
    one.token([5, 6], [1])  # read at last, each found to be himself
    assert one.resident(0, 5)


def test_a_card_that_gave_up_does_not_keep_the_threads(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> None:
        raise RuntimeError("CUDA error: unspecified launch failure")

    one = stage(16)
    one.token([3], [5])
    transfer = one.runtime._transfers[0]
    monkeypatch.setattr(one.runtime._ahead, "settle", gone)
    one.runtime.close()
    assert one.store.closed
    assert not any(thread.is_alive() for thread in transfer._threads)
