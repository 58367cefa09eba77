"""A model without its routed experts: the class that loads everything else, and the shapes of what it left out.

Works for every architecture whose experts go through ``transformers.integrations.moe``, without per-model code; where
they do not, an adapter brings them to that shape (engine/models/adapters).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, cast

import torch
from torch import nn
from transformers import AutoConfig, PretrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from engine.errors import ModelError
from engine.models.adapters import adapt
from engine.models.adapters.base import AdaptedBlock
from engine.models.folder import ModelFolder
from engine.models.language_half import importing, leave_out_other_senses, senses, text_class, text_only
from engine.models.own import offer

# what configs call "experts per token"
TOP_K_NAMES = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_topk",
    "moe_top_k",
    "moe_k",
    "top_k_experts",
    "top_k",
)

# what the memory plan counts with, and the least that each may be; of the others, those that do not fit the weights'
# own sizes are found out by that
SIZES = {
    "max_position_embeddings": 1,
    "hidden_size": 1,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 0,  # of NoPE layers, where it counts the rotated part alone
    "intermediate_size": 0,
    "kv_lora_rank": 0,
    "qk_nope_head_dim": 0,
    "qk_rope_head_dim": 0,
    "v_head_dim": 0,
}


@dataclass(frozen=True)
class ExpertsModule:
    """One layer's experts, as the architecture declares them.

    path: the module's name in the model. parameters: per parameter the shape of ONE expert, in the module's layout.
    """

    path: str
    num_experts: int
    parameters: dict[str, tuple[int, ...]]
    dtype: torch.dtype


@dataclass
class Skeleton:
    """A class that builds the model without experts, and what the last instance left out.

    whole_class: transformers' own, of which ``model_class`` builds a part. senses: what the whole model takes beside
    text ("image", "video", "audio").
    state_names: all names in the state dict of the whole model, experts included.
    """

    whole_class: type[PreTrainedModel]
    model_class: type[PreTrainedModel]
    config: PretrainedConfig
    senses: frozenset[str] = frozenset()
    family_top_k: int = 0  # where only the architecture says it
    encoder_layers: int = 0  # of those with experts, the first so many are an encoder's
    experts: list[ExpertsModule] = field(default_factory=list)
    state_names: set[str] = field(default_factory=set)

    def meta_model(self) -> PreTrainedModel:
        """The model without experts on the meta device: names and shapes, no bytes.

        Raises ModelError when the config's values do not make a model.
        """
        try:
            with torch.device("meta"):
                return self.model_class(self.config)
        except Exception as error:  # whatever an architecture trips over: a division by zero, a missing key
            raise ModelError(
                f"config.json does not describe a {self.config.model_type} model that can be built: {in_short(error)}"
            ) from error

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of it, in sentences."""
        return (text_only(self.senses),) if self.senses else ()

    def check_top_k(self) -> None:
        """Raise ModelError when the config wants more experts for a token than there are, or none."""
        most = max(module.num_experts for module in self.experts)
        for name, value in self._said_top_k():
            wanted = value if isinstance(value, list | tuple) else [] if value is None else [value]
            # "top_k" alone may be a sampling setting, as older configs have it
            if name != "top_k" and not all(isinstance(count, int) and 1 <= count <= most for count in wanted):
                raise ModelError(
                    f"config.json asks for {value} experts per token ({name}) and the model has {most} in a layer: "
                    "config.json does not belong to these weights, or is damaged."
                )

    @property
    def top_k(self) -> int:
        """Experts per token, as the config says; 0 where it does not say."""
        most: dict[str, int] = {}
        for name, value in self._said_top_k():
            number = max(value, default=0) if isinstance(value, list | tuple) else value
            if isinstance(number, int) and number:
                most[name] = max(most.get(name, 0), number)
        return next((most[name] for name in TOP_K_NAMES if name in most), self.family_top_k)

    def _said_top_k(self) -> Iterator[tuple[str, Any]]:
        """(name, value) in the config, and in the part of it that is about feed-forward layers, where it has one."""
        for config in layer_configs(self.config):
            for part in (config, getattr(config, "ffn_config", None)):
                yield from ((name, getattr(part, name, None)) for name in TOP_K_NAMES)


