"""What breaks half way leaves everything in order: the error is told, and the next pass is right to the last bit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from engine.errors import Cancelled, ModelError
from engine.experts.device import make_device
from engine.experts.layout import expert_layout
from engine.experts.runtime import ExpertRuntime
from engine.experts.store import DiskStore
from engine.loading import LoadedModel, load
from engine.messages import LoadModel
from tests.families import EXPERTS, make_tiny

PROMPT = torch.randint(3, 128, (1, 24), generator=torch.Generator().manual_seed(2))
BUDGETS = ["1 slots", "3 slots", "25%", "100%"]


class FailingStore(DiskStore):
    """Fails for the experts in ``broken``, with what is in ``error``."""

    broken: set[tuple[int, int]] = set()  # noqa: RUF012
    error: Exception = ModelError("The disk is gone.")

    def read(self, layer: int, expert: int, blob: torch.Tensor) -> int:
        if (layer, expert) in self.broken:
            blob.random_()  # half a read: what is in the slot is worth nothing
            raise self.error
        return super().read(layer, expert, blob)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny("qwen2_moe", tmp_path_factory.mktemp("runtime") / "model")


@pytest.fixture(params=BUDGETS)
def loaded(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoadedModel]:
    """A model at every budget, whose store can be made to fail."""
    monkeypatch.setattr("engine.loading.DiskStore", FailingStore)
    monkeypatch.setattr(FailingStore, "broken", set())
    result = load(LoadModel(str(folder), experts=request.param, dtype="float32", device="cpu"))
    yield result
    result.close()


@torch.inference_mode()
def answer(loaded: LoadedModel, prompt: torch.Tensor = PROMPT) -> torch.Tensor:
    return loaded.model(prompt).logits


@pytest.fixture(scope="module")
def expected(folder: Path) -> torch.Tensor:
    """The prompt's logits when nothing goes wrong."""
    whole = load(LoadModel(str(folder), experts="100%", dtype="float32", device="cpu"))
    logits = answer(whole)
    whole.close()
    return logits


def check_sound(loaded: LoadedModel, expected: torch.Tensor) -> None:
    """Books agree, nothing stays pinned (a dispatch of all experts finds room), and the answer is right twice."""
    for _ in range(2):
        assert torch.equal(answer(loaded), expected)
        assert loaded.runtime.resident == loaded.runtime.resident_mask().sum() <= loaded.runtime.slots
        assert len(loaded.runtime.by_eviction_order()) == loaded.runtime.resident


@pytest.mark.parametrize("error", [ModelError("The disk is gone."), OSError(5, "Input/output error"), ValueError("x")])
@pytest.mark.parametrize("layer", [0, 2])
def test_a_read_that_fails_and_works_the_next_time(
    loaded: LoadedModel, expected: torch.Tensor, layer: int, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FailingStore, "error", error)
    FailingStore.broken |= {(layer, expert) for expert in (1, 3, 5)}
    for _ in range(2):  # not served from the slot that the failed read left
        with pytest.raises(type(error)):
            answer(loaded)
        assert not loaded.runtime.resident_mask()[layer, [1, 3, 5]].any()
    FailingStore.broken.clear()
    check_sound(loaded, expected)


def test_a_read_that_fails_on_a_warm_cache(loaded: LoadedModel, expected: torch.Tensor) -> None:
    assert torch.equal(answer(loaded), expected)
    FailingStore.broken |= {(1, expert) for expert in range(EXPERTS)}
    if loaded.runtime.slots < loaded.info.total_experts:
        with pytest.raises(ModelError, match="The disk is gone"):
            answer(loaded)
    else:
        assert torch.equal(answer(loaded), expected)  # nothing to read: nothing fails
    FailingStore.broken.clear()
    check_sound(loaded, expected)


@pytest.mark.parametrize("layers_allowed", [0, 1, 2])
def test_a_stop_acts_between_layers(loaded: LoadedModel, expected: torch.Tensor, layers_allowed: int) -> None:
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > layers_allowed

    before = loaded.runtime.observer.counters(0).hook_calls
    loaded.runtime.stop_when(stop)
    with pytest.raises(Cancelled):
        answer(loaded)
    assert loaded.runtime.observer.counters(0).hook_calls - before == layers_allowed
    loaded.runtime.stop_when(lambda: False)
    check_sound(loaded, expected)


