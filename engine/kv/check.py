"""Does a model go on rightly from its past? Found out on a few tokens when it is loaded, not by a list of names.

A prompt is read in pieces, and the second turn goes on from the first one's state; some families' own layers do that
wrongly (they begin anew whenever a pass has several tokens). The routed experts have no part in it and are left out:
nothing is read from the disk, and their share of the result is zero.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, EncoderDecoderCache

from engine.kv.kind import PastKind, cache_argument
from engine.kv.state import can_be_cut, recurrent_states, replace_states

TOKENS = 13
PIECES = (5, 4, 3)  # tokens of the passes that must give what one pass of 12 gives
NOISE = 8  # times what the number format makes by itself: a difference up to that is none
LEAST = 1e-4  # of the largest logit, likewise

log = logging.getLogger("greenroom.kv")


@torch.inference_mode()
def check_past(model: PreTrainedModel, device: torch.device) -> PastKind:
    """Find out how ``model``, its experts not yet attached, goes on from a past; layers that do it wrongly are mended.

    A model whose logits are not finite without its experts is taken to be right.
    """
    if model.config.is_encoder_decoder:  # each text stands alone
        return PastKind(EncoderDecoderCache, whole=True)
    probe = _Probe(model, device)
    kind = PastKind(type(probe.cache), probe.changes_in_place(), not can_be_cut(probe.cache))
    mixing = any(getattr(module, "mixes_tokens", False) for module in model.modules())  # among experts: left out here
    first_pass_counts = any(hasattr(layer, "prefill_length") for layer in probe.cache.layers)
    if mixing or first_pass_counts:
        return replace(kind, in_pieces=False, whole=True)
    if probe.agrees(PIECES):
        return kind
    recurrent = probe.recurrent_layers()
    undo = [_step(module) for _, module in recurrent]
    if recurrent and probe.agrees(PIECES):
        names = tuple(name for name, _ in recurrent)
        log.info("%d layers are fed one token at a time behind a past: %s", len(names), names[0])
        return replace(kind, stepped=names)
    for take_back in undo:
        take_back()
    return replace(kind, in_pieces=False)


class _Probe:
    """A few tokens in one pass, and what else they are compared with."""

    def __init__(self, model: PreTrainedModel, device: torch.device) -> None:
        self._model = model
        self._argument = cache_argument(model)
        # low numbers: the ends of vocabularies hold marks for pictures and sound
        most = min(256, int(model.config.get_text_config().vocab_size))
        numbers = torch.randint(min(10, most - 1), most, (1, TOKENS), generator=torch.Generator().manual_seed(1))
        self._ids = numbers.to(device)
        longer, self.cache = self._run(None, 0, TOKENS)
        self._whole, _ = self._run(None, 0, TOKENS - 1)
        self._scale = float(self._whole.abs().max())
        # the same tokens in a pass of another length: how much of a difference is the number format's
        self._noise = float((longer[: TOKENS - 1] - self._whole).abs().max())

    def agrees(self, pieces: tuple[int, ...]) -> bool:
        """Whether passes over ``pieces`` tokens each give the logits of one pass."""
        if not self._whole.isfinite().all():
            return True
        cache: Cache | None = None
        start, rows = 0, []
        for count in pieces:
            logits, cache = self._run(cache, start, start + count)
            rows.append(logits)
            start += count
        difference = float((torch.cat(rows) - self._whole).abs().max())
        step = torch.finfo(self._model.dtype).eps  # states are rounded to the number format between passes
        return difference <= max(NOISE * self._noise, NOISE * step * self._scale, LEAST * self._scale)

    def changes_in_place(self) -> bool:
        """Whether a pass over one token writes into the recurrent states that it began with."""
        _, cache = self._run(None, 0, TOKENS - 1)
        replace_states(cache)
        before = recurrent_states(cache)
        copies = [state.clone() for state in before]
        self._run(cache, TOKENS - 1, TOKENS)
        return not all(map(torch.equal, before, copies))

    def recurrent_layers(self) -> list[tuple[str, nn.Module]]:
        """The modules that keep a recurrent state: those whose layer has one, and that take the cache themselves."""
        linear = {number for number, layer in enumerate(self.cache.layers) if hasattr(layer, "recurrent_states")}
        return [
            (name, module)
            for name, module in self._model.named_modules()
            if getattr(module, "layer_idx", None) in linear and _cache_name(module) is not None
        ]

    def _run(self, cache: Cache | None, start: int, end: int) -> tuple[torch.Tensor, Cache]:
        arguments: dict[str, Any] = {self._argument: cache, "use_cache": True}
        out = self._model(input_ids=self._ids[:, start:end], **arguments)
        return out.logits[0].float(), out[self._argument]


def _cache_name(module: nn.Module) -> str | None:
    names = inspect.signature(module.forward).parameters
    return next((name for name in ("cache", "past_key_values", "cache_params") if name in names), None)


def _step(module: nn.Module) -> Callable[[], None]:
    """Feed ``module`` one token at a time where it has a state to go on from. Returns what takes that back.

    WORKAROUND: transformers' JambaMambaMixer starts its scan from zero in each pass of more than one token
    (https://github.com/huggingface/transformers/blob/main/src/transformers/models/jamba/modeling_jamba.py).
    The mask is left out: with one conversation in a pass no token is padding.
    """
    forward, name, number = module.forward, _cache_name(module), cast(int, module.layer_idx)
    assert name is not None

    def stepped(hidden_states: torch.Tensor, **arguments: Any) -> Any:
        cache, length = arguments.get(name), hidden_states.shape[1]
        if cache is None or length == 1 or not cache.has_previous_state(number):
            return forward(hidden_states, **arguments)
        arguments["attention_mask"] = None
        return torch.cat([forward(row, **arguments) for row in hidden_states.split(1, dim=1)], dim=1)

    module.forward = stepped

    def take_back() -> None:
        module.forward = forward

    return take_back
