"""The hook's promise: the same bits whatever the budget, the policy, the slot and the order of arrival."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine.experts.store import DiskStore
from engine.loading import LoadedModel, load
from engine.messages import POLICIES, LoadModel
from tests.families import EXPERTS, TOP_K, make_tiny

PROMPT = torch.randint(3, 128, (1, 24), generator=torch.Generator().manual_seed(2))
STEPS = 8

# 20 is no multiple of any vector register: a sum or a gate that depends on its neighbours would show.
# Gate and up side by side; interleaved, clamped, with a bias; no gate at all.
MODELS = {
    "qwen2_moe": {"moe_intermediate_size": 20},
    "gpt_oss": {"intermediate_size": 20},
    "nemotron_h": {"moe_intermediate_size": 20, "mlp_hidden_act": "silu"},
}


@pytest.fixture(scope="module", params=MODELS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(request.param, tmp_path_factory.mktemp(request.param), changes=MODELS[request.param])


class SlowStore(DiskStore):
    """Experts arrive late and out of order."""

    quick = False

    def read(self, layer: int, expert: int, blob: torch.Tensor) -> int:
        time.sleep(random.random() * 0.002)
        return super().read(layer, expert, blob)


def opened(folder: Path, experts: str, policy: str = "lru", dtype: str = "float32") -> LoadedModel:
    return load(LoadModel(str(folder), experts=experts, policy=policy, dtype=dtype, device="cpu"))


@torch.inference_mode()
def logits_of(model: PreTrainedModel, prompt: torch.Tensor = PROMPT) -> list[torch.Tensor]:
    """Of the prompt in one pass and of greedy decode steps after it."""
    out = model(prompt, use_cache=True)
    logits = [out.logits]
    for _ in range(STEPS):
        out = model(out.logits[:, -1:].argmax(-1), cache=out.cache, use_cache=True)
        logits.append(out.logits)
    return logits


def same_bits(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def reference(request: pytest.FixtureRequest, folder: Path) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """Everything resident: the precision and its logits, once the cache is warm."""
    loaded = opened(folder, "100%", dtype=request.param)
    cold, warm = logits_of(loaded.model), logits_of(loaded.model)
    loaded.close()
    assert same_bits(cold, warm)
    yield request.param, warm


@pytest.mark.parametrize(
    ("experts", "policy"),
    [
        *((experts, "lru") for experts in ("1 slots", "3 slots", "50%", "100%")),
        *((experts, "next-use") for experts in ("1 slots", "3 slots", "50%", "100%")),
        *(("25%", policy) for policy in POLICIES),
    ],
)
def test_the_same_bits_for_every_budget_and_policy(
    folder: Path, reference: tuple[str, list[torch.Tensor]], experts: str, policy: str
) -> None:
    dtype, expected = reference
    loaded = opened(folder, experts, policy, dtype)
    assert same_bits(logits_of(loaded.model), expected)  # cold
    assert same_bits(logits_of(loaded.model), expected)  # whatever is left from the first time
    counters = loaded.runtime.observer.counters(loaded.runtime.evictions)
    assert (counters.evictions > 0) == (loaded.info.slots < loaded.info.total_experts)
    loaded.close()


@pytest.mark.parametrize("experts", ["1 slots", "50%"])
def test_the_same_bits_when_experts_come_late_and_out_of_order(
    folder: Path, reference: tuple[str, list[torch.Tensor]], experts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dtype, expected = reference
    monkeypatch.setattr("engine.loading.DiskStore", SlowStore)
    loaded = opened(folder, experts, dtype=dtype)
    assert same_bits(logits_of(loaded.model), expected)
    loaded.close()


@pytest.mark.parametrize(("family", "changes"), [("dbrx", {}), ("llama4_text", {"num_experts_per_tok": 3})])
def test_the_same_bits_where_matrices_lie_the_other_way_round_and_inputs_are_weighed(
    family: str, changes: dict[str, int], tmp_path: Path
) -> None:
    folder = make_tiny(family, tmp_path, changes=changes)
    found = []
    for experts in ("100%", "1 slots", "50%"):
        loaded = opened(folder, experts, dtype="bfloat16")
        found.append(logits_of(loaded.model))
        loaded.close()
    assert same_bits(found[0], found[1])
    assert same_bits(found[0], found[2])


def test_greedy_tokens_are_the_stock_models(folder: Path) -> None:
    stock = AutoModelForCausalLM.from_pretrained(folder, experts_implementation="eager", dtype=torch.float32).eval()
    expected = [int(logits[0, -1].argmax()) for logits in logits_of(stock)]
    for experts in ("1 slots", "25%", "100%"):
        loaded = opened(folder, experts)
        assert [int(logits[0, -1].argmax()) for logits in logits_of(loaded.model)] == expected
        loaded.close()


def test_a_batch_of_prompts_and_a_prompt_of_one_token(tmp_path: Path) -> None:
    folder = make_tiny("qwen2_moe", tmp_path)
    whole, tight = opened(folder, "100%"), opened(folder, "1 slots")
    for prompt in (PROMPT[:, :1], PROMPT.view(3, 8)):
        assert same_bits(logits_of(tight.model, prompt), logits_of(whole.model, prompt))
    whole.close()
    tight.close()


def test_a_router_that_names_one_expert_twice(tmp_path: Path) -> None:
    """A hash router's table is data: it may."""
    folder = make_tiny("deepseek_v4", tmp_path)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    table = next(name for name, tensor in tensors.items() if not tensor.is_floating_point())
    tensors[table][:, 1] = tensors[table][:, 0]
    save_file(tensors, file, metadata={"format": "pt"})
    stock = AutoModelForCausalLM.from_pretrained(folder, experts_implementation="eager", dtype=torch.float32).eval()
    loaded = opened(folder, "25%")
    for ours, theirs in zip(logits_of(loaded.model), logits_of(stock), strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-4)
    assert loaded.runtime.resident == loaded.runtime.resident_mask().sum()
    loaded.close()


