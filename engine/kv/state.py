"""What a cache holds at one moment, as plain data: taken, kept, put back.

transformers' cache layers are objects of a dozen classes, some of a family's own. What they hold is read from their
attributes, so an unknown class is kept whole and right; only tensors that are known to grow by appending
(``GROWS``) are kept as a number of rows, because the live cache still has those rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from transformers import PretrainedConfig
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    DynamicLayer,
    LinearAttentionCacheLayerMixin,
)

# Attributes whose tensors only grow, and along which dimension. A window's keys and values do not: see ``_grows``.
GROWS = {
    "keys": -2,
    "values": -2,
    "idx_keys": -2,  # minimax_m3_vl
    "indexer_keys": 1,
    "indexer_position_ids": -1,
    "compressed_kv": 1,  # deepseek_v4
}

_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device)


@dataclass(frozen=True, slots=True)
class Rows:
    """The first ``count`` rows of a tensor that only grows, along ``dim``."""

    count: int
    dim: int


# A tensor, Rows, a plain value, or a dict or list of these
Leaf: TypeAlias = Any


@dataclass(frozen=True)
class State:
    """A cache after ``length`` tokens. layers: for each layer its attributes; own: those of the cache itself."""

    length: int
    layers: tuple[dict[str, Leaf], ...]
    own: dict[str, Leaf]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors in it, a shared one once."""
        return sum({tensor.data_ptr(): tensor.nbytes for tensor in self.tensors()}.values())

    def tensors(self) -> Iterator[torch.Tensor]:
        for attributes in (*self.layers, self.own):
            yield from _tensors(attributes)

    def map(self, change: Callable[[torch.Tensor], torch.Tensor]) -> State:
        """The same with every tensor changed; one that stands in several places is changed once."""
        changed: dict[tuple[int, tuple[int, ...], tuple[int, ...]], torch.Tensor] = {}

        def once(tensor: torch.Tensor) -> torch.Tensor:
            key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride())
            if key not in changed:
                changed[key] = change(tensor)
            return changed[key]

        layers = tuple(_mapped(attributes, once) for attributes in self.layers)
        return State(self.length, layers, _mapped(self.own, once))


def take(cache: Cache, length: int, whole: bool = False, in_place: bool = True) -> State:
    """What ``cache`` holds after ``length`` tokens, by reference: the next pass leaves these tensors as they are.

    What a pass changes in place is copied: recurrent layers' short convolutions, and where ``in_place`` says so their
    other states, which may be large. whole: growing tensors too, not their number of rows; the state then stands on
    its own.
    """
    layers = tuple(_attributes(layer, whole, in_place) for layer in cache.layers)
    rest = {name: value for name, value in vars(cache).items() if name != "layers"}
    return State(length, layers, dict(_leaves(rest, {})))


def cache_bytes(cache: Cache) -> int:
    """Bytes of all that ``cache`` holds now."""
    held = (tensor for holder in (*cache.layers, cache) for tensor in _tensors(vars(holder)))
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in held}.values())


def keep(state: State, device: torch.device | None = None) -> State:
    """A copy in memory of its own, on ``device`` (None: where the tensors are)."""

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(device, copy=True, memory_format=torch.contiguous_format)

    return state.map(copied)


def put_back(cache: Cache, state: State) -> None:
    """Make ``cache`` what it was when ``state`` was taken; a state taken with ``whole`` fits any cache of its kind.

    The cache goes on with the state's own tensors: hand in ``keep(state)`` where the state is needed again.
    """
    del cache.layers[len(state.layers) :]  # some caches get a layer at its first use
    while len(cache.layers) < len(state.layers):
        assert cache.layer_class_to_replicate is not None
        cache.layers.append(cache.layer_class_to_replicate())
    for layer, attributes in zip(cache.layers, state.layers, strict=True):
        _set(vars(layer), attributes)
    _set(vars(cache), state.own)


def can_be_cut(cache: Cache) -> bool:
    """Whether every layer only appends, so that the last tokens can be taken back at any time."""
    of_its_own = (value for name, value in vars(cache).items() if name != "layers")
    return not any(isinstance(value, torch.Tensor | dict | list) for value in of_its_own) and all(
        map(_only_grows, cache.layers)
    )


