"""From the dense model and the recipe to an ordinary ``qwen2_moe`` checkpoint.

What training used (resources/demo/student.py) and what transformers' Qwen2MoeForCausalLM computes differ in two
constants, folded into the weights here: the router's weights sum to one there and to k in training, so the routed
down-projections are multiplied by k; the shared expert's gate is sigmoid(x) there and 2 sigmoid(x) in training, so the
shared down-projection is doubled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from engine.models.gguf_weights import DenseModel, read_dense_model, write_tokenizer

SHARDS = 2
Report = Callable[[str, float], None]
Tensors = dict[str, np.ndarray]

# what the makers of SmolLM2-135M-Instruct advise on its model card; at 0.7 so small a model loses its thread
SAMPLING = {"do_sample": True, "temperature": 0.2, "top_p": 0.9}


def build_checkpoint(gguf: Path, recipe: Path, folder: Path, report: Report) -> None:
    """Write the demo's files into ``folder``; ``recipe`` is the folder with recipe.json and recipe.safetensors.

    ``report(what, share done)`` is called between the steps and may raise to stop the work.
    """
    from safetensors.numpy import load_file

    facts = json.loads((recipe / "recipe.json").read_text(encoding="utf-8"))
    report("Reading the demo's source", 0.05)
    dense = read_dense_model(gguf)
    packed = load_file(recipe / "recipe.safetensors")
    if packed["order"].shape != (dense.layers, dense.neurons):
        raise ValueError("the recipe is for another model")

    per_shard = -(-dense.layers // SHARDS)
    index: dict[str, str] = {}
    total = 0
    for shard in range(SHARDS):
        name = f"model-{shard + 1:05d}-of-{SHARDS:05d}.safetensors"
        tensors: Tensors = {}
        if shard == 0:
            tensors["model.embed_tokens.weight"] = dense.tensors["model.embed_tokens.weight"]
        for layer in range(shard * per_shard, min((shard + 1) * per_shard, dense.layers)):
            report("Building the demo's experts", 0.3 + 0.6 * layer / dense.layers)
            tensors.update(layer_tensors(dense, packed, facts, layer))
        if shard == SHARDS - 1:
            tensors["model.norm.weight"] = packed["final_norm"].astype(np.float32)
        report("Writing the demo", 0.3 + 0.6 * (shard + 1) / SHARDS)
        total += _save_bf16(tensors, folder / name)
        index |= dict.fromkeys(tensors, name)
    weights_index = {"metadata": {"total_size": total}, "weight_map": index}
    _write_json(folder / "model.safetensors.index.json", weights_index)
    write_tokenizer(dense, folder)
    meta = dense.metadata
    end_tokens = sorted({int(meta["tokenizer.ggml.eos_token_id"]), _token(dense, "<|endoftext|>")})
    ids = {
        "bos_token_id": int(meta["tokenizer.ggml.bos_token_id"]),
        "eos_token_id": end_tokens,
        "pad_token_id": int(meta["tokenizer.ggml.padding_token_id"]),
    }
    _write_json(folder / "generation_config.json", {**ids, **SAMPLING})
    for name in ("README.md", "LICENSE"):
        text = (recipe / f"model-{name}").read_text(encoding="utf-8")
        (folder / name).write_text(text, encoding="utf-8")
    _write_json(folder / "config.json", {**config(dense, facts), **ids})


def config(dense: DenseModel, facts: dict[str, Any]) -> dict[str, Any]:
    """config.json of the checkpoint, in transformers' words."""
    meta = dense.metadata
    experts = facts["experts"]
    return {
        "architectures": ["Qwen2MoeForCausalLM"],
        "model_type": "qwen2_moe",
        "dtype": "bfloat16",
        "vocab_size": int(meta["llama.vocab_size"]),
        "hidden_size": dense.hidden,
        "intermediate_size": dense.neurons,
        "num_hidden_layers": dense.layers,
        "num_attention_heads": dense.heads,
        "num_key_value_heads": dense.kv_heads,
        "hidden_act": "silu",
        "max_position_embeddings": int(meta["llama.context_length"]),
        "max_window_layers": dense.layers,
        "rms_norm_eps": float(f"{meta['llama.attention.layer_norm_rms_epsilon']:.3g}"),
        "rope_parameters": {"rope_type": "default", "rope_theta": float(meta["llama.rope.freq_base"])},
        "qkv_bias": False,
        "tie_word_embeddings": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "num_experts": experts,
        "num_experts_per_tok": facts["experts_per_token"],
        "norm_topk_prob": True,
        "moe_intermediate_size": (dense.neurons - facts["shared_neurons"]) // experts,
        "shared_expert_intermediate_size": facts["shared_neurons"],
        "use_sliding_window": False,
        "use_cache": True,
    }


