"""Where each expert's bytes are: from the headers and transformers' own conversion mapping, no tensor read.

A checkpoint holds experts either one tensor each (``experts.7.w1.weight``) or fused (slice [e] of a big tensor), under
the hub's names. transformers knows for each architecture which of them make up which parameter, and by what operations;
the index asks it, and keeps for every (layer, expert) the byte ranges and, where needed, those operations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    WeightConverter,
    WeightRenaming,
    dot_natural_key,
    rename_source_key,
)

from engine.errors import ModelError
from engine.models.adapters import as_stored, conversions_of
from engine.models.conversion import OneExpertModel, deals, is_plain, own_share
from engine.models.folder import ModelFolder
from engine.models.headers import TensorRef
from engine.models.skeleton import ExpertsModule, Skeleton

TORCH_DTYPE = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of bytes in a file that belongs to one expert: a whole tensor, or slice [e] of a fused one."""

    file: Path
    offset: int
    nbytes: int
    dtype: torch.dtype
    shape: tuple[int, ...]  # with a leading 1 when cut from a fused tensor
    source_pattern: str  # which of the converter's inputs it is


@dataclass(frozen=True, slots=True)
class ParameterSource:
    """One expert's share of one parameter (or of several, when one tensor is split over them).

    converter None: the pieces' numbers, one after the other, are the parameter in its own layout.
    """

    target: str  # the parameter's full name, "model.layers.3.mlp.experts.down_proj"
    pieces: tuple[Piece, ...]
    converter: WeightConverter | None


@dataclass(frozen=True)
class ExpertIndex:
    """Of every experts module in the model, in layer order, every expert's sources."""

    modules: tuple[ExpertsModule, ...]
    sources: tuple[tuple[tuple[ParameterSource, ...], ...], ...]  # [layer][expert] -> its parameters
    names: frozenset[str]  # checkpoint names that belong to experts; everything else is dense
    tensors: tuple[TensorRef, ...]  # all that a load reads, dense ones too; a file may hold more: towers, draft heads

    @property
    def total_bytes(self) -> int:
        """Bytes of all that a load reads, as stored."""
        return sum(ref.nbytes for ref in self.tensors)

    def stored_bytes(self) -> int:
        """Bytes of all routed experts in the checkpoint."""
        return sum(piece.nbytes for _, _, source in self._walk() for piece in source.pieces)

    def stored_dtypes(self) -> set[torch.dtype]:
        return {piece.dtype for _, _, source in self._walk() for piece in source.pieces}

    def _walk(self) -> Iterator[tuple[int, int, ParameterSource]]:
        for layer, experts in enumerate(self.sources):
            for expert, parameters in enumerate(experts):
                for source in parameters:
                    yield layer, expert, source


def build_index(folder: ModelFolder, skeleton: Skeleton, model: PreTrainedModel) -> ExpertIndex:
    """Map every (layer, expert) of ``model`` to its bytes.

    model: an instance of ``skeleton.model_class``, on the meta device or loaded.
    Raises ModelError naming what is missing when some expert has no weights under a name transformers knows, what fits
    no parameter, and what has another size than the config says.
    """
    if not skeleton.experts:
        raise _no_experts(skeleton)
    skeleton.check_top_k()
    mapping = [*get_model_conversion_mapping(model), *conversions_of(model)]
    renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
    by_pattern = {pattern: entry for entry in converters for pattern in entry.source_patterns}
    names = dict.fromkeys(skeleton.state_names, True)

    paths = tuple(f"{module.path}." for module in skeleton.experts)
    # target parameter -> (converter, {source pattern: tensors in natural order})
    found: dict[str, tuple[WeightConverter | None, dict[str, list[TensorRef]]]] = {}
    stored_tensors = as_stored(folder.tensors, model)
    for key in sorted(stored_tensors, key=dot_natural_key):
        target, pattern = rename_source_key(key, renamings, converters, model.base_model_prefix, names)
        if target not in names and key in names:
            target, pattern = rename_source_key(key, [], [], model.base_model_prefix, names)
        converter = by_pattern[pattern] if pattern is not None else None
        first, tensors = found.setdefault(target, (converter, {}))
        if first is not converter and target.startswith(paths):
            raise _twice(target, _keys(tensors)[0], key)
        tensors.setdefault(pattern if pattern is not None else key, []).append(stored_tensors[key])

    _check_dense_shapes(found, model)
    foreign = [key for target, (_, tensors) in found.items() if target not in names for key in _keys(tensors)]
    sources: list[tuple[tuple[ParameterSource, ...], ...]] = []
    used: set[str] = set()
    one_expert = OneExpertModel(model, skeleton.experts)
    for module in skeleton.experts:
        per_expert: list[list[ParameterSource]] = [[] for _ in range(module.num_experts)]
        covered: set[str] = set()
        unplaced: list[str] = []
        for target, (converter, tensors) in found.items():
            if not target.startswith(module.path + "."):
                continue
            stored = _keys(tensors)
            parameters = _targets(target, converter, module)
            if not parameters:
                unplaced += [] if target in names else stored
                continue
            absent = _absent(converter, tensors)
            if absent:
                raise _not_placed(f"{target} ({absent})", _near(module.path, foreign))
            covered.update(parameters)
            if converter is not None and deals(target, converter):
                converter, tensors = own_share(target, converter, tensors, model)
            used.update(_keys(tensors))
            for expert, source in enumerate(_split(target, converter, tensors, module, one_expert)):
                per_expert[expert].append(source)
        missing = sorted(set(module.parameters) - covered)
        if missing:
            raise _not_placed(f"{module.path}.{missing[0]}", unplaced or _near(module.path, foreign))
        if unplaced:
            raise ModelError(
                f"{module.path} would leave out {_shown(unplaced)}: transformers has no place for such names."
            )
        sources.append(tuple(tuple(parameters) for parameters in per_expert))
    dense = model.state_dict().keys()
    read = used.union(*(_keys(tensors) for target, (_, tensors) in found.items() if target in dense))
    return ExpertIndex(
        tuple(skeleton.experts), tuple(sources), frozenset(used), tuple(folder.tensors[name] for name in sorted(read))
    )


