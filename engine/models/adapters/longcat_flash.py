"""LongCat-Flash: among the experts a router may choose are some that return what they are given (zero experts); they
have no weights, and the numbers after the last real expert mean them."""

from __future__ import annotations

import re

from torch import Tensor
from transformers import PretrainedConfig
from transformers.models.longcat_flash.modeling_longcat_flash import LongcatFlashMoE

from engine.models.adapters.base import AdaptedBlock, Experts
from engine.models.headers import TensorRef


class LongcatFlashBlock(AdaptedBlock):
    replaces = LongcatFlashMoE

    def __init__(self, stock: LongcatFlashMoE, config: PretrainedConfig) -> None:
        super().__init__(stock, config)
        own = stock.experts
        shapes = {
            "gate_up_proj": (2 * own.intermediate_size, own.hidden_size),
            "down_proj": (own.hidden_size, own.intermediate_size),
        }
        self.experts = Experts(config, own.num_routed_experts, own.act_fn, shapes)
        self.router = stock.router

    def forward(self, hidden: Tensor) -> Tensor:
        rows = hidden.reshape(-1, hidden.shape[-1])
        _, weights, index = self.router(rows)
        unchanged = weights.masked_fill(index < self.experts.num_experts, 0).sum(dim=1, keepdim=True)
        out = self.experts(rows, index, weights) + (rows * unchanged).to(rows.dtype)
        return out.view_as(hidden)

    def as_stored(self, ref: TensorRef) -> TensorRef | None:
        """transformers saves matrices for zero experts, too, which nothing uses."""
        number = re.search(r"\.mlp\.experts\.(\d+)\.", ref.name)
        return None if number and int(number[1]) >= self.experts.num_experts else ref
