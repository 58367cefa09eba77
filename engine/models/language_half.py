"""The half of a model that reads and writes text: the class that holds it, and what of that class it can do without.

Many Mixture-of-Experts models also see or hear. Some have a class for their text alone; of the others the whole class
is built, and the weights of everything that a pass over text does not reach are left out of it, as the experts are.
What that is shows in the structure: text goes from the input embeddings through the decoder to the output embeddings,
and transformers can name these three in every model. All else - towers, resamplers, projectors, separators - turns
pictures or sound into embeddings.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MULTIMODAL_LM_MAPPING,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
)

from engine.errors import ModelError

# transformers imports a family's modules when they are first asked for; two threads that ask at once (one loads, one
# answers what a folder holds) may see half of one
importing = threading.Lock()

# transformers' word for what a model takes beside text, and ours
_SENSES = {"image": "pictures", "video": "video", "audio": "sound"}

# a part inside the decoder that only other senses use carries its sense in its name, as "vision_moe" beside "text_moe"
_NAMED_FOR_A_SENSE = re.compile(r"(vision|visual|image|video|audio|speech)(_|$)")

# what a class that writes no text is for
_OTHER_WORK = (
    (MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING, "it labels the words of a text"),
    (MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, "it sorts texts into classes"),
)


def text_class(config: PretrainedConfig) -> tuple[type[PreTrainedModel], PretrainedConfig]:
    """The class that answers text, and the part of ``config`` it is made from.

    Raises ModelError, with the reason, when there is none that writes text token by token.
    """
    text_config = config.get_text_config()
    model_class = _class_in(MODEL_FOR_CAUSAL_LM_MAPPING, config)
    if model_class is not None:
        # a class for the text alone, listed under the whole model's config
        return model_class, text_config if model_class.config_class is type(text_config) else config
    model_class = _class_in(MODEL_FOR_MULTIMODAL_LM_MAPPING, config)
    if config.is_encoder_decoder and model_class is None:
        model_class = _class_in(MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, config)
    if model_class is None:
        raise ModelError(_no_answers(config))
    if not issubclass(model_class, GenerationMixin):
        raise ModelError(
            f"{config.model_type} does not write its answer token by token, and Greenroom runs no other kind of model."
        )
    if model_class.forward is nn.Module.forward:  # several models in one, such as one that thinks and one that talks
        return text_class(_thinking_part(config))
    return model_class, config


def senses(config: PretrainedConfig) -> frozenset[str]:
    """What the model takes beside text, in transformers' words: "image", "video", "audio"."""
    model_class = _class_in(MODEL_FOR_MULTIMODAL_LM_MAPPING, config)
    found = _senses_of([model_class] if model_class else [])
    without = {name for name in config.sub_configs if getattr(config, name, None) is None}  # a smaller one of its kind
    lost = {"audio_config": {"audio"}, "vision_config": {"image", "video"}}
    return found.difference(*(lost.get(name, set()) for name in without))


def text_only(named: Iterable[str]) -> str:
    """A sentence for the user of a model with these senses."""
    words = [word for sense, word in _SENSES.items() if sense in named]
    taken = " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
    return f"This model can also take {taken}. Greenroom uses its language half: only text is read."


def leave_out_other_senses(model: PreTrainedModel) -> frozenset[str]:
    """Take away all weights of ``model`` that only pictures, video or sound need, and say which senses it loses.

    The modules stay, so that names resolve as in the whole model. A structure that does not show what belongs to
    text stays whole.
    """
    needless = list(_needless(model))
    for module, names in needless:
        for name in names:
            setattr(module, name, None)
        module.__dict__["_is_hf_initialized"] = True  # else weight init touches what is gone
    towers = {type(module) for module, _ in needless if isinstance(module, PreTrainedModel)}
    return _senses_of(tower for tower in towers if "input_modalities" in vars(tower))  # else it is the family's word


def _class_in(mapping: Any, config: PretrainedConfig) -> type[PreTrainedModel] | None:
    with importing:
        found = mapping.get(type(config), None)
    return found[0] if isinstance(found, tuple) else found


def _thinking_part(config: PretrainedConfig) -> PretrainedConfig:
    """Of a config of several models, that of the one whose text config is the whole's."""
    for name in config.sub_configs:
        part = getattr(config, name, None)
        if isinstance(part, PretrainedConfig) and part.get_text_config() is config.get_text_config():
            return part
    raise ModelError(_no_answers(config))


def _no_answers(config: PretrainedConfig) -> str:
    for mapping, work in _OTHER_WORK:
        if _class_in(mapping, config) is not None:
            return f"{config.model_type} writes no text: {work}. Greenroom needs a model that answers."
    return f"{config.model_type} is not a text model that answers; Greenroom needs one."


def _senses_of(classes: Iterable[type[PreTrainedModel]]) -> frozenset[str]:
    found: set[str] = set()
    for model_class in classes:
        named = model_class.input_modalities  # one word, or several
        found.update((named,) if isinstance(named, str) else named)
    return frozenset(found & set(_SENSES))


def _needless(model: PreTrainedModel) -> Iterator[tuple[nn.Module, tuple[str, ...]]]:
    """Modules, each with the names of its tensors, that a pass over text does not reach."""
    if model.config.get_text_config() is model.config:
        return
    decoder = model.get_decoder()
    if type(getattr(decoder, "config", None)) is not type(model.config.get_text_config()):
        return
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    yield from _around({decoder, *(end for end in ends if end is not None)}, model)
    for name, module in decoder.named_modules():
        if _NAMED_FOR_A_SENSE.match(name.rpartition(".")[2]):
            yield from _all_in(module)


def _around(text: set[nn.Module], module: nn.Module) -> Iterator[tuple[nn.Module, tuple[str, ...]]]:
    """What is in ``module``, which holds some of ``text``, and in none of these."""
    if module._parameters:
        yield module, tuple(module._parameters)
    for child in module.children():
        if child in text:
            continue
        yield from _all_in(child) if text.isdisjoint(child.modules()) else _around(text, child)


def _all_in(module: nn.Module) -> Iterator[tuple[nn.Module, tuple[str, ...]]]:
    for part in module.modules():
        yield part, (*part._parameters, *part._buffers)
