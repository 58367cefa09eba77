"""With every expert on the card, the card picks them by itself: the same bits, the same books, and the host reads
nothing on the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from engine import loading
from engine.errors import Cancelled
from engine.experience import Experience
from engine.experts import forward
from engine.experts.arena import Arena
from engine.experts.layout import expert_layout
from engine.experts.resident import ROUNDS, Race, Resident, cycles
from engine.generation.generate import Decoded, Ended, Prefilled, TextGenerator
from engine.loading import LoadedModel, load
from engine.messages import LoadModel, Sampling
from tests.engine.experts.cards import stand_in
from tests.families import make_tiny

PROMPT = [5, 17, 3, 99, 42, 7, 23, 11]
TOKENS = 20


@pytest.fixture
def on_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "make_devices", lambda names: [stand_in()[0]])
    monkeypatch.setattr(forward, "SMALL", 0)  # numpy has no place on a card


def by_card(monkeypatch: pytest.MonkeyPatch, always: bool) -> None:
    monkeypatch.setattr(Race, "by_card", always, raising=False)
    monkeypatch.setattr(Race, "__init__", lambda self: None)
    monkeypatch.setattr(Race, "over", True)


def opened(folder: Path, experts: str = "100%", warm: bool = True, **options: Any) -> LoadedModel:
    loaded = load(LoadModel(str(folder), experts, device="cuda", threads=1, dtype="float32", **options))
    if warm:
        loaded.runtime.warm(loaded.runtime.everyone)
    return loaded


def answer(loaded: LoadedModel, stop: Any = lambda: False) -> tuple[list[int], list[Any]]:
    """The tokens, and every pass's record."""
    generator, records = TextGenerator(loaded, set()), []
    for step in generator.complete(PROMPT, Sampling(temperature=0, max_tokens=TOKENS), stop):
        if isinstance(step, Prefilled | Decoded) and step.record is not None:
            records.append(step.record)
        if isinstance(step, Ended):
            records += step.records
    return generator.past.tokens[len(PROMPT) :], records


