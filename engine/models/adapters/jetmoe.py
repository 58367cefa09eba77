"""JetMoE: its MLP's experts as two stacked linears. Its mixture of attention heads, far smaller, stays dense."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig
from transformers.core_model_loading import WeightRenaming, WeightTransform
from transformers.models.jetmoe.modeling_jetmoe import JetMoeMoE, JetMoeTopKGating

from engine.models.adapters.base import AdaptedBlock, Experts


class JetMoeRouter(nn.Module):
    """``hidden [tokens, width]`` -> logits, weights, index."""

    def __init__(self, stock: JetMoeTopKGating) -> None:
        super().__init__()
        self.layer = stock.layer
        self.top_k = stock.top_k

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = self.layer(hidden).float()
        best, index = logits.topk(self.top_k, dim=1)
        return logits, torch.softmax(best, dim=1).type_as(hidden), index


class JetMoeBlock(AdaptedBlock):
    replaces = JetMoeMoE

    def __init__(self, stock: JetMoeMoE, config: PretrainedConfig) -> None:
        super().__init__(stock, config)
        width, inner = stock.input_size, stock.hidden_size
        shapes = {"gate_up_proj": (2 * inner, width), "down_proj": (width, inner)}
        self.experts = Experts(config, stock.router.num_experts, stock.activation, shapes)
        self.router = JetMoeRouter(stock.router)
        self.bias = stock.bias

    def forward(self, hidden: Tensor) -> Tensor:
        rows = hidden.reshape(-1, hidden.shape[-1])
        _, weights, index = self.router(rows)
        return self.experts(rows, index, weights).view_as(hidden) + self.bias

    def conversions(self) -> list[WeightTransform]:
        return [
            WeightRenaming(r"mlp\.input_linear\.weight", "mlp.experts.gate_up_proj"),
            WeightRenaming(r"mlp\.output_linear\.weight", "mlp.experts.down_proj"),
        ]
