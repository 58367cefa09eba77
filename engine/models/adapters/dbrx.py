"""DBRX: all experts of a layer below each other in three matrices, the last of them the other way round."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig
from transformers.core_model_loading import WeightRenaming, WeightTransform
from transformers.models.dbrx.modeling_dbrx import DbrxFFN

from engine.models.adapters.base import AdaptedBlock, Experts, rows_joined
from engine.models.headers import TensorRef


class DbrxRouter(nn.Module):
    """``hidden [..., width]`` -> logits, weights, index. ``norm``: of which the weights of a token are one, if any."""

    def __init__(self, stock: DbrxFFN) -> None:
        super().__init__()
        self.layer = stock.router.layer
        self.top_k, self.norm = stock.top_k, stock.moe_normalize_expert_weights

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = self.layer(hidden.view(-1, hidden.shape[-1]))
        weights, index = logits.softmax(dim=1).topk(self.top_k, dim=-1)
        if self.norm is not None:
            weights = weights / torch.norm(weights, p=self.norm, dim=-1, keepdim=True)
        return logits, weights, index


class DbrxBlock(AdaptedBlock):
    replaces = DbrxFFN

    def __init__(self, stock: DbrxFFN, config: PretrainedConfig) -> None:
        super().__init__(stock, config)
        glu = stock.experts.mlp
        self.router = DbrxRouter(stock)
        inner, width = glu.ffn_hidden_size, glu.hidden_size
        shapes = {"gate_up_proj": (2 * inner, width), "down_proj": (inner, width)}
        count = stock.experts.num_experts
        self.experts = Experts(config, count, glu.activation_fn, shapes, transposed=["down_proj"])

    def forward(self, hidden: Tensor) -> Tensor:
        _, weights, index = self.router(hidden)
        return self.experts(hidden.reshape(-1, hidden.shape[-1]), index, weights).view_as(hidden)

    def conversions(self) -> list[WeightTransform]:
        return [
            rows_joined([r"experts\.mlp\.w1", r"experts\.mlp\.v1"], "experts.gate_up_proj"),
            WeightRenaming(r"experts\.mlp\.w2", "experts.down_proj"),
        ]

    def as_stored(self, ref: TensorRef) -> TensorRef:
        count = self.experts.num_experts
        if ".experts.mlp." in ref.name and len(ref.shape) == 2 and ref.shape[0] % count == 0:
            return replace(ref, shape=(count, ref.shape[0] // count, ref.shape[1]))
        return ref