def load_config(folder: ModelFolder) -> PretrainedConfig:
    """The folder's config as transformers reads it; remote code is never run."""
    with importing:
        offer(folder.family)
    if folder.family not in CONFIG_MAPPING:
        if "auto_map" in folder.config:
            raise ModelError(
                f"The model wants to run its own Python code ({folder.family}), which Greenroom never does. "
                "Choose a model that transformers supports itself."
            )
        raise ModelError(f"transformers does not know the architecture {folder.family!r}; a newer Greenroom may.")
    try:
        with importing:
            return AutoConfig.from_pretrained(folder.path, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # each architecture checks its config in its own way
        raise ModelError(f"config.json of {folder.name} is not valid: {in_short(error)}") from error


def layer_configs(config: PretrainedConfig) -> list[PretrainedConfig]:
    """The text config as its layers see it: one for each where they differ in size (Gemma 4's heads), else just one."""
    text_config = config.get_text_config()
    return list(text_config.per_layer_config) if text_config.is_heterogeneous else [text_config]


def in_short(error: Exception) -> str:
    """What an error of another library says, short enough for a sentence."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{' '.join(lines)[:300]} ({type(error).__name__})"


def make_skeleton(config: PretrainedConfig) -> Skeleton:
    """Prepare the class of the language half of ``config``. Raises ModelError for a model that does not answer text,
    and for sizes that mean nothing."""
    parent, part = text_class(config)
    _check_sizes(part)
    skeleton = Skeleton(parent, parent, part, senses(config))

    def __init__(self: PreTrainedModel, *args: Any, **kwargs: Any) -> None:
        parent.__init__(self, *args, **kwargs)
        adapt(self)
        skeleton.state_names = set(self.state_dict())
        skeleton.senses |= leave_out_other_senses(self)
        stripped = [_strip(path, module) for path, module in _experts_modules(self)]
        skeleton.experts = [experts for experts in stripped if experts.parameters]  # towers may have had some, too
        for experts in skeleton.experts:
            _keep_from_init(self.get_submodule(experts.path.rpartition(".")[0]))
        blocks = [module for module in self.modules() if isinstance(module, AdaptedBlock)]
        skeleton.family_top_k = max((block.top_k for block in blocks), default=0)
        skeleton.encoder_layers = sum("encoder." in f".{experts.path}" for experts in skeleton.experts)

    members = {"__init__": __init__, "__module__": parent.__module__, "__qualname__": parent.__qualname__}
    skeleton.model_class = type(parent.__name__, (parent,), members)
    return skeleton


def _check_sizes(config: PretrainedConfig) -> None:
    for layer_config, (name, least) in product(layer_configs(config), SIZES.items()):
        value = getattr(layer_config, name, None)
        if value is None or isinstance(value, list | tuple):  # unknown; one for each layer
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ModelError(
                f"config.json gives {value!r} for {name}, where a whole number from {least} on is wanted: it is "
                "damaged. Download it again."
            )


def _experts_modules(model: nn.Module) -> list[tuple[str, nn.Module]]:
    marks = ("is_transposed", "has_gate", "_is_expert_parallel", "num_experts")
    found = [(path, module) for path, module in model.named_modules() if all(hasattr(module, mark) for mark in marks)]
    stacks = list(dict.fromkeys(re.split(r"\d", path, maxsplit=1)[0] for path, _ in found))  # an encoder's come first

    def place(pair: tuple[str, nn.Module]) -> list[int]:
        return [stacks.index(re.split(r"\d", pair[0], maxsplit=1)[0]), *map(int, re.findall(r"\d+", pair[0]))]

    return sorted(found, key=place)


def _keep_from_init(block: nn.Module) -> None:
    """Some families initialise the experts from the block around them; what else it holds the checkpoint must have."""
    if not block._buffers:
        block.__dict__["_is_hf_initialized"] = True


def _strip(path: str, module: nn.Module) -> ExpertsModule:
    """Delete the module's per-expert parameters and note their shapes."""
    count = cast(int, module.num_experts)
    shapes: dict[str, tuple[int, ...]] = {}
    dtype = torch.float32
    for name, parameter in list(module.named_parameters(recurse=False)):
        if parameter.dim() >= 1 and parameter.shape[0] == count:
            shapes[name] = tuple(parameter.shape[1:])
            dtype = parameter.dtype
            delattr(module, name)
    module.__dict__["_is_hf_initialized"] = True  # else weight init touches what is gone
    return ExpertsModule(path, count, shapes, dtype)
