"""transformers' conversion operations, run for one expert alone."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.core_model_loading import Concatenate, MergeModulelist, WeightConverter

from engine.errors import ModelError
from engine.models.headers import TensorRef
from engine.models.skeleton import ExpertsModule


class OneExpertModel:
    """The model as transformers' operations must see it while they convert a single expert: the parameters of its
    experts modules have one expert, and no numbers."""

    def __init__(self, model: PreTrainedModel, modules: Sequence[ExpertsModule]) -> None:
        self._model = model
        self._shapes = {
            f"{module.path}.{name}": shape for module in modules for name, shape in module.parameters.items()
        }

    def get_parameter(self, name: str) -> torch.Tensor:
        shape = self._shapes.get(name)
        return self._model.get_parameter(name) if shape is None else torch.empty((1, *shape), device="meta")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def is_plain(converter: WeightConverter | None) -> bool:
    """True when the expert in the module's layout is just its tensors' bytes one after the other."""
    if converter is None:
        return True
    first, *joins = converter.operations
    if not (isinstance(first, MergeModulelist) and first.dim == 0):  # else the checkpoint has them stacked already
        joins = converter.operations
    # of a stack [experts, rows, columns], dim 1 is the first of one expert: joined there, rows follow rows
    joined = all(type(join) is Concatenate and join.dim == 1 and join.num_shards_attribute is None for join in joins)
    return len(joins) <= 1 and joined and len(converter.target_patterns) == 1


def deals(target: str, converter: WeightConverter) -> bool:
    """Whether the converter deals its tensors out to several modules: to experts for text and experts for pictures."""
    first, *others = converter.target_patterns
    places = [target.removesuffix(first) + pattern for pattern in (first, *others)]
    return len({place.rpartition(".")[0] for place in places}) > 1


def own_share(
    target: str, converter: WeightConverter, tensors: dict[str, list[TensorRef]], model: PreTrainedModel
) -> tuple[WeightConverter, dict[str, list[TensorRef]]]:
    """The tensors that ``target`` is made of, and a converter for them alone. Found by trial: each tensor is stood for
    by its number, and the operations show where it goes."""
    trial = deepcopy(converter)
    for pattern, refs in tensors.items():
        for number in range(len(refs)):
            stands_for_it: Any = partial(torch.full, (1, 1), float(number))
            trial.add_tensor(target, target, pattern, stands_for_it)
    try:
        made = trial.convert(target, model=model, config=model.config)[target]
        rows = made.flatten(1).int().tolist()
    except Exception as error:  # any operation, any complaint
        raise ModelError(f"The experts of {target} cannot be told from those of other modules ({error}).") from error
    if any(len(set(row)) != 1 for row in rows):
        raise ModelError(f"The experts of {target} are mixed with those of other modules.")
    own = WeightConverter(list(converter.source_patterns), converter.target_patterns[0], deepcopy(converter.operations))
    return own, {pattern: [refs[row[0]] for row in rows] for pattern, refs in tensors.items()}
