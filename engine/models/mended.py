"""transformers' own models where they are wrong, made right: what ours is compared with.

WORKAROUND: NllbMoeExperts of transformers 5.24 makes its mask from 0 and 1 where it needs the experts' numbers, so that
only the experts 0 and 1 ever compute. Up to 4.x each token was computed by the experts it was sent to, as published
(https://github.com/huggingface/transformers/blob/main/src/transformers/models/nllb_moe/modeling_nllb_moe.py).
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from transformers.models.nllb_moe.modeling_nllb_moe import NllbMoeExperts


def mend(model: nn.Module) -> None:
    """Have NLLB's experts compute each token by those that it was sent to. Other models stay as they are."""
    for module in model.modules():
        if isinstance(module, NllbMoeExperts):
            module.forward = partial(_computed, module)  # type: ignore[method-assign]


def _computed(experts: NllbMoeExperts, rows: Tensor, mask: Tensor, gates: Tensor) -> Tensor:
    out = torch.zeros_like(rows)
    for number in gates.sum(dim=0).nonzero()[:, 0].tolist():
        tokens = gates[:, number].nonzero()[:, 0]
        weights = gates[tokens, number, None] * (1 - experts.moe_token_dropout)
        out[tokens] += experts[f"expert_{number}"](rows[tokens]) * weights
    return out