def layer_tensors(dense: DenseModel, packed: Tensors, facts: dict[str, Any], layer: int) -> Tensors:
    """Every tensor of one layer under its checkpoint name, float32, the low-rank corrections merged."""
    rank, shared, experts = facts["rank"], facts["shared_neurons"], facts["experts"]
    prefix = f"model.layers.{layer}."
    order = packed["order"][layer].astype(np.int64)

    def factor(name: str) -> np.ndarray:
        return packed[name][layer].astype(np.float32) * packed[name + ".scale"][layer].astype(np.float32)[:, None]

    def weight(name: str) -> np.ndarray:
        return dense.tensors[f"{prefix}{name}.weight"]

    out: Tensors = {}
    attention = factor("qkv_a")
    for number, name in enumerate("qkv"):
        a = attention[number * rank : (number + 1) * rank]
        out[f"self_attn.{name}_proj"] = weight(f"self_attn.{name}_proj") + factor(f"{name}_b") @ a
    out["self_attn.o_proj"] = weight("self_attn.o_proj") + factor("o_b") @ factor("o_a")
    out["input_layernorm"] = packed["attention_norm"][layer].astype(np.float32)
    out["post_attention_layernorm"] = packed["mlp_norm"][layer].astype(np.float32)

    gate_up = factor("gate_up_a")
    gate = weight("mlp.gate_proj")[order] + factor("gate_b") @ gate_up[:rank]
    up = weight("mlp.up_proj")[order] + factor("up_b") @ gate_up[rank:]
    down = weight("mlp.down_proj")[:, order] + factor("down_b") @ factor("down_a")
    for name, rows, scale in _experts(shared, experts, dense.neurons, facts["experts_per_token"]):
        out[f"mlp.{name}.gate_proj"] = gate[rows]
        out[f"mlp.{name}.up_proj"] = up[rows]
        out[f"mlp.{name}.down_proj"] = down[:, rows] * np.float32(scale)
    out["mlp.gate"] = packed["router"][layer].astype(np.float32)
    out["mlp.shared_expert_gate"] = packed["shared_gate"][layer].astype(np.float32)
    return {f"{prefix}{name}.weight": values for name, values in out.items()}


def _experts(shared: int, experts: int, neurons: int, chosen: int) -> Iterator[tuple[str, slice, float]]:
    """Name, neurons (in the recipe's order) and factor on the down-projection of each expert of a layer."""
    yield "shared_expert", slice(0, shared), 2.0
    size = (neurons - shared) // experts
    for expert in range(experts):
        start = shared + expert * size
        yield f"experts.{expert}", slice(start, start + size), float(chosen)


def _token(dense: DenseModel, text: str) -> int:
    tokens: list[str] = dense.metadata["tokenizer.ggml.tokens"]
    return tokens.index(text)


def _save_bf16(tensors: Tensors, path: Path) -> int:
    """Write ``tensors`` in bfloat16; returns the bytes of their values."""
    import torch
    from safetensors.torch import save_file

    rounded = {
        name: torch.from_numpy(np.ascontiguousarray(values)).to(torch.bfloat16) for name, values in tensors.items()
    }
    save_file(rounded, path, metadata={"format": "pt"})
    return sum(tensor.nbytes for tensor in rounded.values())


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