# ------------------------------------------------------------------------------------------------- counters


def test_the_observer_counts_what_the_routers_chose(tmp_path: Path) -> None:
    """Recounted from the arguments that transformers hands to the hook."""
    loaded = opened(make_tiny("qwen2_moe", tmp_path), "25%")
    layers, observer = loaded.info.layers, loaded.runtime.observer
    chosen: list[tuple[int, np.ndarray]] = []
    for layer, module in enumerate(m for m in loaded.model.modules() if hasattr(m, "greenroom_layer")):
        module.register_forward_pre_hook(lambda _, args, layer=layer: chosen.append((layer, args[1].numpy().copy())))
    resident: list[np.ndarray] = []
    with torch.inference_mode():
        for phase, tokens in (("prefill", PROMPT), ("decode", PROMPT[:, :1]), ("decode", PROMPT[:, 5:6])):
            chosen.clear()
            before = observer.counters(loaded.runtime.evictions)
            resident.append(loaded.runtime.resident_mask())
            loaded.runtime.begin_pass(phase, tokens.shape[1])  # type: ignore[arg-type]
            loaded.model(tokens)
            record = loaded.runtime.end_pass(1.0)
            recount = np.zeros((layers, EXPERTS), np.uint32)
            for layer, ids in chosen:
                np.add.at(recount[layer], ids.reshape(-1), 1)
            assert (record.counts == recount).all()
            assert recount.sum() == layers * TOP_K * tokens.shape[1]
            spent = observer.counters(loaded.runtime.evictions).minus(before)
            uses = int((recount > 0).sum())
            if phase == "prefill":
                assert (spent.prefill_hits + spent.prefill_misses, spent.decode_hits + spent.decode_misses) == (uses, 0)
                assert record.routed is None
            else:
                assert (spent.decode_hits + spent.decode_misses, spent.prefill_hits + spent.prefill_misses) == (uses, 0)
                assert [list(row) for row in record.routed] == [list(ids[0]) for _, ids in chosen]  # type: ignore[union-attr]
            assert spent.hook_calls == layers
            assert spent.fetched_bytes == record.misses * 3 * 32 * 16 * 4
            assert record.hits + record.misses == uses
    loaded.close()


def test_misses_are_those_who_were_not_there(tmp_path: Path) -> None:
    """With room for all: everyone misses once, and hits ever after."""
    loaded = opened(make_tiny("qwen2_moe", tmp_path), "100%")
    observer = loaded.runtime.observer
    with torch.inference_mode():
        for _ in range(2):
            there = loaded.runtime.resident_mask()
            loaded.runtime.begin_pass("prefill", PROMPT.shape[1])
            loaded.model(PROMPT)
            record = loaded.runtime.end_pass(1.0)
            assert (record.missed == ((record.counts > 0) & ~there)).all()
    assert record.misses == 0
    assert (observer.total == 2 * record.counts).all()
    assert loaded.runtime.resident_mask().sum() == (observer.total > 0).sum()
    loaded.close()
