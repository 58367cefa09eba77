"""What an adapter is made of: a block around experts of the registry's shape, and those experts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig
from transformers.core_model_loading import Concatenate, MergeModulelist, WeightConverter, WeightTransform
from transformers.integrations.moe import use_experts_implementation

from engine.models.headers import TensorRef


class AdaptedBlock(nn.Module):
    """A family's Mixture-of-Experts block, rebuilt around experts of the registry's shape.

    It computes what the block it replaces computes. Its dense parts are those of that block, under the same names, so
    that they load from the same checkpoint. Its router is a module beside the experts whose output is a tuple with a
    score for every expert and the very index tensor that the experts are given: that is how the router is found for
    look-aheads.

    replaces: the family's own class. mixes_tokens: what it computes for a token depends on all others of the pass,
    later ones too; then a prompt is read as transformers reads it, in one pass from nothing. top_k: experts for each
    token, where the config does not say.
    """

    replaces: ClassVar[type[nn.Module]]
    mixes_tokens: ClassVar[bool] = False
    top_k: ClassVar[int] = 0

    def __init__(self, stock: nn.Module, config: PretrainedConfig) -> None:
        """stock: the block to be replaced. config: that of the model it is in."""
        super().__init__()
        self.config = config

    def conversions(self) -> list[WeightTransform]:
        """From the checkpoint's names of experts to the names here, in transformers' terms. They are never run on a
        whole layer: each expert is read on its own."""
        return []

    def as_stored(self, ref: TensorRef) -> TensorRef | None:
        """A tensor of the checkpoint with a dimension for the experts, where the file has none; None: not a weight of
        this model. Any tensor of the checkpoint is asked about."""
        return ref


@use_experts_implementation
class Experts(nn.Module):
    """A layer's routed experts, as the registry has them: ``gate_up_proj [experts, 2 * inner, hidden]`` and
    ``down_proj [experts, hidden, inner]``. The function that the config names computes them."""

    def __init__(
        self,
        config: PretrainedConfig,
        num_experts: int,
        act_fn: Callable[[Tensor], Tensor],
        shapes: Mapping[str, tuple[int, ...]],
        transposed: Iterable[str] = (),
        weighs_input: bool = False,
    ) -> None:
        """config: names the function. shapes: of ONE expert's parameters, by name. transposed: names of those that are
        stored the other way round. weighs_input: the router's weight is put on what an expert is given, not on what it
        returns."""
        super().__init__()
        self.num_experts = num_experts
        self.act_fn = act_fn
        self.transposed = frozenset(transposed)
        self.weighs_input = weighs_input
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(num_experts, *shape)))

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """``[tokens, hidden]``, ``[tokens, k]``, ``[tokens, k]`` -> ``[tokens, hidden]``."""
        raise RuntimeError("the config names no function that computes experts")


@use_experts_implementation(has_gate=False)
class UngatedExperts(Experts):
    """Likewise, with ``up_proj [experts, inner, hidden]`` in the place of ``gate_up_proj``."""


@use_experts_implementation(has_gate=False, has_bias=True)
class UngatedExpertsWithBias(Experts):
    """Likewise, with ``up_proj_bias [experts, inner]`` and ``down_proj_bias [experts, hidden]``."""


def rows_joined(sources: list[str], target: str) -> WeightConverter:
    """Tensors ``[experts, rows, columns]`` of the checkpoint, or one for each expert, whose rows follow each other in
    the ``target``. Patterns are those of transformers."""
    return WeightConverter(sources, target, [MergeModulelist(dim=0), Concatenate(dim=1)])
