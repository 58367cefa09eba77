"""Snowflake Arctic: a dense transformer with a mixture of experts beside it.

Source: https://www.snowflake.com/blog/arctic-open-efficient-foundation-language-models-snowflake ("Dense-MoE Hybrid")
and Snowflake's model code for transformers 4. Attention, norms and experts are Mixtral's; the layer differs: with
``parallel_attn_mlp_res`` its experts are given what the attention is given (under another norm), and a dense MLP
follows the attention:

    x' = x + attention(norm(x))
    y  = x' + mlp(norm(x')) + experts(norm(x))
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaTokenizer, MixtralConfig
from transformers.activations import ACT2FN
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import Concatenate, MergeModulelist, WeightConverter
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.models.mixtral.modeling_mixtral import (
    MixtralAttention,
    MixtralExperts,
    MixtralForCausalLM,
    MixtralModel,
    MixtralPreTrainedModel,
    MixtralRMSNorm,
    MixtralRotaryEmbedding,
    MixtralTopKRouter,
)


class ArcticConfig(MixtralConfig):
    """moe_layer_frequency: every so many layers, the last of each group has experts; the others have an MLP of the same
    width. parallel_attn_mlp_res: layers with experts have a dense MLP as well."""

    model_type = "arctic"
    max_position_embeddings: int = 4096
    num_key_value_heads: int | None = None  # type: ignore[assignment]  # as many as heads
    num_experts_per_tok: int = 1
    moe_layer_frequency: int = 2
    parallel_attn_mlp_res: bool = False


class ArcticTokenizer(LlamaTokenizer):
    """Llama's, under the name that Arctic's tokenizer_config.json gives it."""


class ArcticMLP(nn.Module):
    """``hidden [..., width]`` -> the same shape, through ``inner`` gated neurons."""

    def __init__(self, config: ArcticConfig, inner: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(config.hidden_size, inner, bias=False)
        self.w2 = nn.Linear(inner, config.hidden_size, bias=False)
        self.w3 = nn.Linear(config.hidden_size, inner, bias=False)
        self.act_fn = ACT2FN[config.hidden_act]

    def forward(self, hidden: Tensor) -> Tensor:
        return self.w2(self.act_fn(self.w1(hidden)) * self.w3(hidden))


class ArcticRouter(MixtralTopKRouter):
    """``hidden [..., width]`` -> logits, weights, index, each ``[tokens, ...]``. Weights add up to 1, except that a
    single expert's is its probability."""

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits, weights, index = super().forward(hidden)
        if self.top_k == 1:
            weights = logits.float().softmax(dim=-1).gather(1, index)
        return logits, weights, index


class ArcticSparseBlock(nn.Module):
    """A layer's experts."""

    def __init__(self, config: ArcticConfig) -> None:
        super().__init__()
        self.gate = ArcticRouter(config)
        self.experts = MixtralExperts(config)

    def forward(self, hidden: Tensor) -> Tensor:
        rows = hidden.view(-1, hidden.shape[-1])
        _, weights, index = self.gate(rows)
        return self.experts(rows, index, weights).view_as(hidden)


class ArcticDenseBlock(nn.Module):
    """What a layer without experts has in their place."""

    def __init__(self, config: ArcticConfig) -> None:
        super().__init__()
        self.mlp = ArcticMLP(config, config.intermediate_size)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.mlp(hidden)


class ArcticDecoderLayer(GradientCheckpointingLayer):
    """See the head of this file. Modules have the hub's names."""

    def __init__(self, config: ArcticConfig, layer: int) -> None:
        super().__init__()
        sparse = (layer + 1) % config.moe_layer_frequency == 0
        self.parallel = config.parallel_attn_mlp_res and sparse
        self.self_attn = MixtralAttention(config, layer)
        self.block_sparse_moe = ArcticSparseBlock(config) if sparse else ArcticDenseBlock(config)
        self.input_layernorm = MixtralRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = MixtralRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        if self.parallel:
            self.residual_layernorm = MixtralRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
            self.residual_mlp = ArcticMLP(config, config.hidden_size)

    def forward(self, hidden_states: Tensor, **kwargs: Any) -> Tensor:
        """kwargs: what the attention takes beside ``hidden_states [batch, tokens, hidden]``."""
        attended = hidden_states + self.self_attn(self.input_layernorm(hidden_states), **kwargs)[0]
        if not self.parallel:
            return attended + self.block_sparse_moe(self.post_attention_layernorm(attended))
        dense = attended + self.residual_mlp(self.residual_layernorm(attended))
        return dense + self.block_sparse_moe(self.post_attention_layernorm(hidden_states))


class ArcticModel(MixtralModel):
    """The decoder: token ids to hidden states."""

    config_class = ArcticConfig

    def __init__(self, config: ArcticConfig) -> None:
        MixtralPreTrainedModel.__init__(self, config)  # past MixtralModel's, which would build layers of its own
        self.padding_idx, self.vocab_size = config.pad_token_id, config.vocab_size
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, self.padding_idx)
        self.layers = nn.ModuleList([ArcticDecoderLayer(config, layer) for layer in range(config.num_hidden_layers)])
        self.norm = MixtralRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.rotary_emb = MixtralRotaryEmbedding(config=config)
        self.gradient_checkpointing = False
        self.post_init()


class ArcticForCausalLM(MixtralForCausalLM):
    """The decoder and its language head."""

    config_class = ArcticConfig

    def __init__(self, config: ArcticConfig) -> None:
        MixtralPreTrainedModel.__init__(self, config)  # likewise
        self.model = ArcticModel(config)
        self.vocab_size = config.vocab_size
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()


def register() -> None:
    """Make Arctic known to transformers' auto classes."""
    AutoConfig.register(ArcticConfig.model_type, ArcticConfig)
    AutoModelForCausalLM.register(ArcticConfig, ArcticForCausalLM)
    AutoTokenizer.register(ArcticConfig, tokenizer_class=ArcticTokenizer)
    stack = MergeModulelist(dim=0)
    up = [r"block_sparse_moe.experts.*.w1.weight", r"block_sparse_moe.experts.*.w3.weight"]
    register_checkpoint_conversion_mapping(
        ArcticConfig.model_type,
        [
            WeightConverter(up, "block_sparse_moe.experts.gate_up_proj", [stack, Concatenate(dim=1)]),
            WeightConverter(
                "block_sparse_moe.experts.*.w2.weight", "block_sparse_moe.experts.down_proj", [MergeModulelist(dim=0)]
            ),
        ],
    )
