"""Step 3.7: gate and up projections are limited in some layers, after the activation; else the registry's own shape,
under no such name."""

from __future__ import annotations

from torch import Tensor
from transformers import PretrainedConfig
from transformers.models.step3p7.modeling_step3p7 import Step3p7Experts, Step3p7SparseMoeBlock

from engine.models.adapters.base import AdaptedBlock, Experts


class Step3p7LimitedExperts(Experts):
    """limit: of an activated gate from above, of what it multiplies from both sides."""

    limit: float

    def _apply_gate(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return self.act_fn(gate).clamp(max=self.limit) * up.clamp(-self.limit, self.limit)


class Step3p7Block(AdaptedBlock):
    replaces = Step3p7SparseMoeBlock

    def __init__(self, stock: Step3p7SparseMoeBlock, config: PretrainedConfig) -> None:
        super().__init__(stock, config)
        own: Step3p7Experts = stock.experts
        shapes = {
            "gate_up_proj": (2 * own.intermediate_dim, own.hidden_dim),
            "down_proj": (own.hidden_dim, own.intermediate_dim),
        }
        self.gate, self.shared_experts = stock.gate, stock.shared_experts
        self.experts = Step3p7LimitedExperts(config, own.num_experts, own.act_fn, shapes)
        self.experts.limit = own.limit
        self.routed_scaling_factor = stock.routed_scaling_factor

    def forward(self, hidden: Tensor) -> Tensor:
        rows = hidden.reshape(-1, hidden.shape[-1])
        _, weights, index = self.gate(rows)
        routed = self.experts(rows, index, weights) * self.routed_scaling_factor
        return (routed + self.shared_experts(rows)).view_as(hidden)