def _check_dense_shapes(
    found: dict[str, tuple[WeightConverter | None, dict[str, list[TensorRef]]]], model: PreTrainedModel
) -> None:
    """Weights that are loaded as they are must have the size that the config gives them."""
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    for target, (converter, tensors) in found.items():
        refs = [ref for refs in tensors.values() for ref in refs]
        if converter is None and len(refs) == 1 and target in shapes and refs[0].shape != shapes[target]:
            raise ModelError(
                f"{refs[0].name} has the size {list(refs[0].shape)} and the config asks for {list(shapes[target])}: "
                "config.json does not belong to these weights, or one of the two is damaged."
            )


def _targets(target: str, converter: WeightConverter | None, module: ExpertsModule) -> set[str]:
    """Which of the module's parameters this source fills (several when one tensor is split over them)."""
    parent, _, leaf = target.rpartition(".")
    if parent != module.path:
        return set()
    if converter is None or len(converter.target_patterns) == 1:
        return {leaf} & set(module.parameters)
    return {pattern.rpartition(".")[2] for pattern in converter.target_patterns} & set(module.parameters)


def _split(
    target: str,
    converter: WeightConverter | None,
    tensors: dict[str, list[TensorRef]],
    module: ExpertsModule,
    model: OneExpertModel,
) -> Iterator[ParameterSource]:
    count = module.num_experts
    plain = is_plain(converter)
    patterns = [p for p in converter.source_patterns if p in tensors] if converter else list(tensors)
    if converter is None and len(patterns) > 1:
        raise _twice(target, patterns[0], patterns[1])
    for pattern in patterns:
        _check_count(target, tensors[pattern], count)
    own = deepcopy(converter) if converter and not plain else None
    if own is not None:
        first = {pattern: _piece(tensors[pattern], 0, pattern, count) for pattern in patterns}
        _check_conversion(target, own, first, module, model)
    for expert in range(count):
        pieces = tuple(_piece(tensors[pattern], expert, pattern, count) for pattern in patterns)
        source = ParameterSource(target, pieces, own)
        if own is None:
            _check_size(source, module)
        yield source


def _check_conversion(
    target: str, converter: WeightConverter, pieces: dict[str, Piece], module: ExpertsModule, model: OneExpertModel
) -> None:
    """Run the operations on shapes alone: one expert on its own must come out as one expert."""
    for pattern, piece in pieces.items():
        converter.add_tensor(target, target, pattern, _on_meta(piece))
    try:
        made = converter.convert(target, model=model, config=model.config)
        shapes = {name: tuple(t[0].shape if isinstance(t, list) else t.shape) for name, t in made.items()}
    except Exception as error:  # any operation, any complaint
        raise ModelError(f"The experts of {target} cannot be converted one by one ({error}).") from error
    parameters = _targets(target, converter, module)
    if {name.rpartition(".")[2] for name in shapes} != parameters:
        raise ModelError(
            f"One expert of {target} comes out as {_shown(sorted(shapes))}, and the model wants "
            f"{', '.join(sorted(parameters))}: this version of transformers does not fit this checkpoint."
        )
    for name, shape in shapes.items():
        wanted = module.parameters[name.rpartition(".")[2]]
        if shape not in (wanted, (1, *wanted)):
            raise ModelError(
                f"One expert of {name} comes out as {list(shape)} where the config asks for {list(wanted)}."
            )


