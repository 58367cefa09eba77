"""How a model's past must be handled."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from transformers import PreTrainedModel
from transformers.cache_utils import Cache


@dataclass(frozen=True, slots=True)
class PastKind:
    """What ``check_past`` found. cache_class: what the model makes for itself.

    in_place: a pass changes recurrent states where they are. needs_checkpoints: it has windows or recurrent layers,
    whose state cannot be cut.
    in_pieces: a pass of several tokens goes on from a past as from nothing; else only one token at a time does.
    whole: a prompt is read from nothing each time, because what a layer makes of a token depends on its pass.
    stepped: names of the layers that are fed one token at a time behind a past, because their own way is wrong there.
    """

    cache_class: type[Cache]
    in_place: bool = True
    needs_checkpoints: bool = False
    in_pieces: bool = True
    whole: bool = False
    stepped: tuple[str, ...] = ()


def cache_argument(model: PreTrainedModel) -> str:
    """What the model's forward calls its cache: transformers 5.24 renamed it; a family may have the older name."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
