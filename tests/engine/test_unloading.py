"""When a model goes, its memory goes at once: nothing keeps a tensor of it, and torch keeps none of a card's for later.

Python's collector of cycles is off here, as it is on the engine thread: only references that are given up count.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from engine import loading, session
from engine.experts.device import CudaDevice
from engine.loading import LoadedModel, load
from engine.messages import (
    ChatMessage,
    CountTokens,
    Failed,
    Finished,
    Generate,
    LoadModel,
    ModelLoaded,
    ModelUnloaded,
    Sampling,
    Stop,
    Token,
    TokenCount,
    UnloadModel,
)
from tests.engine.experts.cards import StandIn
from tests.engine.listening import Engine
from tests.families import make_tiny

HELLO = (ChatMessage("user", "Hello there, how are you today?"),)


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as engine:
        yield engine


class Memory:
    """Every piece of memory that a loaded model holds tensors in."""

    def __init__(self, loaded: LoadedModel, cache: Any = None) -> None:
        tensors = {**dict(loaded.model.named_parameters()), **dict(loaded.model.named_buffers())}
        for number, room in enumerate(loaded.runtime._rooms):
            tensors[f"slots {number}"] = room.arena.blob(0)
        for number, layer in enumerate(cache.layers if cache is not None else ()):
            tensors |= {f"{name} {number}": value for name, value in vars(layer).items() if torch.is_tensor(value)}
        self._pieces = {name: StorageWeakRef(tensor.untyped_storage()) for name, tensor in tensors.items()}
        assert len(self._pieces) > 20

    @property
    def left(self) -> list[str]:
        return [name for name, piece in self._pieces.items() if not piece.expired()]


class Watched(StandIn):
    """A card that notes, in order, when it is asked what is free, and what of ``model`` is left when it is to release
    what nothing refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.model: Memory | None = None
        self.seen: list[str | list[str]] = []

    def memory(self) -> tuple[int, int]:
        self.seen.append("asked")
        return super().memory()

    def release_unused(self) -> None:
        super().release_unused()
        self.seen.append(self.model.left if self.model else [])


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """What torch and the program take for the only card."""
    made = Watched()
    monkeypatch.setattr(loading, "make_devices", lambda names: [CudaDevice(made)])
    monkeypatch.setattr(torch.cuda, "empty_cache", made.release_unused)
    return made


def at_work(engine: Engine, command: LoadModel) -> Memory:
    """The memory of a model that was loaded, answered, was stopped, and counted."""
    engine.send(command)
    engine.wait_for(ModelLoaded)
    engine.send(Generate("a", HELLO, Sampling(max_tokens=12)))
    engine.wait_for(Finished)
    engine.send(Generate("b", HELLO, Sampling(max_tokens=200, temperature=1.5)))
    if isinstance(engine.wait_for((Token, Finished)), Token):  # a random model may end with its first word
        engine.send(Stop())
        engine.wait_for(Finished)
    engine.send(CountTokens("c", HELLO))
    engine.wait_for(TokenCount)
    assert engine.service._session is not None
    loaded, generator = engine.service._session._loaded, engine.service._session._generator
    return Memory(loaded, generator.past._cache)


@pytest.mark.parametrize(
    ("family", "predictor"),
    [("qwen2_moe", "blend"), ("gpt_oss", "apprentice"), ("deepseek_v3", "call-sheet"), ("qwen3_next", "gate")],
)
def test_nothing_of_an_unloaded_model_stays(engine: Engine, tmp_path: Path, family: str, predictor: str) -> None:
    folder = make_tiny(family, tmp_path / family, tokenizer=True)
    memory = at_work(engine, LoadModel(str(folder), "50%", threads=1, predictor=predictor, prefetch="on"))
    assert memory.left != []
    engine.send(UnloadModel())
    engine.wait_for(ModelUnloaded)
    assert memory.left == []


def test_nothing_of_a_model_stays_whose_load_broke_off(
    engine: Engine, tiny_chat_model: Path, monkeypatch: pytest.MonkeyPatch, card: Watched
) -> None:
    def break_off(loaded: LoadedModel, *more: Any) -> Any:
        card.model = Memory(loaded)
        card.seen.clear()
        raise RuntimeError("No such thing.")

    monkeypatch.setattr(session, "Telemetry", break_off)
    engine.send(LoadModel(str(tiny_chat_model), "50%", device="cuda", threads=1))
    assert "No such thing." in engine.wait_for(Failed, fail=False).text
    engine.send(UnloadModel())
    engine.wait_for(ModelUnloaded)
    assert card.model is not None and card.model.left == []
    assert card.seen == [[]], "it is to release once, and nothing is left then"


@pytest.mark.parametrize(("experts", "on_miss"), [("50%", "off"), ("50%", "calibrated"), ("100%", "off")])
@pytest.mark.parametrize("switch", [True, False])
def test_a_card_releases_what_a_model_had_once_nothing_refers_to_it(
    engine: Engine, tiny_chat_model: Path, card: Watched, switch: bool, experts: str, on_miss: str
) -> None:
    """Before the next plan looks at what is free, and before other programs do."""
    source = str(tiny_chat_model)
    command = LoadModel(source, experts, device="cuda", threads=1, predictor="gate", compute_on_miss=on_miss)
    memory = card.model = at_work(engine, command)
    card.seen.clear()
    engine.send(command if switch else UnloadModel())
    engine.wait_for(ModelLoaded if switch else ModelUnloaded)
    assert memory.left == []
    assert card.seen[0] == []
    assert ("asked" in card.seen) == switch


def test_a_command_line_load_finds_free_what_torch_kept_for_later(tiny_chat_model: Path, card: Watched) -> None:
    card.cached = 1 << 39
    load(LoadModel(str(tiny_chat_model), "50%", device="cuda", threads=1)).close()
    assert card.seen[:2] == [[], "asked"]
