"""A model on a card's stand-in: experts in slots, in RAM beside the card and on disk, and the stock model's tokens."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from engine import loading
from engine.errors import MemoryPlanError
from engine.experts import forward
from engine.experts.device import CudaDevice
from engine.experts.host_tier import HostTier
from engine.experts.layout import expert_layout
from engine.experts.store import DiskStore
from engine.experts.transfer import READERS
from engine.generation import passes
from engine.generation.generate import Repeated, TextGenerator
from engine.loading import LoadedModel, load
from engine.messages import Failed, Finished, LoadModel, ModelLoaded, Sampling, Started
from engine.replay.live import replay_live
from engine.replay.trace import read_trace
from engine.sessions.reader import recount
from engine.verify import verify
from tests.engine.experts.cards import PATIENCE, PinAll, StandIn, stand_in
from tests.engine.listening import Engine, Talk
from tests.families import make_tiny
from tests.machine import free_ram

PROMPT = [5, 17, 3, 99, 42, 7, 23, 11]


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> list[StandIn]:
    """Every card that was opened; each name stands for one."""
    opened: list[StandIn] = []

    def make(names: str) -> list[Any]:
        made = [stand_in() for _ in names.split(",")]
        opened.extend(card for _, card in made)
        return [device for device, _ in made]

    monkeypatch.setattr(loading, "make_devices", make)
    return opened


@pytest.fixture
def disk_reads(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[int, int]]:
    reads: Counter[tuple[int, int]] = Counter()
    counting, honest = threading.Lock(), DiskStore.read

    def read(self: DiskStore, layer: int, expert: int, blob: Any) -> int:
        with counting:
            reads[layer, expert] += 1
        return honest(self, layer, expert, blob)

    monkeypatch.setattr(DiskStore, "read", read)
    return reads


def tiers(loaded: LoadedModel) -> list[HostTier]:
    return [transfer._store for transfer in loaded.runtime._transfers if isinstance(transfer._store, HostTier)]


def say(loaded: LoadedModel, tokens: int = 24) -> list[int]:
    generator = TextGenerator(loaded, set())
    for _ in generator.complete(PROMPT, Sampling(temperature=0, max_tokens=tokens)):
        pass
    return generator.past.tokens[len(PROMPT) :]


@pytest.mark.parametrize("family", ["qwen2_moe", "gpt_oss", "deepseek_v3"])
@pytest.mark.parametrize(
    ("experts", "policy", "predictor", "prefetch", "device"),
    [
        ("1 slot", "lru", "none", "off", "cuda"),
        ("25%", "next-use", "gate", "on", "cuda"),
        ("50%", "eam", "call-sheet", "auto", "cuda:0,cuda:1"),
        ("100%", "lfu-aged", "none", "off", "cuda"),
    ],
)
def test_greedy_tokens_are_the_stock_models(
    cards: list[StandIn],
    tmp_path: Path,
    family: str,
    experts: str,
    policy: Any,
    predictor: Any,
    prefetch: Any,
    device: str,
) -> None:
    folder = make_tiny(family, tmp_path / family)
    command = LoadModel(
        str(folder), experts, policy, device=device, predictor=predictor, prefetch=prefetch, threads=1, dtype="float32"
    )
    verdict = verify(command, "", 16)
    assert verdict.equal
    assert all(card.copied > 0 for card in cards)
    assert all(card.synchronized > 0 for card in cards)


def test_what_ram_holds_is_read_from_disk_once(
    cards: list[StandIn], disk_reads: Counter[tuple[int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed: list[int] = []
    monkeypatch.setattr(CudaDevice, "landing", lambda self, arena, slot: landed.append(slot))
    loaded = load(LoadModel(str(make_tiny("qwen2_moe", tmp_path / "m")), "25%", device="cuda", threads=1))
    (tier,) = tiers(loaded)
    assert tier.places == loaded.info.total_experts
    say(loaded)
    say(loaded)
    fetched = loaded.runtime.observer.counters(loaded.runtime.evictions).fetched_bytes // loaded.info.slot_bytes
    loaded.close()
    assert set(disk_reads.values()) == {1}
    assert cards[0].copied == fetched > 2 * len(disk_reads)
    assert tier.hits == fetched - len(disk_reads)
    assert landed == []  # the card copies straight out of RAM


def test_ram_for_experts_is_what_the_plan_gives(
    cards: list[StandIn], disk_reads: Counter[tuple[int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_tiny("qwen2_moe", tmp_path / "m")
    found = loading.inspect(str(folder))
    nbytes = expert_layout(found.index.modules[0].parameters, loading.DTYPES["float32"]).nbytes
    free = 2 * READERS * 2 * nbytes + 12 * nbytes * 5 // 4 + 1  # two cards' landing buffers, and twelve experts
    with monkeypatch.context() as patch:
        free_ram(patch, free)
        command = LoadModel(str(folder), "25%", device="cuda:0,cuda:1", threads=1, dtype="float32", keep_past="off")
        loaded = load(command)
    both = tiers(loaded)
    assert [tier.places for tier in both] == [6, 6]
    assert sum(tier.nbytes for tier in both) == 12 * nbytes
    first = say(loaded)
    held = [sum(tier.holds(layer, expert) for layer in range(3) for expert in range(8)) for tier in both]
    loaded.close()
    assert max(held) <= 6
    assert all(tier.misses > tier.places for tier in both)  # what was lent came back
    assert sum(disk_reads.values()) > len(disk_reads)  # some were read again
    plain = load(LoadModel(str(folder), "100%", device="cuda", threads=1, dtype="float32"))
    assert tiers(plain) == []  # the card holds them all
    assert say(plain) == first
    plain.close()


@pytest.mark.parametrize("experts", ["25%", "90%"])
def test_every_layers_readers_are_marked_before_a_slot_can_be_refilled(
    cards: list[StandIn], tmp_path: Path, experts: str
) -> None:
    loaded = load(LoadModel(str(make_tiny("qwen2_moe", tmp_path / "m")), experts, device="cuda", threads=1))
    say(loaded)
    assert cards[0].marks >= loaded.runtime.observer.totals.hook_calls > 0  # be all of its experts there or not
    loaded.close()


def test_memory_under_a_card_is_pinned_and_let_go(cards: list[StandIn], tmp_path: Path) -> None:
    loaded = load(LoadModel(str(make_tiny("qwen2_moe", tmp_path / "m")), "25%", device="cuda", threads=1))
    (tier,) = tiers(loaded)
    assert tier._thread is not None
    tier._thread.join()
    assert tier.pinned_bytes == tier.nbytes > 0
    say(loaded)
    loaded.close()
    assert cards[0].pinner.pinned == []


def test_memory_that_is_not_pinned_after_the_load_is_said_with_the_next_answer(
    cards: list[StandIn], tiny_chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_refuse = threading.Event()

    def refuse(self: PinAll, memory: torch.Tensor) -> bool:
        assert may_refuse.wait(PATIENCE)
        return False

    monkeypatch.setattr(PinAll, "pin", refuse)
    with Engine() as engine:
        engine.send(LoadModel(str(tiny_chat_model), "25%", device="cuda", threads=1, predictor="none"))
        assert not any("pin" in note for note in engine.wait_for(ModelLoaded).notes)
        may_refuse.set()
        (pinning,) = [thread for thread in threading.enumerate() if thread.name == "greenroom-pin"]
        pinning.join()
        talk = Talk(engine, tmp_path, "one")
        talk.ask("Hello there, how are you today?")
        talk.ask("And what else?")
    first, second = engine.of(Started)
    assert len([note for note in first.notes if "pins only 0.0 of" in note]) == 1
    assert not any("pins only" in note for note in second.notes)


def test_experts_that_the_card_has_no_memory_for_are_said_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_tiny("qwen2_moe", tmp_path / "m")
    device, card = stand_in()
    monkeypatch.setattr(loading, "make_devices", lambda names: [device])
    honest = card.allocate
    given: list[int] = []

    def scarce(nbytes: int) -> Any:
        card.nbytes = 0 if len(given) == 2 else card.nbytes
        given.append(nbytes)
        return honest(nbytes)

    monkeypatch.setattr(card, "allocate", scarce)
    loaded = load(LoadModel(str(folder), "100%", device="cuda", threads=1))
    assert loaded.info.slots < loaded.info.total_experts
    assert any("that were planned" in note for note in loaded.info.notes)
    assert len(say(loaded)) == 23  # the last one is not fed again
    loaded.close()


def runs_out(monkeypatch: pytest.MonkeyPatch, passes: set[int], fault: Exception | None = None) -> None:
    """In these forward passes memory runs out behind the second layer's experts."""
    count, honest = [0], forward.experts_forward

    def narrow(module: Any, *arguments: Any) -> Any:
        result = honest(module, *arguments)
        layer = getattr(module, "greenroom_layer", None)  # none while a load looks at what is not an expert
        count[0] += layer == 0
        if layer == 1 and count[0] in passes:
            raise fault or torch.OutOfMemoryError("CUDA out of memory.")
        return result

    monkeypatch.setitem(ALL_EXPERTS_FUNCTIONS._global_mapping, forward.IMPLEMENTATION, narrow)


