"""Families whose experts have a shape of their own, brought to the shape of transformers' registry.

One file for each family, called as the family's folder in ``transformers.models``; in it, a block that takes the place
of the family's own. Blocks are found by their class, so the language half of a larger model is adapted just the same.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from torch import nn
from transformers import PreTrainedModel
from transformers.core_model_loading import WeightTransform

from engine.models.adapters.base import AdaptedBlock
from engine.models.headers import TensorRef

_FILES = frozenset(file.name for file in pkgutil.iter_modules(__path__))


def adapt(model: PreTrainedModel) -> None:
    """Put adapted blocks in the place of the model's own. A model without such blocks stays as it is."""
    owners: dict[str, PreTrainedModel] = {}
    for path, module in list(model.named_modules()):
        if isinstance(module, PreTrainedModel):
            owners[path] = module
        block = _block_for(module)
        if block is not None:
            owner = next(owners[above] for above in _upwards(path) if above in owners)
            model.set_submodule(path, block(module, owner.config))


def conversions_of(model: nn.Module) -> list[WeightTransform]:
    """How the checkpoint's names of experts become those of the adapted blocks; none where no block was adapted."""
    return [conversion for block in _adapted(model) for conversion in block.conversions()]


def as_stored(tensors: Mapping[str, TensorRef], model: nn.Module) -> dict[str, TensorRef]:
    """The checkpoint's tensors as the adapted blocks see them: in another shape over the same bytes, or left out."""
    seen = dict(tensors)
    for block in _adapted(model):
        views = {name: block.as_stored(ref) for name, ref in seen.items()}
        seen = {name: ref for name, ref in views.items() if ref is not None}
    return seen


def _adapted(model: nn.Module) -> list[AdaptedBlock]:
    """One block of each kind in the model: what they say about names and shapes is the same in every layer."""
    found: dict[type, AdaptedBlock] = {}
    for module in model.modules():
        if isinstance(module, AdaptedBlock):
            found.setdefault(type(module), module)
    return list(found.values())


def _block_for(module: nn.Module) -> type[AdaptedBlock] | None:
    library, _, rest = type(module).__module__.partition(".models.")
    family = rest.partition(".")[0]
    if library != "transformers" or family not in _FILES:
        return None
    kinds = vars(importlib.import_module(f"{__name__}.{family}")).values()
    blocks = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, AdaptedBlock)]
    return next((block for block in blocks if getattr(block, "replaces", None) is type(module)), None)


def _upwards(path: str) -> list[str]:
    """ "a.b.c" -> "a.b.c", "a.b", "a", ""."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), -1, -1)]
