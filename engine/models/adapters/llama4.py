"""Llama 4: the router's weight is put on what an expert is given; matrices are stored the other way round. (The
family's own block computes every expert on every token.)"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PretrainedConfig
from transformers.models.llama4.modeling_llama4 import Llama4TextMoe

from engine.models.adapters.base import AdaptedBlock, Experts


class Llama4Router(nn.Module):
    """``hidden [tokens, width]`` -> logits, weights, index."""

    def __init__(self, stock: Llama4TextMoe) -> None:
        super().__init__()
        self.weight = stock.router.weight
        self.top_k = stock.top_k

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = linear(hidden, self.weight)
        best, index = logits.topk(self.top_k, dim=1)
        return logits, best.float().sigmoid().to(logits.dtype), index


class Llama4Block(AdaptedBlock):
    replaces = Llama4TextMoe

    def __init__(self, stock: Llama4TextMoe, config: PretrainedConfig) -> None:
        super().__init__(stock, config)
        width, inner = stock.hidden_dim, stock.experts.expert_dim
        shapes = {"gate_up_proj": (width, 2 * inner), "down_proj": (inner, width)}
        act_fn = stock.experts.act_fn
        self.experts = Experts(config, stock.num_experts, act_fn, shapes, transposed=shapes, weighs_input=True)
        self.router = Llama4Router(stock)
        self.shared_expert = stock.shared_expert

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        hidden = hidden.reshape(-1, hidden.shape[-1])
        logits, weights, index = self.router(hidden)
        return self.shared_expert(hidden) + self.experts(hidden, index, weights), logits