@contextmanager
def forbidden() -> Iterator[None]:
    """Nothing may come to the host."""

    class NoReading(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = str(func)
            assert not any(word in name for word in ("_local_scalar_dense", "nonzero", "bincount", "unique")), name
            return func(*args, **(kwargs or {}))

    def refuse(*arguments: Any, **keywords: Any) -> Any:
        raise AssertionError("the host read something")

    with pytest.MonkeyPatch.context() as patch, NoReading():
        for name in ("tolist", "item", "cpu", "numpy", "__bool__", "__int__", "__float__"):
            patch.setattr(torch.Tensor, name, refuse)
        yield


@pytest.mark.parametrize("family", ["qwen2_moe", "gpt_oss", "deepseek_v3", "mixtral", "llama4_text"])
def test_the_same_tokens_and_the_same_books(
    on_card: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    folder = make_tiny(family, tmp_path / family)
    found = []
    for always in (True, False):
        by_card(monkeypatch, always)
        loaded = opened(folder, policy="eam")
        tokens, records = answer(loaded)
        runtime, totals = loaded.runtime, loaded.runtime.observer.totals
        assert (runtime._everybody is not None, totals.misses) == (True, {"prefill": 0, "decode": 0})
        found.append((tokens, records, totals.hits, totals.hook_calls, runtime.policy_state(), runtime.observer.total))
        loaded.close()
    ours, theirs = found
    assert ours[0] == theirs[0]
    assert ours[2:4] == theirs[2:4]
    assert np.array_equal(ours[4], theirs[4])
    assert np.array_equal(ours[5], theirs[5])
    for one, other in zip(ours[1], theirs[1], strict=True):
        assert np.array_equal(one.counts, other.counts)
        assert (one.routed is None) == (other.routed is None)
        assert one.routed is None or np.array_equal(one.routed, other.routed)
    small = opened(folder, "25%", warm=False)
    assert answer(small)[0] == ours[0]
    small.close()


@pytest.mark.parametrize(("family", "chosen"), [("qwen2_moe", 2), ("llama4_text", 3)])
def test_the_same_numbers_to_the_last_bit(
    family: str, chosen: int, on_card: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, logits = make_tiny(family, tmp_path / "m", changes={"num_experts_per_tok": chosen}), []
    for always in (True, False):
        by_card(monkeypatch, always)
        loaded = opened(folder)
        loaded.runtime.begin_answer(True)
        loaded.runtime.begin_pass("decode", 1, 1)
        assert (loaded.runtime.resident_pass is not None) == always
        with torch.inference_mode():
            logits.append(loaded.model(input_ids=torch.tensor([[7]])).logits)
        loaded.runtime.end_pass(0.1)
        loaded.close()
    assert torch.equal(*logits)


def test_the_host_reads_nothing_on_the_way(on_card: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_card(monkeypatch, True)
    honest, unread = forward.experts_forward, [0]

    def watched(module: Any, hidden: Any, index: Any, weights: Any) -> Any:
        if len(index) > 1:
            return honest(module, hidden, index, weights)
        unread[0] += 1
        with forbidden():
            return honest(module, hidden, index, weights)

    monkeypatch.setitem(ALL_EXPERTS_FUNCTIONS._global_mapping, forward.IMPLEMENTATION, watched)
    loaded = opened(make_tiny("qwen2_moe", tmp_path / "m"))
    unread[0] = 0  # the load looks at a few passes of its own
    answer(loaded)
    assert unread[0] == (TOKENS - 1) * loaded.info.layers
    loaded.close()


def test_it_can_be_seen_when_the_host_does_read(on_card: None, tmp_path: Path) -> None:
    with pytest.raises(AssertionError), forbidden():
        torch.zeros(1).tolist()
    with pytest.raises(AssertionError), forbidden():
        torch.ops.aten._local_scalar_dense(torch.zeros(1))


def test_what_routers_say_stays_on_the_card_and_is_told_afterwards(
    on_card: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_card(monkeypatch, True)
    loaded = opened(make_tiny("qwen2_moe", tmp_path / "m"), predictor="gate", prefetch="on")
    experience = Experience(loaded, LoadModel("m", predictor="gate", prefetch="on"))
    experience.begin_request()
    asked, honest = [], experience.foresight.look
    monkeypatch.setattr(experience.foresight, "look", lambda *told: asked.append(told) or honest(*told))
    answer(loaded)
    assert asked == []
    experience.end_request()
    assert len(experience.likely_first()) > 0  # the request's matrices are there all the same
    experience.close()
    loaded.close()


def test_slots_are_sorted_once_whoever_came_first(
    on_card: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_card(monkeypatch, True)
    loaded = opened(make_tiny("deepseek_v3", tmp_path / "m"), warm=False)
    runtime = loaded.runtime
    assert len(runtime.everyone) == loaded.info.total_experts
    runtime.warm(np.random.default_rng(1).permutation(runtime.everyone))
    tokens, _ = answer(loaded)
    assert runtime._everybody is not None
    loaded.close()
    small = opened(make_tiny("deepseek_v3", tmp_path / "m"), "25%", warm=False)
    assert answer(small)[0] == tokens
    small.close()


def test_a_stop_between_layers_leaves_true_books(
    on_card: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_card(monkeypatch, True)
    loaded = opened(make_tiny("qwen2_moe", tmp_path / "m"))
    runtime, asked = loaded.runtime, []
    runtime.begin_answer(True)
    runtime.stop_when(lambda: asked.append(1) or len(asked) == 3)
    runtime.begin_pass("decode", 1, 1)
    with pytest.raises(Cancelled), torch.inference_mode():
        loaded.model(input_ids=torch.tensor([[7]]))
    record = runtime.end_pass(0.0)
    assert record.counts.sum(axis=1).tolist() == [loaded.info.top_k] * 2 + [0]
    loaded.close()


def test_a_pass_that_broke_off_is_told_to_nobody_later(
    on_card: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_card(monkeypatch, True)
    loaded = opened(make_tiny("qwen2_moe", tmp_path / "m"))
    runtime, asked = loaded.runtime, []

    def broken() -> bool:
        asked.append(1)
        if len(asked) == 3:
            raise RuntimeError("a wire is loose")
        return False

    runtime.begin_answer(True)
    runtime.stop_when(broken)
    runtime.begin_pass("decode", 1, 1)
    with pytest.raises(RuntimeError, match="loose"), torch.inference_mode():
        loaded.model(input_ids=torch.tensor([[7]]))
    runtime.begin_pass("decode", 1, 1)  # nobody closed the one before
    with torch.inference_mode():
        loaded.model(input_ids=torch.tensor([[9]]))
    record = runtime.end_pass(0.1)
    assert record.counts.sum(axis=1).tolist() == [loaded.info.top_k] * loaded.info.layers
    loaded.close()


def test_when_slots_are_given_back_the_host_asks_again(
    on_card: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_card(monkeypatch, True)
    loaded = opened(make_tiny("qwen2_moe", tmp_path / "m"))
    expected, _ = answer(loaded)
    assert loaded.runtime._everybody is not None
    assert loaded.runtime.has_room_to_give
    loaded.runtime.give_room()
    assert answer(loaded)[0] == expected
    assert loaded.runtime._everybody is None
    loaded.close()


@pytest.mark.parametrize("names", ["one twice", "nobody"])
def test_a_router_that_names_fewer_than_it_might_is_left_to_the_usual_way(
    on_card: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: str
) -> None:
    by_card(monkeypatch, True)
    honest = forward.experts_forward

    def fewer(module: Any, hidden: Any, index: Any, weights: Any) -> Any:
        if len(index) == 1:
            index = index.clone()
            index[:, 1] = index[:, 0] if names == "one twice" else module.num_experts
        return honest(module, hidden, index, weights)

    monkeypatch.setitem(ALL_EXPERTS_FUNCTIONS._global_mapping, forward.IMPLEMENTATION, fewer)
    loaded = opened(make_tiny("qwen2_moe", tmp_path / "m"))
    tokens, records = answer(loaded)
    assert loaded.runtime._everybody is None
    assert {int(record.counts[0].max()) for record in records[1:]} == {2 if names == "one twice" else 1}
    loaded.close()
    small = opened(make_tiny("qwen2_moe", tmp_path / "m"), "25%", warm=False)
    assert answer(small)[0] == tokens
    small.close()


def test_the_faster_of_two_ways_stays() -> None:
    for faster in (True, False):
        race = Race()
        taken = []
        while not race.over:
            taken.append(race.by_card)
            race.took(9.0 if len(taken) <= 2 else 1.0 if race.by_card == faster else 2.0)
        assert taken == [True, False] * ROUNDS
        assert race.by_card == faster
        race.took(100.0)
        assert race.by_card == faster


def test_a_permutation_of_slots_moves_every_blob() -> None:
    layout = expert_layout({"up_proj": (8, 8)}, torch.float32)
    arena, source = Arena(layout, 40, stand_in()[0]), np.random.default_rng(3).permutation(40)
    for slot in range(40):
        arena.blob(slot).fill_(slot)
    arena.rearrange(source)
    assert [int(arena.blob(slot)[0]) for slot in range(40)] == source.tolist()
    assert cycles(np.arange(5)) == []


def test_picking_gives_ascending_experts_with_their_weights_and_nobody_weighs_nothing() -> None:
    layout = expert_layout({"up_proj": (8, 8)}, torch.float32)
    arena = Arena(layout, 8, stand_in()[0], together=4)
    for slot in range(8):
        arena.blob(slot).fill_(slot)
    resident = Resident([arena.stack(0, 4), arena.stack(4, 4)], [layout, layout])
    views, weights = resident.pick(1, torch.tensor([3, 4, 1]), torch.tensor([0.5, 0.25, 0.125]))
    assert [int(view["up_proj"].view(torch.uint8)[0, 0]) for view in views[:2]] == [4 + 1, 4 + 3]
    assert weights.tolist() == [0.125, 0.5, 0.0]
    assert resident.routed() == [(1, [3, 4, 1])]
    assert resident.routed() == []
