"""Snowflake Arctic, which transformers has no class for: ours says what a plain loop over its published layers says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import silu, softmax

from engine.dense import load_tokenizer
from engine.loading import load
from engine.messages import LoadModel
from engine.models.folder import open_folder
from engine.models.skeleton import load_config
from tests.families import EXPERTS, make_tiny, tiny_tokenizer

PROMPT = torch.randint(3, 128, (40,), generator=torch.Generator().manual_seed(2)).tolist()

# the hub's config.json asks for code of its own
AUTO_MAP = {
    "AutoConfig": "configuration_arctic.ArcticConfig",
    "AutoModel": "modeling_arctic.ArcticModel",
    "AutoModelForCausalLM": "modeling_arctic.ArcticForCausalLM",
}


class Reference:
    """Arctic one token at a time and one expert at a time, from a checkpoint's tensors under the hub's names."""

    def __init__(self, folder: Path) -> None:
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
        self.weights = {name: tensor.double() for name, tensor in load_file(folder / "model.safetensors").items()}

    def logits(self, tokens: list[int]) -> Tensor:
        """float64 ``[tokens, vocabulary]``."""
        rows = [self.weights["model.embed_tokens.weight"][token] for token in tokens]
        for layer in range(self.config["num_hidden_layers"]):
            rows = self.layer(f"model.layers.{layer}.", layer, rows)
        return torch.stack([self.weights["lm_head.weight"] @ self.norm("model.norm", row) for row in rows])

    def layer(self, name: str, layer: int, rows: list[Tensor]) -> list[Tensor]:
        sparse = (layer + 1) % self.config["moe_layer_frequency"] == 0
        attended = self.attention(f"{name}self_attn.", [self.norm(f"{name}input_layernorm", row) for row in rows])
        result = []
        for before, change in zip(rows, attended, strict=True):
            after = before + change
            if sparse and self.config["parallel_attn_mlp_res"]:
                dense = self.mlp(f"{name}residual_mlp.", self.norm(f"{name}residual_layernorm", after))
                given = self.norm(f"{name}post_attention_layernorm", before)
                result.append(after + dense + self.experts(f"{name}block_sparse_moe.", given))
                continue
            given = self.norm(f"{name}post_attention_layernorm", after)
            block = f"{name}block_sparse_moe."
            result.append(after + (self.experts(block, given) if sparse else self.mlp(f"{block}mlp.", given)))
        return result

    def experts(self, name: str, row: Tensor) -> Tensor:
        chances = softmax(self.weights[f"{name}gate.weight"] @ row, dim=0)
        chosen = sorted(range(len(chances)), key=lambda expert: -float(chances[expert]))
        chosen = chosen[: self.config["num_experts_per_tok"]]
        total = sum(float(chances[expert]) for expert in chosen) if len(chosen) > 1 else 1.0
        parts = [float(chances[expert]) / total * self.mlp(f"{name}experts.{expert}.", row) for expert in chosen]
        return torch.stack(parts).sum(dim=0)

    def mlp(self, name: str, row: Tensor) -> Tensor:
        w1, w2, w3 = (self.weights[f"{name}w{number}.weight"] for number in (1, 2, 3))
        return w2 @ (silu(w1 @ row) * (w3 @ row))

    def attention(self, name: str, rows: list[Tensor]) -> list[Tensor]:
        heads, shared = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        queries, keys, values = (
            [(self.weights[f"{name}{kind}_proj.weight"] @ row).view(count, -1) for row in rows]
            for kind, count in (("q", heads), ("k", shared), ("v", shared))
        )
        queries, keys = ([self.turned(row, place) for place, row in enumerate(found)] for found in (queries, keys))
        result = []
        for place, query in enumerate(queries):
            out = []
            for head in range(heads):
                group = head * shared // heads
                scores = torch.stack([query[head] @ key[group] for key in keys[: place + 1]]) / query.shape[1] ** 0.5
                weights = softmax(scores, dim=0)
                out.append(sum(weight * value[group] for weight, value in zip(weights, values, strict=False)))
            result.append(self.weights[f"{name}o_proj.weight"] @ torch.cat(out))  # type: ignore[arg-type]
        return result

    def turned(self, row: Tensor, place: int) -> Tensor:
        """Rotary positions (https://arxiv.org/abs/2104.09864), the two halves of a head being pairs."""
        half = row.shape[1] // 2
        theta = self.config["rope_parameters"]["rope_theta"]
        angles = place * theta ** (-torch.arange(half, dtype=torch.float64) / half)
        first, second = row[:, :half], row[:, half:]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=1)

    def norm(self, name: str, row: Tensor) -> Tensor:
        return self.weights[f"{name}.weight"] * row / (row.square().mean() + self.config["rms_norm_eps"]).sqrt()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_experts_per_tok": 1},
        {"moe_layer_frequency": 2, "num_hidden_layers": 4},
        {"parallel_attn_mlp_res": False},
        {"rope_theta": 10_000.0, "num_key_value_heads": 4},
    ],
    ids=["as the makers' models", "one expert a token", "every other layer dense", "no dense residual", "rotary base"],
)
def test_it_says_what_a_plain_loop_says(changes: dict[str, Any], tmp_path: Path) -> None:
    folder = make_tiny("arctic", tmp_path, changes=changes)
    expected = Reference(folder).logits(PROMPT)
    loaded = load(LoadModel(str(folder), experts="25%", dtype="float32", device="cpu"))
    with torch.inference_mode():
        loaded.runtime.begin_pass("prefill", len(PROMPT))
        logits = loaded.model(torch.tensor([PROMPT])).logits[0]
        record = loaded.runtime.end_pass(0.0)
    loaded.close()
    assert float((logits - expected).abs().max() / expected.abs().max()) <= 1e-5
    assert record.counts.sum() == len(PROMPT) * loaded.info.top_k * loaded.info.layers
    assert loaded.info.slots * 4 == loaded.info.total_experts == loaded.info.layers * EXPERTS


def test_its_own_code_is_never_run(tmp_path: Path) -> None:
    folder = make_tiny("arctic", tmp_path, tokenizer=True)
    trap = "raise AssertionError('code of the checkpoint was run')\n"
    for part in ("configuration", "modeling", "tokenization"):
        (folder / f"{part}_arctic.py").write_text(trap, "utf-8")
    ask_for_code(folder / "config.json", AUTO_MAP)
    tokenizer_map = {"AutoTokenizer": ["tokenization_arctic.ArcticTokenizer", None]}
    ask_for_code(folder / "tokenizer_config.json", tokenizer_map, tokenizer_class="ArcticTokenizer")
    config = load_config(open_folder(folder))
    assert type(config).__module__ == "engine.models.own.arctic"
    tokenizer = load_tokenizer(open_folder(folder))
    assert type(tokenizer).__module__ == "engine.models.own.arctic"
    load(LoadModel(str(folder), experts="25%", dtype="float32", device="cpu")).close()


def test_a_tokenizer_of_another_kind_is_taken_as_it_is(tmp_path: Path) -> None:
    """A conversion may come with tokenizer.json alone, and no code."""
    folder = make_tiny("arctic", tmp_path)
    expected = tiny_tokenizer(folder)("A green room?").input_ids
    tokenizer = load_tokenizer(open_folder(folder))
    assert tokenizer is not None
    assert tokenizer("A green room?").input_ids == expected


def ask_for_code(file: Path, auto_map: dict[str, Any], **values: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | {"auto_map": auto_map} | values), "utf-8")
