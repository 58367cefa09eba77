"""Models of the true shapes with random numbers inside: what a benchmark needs of OLMoE without its 14 GB download.

A checkpoint as the hub has it: the original's tensor names, one tensor per expert, bfloat16, in shards. Written tensor
by tensor, so that memory holds one of them at most; the same seed gives the same bytes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil, prod
from pathlib import Path
from typing import Any, cast
from zlib import crc32

import torch
from transformers import AutoConfig, PretrainedConfig

from engine.errors import MemoryPlanError, OptionError
from engine.models.partial import into_place, own_partial, remove_leftovers
from engine.models.skeleton import make_skeleton
from engine.paths import models_dir

Report = Callable[[str], None]

SHARD_BYTES = 4_000_000_000
USUAL_EXPERT_BYTES = 4_000_000_000  # of all layers, where nobody says how many: enough to tell a disk from a cache
SPARE_ROOM = 500_000_000  # bytes to leave on the disk
CHUNK = 1 << 24  # numbers drawn at once
SEED = 0
BUILD = 1  # raised when the same name would give other bytes

# Numbers are drawn with this deviation, as the originals are initialised. A router then scores with a deviation of
# 0.02 * sqrt(hidden), about 1: it prefers, and does not saturate. The token's own embedding has deviation 1, so that
# what a layer adds (about a tenth) changes the stream as slowly as in a trained model and stays finite over any depth.
_DEVIATION = 0.02
_EMBEDDING_DEVIATION = 1.0


@dataclass(frozen=True, slots=True)
class Shape:
    """A real model's config, but for the number of layers.

    values: of the config. experts: the name of layer {layer}'s experts in the original. projections: what the original
    calls gate, up and down. renamed: other names the original has for transformers' own.
    """

    title: str
    model_type: str
    layers: int  # with routed experts
    values: dict[str, Any]
    experts: str = "model.layers.{layer}.mlp.experts"
    projections: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    renamed: tuple[tuple[str, str], ...] = ()
    dense_layers: int = 0  # without, at the start


SHAPES: dict[str, Shape] = {
    "olmoe": Shape(
        "OLMoE-1B-7B",
        "olmoe",
        16,
        {
            "vocab_size": 50304, "hidden_size": 2048, "intermediate_size": 1024, "num_attention_heads": 16,
            "num_key_value_heads": 16, "num_experts": 64, "num_experts_per_tok": 8, "norm_topk_prob": False,
            "max_position_embeddings": 4096,
        },
    ),
    "qwen3-30b": Shape(
        "Qwen3-30B-A3B",
        "qwen3_moe",
        48,
        {
            "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
            "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
            "num_experts_per_tok": 8, "norm_topk_prob": True, "max_position_embeddings": 40960,
        },
    ),
    "deepseek-v2-lite": Shape(
        "DeepSeek-V2-Lite",
        "deepseek_v2",
        26,
        {
            "vocab_size": 102400, "hidden_size": 2048, "intermediate_size": 10944, "moe_intermediate_size": 1408,
            "num_attention_heads": 16, "num_key_value_heads": 16, "q_lora_rank": None, "kv_lora_rank": 512,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 64,
            "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "norm_topk_prob": False,
            "topk_method": "greedy", "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0,
            "max_position_embeddings": 4096,
        },
        dense_layers=1,
    ),
    "mixtral": Shape(
        "Mixtral-8x7B",
        "mixtral",
        32,
        {
            "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
            "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
            "max_position_embeddings": 32768,
        },
        experts="model.layers.{layer}.block_sparse_moe.experts",
        projections=("w1", "w3", "w2"),
        renamed=((".mlp.gate.", ".block_sparse_moe.gate."),),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of the checkpoint, bfloat16."""

    name: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * 2


@dataclass(frozen=True)
class Synthetic:
    """A checkpoint that is written, or could be."""

    name: str
    shape: Shape
    layers: int  # with routed experts
    config: PretrainedConfig
    tensors: tuple[Tensor, ...]

    @property
    def title(self) -> str:
        plural = "" if self.layers == 1 else "s"
        return f"{self.shape.title} shape, {self.layers} of {self.shape.layers} layer{plural}, random weights"

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def folder(self) -> Path:
        return models_dir() / f"synthetic-{self.name}-{self.layers}-layers-{BUILD}"

    @property
    def is_written(self) -> bool:
        """Whether all of it is there: the folder gets its name last."""
        return (self.folder / "config.json").is_file()


def plan_synthetic(name: str, layers: int | None = None) -> Synthetic:
    """What ``name`` (of SHAPES) with so many layers of experts would be; None: about USUAL_EXPERT_BYTES of experts.

    Raises OptionError for another name, and for a number of layers the real model does not have.
    """
    if name not in SHAPES:
        raise OptionError(f"There is no shape {name!r}; choose {', '.join(SHAPES)}.")
    shape = SHAPES[name]
    if layers is None:
        of_one = sum(tensor.nbytes for tensor in _tensors(shape, _config(shape, 1)) if _is_expert(shape, tensor))
        layers = min(shape.layers, ceil(USUAL_EXPERT_BYTES / of_one))
    if not 1 <= layers <= shape.layers:
        raise OptionError(
            f"{shape.title} has {shape.layers} layers of experts; --layers is one of 1 to {shape.layers}."
        )
    config = _config(shape, layers)
    return Synthetic(name, shape, layers, config, tuple(_tensors(shape, config)))


