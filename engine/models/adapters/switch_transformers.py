"""Switch Transformers: one expert for a token, in encoder and decoder; none for those beyond its capacity."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import one_hot
from transformers import PretrainedConfig
from transformers.activations import ACT2FN
from transformers.core_model_loading import MergeModulelist, WeightConverter, WeightTransform
from transformers.models.switch_transformers.modeling_switch_transformers import (
    SwitchTransformersSparseMLP,
    SwitchTransformersTop1Router,
)

from engine.models.adapters.base import AdaptedBlock, UngatedExperts


class SwitchRouter(nn.Module):
    """``hidden [1, tokens, width]`` -> logits, weights ``[tokens, 1]``, index ``[tokens, 1]``; the index of a token
    that its expert has no capacity for is the number of experts. Capacity: first come, first served."""

    def __init__(self, stock: SwitchTransformersTop1Router) -> None:
        super().__init__()
        self.classifier = stock.classifier
        self.dtype, self.capacity = stock.dtype, stock.expert_capacity

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.classifier = self.classifier.to(self.dtype)
        logits = self.classifier(hidden[0].to(self.dtype))
        best, index = logits.softmax(dim=-1).to(hidden.dtype).max(dim=-1, keepdim=True)
        count = logits.shape[-1]
        place = one_hot(index[:, 0], count).cumsum(dim=0).gather(1, index)
        return logits, best, index.masked_fill(place > self.capacity, count)


class SwitchBlock(AdaptedBlock):
    replaces = SwitchTransformersSparseMLP
    mixes_tokens = True
    top_k = 1

    def __init__(self, stock: SwitchTransformersSparseMLP, config: PretrainedConfig) -> None:
        super().__init__(stock, config)
        self.router = SwitchRouter(stock.router)
        shapes = {"up_proj": (config.d_ff, config.d_model), "down_proj": (config.d_model, config.d_ff)}
        self.experts = UngatedExperts(config, config.num_experts, ACT2FN[config.dense_act_fn], shapes)

    def forward(self, hidden: Tensor) -> Tensor:
        _, weights, index = self.router(hidden)
        return self.experts(hidden.view(-1, hidden.shape[-1]), index, weights).view_as(hidden)

    def conversions(self) -> list[WeightTransform]:
        return [
            WeightConverter(f"experts.expert_*.{theirs}.weight", f"experts.{ours}", [MergeModulelist(dim=0)])
            for theirs, ours in (("wi", "up_proj"), ("wo", "down_proj"))
        ]
