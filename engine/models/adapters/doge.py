"""Doge: thousands of experts of one inner neuron each, as rows of two embeddings; a pair of keys names one.

Source: Wonderful Matrices, https://arxiv.org/abs/2412.11834; keys in pairs: https://arxiv.org/abs/2407.04153.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PretrainedConfig
from transformers.core_model_loading import WeightRenaming, WeightTransform
from transformers.models.doge.modeling_doge import DogeCDMoE

from engine.models.adapters.base import AdaptedBlock, UngatedExperts


class DogeRouter(nn.Module):
    """``hidden [tokens, width]`` -> scores of all pairs of keys, weights, index.

    Of several tokens in one pass it mixes the keys' scores, as the family's own does: which experts a token gets then
    depends on its neighbours.
    """

    def __init__(self, stock: DogeCDMoE) -> None:
        super().__init__()
        self.weight = stock.router_gate.weight
        self.keys, self.top_k, self.normalised = stock.num_keys, stock.top_k, stock.norm_topk_prob

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, columns = linear(hidden, self.weight).view(2, len(hidden), self.keys)
        scores = (rows.unsqueeze(2) + columns.unsqueeze(1)).flatten(1)
        best, index = scores.topk(self.top_k, dim=1)
        weights = best.softmax(dim=1)
        return scores, weights / weights.sum(dim=1, keepdim=True) if self.normalised else weights, index


class DogeBlock(AdaptedBlock):
    replaces = DogeCDMoE
    mixes_tokens = True

    def __init__(self, stock: DogeCDMoE, config: PretrainedConfig) -> None:
        super().__init__(stock, config)
        shapes = {"up_proj": (1, stock.hidden_size), "down_proj": (stock.hidden_size, 1)}
        self.experts = UngatedExperts(config, stock.num_experts, stock.act_fn, shapes)
        self.router_gate = DogeRouter(stock)
        self.gate_proj, self.up_proj, self.down_proj = stock.gate_proj, stock.up_proj, stock.down_proj
        self.act_fn = stock.act_fn

    def forward(self, hidden: Tensor, **kwargs: object) -> tuple[Tensor, Tensor]:
        rows = hidden.reshape(-1, hidden.shape[-1])
        scores, weights, index = self.router_gate(rows)
        shared = self.down_proj(self.act_fn(self.gate_proj(rows)) * self.up_proj(rows))
        return (shared + self.experts(rows, index, weights)).view_as(hidden), scores

    def conversions(self) -> list[WeightTransform]:
        return [
            WeightRenaming(r"mlp\.down_embed\.weight", "mlp.experts.up_proj"),
            WeightRenaming(r"mlp\.up_embed\.weight", "mlp.experts.down_proj"),
        ]