def test_a_fault_in_the_compute_releases_the_slots(loaded: LoadedModel, expected: torch.Tensor) -> None:
    """Out of memory, say, in the middle of an expert."""

    class Exploding(nn.Module):
        calls = 0

        def forward(self, _: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            raise MemoryError("not enough for the activations")

    experts = next(module for module in loaded.model.modules() if getattr(module, "greenroom_layer", None) == 1)
    good, experts.act_fn = experts.act_fn, Exploding()
    with pytest.raises(MemoryError):
        answer(loaded)
    experts.act_fn = good
    check_sound(loaded, expected)


@pytest.mark.parametrize("experts", BUDGETS)
def test_a_file_cut_short_under_a_running_model(experts: str, expected: torch.Tensor, tmp_path: Path) -> None:
    folder = make_tiny("qwen2_moe", tmp_path / "model")
    loaded = load(LoadModel(str(folder), experts=experts, dtype="float32", device="cpu"))
    file = folder / "model.safetensors"
    good = file.read_bytes()
    os.truncate(file, 3000)
    with pytest.raises(ModelError, match="became shorter"):
        answer(loaded)
    file.write_bytes(good)
    check_sound(loaded, expected)
    loaded.close()


def test_closing_gives_the_arena_back(folder: Path) -> None:
    loaded = load(LoadModel(str(folder), experts="50%", dtype="float32", device="cpu"))
    assert loaded.runtime.arena_bytes == loaded.info.slots * loaded.info.slot_bytes
    loaded.close()
    assert loaded.runtime.arena_bytes == 0
    loaded.close()  # once more is no fault


# ----------------------------------------------------------------------------------------- layers that differ


class NumberStore:
    """An expert's bytes are all ``16 * layer + expert``."""

    quick = False

    def read(self, layer: int, expert: int, blob: torch.Tensor) -> int:
        blob.fill_(16 * layer + expert)
        return blob.nbytes

    def describe(self) -> str:
        return "made up"

    def close(self) -> None:
        pass


def test_layers_of_two_layouts_keep_to_their_own_arenas() -> None:
    """No family of transformers 5.24 mixes sizes, nothing forbids it: layer 1 has wider experts and half as many."""
    narrow, wide = (
        expert_layout({"down_proj": (4, 4)}, torch.uint8),
        expert_layout({"down_proj": (64, 16)}, torch.uint8),
    )
    layouts, counts = [narrow, wide, narrow], [EXPERTS, EXPERTS // 2, EXPERTS]
    runtime = ExpertRuntime(layouts, {narrow: 3, wide: 2}, EXPERTS, 2, "lru", [(make_device("cpu"), NumberStore())])
    assert runtime.slots == 5
    assert runtime.arena_bytes == 3 * narrow.nbytes + 2 * wide.nbytes
    for _ in range(3):
        for layer, count in enumerate(counts):
            wanted = np.arange(count)
            served: list[int] = []
            for experts, views in runtime.serve(layer, wanted, np.ones(count, np.uint32)):
                for expert, parameters in zip(experts, views, strict=True):
                    assert parameters["down_proj"].shape == ((64, 16) if layer == 1 else (4, 4))
                    assert (parameters["down_proj"] == 16 * layer + expert).all()
                served += experts
            assert sorted(served) == wanted.tolist()
    assert runtime.resident_mask().sum(axis=1).tolist() == [0, 2, 3]
    assert sorted(runtime.by_eviction_order() // EXPERTS) == [1, 1, 2, 2, 2]
    runtime.close()


@pytest.mark.parametrize("together", [True, False])
def test_experts_may_come_in_any_order_and_any_company(
    folder: Path, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late one and a missed one may land at the same moment: they come together, and not in ascending order."""
    whole = load(LoadModel(str(folder), experts="100%", dtype="float32", device="cpu"))
    tokens = [PROMPT[:, :1], PROMPT]
    expected = [answer(whole, prompt) for prompt in tokens]
    honest = whole.runtime.serve

    def backwards(*place: np.ndarray) -> Iterator[tuple[list[int], list[dict[str, torch.Tensor]]]]:
        served = [one for experts, views in honest(*place) for one in zip(experts, views, strict=True)][::-1]
        for some in [served] if together else [[one] for one in served]:
            yield [expert for expert, _ in some], [views for _, views in some]

    monkeypatch.setattr(whole.runtime, "serve", backwards)
    for prompt, logits in zip(tokens, expected, strict=True):
        assert torch.equal(answer(whole, prompt), logits)
    whole.close()
