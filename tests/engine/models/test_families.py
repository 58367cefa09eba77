"""Every family on transformers' registry gives the stock model's logits with a quarter of its experts in memory.

One loader. Families that also see or hear are compared in test_language_half.py. What else the registry has in
transformers 5.24 writes no text token by token and is refused there by name: openai_privacy_filter, diffusion_gemma.
dbrx, doge, jetmoe, llama4, longcat_flash and step3p7 are not on the registry: adapters give their experts its shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from engine.loading import LoadedModel, load
from engine.messages import LoadModel
from tests.families import ADAPTED_FAMILIES, EXPERTS, FAMILIES, MORE_FAMILIES, make_tiny, stock

PROMPT = torch.randint(3, 128, (1, 20), generator=torch.Generator().manual_seed(1))
STEPS = 6


@dataclass
class Run:
    """Logits of the prompt and of each decode step, float32, and the greedy tokens."""

    logits: list[torch.Tensor]
    tokens: list[int]


@torch.inference_mode()
def run(model: PreTrainedModel) -> Run:
    """Prefill, then one token at a time on the KV cache."""
    out = model(PROMPT, use_cache=True)
    result = Run([out.logits[0]], [])
    for _ in range(STEPS):
        token = out.logits[:, -1:].argmax(-1)
        out = model(token, cache=out.cache, use_cache=True)
        result.tokens.append(int(token))
        result.logits.append(out.logits[0])
    return result


def quarter(folder: Path) -> LoadedModel:
    return load(LoadModel(str(folder), experts="25%", dtype="float32", device="cpu"))


def largest_difference(one: Run, other: Run) -> float:
    """Of any logit at any step, relative to the largest logit."""
    scale = max(float(logits.abs().max()) for logits in one.logits)
    return max(float((a - b).abs().max()) for a, b in zip(one.logits, other.logits, strict=True)) / scale


def check_equal(folder: Path) -> None:
    """Loading a quarter changes nothing, and really is a quarter."""
    expected = run(stock(folder))
    loaded = quarter(folder)
    try:
        got = run(loaded.model)
        counters = loaded.runtime.observer.counters(loaded.runtime.evictions)
    finally:
        loaded.close()
    assert largest_difference(expected, got) <= 1e-5
    assert got.tokens == expected.tokens
    assert loaded.info.slots * 4 == loaded.info.total_experts == loaded.info.layers * loaded.info.experts
    assert counters.hook_calls == loaded.info.layers * (1 + STEPS)
    assert counters.prefill_misses + counters.decode_misses > 0
    assert counters.fetched_bytes > 0


@pytest.mark.parametrize("family", (*FAMILIES, *MORE_FAMILIES, *ADAPTED_FAMILIES))
def test_a_quarter_of_the_experts_gives_the_stock_logits(family: str, tmp_path: Path) -> None:
    check_equal(make_tiny(family, tmp_path))


@pytest.mark.parametrize("family", ["deepseek_v3", "gpt_oss"])
def test_experts_of_one_layer_split_over_files(family: str, tmp_path: Path) -> None:
    folder = make_tiny(family, tmp_path, shards=3)
    assert len(list(folder.glob("*.safetensors"))) == 3
    check_equal(folder)


@pytest.mark.parametrize("family", ["qwen2_moe", "mixtral"])
def test_tied_embeddings(family: str, tmp_path: Path) -> None:
    check_equal(make_tiny(family, tmp_path, changes={"tie_word_embeddings": True}))


@pytest.mark.parametrize("renormalised", [True, False])
def test_top_k_with_and_without_renormalisation(renormalised: bool, tmp_path: Path) -> None:
    check_equal(make_tiny("qwen3_moe", tmp_path, changes={"norm_topk_prob": renormalised}))


def test_every_expert_chosen_by_every_token(tmp_path: Path) -> None:
    check_equal(make_tiny("mixtral", tmp_path, changes={"num_experts_per_tok": EXPERTS}))


@pytest.mark.parametrize("family", ["qwen2_moe", "granitemoe", "gpt_oss"])
def test_one_expert_only(family: str, tmp_path: Path) -> None:
    one = {"num_experts": 1} if family == "qwen2_moe" else {"num_local_experts": 1}
    folder = make_tiny(family, tmp_path, changes=one | {"num_experts_per_tok": 1})
    expected, loaded = run(stock(folder)), quarter(folder)
    assert largest_difference(expected, run(loaded.model)) <= 1e-5
    assert loaded.info.total_experts == loaded.info.layers
    loaded.close()


def test_one_expert_disturbed_shows_in_the_logits(tmp_path: Path) -> None:
    """The comparison above would notice a wrong expert."""
    folder = make_tiny("qwen2_moe", tmp_path)
    loaded = quarter(folder)
    loaded.runtime.begin_pass("prefill", PROMPT.shape[1])
    before = run(loaded.model)
    used = int(loaded.runtime.end_pass(0.0).counts[1].argmax())
    loaded.close()
    tensors = load_file(folder / "model.safetensors")
    tensors[f"model.layers.1.mlp.experts.{used}.down_proj.weight"].mul_(1.1)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    loaded = quarter(folder)
    assert largest_difference(before, run(loaded.model)) > 1e-3
    loaded.close()
