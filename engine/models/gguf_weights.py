"""A dense Llama model in one GGUF file, read as transformers names and numpy arrays.

The demo's source is such a file. ``gguf`` (llama.cpp's own reader) knows the packed formats; what is left to do here
is the naming, the rotary order of the query and key rows, and the tokenizer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL_TOKEN = 3
_SPLIT_DIGITS_THEN_BYTES = "smollm"


@dataclass(frozen=True)
class DenseModel:
    """Weights and facts of a dense Llama model.

    ``tensors`` maps transformers' names (``model.layers.0.mlp.up_proj.weight``) to float32 arrays in transformers'
    layout ``[out, in]``. ``metadata`` holds the file's own key-value pairs.
    """

    tensors: dict[str, np.ndarray]
    metadata: dict[str, Any]

    @property
    def layers(self) -> int:
        return int(self.metadata["llama.block_count"])

    @property
    def heads(self) -> int:
        return int(self.metadata["llama.attention.head_count"])

    @property
    def kv_heads(self) -> int:
        return int(self.metadata["llama.attention.head_count_kv"])

    @property
    def hidden(self) -> int:
        return int(self.metadata["llama.embedding_length"])

    @property
    def neurons(self) -> int:
        """Feed-forward neurons per layer."""
        return int(self.metadata["llama.feed_forward_length"])


def read_dense_model(path: Path) -> DenseModel:
    """Read and dequantise every tensor of the GGUF file at ``path``."""
    import gguf

    reader = gguf.GGUFReader(path)
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    tensors: dict[str, np.ndarray] = {}
    for tensor in reader.tensors:
        values = np.asarray(gguf.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        name = _transformers_name(tensor.name)
        if name.endswith("q_proj.weight"):
            values = _halves_order(values, int(metadata["llama.attention.head_count"]))
        elif name.endswith("k_proj.weight"):
            values = _halves_order(values, int(metadata["llama.attention.head_count_kv"]))
        tensors[name] = np.ascontiguousarray(values)
    return DenseModel(tensors, metadata)


def _transformers_name(name: str) -> str:
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{_LAYER_NAMES[part]}.weight"


def _halves_order(rows: np.ndarray, heads: int) -> np.ndarray:
    """Undo GGUF's rotary order: it interleaves the pairs, transformers keeps the two halves of a head apart.

    ``rows``: ``[heads * head size, in]``.
    """
    size = rows.shape[0] // heads
    return rows.reshape(heads, size // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def write_tokenizer(model: DenseModel, folder: Path) -> None:
    """Write the file's byte-level BPE as the tokenizer files that transformers reads."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    meta = model.metadata
    if meta["tokenizer.ggml.model"] != "gpt2" or meta["tokenizer.ggml.pre"] != _SPLIT_DIGITS_THEN_BYTES:
        raise ValueError(f"unexpected tokenizer {meta['tokenizer.ggml.model']}/{meta['tokenizer.ggml.pre']}")
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds: list[int] = meta["tokenizer.ggml.token_type"]
    special = [t for t, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[meta["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[meta["tokenizer.ggml.eos_token_id"]],
        "pad_token": tokens[meta["tokenizer.ggml.padding_token_id"]],
        "unk_token": tokens[meta["tokenizer.ggml.unknown_token_id"]],
        "model_max_length": meta["llama.context_length"],
        "clean_up_tokenization_spaces": False,
        "chat_template": meta["tokenizer.chat_template"],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