def needs_checkpoints(config: PretrainedConfig) -> bool:
    """Whether models of ``config`` have layers that cannot be cut, as far as the config says."""
    return not config.is_encoder_decoder and not can_be_cut(DynamicCache(config=config))


def cut(cache: Cache, length: int) -> None:
    """Take back all but the first ``length`` tokens of a cache that can be cut, also after a pass that broke off."""
    for layer in cache.layers:
        if isinstance(layer, DynamicLayer) and layer.get_seq_length() > length:
            layer.crop(length - layer.get_seq_length())


def _only_grows(layer: object) -> bool:
    """One row for each token in everything the layer holds."""
    if isinstance(layer, LinearAttentionCacheLayerMixin) or getattr(layer, "is_sliding", False):
        return False
    if not isinstance(layer, DynamicLayer):
        return bool(getattr(layer, "is_croppable", False))  # transformers' layer without anything in it
    return all(name in GROWS for name, value in vars(layer).items() if isinstance(value, torch.Tensor | dict | list))


def _attributes(layer: object, whole: bool, in_place: bool) -> dict[str, Leaf]:
    changes: tuple[str, ...] = ()
    if isinstance(layer, LinearAttentionCacheLayerMixin):
        changes = ("conv_states", "recurrent_states") if in_place else ("conv_states",)
    return dict(_leaves(vars(layer), {} if whole else _grows(layer), changes))


def replace_states(cache: Cache) -> None:
    """Have recurrent layers put a new state in the old one's place, where transformers copies it into the old one's
    memory (for captured graphs, which need fixed addresses): a copy less in each pass, and the old one stays whole."""
    for layer in cache.layers:
        if isinstance(layer, LinearAttentionCacheLayerMixin):
            layer.update_recurrent_state = partial(_replace, layer)  # type: ignore[method-assign]


def _replace(
    layer: LinearAttentionCacheLayerMixin, recurrent_states: torch.Tensor, state_idx: int = 0, **_: Any
) -> Any:
    if not layer.is_recurrent_states_initialized[state_idx]:
        layer.lazy_initialization(recurrent_states=recurrent_states, state_idx=state_idx)
    layer.recurrent_states[state_idx] = recurrent_states
    return recurrent_states


def recurrent_states(cache: Cache) -> list[torch.Tensor]:
    """The states of recurrent layers, without their short convolutions."""
    layers = [layer for layer in cache.layers if isinstance(layer, LinearAttentionCacheLayerMixin)]
    return [state for layer in layers for state in layer.recurrent_states.values() if state is not None]


def _grows(layer: object) -> dict[str, int]:
    """Which of the layer's attributes only grow."""
    if not getattr(layer, "is_sliding", False):
        return GROWS
    return {name: dim for name, dim in GROWS.items() if name not in ("keys", "values")}


def _leaves(values: dict[str, Any], grows: dict[str, int], changes: tuple[str, ...] = ()) -> Iterator[tuple[str, Leaf]]:
    for name, value in values.items():
        if isinstance(value, (torch.Tensor, dict, list, *_PLAIN)):
            yield name, _leaf(value, grows.get(name), name in changes)


def _leaf(value: Any, dim: int | None, in_place: bool) -> Leaf:
    if isinstance(value, torch.Tensor):
        if dim is not None and value.dim() > 1:
            return Rows(value.shape[dim], dim)
        return value.clone() if in_place else value
    if isinstance(value, dict):
        return {key: _leaf(item, dim, in_place) for key, item in value.items()}
    if isinstance(value, list):
        return [_leaf(item, dim, in_place) for item in value]
    return value


def _set(now: dict[str, Any], then: dict[str, Leaf]) -> None:
    for name, leaf in then.items():
        now[name] = _resolved(now.get(name), leaf)


def _resolved(now: Any, leaf: Leaf) -> Any:
    if isinstance(leaf, Rows):
        return now.narrow(leaf.dim, 0, leaf.count)
    if isinstance(leaf, dict):
        items = now if isinstance(now, dict) else {}
        return {key: _resolved(items.get(key), item) for key, item in leaf.items()}
    if isinstance(leaf, list):
        places = now if isinstance(now, list) else []
        return [_resolved(places[n] if n < len(places) else None, item) for n, item in enumerate(leaf)]
    return leaf


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item)


def _mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: _mapped(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    return value
