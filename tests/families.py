"""Tiny random checkpoints of every Mixture-of-Experts family, written in the hub's own layout.

``make_tiny`` is what other tests want: a folder that loads in a fraction of a second and behaves like the real thing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMultimodalLM,
    AutoModelForSeq2SeqLM,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from engine.models.mended import mend
from engine.models.own import offer

EXPERTS = 8
TOP_K = 2
CHAT_VOCABULARY = 384

# What most families understand; a family gets those of them that its config declares.
_COMMON: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 24,
    "shared_intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "num_experts": EXPERTS,
    "num_local_experts": EXPERTS,
    "n_routed_experts": EXPERTS,
    "moe_num_experts": EXPERTS,
    "num_experts_per_tok": TOP_K,
    "moe_topk": TOP_K,
    "moe_k": TOP_K,
    "n_shared_experts": 1,
    "num_shared_experts": 1,
    "moe_num_shared_experts": 1,
    "first_k_dense_replace": 1,
    "num_dense_layers": 1,
    "n_group": 1,
    "topk_group": 1,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "bos_token_id": None,
    "eos_token_id": 2,
    "pad_token_id": None,
}

# The same for what sees or hears.
_TOWER: dict[str, Any] = {
    "depth": 1,
    "num_hidden_layers": 1,
    "encoder_layers": 1,
    "hidden_size": 32,
    "d_model": 32,
    "intermediate_size": 32,
    "encoder_ffn_dim": 32,
    "moe_intermediate_size": 16,
    "num_local_experts": 4,
    "num_heads": 2,
    "num_attention_heads": 2,
    "encoder_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "out_hidden_size": 32,
    "output_dim": 32,
    "output_channels": 8,
    "downsample_hidden_size": 8,
    "num_mel_bins": 16,
    "n_mel_bins": 4,
    "mel_vocab_size": 16,
    "projection_hidden_dim": 32,
    "projection_intermediate_size": 32,
    "adapter_in_dim": 32,
    "adapter_input_size": 32,
    "adapter_out_dim": 32,
    "num_position_embeddings": 16,
    "position_embedding_size": 16,
    "window_size": 2,
    "image_size": 16,
    "max_image_size": 16,
    "text_hidden_size": 32,
    "patch_size": 4,
}

# What is particular: grouped routers, dense first layers, sliding windows, tied embeddings, mixed layer kinds.
_OWN: dict[str, dict[str, Any]] = {
    "mixtral": {},
    "qwen2_moe": {},
    "qwen3_moe": {"norm_topk_prob": True},
    "olmoe": {},
    "phimoe": {},
    "granitemoe": {"embedding_multiplier": 2.0, "logits_scaling": 1.5, "tie_word_embeddings": True},
    "granitemoeshared": {},
    "gpt_oss": {"sliding_window": 8, "num_hidden_layers": 2},
    "deepseek_v2": {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2, "num_key_value_heads": 4},
    "deepseek_v3": {"n_group": 4, "topk_group": 2, "num_key_value_heads": 4},
    "deepseek_v4": {
        "num_hidden_layers": 4,
        "mlp_layer_types": ["hash_moe", "moe", "moe", "moe"],
        "num_key_value_heads": 1,
        "sliding_window": 8,
        "o_groups": 2,
        "o_lora_rank": 16,
        "index_n_heads": 2,
        "index_head_dim": 8,
        "index_topk": 4,
    },
    "ernie4_5_moe": {},
    "glm4_moe": {"n_group": 2, "topk_group": 1},
    "dots1": {},
    "hunyuan_v1_moe": {},
    "minimax": {"layer_types": ["full_attention", "linear_attention", "full_attention"]},
    "minimax_m2": {},
    "flex_olmo": {},
    "afmoe": {"sliding_window": 8, "num_hidden_layers": 4},
    "cohere2_moe": {"sliding_window": 8, "num_hidden_layers": 4, "expert_selection_fn": "sigmoid"},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv"]},
    "hy_v3": {},
    "laguna": {},
    "mellum": {"layer_types": ["sliding_attention", "full_attention", "full_attention"], "sliding_window": 8},
    "solar_open": {},
    "exaone_moe": {"sliding_window": 8, "num_hidden_layers": 4},
    "mimo_v2_flash": {"sliding_window": 8},
}

FAMILIES = tuple(_OWN)  # the 27 that the first design named

_LINEAR = {
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
# heads enough that no score is zero by chance (each head's is cut off at zero): between zeros the choice is anyone's
_INDEXED = {"num_key_value_heads": 4, "index_topk": 8, "index_head_dim": 8, "index_n_heads": 16}
_SWA = {"swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "swa_head_dim": 8, "sliding_window_size": 8}
_MIXED = ["linear_attention", "full_attention", "linear_attention"]

# Others on the registry: hybrids of attention and recurrent layers, indexed attention, top-1 routers.
_MORE: dict[str, dict[str, Any]] = {
    "aria_text": {},
    "axk1": {"num_key_value_heads": 4},
    "axk2": {"num_key_value_heads": 4},
    "beam": {"mlp_layer_types": ["dense", "sparse", "sparse"], "sliding_window": 8},
    "bailing_hybrid": {"num_key_value_heads": 4, "layer_group_size": 2, "num_hidden_layers": 4},
    "deepseek_v32": _INDEXED,
    "flint": {"num_hidden_layers": 3},
    "gemma4_text": {
        "enable_moe_block": True,
        "top_k_experts": TOP_K,
        "vocab_size_per_layer_input": 128,
        "hidden_size_per_layer_input": 0,
        "global_head_dim": 8,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    },
    "glm4_moe_lite": {"num_key_value_heads": 4},
    "glm_moe_dsa": _INDEXED,
    "granitemoe_swa": {"sliding_window": 8},
    "granitemoehybrid": {
        "layer_types": ["mamba", "attention", "mamba"],
        "mamba_n_heads": 4,
        "mamba_d_head": 16,
        "mamba_d_state": 8,
        "mamba_chunk_size": 16,
    },
    "hy_v4": {},
    "inkling2_loop_text": {"unpadded_vocab_size": 128} | _SWA,
    "inkling2_text": {"unpadded_vocab_size": 128} | _SWA,
    "inkling_text": _SWA,
    "jamba": {
        "num_hidden_layers": 4,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "mamba_d_state": 8,
        "use_mamba_kernels": False,
    },
    "kimi_linear": {
        "num_key_value_heads": 4,
        "linear_head_dim": 8,
        "linear_num_heads": 4,
        "layer_types": _MIXED,
    },
    "kolibri1": {"sliding_window": 8},
    "lara_mini": _LINEAR | {"sliding_window": 8},
    "minimax_m3_vl_text": {},
    "nemotron_h": {
        "layers_block_type": ["mamba", "moe", "attention", "moe"],
        "moe_shared_expert_intermediate_size": 24,
        "mamba_num_heads": 4,
        "mamba_head_dim": 8,
        "ssm_state_size": 8,
        "chunk_size": 16,
        "n_groups": 2,
        "use_mamba_kernels": False,
    },
    "qwen3_5_moe_text": _LINEAR | {"layer_types": _MIXED},
    "qwen3_next": _LINEAR | {"layer_types": _MIXED},
    "qwen4_exp_text": _LINEAR
    | {
        "layer_types": ["linear_attention", "indexed_attention", "linear_attention"],
        "hc_lowrank": 8,
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 8,
        "indexer_budget": 8,
        "indexer_compress_ratio": 2,
    },
    "sarvam_mla": {"num_key_value_heads": 4},
    "sarvam_moe": {},
    "zaya": {"num_experts_per_tok": 1},
}

MORE_FAMILIES = tuple(_MORE)


def _mrope(*sections: int) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": 1e4, "mrope_section": list(sections)}


_SAM = {"downsample_channels": [8, 32], "global_attn_indexes": [0]}

# Families that also see or hear: what is particular in each part of the config. A part that may be of any kind names
# its own ("model_type").
_SEEING: dict[str, dict[str, Any]] = {
    "aria": {"vision_config": {"model_type": "idefics3_vision"}, "projector_patch_to_query_dict": {16: 4}},
    "deepseek_ocr2": {
        "text_config": {
            "num_key_value_heads": 4,
            "n_group": None,
            "topk_group": None,
            "mlp_layer_types": ["dense", "sparse", "sparse"],
        },
        "vision_config": {"sam_config": _SAM},
    },
    "dots3_note": {
        "text_config": _INDEXED
        | {
            "head_dim": 12,
            "layer_types": ["sliding_attention", "indexed_attention", "sliding_attention"],
            "sliding_window": 8,
            "swa_num_attention_heads": 4,
            "swa_num_key_value_heads": 4,
            "swa_q_lora_rank": 24,
            "swa_kv_lora_rank": 16,
            "swa_head_dim": 12,
            "swa_qk_nope_head_dim": 8,
            "swa_v_head_dim": 8,
        },
        "vision_config": {"mlp_layer_types": ["sparse"]},
    },
    "ernie4_5_vl_moe": {"text_config": {"moe_intermediate_size": [16, 8], "rope_parameters": _mrope(1, 1, 2)}},
    "gemma4": {"text_config": {"global_head_dim": 16}, "audio_config": None},  # layers of two sizes, as released
    "glm4v_moe": {"text_config": {"rope_parameters": _mrope(1, 1, 0)}},
    "glm5_next": {
        "text_config": _INDEXED
        | {
            "index_kpool": 4,
            "qk_rope_head_dim": 0,
            "head_dim": 0,
            "linear_head_dim": 8,
            "linear_num_heads": 4,
            "layer_types": ["linear_attention", "indexed_attention", "linear_attention"],
            "mlp_layer_types": ["dense", "sparse", "sparse"],
        }
    },
    "hy_v4_vl": {"text_config": _INDEXED | {"rope_parameters": _mrope(1, 1, 0)}},
    "inkling2": {},
    "inkling2_loop": {
        "text_config": {"n_layers_per_attn_res_block": 1, "loop_layer_index_start": 1, "loop_layer_index_end": 2},
        "vision_config": {"model_type": "inkling2_vision"},
    },
    "inkling_mm_model": {"vision_config": {"num_hidden_layers": 4}},
    "internvl": {"text_config": {"model_type": "qwen3_moe"}},
    "kimi_k25": {"text_config": {"model_type": "deepseek_v3"}},
    "lfm2_vl": {"text_config": {"model_type": "lfm2_moe"}, "vision_config": {"model_type": "siglip2_vision_model"}},
    "llama4": {"text_config": {"intermediate_size_mlp": 48}},
    "minimax_m3_vl": {"projector_hidden_size": 32},
    "mistral3": {
        "text_config": {"model_type": "mistral4", "num_key_value_heads": 4},
        "vision_config": {"model_type": "pixtral"},
    },
    "mistral_large4": {"text_config": {"num_key_value_heads": 4}, "vision_config": {"model_type": "pixtral"}},
    "muse_spark": {
        "text_config": {"moe_hidden_size": 16},
        "audio_config": {
            "num_hidden_layers": 4,
            "hidden_sizes": [8, 8, 8, 16],
            "depths": [1, 1, 1, 1],
            "patch_sizes": [2, 2, 2, 2],
        },
        "projector_hidden_size": 16,
        "out_hidden_size": 32,
    },
    "qwen3_5_moe": {},
    "qwen3_omni_moe": {
        "talker_config": {
            "text_config": {"shared_expert_intermediate_size": 16},
            "code_predictor_config": {"vocab_size": 16},
            "thinker_hidden_size": 32,
            "spatial_merge_size": 2,
        },
        "code2wav_config": {
            "upsample_rates": [2],
            "upsampling_ratios": [2],
            "decoder_dim": 16,
            "num_quantizers": 2,
            "codebook_size": 16,
        },
    },
    "qwen3_vl_moe": {},
    "qwen4_exp": {},
    "step3p7": {
        "text_config": {
            "num_hidden_layers": 4,
            "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
            "num_sliding_attention_heads": 2,
            "sliding_window": 8,
            "share_expert_dim": 24,
            "swiglu_limits": [0.0, 0.0, 0.3, 0.3],
            "moe_router_scaling_factor": 1.5,
        },
    },
    "unlimited_ocr": {"vision_config": {"sam_config": _SAM}},
}

SEEING_FAMILIES = tuple(_SEEING)

# Of these transformers' whole class fails on text without a picture; the class for their text alone answers.
_WHOLE_CLASS_FAILS = ("llama4",)

# Off the registry: an adapter gives their experts its shape (engine/models/adapters), or the whole model is ours
# (engine/models/own).
_ADAPTED: dict[str, dict[str, Any]] = {
    "arctic": {"moe_layer_frequency": 1, "parallel_attn_mlp_res": True},
    "dbrx": {
        "d_model": 32,
        "n_heads": 4,
        "n_layers": 2,
        "max_seq_len": 128,
        "ffn_config": {"ffn_hidden_size": 24, "moe_num_experts": EXPERTS, "moe_top_k": TOP_K},
        "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 2.0},
    },
    "doge": {"is_moe": True, "num_experts": 16},  # the square of a number of keys
    "jetmoe": {},
    "llama4_text": {
        "intermediate_size_mlp": 48,
        "num_hidden_layers": 4,
        "interleave_moe_layer_step": 2,
        "attention_chunk_size": 16,
    },
    "longcat_flash": {
        "num_layers": 2,
        "num_key_value_heads": 4,
        "head_dim": 4,
        "ffn_hidden_size": 24,
        "expert_ffn_hidden_size": 16,
        "zero_expert_num": 4,
    },
}

ADAPTED_FAMILIES = (*_ADAPTED, "step3p7")


# those that chat; encoder-decoders are at the end of this file
ALL_FAMILIES = tuple(dict.fromkeys((*FAMILIES, *MORE_FAMILIES, *ADAPTED_FAMILIES, *SEEING_FAMILIES)))


def tiny_config(family: str, **changes: Any) -> PretrainedConfig:
    """A config of ``family`` for a model of about 100,000 parameters; ``changes`` win over everything.

    Of a family that also sees or hears, they are those of its text.
    """
    offer(family)
    if family in _SEEING:
        return _part(CONFIG_MAPPING[family], _SEEING[family], changes)
    declared = CONFIG_MAPPING[family].__dataclass_fields__
    values = {name: value for name, value in _COMMON.items() if name in declared}
    return AutoConfig.for_model(family, **(values | (_OWN | _MORE | _ADAPTED).get(family, {}) | changes))


def _part(
    config_class: type[PretrainedConfig], own: Mapping[str, Any], changes: Mapping[str, Any], is_text: bool = False
) -> PretrainedConfig:
    """A tiny config with tiny parts; ``changes`` go to the part that is text."""
    own = dict(own)
    if config_class is AutoConfig:
        config_class = CONFIG_MAPPING[own.pop("model_type")]
    usual = _COMMON | {"pad_token_id": 0} | (_OWN | _MORE).get(config_class.model_type, {}) if is_text else _TOWER
    values = {name: value for name, value in usual.items() if name in config_class.__dataclass_fields__}
    values |= own | (changes if is_text else {})
    for name, part_class in config_class.sub_configs.items():
        if values.get(name, {}) is not None:
            values[name] = _part(part_class, values.get(name, {}), changes, name == "text_config")
    return config_class(**values)


def make_tiny(
    family: str,
    folder: Path,
    *,
    shards: int = 1,
    tokenizer: bool = False,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    changes: Mapping[str, Any] | None = None,
) -> Path:
    """Write a random checkpoint of ``family`` into ``folder`` and return it.

    shards: safetensors files to spread the weights over. tokenizer: add ``tiny_tokenizer``, so that it can chat.
    changes: config values to set, of a family that also sees or hears those of its text.
    """
    config = tiny_config(family, **(({"vocab_size": CHAT_VOCABULARY} if tokenizer else {}) | dict(changes or {})))
    factory = AutoModelForMultimodalLM if family in _SEEING else AutoModelForCausalLM
    model = factory.from_config(config).to(dtype)
    randomise(model, seed)
    model.save_pretrained(folder)
    if shards > 1:
        split_over_files(folder, shards)
    if tokenizer:
        tiny_tokenizer(folder)
    return folder


def stock(folder: Path) -> PreTrainedModel:
    """transformers' own model of a checkpoint, fully resident, with its own eager expert loop.

    The whole one where it also sees or hears; of several models in one, that which answers.
    """
    family = AutoConfig.from_pretrained(folder).model_type
    whole = family in _SEEING and family not in _WHOLE_CLASS_FAILS
    factory = AutoModelForMultimodalLM if whole else AutoModelForCausalLM
    model = factory.from_pretrained(folder, experts_implementation="eager", dtype=torch.float32).eval()
    return getattr(model, "thinker", model)


_DERIVED = ("slope_rate", "_decay")  # saved, but not free: they follow from the config


def randomise(model: PreTrainedModel, seed: int = 0) -> None:
    """Weights large enough that every expert and every router correction shows in the logits."""
    source = torch.Generator().manual_seed(seed)
    saved = model.state_dict(keep_vars=True)
    for name, tensor in saved.items():
        values = tensor.data
        if name.endswith(_DERIVED):
            continue
        if not values.is_floating_point():
            values.copy_(torch.randint(0, EXPERTS, values.shape, generator=source))  # expert tables of hash routers
            continue
        noise = torch.randn(values.shape, generator=source) * 0.2
        scale = name.endswith("weight") and values.dim() == 1
        values.copy_(noise + 1 if scale else noise)


def split_over_files(folder: Path, count: int) -> None:
    """Rewrite a one-file checkpoint as ``count`` files and their index; one layer's experts end up in all of them."""
    single = folder / "model.safetensors"
    tensors = load_file(single)
    parts: list[dict[str, torch.Tensor]] = [{} for _ in range(count)]
    for position, name in enumerate(sorted(tensors)):
        parts[position % count][name] = tensors[name]
    weight_map: dict[str, str] = {}
    for number, part in enumerate(parts, 1):
        file = f"model-{number:05d}-of-{count:05d}.safetensors"
        save_file(part, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    size = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    single.unlink()


def copy_model(source: Path, folder: Path) -> Path:
    """A copy that a test may damage."""
    shutil.copytree(source, folder)
    return folder


# ----------------------------------------------------------------------------------------------- tokenizer

_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")  # ids 0, 1, 2; _COMMON's eos_token_id is the last
_TEXT = (
    "The green room is where actors wait until they are called.",
    "What is the capital of France? The capital of France is Paris.",
    "user asks and the assistant answers, one token after another.",
    "你好 世界 · naïve café · 🙂 def main(): return 0",
)

_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_tokenizer(folder: Path, vocab_size: int = CHAT_VOCABULARY) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer on a few sentences and save it with a ChatML template; ``<|im_end|>`` ends.

    vocab_size: tokens at most; a byte-level alphabet needs 256 and the three special ones.
    """
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(_SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(_TEXT * 4, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = _TEMPLATE
    tokenizer.save_pretrained(folder)
    return tokenizer


# --------------------------------------------------------------------------------------------- encoder-decoders

PAIRS = ("switch_transformers", "nllb-moe")
LANGUAGES = ("deu_Latn", "eng_Latn", "fra_Latn", "zho_Hans")

_HALVES: dict[str, dict[str, Any]] = {
    "switch_transformers": {
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 48,
        "num_layers": 4,
        "num_decoder_layers": 4,
        "num_sparse_encoder_layers": 2,
        "num_sparse_decoder_layers": 2,
        "num_heads": 4,
        "num_experts": EXPERTS,
        "expert_capacity": 6,
        "pad_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 0,
    },
    "nllb-moe": {
        "d_model": 32,
        "encoder_layers": 4,
        "decoder_layers": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_sparse_step": 2,
        "decoder_sparse_step": 2,
        "num_experts": EXPERTS,
        "moe_eval_capacity_token_fraction": 0.2,
        "max_position_embeddings": 256,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
    },
}


def make_pair(family: str, folder: Path, **changes: Any) -> Path:
    """A random checkpoint of an encoder-decoder with a tokenizer; NLLB's has some languages, Switch's two gaps."""
    config = AutoConfig.for_model(family, **(_HALVES[family] | {"vocab_size": CHAT_VOCABULARY + 8} | changes))
    model = AutoModelForSeq2SeqLM.from_config(config)
    randomise(model)
    model.save_pretrained(folder)
    tokenizer = tiny_tokenizer(folder)
    tokenizer.chat_template = None
    more = list(LANGUAGES) if family == "nllb-moe" else ["<extra_id_0>", "<extra_id_1>"]
    tokenizer.add_special_tokens({"extra_special_tokens": more})
    tokenizer.save_pretrained(folder)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    return folder


def stock_pair(folder: Path) -> PreTrainedModel:
    """transformers' own model, made right where it is not (engine/models/mended.py)."""
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
    mend(model)
    return model