def write_synthetic(model: Synthetic, report: Report = lambda text: None) -> Path:
    """Write it unless it is there; its folder. An interrupted write leaves nothing that could be taken for a model.

    Raises MemoryPlanError when the disk lacks room, before a byte is written.
    """
    if model.is_written:
        return model.folder
    remove_leftovers(models_dir())
    free = shutil.disk_usage(models_dir()).free
    if free < model.nbytes + SPARE_ROOM:
        raise MemoryPlanError(
            f"Not enough disk: {model.title}, takes {model.nbytes / 1e9:.1f} GB and {free / 1e9:.1f} GB are free in "
            f"{models_dir()}. Choose fewer --layers, or set GREENROOM_DATA to a folder on another disk."
        )
    report(f"writing {model.nbytes / 1e9:.1f} GB of random weights to {model.folder}")
    partial = own_partial(model.folder)
    try:
        _write(model, partial, report)
        into_place(partial, model.folder)
    except OSError as error:
        raise MemoryPlanError(
            f"{model.title}, could not be written to {models_dir()}: {error.strerror or error}."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return model.folder


def _config(shape: Shape, layers: int) -> PretrainedConfig:
    values = shape.values | {"num_hidden_layers": layers + shape.dense_layers, "tie_word_embeddings": False}
    no_tokens = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    config = AutoConfig.for_model(shape.model_type, **values, **no_tokens)
    config.dtype = torch.bfloat16
    return config


def _tensors(shape: Shape, config: PretrainedConfig) -> Iterator[Tensor]:
    """Every tensor of the checkpoint under the original's name."""
    skeleton = make_skeleton(config)
    model = skeleton.meta_model()
    config.architectures = [type(model).__name__]
    for name, tensor in model.state_dict().items():
        for ours, original in shape.renamed:
            name = name.replace(ours, original)
        yield Tensor(name, tuple(tensor.shape))
    gate, up, down = shape.projections
    for number, module in enumerate(skeleton.experts, shape.dense_layers):
        rows, hidden = module.parameters["gate_up_proj"]
        path = shape.experts.format(layer=number)
        for expert in range(module.num_experts):
            yield Tensor(f"{path}.{expert}.{gate}.weight", (rows // 2, hidden))
            yield Tensor(f"{path}.{expert}.{up}.weight", (rows // 2, hidden))
            yield Tensor(f"{path}.{expert}.{down}.weight", module.parameters["down_proj"])


def _is_expert(shape: Shape, tensor: Tensor) -> bool:
    return shape.experts.rpartition(".")[2] in tensor.name.split(".")


def _write(model: Synthetic, folder: Path, report: Report) -> None:
    shards = _shards(model.tensors)
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        report(f"writing {file}, {sum(tensor.nbytes for tensor in shard) / 1e9:.1f} GB")
        _write_shard(folder / file, shard)
        weight_map |= {tensor.name: file for tensor in shard}
    index = {"metadata": {"total_size": model.nbytes}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    model.config.to_json_file(folder / "config.json")


def _shards(tensors: tuple[Tensor, ...]) -> list[list[Tensor]]:
    """Layer after layer, cut where a file would grow beyond SHARD_BYTES; within a file by name, as the hub's are."""
    shards: list[list[Tensor]] = [[]]
    size = 0
    for tensor in sorted(tensors, key=lambda tensor: (_layer(tensor.name), tensor.name)):
        if size + tensor.nbytes > SHARD_BYTES and shards[-1]:
            shards.append([])
            size = 0
        shards[-1].append(tensor)
        size += tensor.nbytes
    return [sorted(shard, key=lambda tensor: tensor.name) for shard in shards]


def _layer(name: str) -> int:
    return next((int(part) for part in name.split(".") if part.isdigit()), -1)


def _write_shard(path: Path, tensors: list[Tensor]) -> None:
    """The safetensors format: 8 bytes of header length, a JSON header padded to 8 bytes, the numbers."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in tensors:
        place = [offset, offset + tensor.nbytes]
        header[tensor.name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": place}
        offset += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for tensor in tensors:
            for numbers in _numbers(tensor):
                file.write(memoryview(cast(Any, numbers.view(torch.uint8).numpy())))


def _numbers(tensor: Tensor) -> Iterator[torch.Tensor]:
    """Its numbers in order, bfloat16, a chunk at a time. What they are depends on the tensor's name alone."""
    total = prod(tensor.shape)
    if len(tensor.shape) == 1:  # the scale of a norm
        yield torch.ones(total, dtype=torch.bfloat16)
        return
    deviation = _EMBEDDING_DEVIATION if "embed_tokens" in tensor.name else _DEVIATION
    generator = torch.Generator().manual_seed(SEED << 32 | crc32(tensor.name.encode()))
    for start in range(0, total, CHUNK):
        drawn = torch.empty(min(CHUNK, total - start)).normal_(0.0, deviation, generator=generator)
        yield drawn.to(torch.bfloat16)
