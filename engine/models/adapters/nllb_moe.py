"""NLLB-MoE: two experts for a token, in encoder and decoder, as published (see engine/models/mended.py)."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn
from transformers import PretrainedConfig
from transformers.activations import ACT2FN
from transformers.core_model_loading import MergeModulelist, WeightConverter, WeightTransform
from transformers.models.nllb_moe.modeling_nllb_moe import NllbMoeSparseMLP, NllbMoeTop2Router

from engine.models.adapters.base import AdaptedBlock, UngatedExpertsWithBias


class NllbRouter(nn.Module):
    """``hidden [tokens, width]`` -> weights of all experts, weights ``[tokens, 2]``, index ``[tokens, 2]``; the index
    of a choice that capacity dropped is the number of experts."""

    def __init__(self, stock: NllbMoeTop2Router) -> None:
        super().__init__()
        self.classifier = stock.classifier
        self.stock = [stock.eval()]  # in a list it is no part of the model: its weights are here already

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        _, gates, _ = self.stock[0](hidden)
        weights, index = gates.topk(2, dim=-1)
        return gates, weights, index.masked_fill(weights == 0, gates.shape[-1])


class NllbBlock(AdaptedBlock):
    replaces = NllbMoeSparseMLP
    mixes_tokens = True
    top_k = 2

    def __init__(self, stock: NllbMoeSparseMLP, config: PretrainedConfig) -> None:
        super().__init__(stock, config)
        self.router, self.kept = NllbRouter(stock.router), 1 - config.moe_token_dropout
        inner = cast(nn.Linear, stock.experts["expert_0"].fc1).out_features
        shapes: dict[str, tuple[int, ...]] = {"up_proj": (inner, config.d_model), "up_proj_bias": (inner,)}
        shapes |= {"down_proj": (config.d_model, inner), "down_proj_bias": (config.d_model,)}
        act_fn = ACT2FN[config.activation_function]
        self.experts = UngatedExpertsWithBias(config, config.num_experts, act_fn, shapes)

    def forward(self, hidden: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        rows = hidden.view(-1, hidden.shape[-1])
        _, weights, index = self.router(rows)  # one text in a pass: no token is padding
        return self.experts(rows, index, weights * self.kept).view_as(hidden)

    def conversions(self) -> list[WeightTransform]:
        names = {"fc1.weight": "up_proj", "fc1.bias": "up_proj_bias", "fc2.weight": "down_proj"}
        names["fc2.bias"] = "down_proj_bias"
        return [
            WeightConverter(f"experts.expert_*.{theirs}", f"experts.{ours}", [MergeModulelist(dim=0)])
            for theirs, ours in names.items()
        ]