def test_a_pass_that_memory_runs_out_in_is_done_again_with_fewer_experts(
    cards: list[StandIn], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = LoadModel(str(make_tiny("qwen2_moe", tmp_path / "m")), "100%", device="cuda", threads=1)
    plain = load(command)
    expected = say(plain)
    plain.close()
    loaded = load(command)
    slots, piece = loaded.runtime.slots, loaded.runtime._rooms[0].arena.piece
    runs_out(monkeypatch, {1, 5})
    generator = TextGenerator(loaded, set())
    steps = list(generator.complete(PROMPT, Sampling(temperature=0, max_tokens=24)))
    assert generator.past.tokens[len(PROMPT) :] == expected
    notes = [step.note for step in steps if isinstance(step, Repeated)]
    assert len(notes) == 2 and all(f"gave back {piece} of" in note for note in notes)
    assert loaded.runtime.slots == slots - 2 * piece == loaded.runtime._rooms[0].arena.slots
    loaded.close()


@pytest.mark.parametrize(
    "fault",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
@pytest.mark.parametrize(("experts", "broken"), [("60%", {1, 2}), ("80%", {5, 6})])  # in the prompt; in a token
def test_a_pass_that_memory_runs_out_in_twice_ends_the_answer_in_words_and_the_next_one_comes(
    cards: list[StandIn],
    tiny_chat_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    experts: str,
    broken: set[int],
    fault: Exception,
) -> None:
    with Engine() as engine:
        engine.send(LoadModel(str(tiny_chat_model), experts, "lfu", device="cuda", threads=1, predictor="none"))
        loaded = engine.wait_for(ModelLoaded)
        talk = Talk(engine, tmp_path, "one")
        with monkeypatch.context() as patch:
            runs_out(patch, broken, fault)
            first = talk.ask("Hello there, how are you today?", fail=False)
        second = talk.ask("And what else?")
    assert first.reason == "error"
    assert first.error.startswith("VRAM ran out again after experts gave back ")
    assert f"of {loaded.slots:,} slots. Give experts less memory, shorten the chat, or close" in first.error
    assert "CUDA" not in first.error
    assert second.reason in ("length", "end") and second.timings.answer_tokens > 0
    assert len([event for event in engine.of(Failed) if event.doing == "memory"]) == 1
    same_books(talk.path, first)


def test_what_is_no_lack_of_memory_is_not_tried_again(
    cards: list[StandIn], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load(LoadModel(str(make_tiny("qwen2_moe", tmp_path / "m")), "100%", device="cuda", threads=1))
    runs_out(monkeypatch, {2}, RuntimeError("CUDA error: device-side assert triggered"))
    with pytest.raises(RuntimeError, match="device-side assert"):
        say(loaded)
    loaded.close()


@pytest.mark.parametrize("experts", ["40%", "100%"])
def test_the_log_of_such_an_answer_replays_and_counts_what_the_program_counted(
    cards: list[StandIn], tiny_chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, experts: str
) -> None:
    monkeypatch.setattr(passes, "CHUNK", 16)  # the prompt streams in several passes, through the same few slots
    runs_out(monkeypatch, {3, 9})
    with Engine() as engine:
        engine.send(LoadModel(str(tiny_chat_model), experts, "lfu", device="cuda", threads=1))
        engine.wait_for(ModelLoaded)
        talk = Talk(engine, tmp_path, "one")
        first = talk.ask("Hello there, how are you today? Tell me about boats, and about bridges.", fail=False)
        talk.ask("And what else?")
    assert len([event for event in engine.of(Failed) if event.doing == "memory"]) == 2
    assert recount(talk.path, "one-1").passes > 9
    same_books(talk.path, first)


def test_the_log_of_an_answer_that_memory_ended_counts_what_the_program_counted(
    cards: list[StandIn], tiny_chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs_out(monkeypatch, {3})
    with Engine() as engine:
        engine.send(LoadModel(str(tiny_chat_model), "1 slot", "lfu", device="cuda", threads=1))
        engine.wait_for(ModelLoaded)
        talk = Talk(engine, tmp_path, "one")
        first = talk.ask("Hello there, how are you today?")
        talk.ask("And what else?")
    assert "none left to give" in first.error
    same_books(talk.path, first)


def same_books(path: Path, first: Finished) -> None:
    """Every pass is met again, and the first answer's counters are in the log."""
    live, counted = replay_live(read_trace([path])), recount(path, "one-1")
    assert live.exact, live.reason
    assert (counted.prefill_hits, counted.prefill_misses) == (first.cache.prefill_hits, first.cache.prefill_misses)
    assert (counted.decode_hits, counted.decode_misses) == (first.cache.decode_hits, first.cache.decode_misses)
    assert counted.fetched_bytes == first.cache.fetched_bytes > 0


def test_memory_that_runs_out_twice_in_one_pass_is_an_error_and_the_next_answer_comes(
    cards: list[StandIn], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load(LoadModel(str(make_tiny("qwen2_moe", tmp_path / "m")), "1 slot", device="cuda", threads=1))
    with monkeypatch.context() as patch:
        runs_out(patch, {3})
        with pytest.raises(MemoryPlanError, match="none left to give"):
            say(loaded)
    assert len(say(loaded)) == 23
    loaded.close()