def _on_meta(piece: Piece) -> Any:
    """What a converter collects: something to call when the tensor is needed; here a shape without numbers."""
    return lambda: torch.empty(piece.shape, dtype=piece.dtype, device="meta")


def _absent(converter: WeightConverter | None, tensors: dict[str, list[TensorRef]]) -> str:
    """The first of a plain converter's inputs that the checkpoint does not have; empty when all are there."""
    if converter is None or not is_plain(converter):
        return ""
    return next((pattern for pattern in converter.source_patterns if pattern not in tensors), "")


def _twice(target: str, one: str, other: str) -> ModelError:
    return ModelError(
        f"The checkpoint has {target} twice, as {one} and as {other}, and nothing says which is meant. It was put "
        "together from two versions of the model; download it again."
    )


def _check_count(target: str, refs: list[TensorRef], count: int) -> None:
    if len(refs) == 1 and refs[0].shape and refs[0].shape[0] == count:
        return
    numbers = [_expert_number(ref.name) for ref in refs]
    again = next((place for place, number in enumerate(numbers) if number is not None and number in numbers[:place]), 0)
    if again:
        raise _twice(target, refs[numbers.index(numbers[again])].name, refs[again].name)
    if len(refs) == count and (None in numbers or numbers == list(range(count))):
        return
    if numbers == [None]:
        raise ModelError(f"{refs[0].name} holds {refs[0].shape[0] if refs[0].shape else 0} experts, not {count}.")
    gone = sorted(set(range(count)) - {number for number in numbers if number is not None})
    if gone:
        raise ModelError(
            f"The checkpoint is incomplete: {target} needs {count} experts, and the tensors of expert "
            f"{', '.join(map(str, gone[:6]))}{' and more' if len(gone) > 6 else ''} are missing."
        )
    raise ModelError(f"{target} needs {count} experts, and the checkpoint has {len(refs)} tensors for it.")


def _expert_number(name: str) -> int | None:
    match = re.search(r"experts\.(?:expert_)?(\d+)\.", name)
    return int(match[1]) if match else None


def _piece(refs: list[TensorRef], expert: int, pattern: str, count: int) -> Piece:
    if len(refs) == 1 and (count > 1 or (refs[0].shape[:1] == (1,) and _expert_number(refs[0].name) is None)):
        ref = refs[0]
        nbytes = ref.nbytes // count
        return Piece(ref.file, ref.offset + expert * nbytes, nbytes, _dtype(ref), (1, *ref.shape[1:]), pattern)
    ref = refs[expert]
    return Piece(ref.file, ref.offset, ref.nbytes, _dtype(ref), ref.shape, pattern)


def _dtype(ref: TensorRef) -> torch.dtype:
    dtype = TORCH_DTYPE.get(ref.dtype)
    if dtype is None or not dtype.is_floating_point:  # integers are packed numbers whose scale is elsewhere
        raise ModelError(f"The tensor {ref.name} has the number format {ref.dtype}, which Greenroom does not run.")
    return dtype


def _check_size(source: ParameterSource, module: ExpertsModule) -> None:
    shape = module.parameters[source.target.rpartition(".")[2]]
    stored = sum(piece.nbytes // piece.dtype.itemsize for piece in source.pieces)
    if stored != prod(shape):
        raise ModelError(
            f"{source.target} should have {prod(shape):,} numbers per expert, {list(shape)}, and the checkpoint has "
            f"{stored:,}. The config does not fit these weights."
        )


def _no_experts(skeleton: Skeleton) -> ModelError:
    config = skeleton.config
    text_config = config.get_text_config()
    marks = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "ffn_config")
    if any(getattr(text_config, mark, None) for mark in marks):
        return ModelError(
            f"The family {config.model_type} routes its experts in a way of its own, which Greenroom does not "
            "support yet."
        )
    return ModelError(
        f"This is a dense model ({config.model_type}): it has no experts to offload. Greenroom is for "
        "Mixture-of-Experts models, such as OLMoE, Qwen3-30B-A3B or Mixtral."
    )


def _keys(tensors: dict[str, list[TensorRef]]) -> list[str]:
    return [ref.name for refs in tensors.values() for ref in refs]


def _near(path: str, names: list[str]) -> list[str]:
    """The names from the closest surroundings of ``path``: same block, same layer, anywhere."""
    for depth in (1, 2):
        around = ".".join(path.split(".")[:-depth]) + "."
        inside = [name for name in names if around in name]
        if inside:
            return inside
    return [name for name in names if "expert" in name] or names


def _not_placed(parameter: str, foreign: list[str]) -> ModelError:
    if not foreign:
        return ModelError(f"The checkpoint has no weights for {parameter}; the download seems incomplete.")
    return ModelError(
        f"The checkpoint has no weights for {parameter}: this version of transformers does not know the names "
        f"{_shown(foreign)}."
    )


def _shown(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
