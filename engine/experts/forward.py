"""The hook: one function registered with transformers that computes a layer's routed experts from slots.

transformers calls it for every experts module of every architecture on its registry as
``fn(module, hidden_states [T, H], top_k_index [T, k], top_k_weights [T, k]) -> [T, H]``.

Every (token, choice) is computed into a place of its own and summed over k at the end, in one fixed order: so the
result is the same to the last bit whoever was resident, in whatever slot, and however many waves it took.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers.activations import ACT2FN
from transformers.integrations import moe
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from engine.experts.layout import ExpertLayout, Parameters
from engine.experts.resident import Resident
from engine.experts.runtime import ExpertRuntime

IMPLEMENTATION = "greenroom"

SMALL = 1 << 20  # bytes of an expert whose products numpy computes as fast, and calls faster

_ONE_KERNEL = (nn.SiLU, nn.GELU, nn.ReLU, type(ACT2FN["silu"]))


class _Experts(Protocol):
    """What transformers' decorator and ``attach`` put on an experts module."""

    num_experts: int
    has_gate: bool
    has_bias: bool
    has_post_expert_norm: bool
    greenroom_layer: int
    greenroom_runtime: ExpertRuntime
    greenroom_transposed: frozenset[str]
    greenroom_weighs_input: bool
    greenroom_shares: bool
    greenroom_small: bool

    def _apply_gate(self, gate_up: Tensor) -> Tensor: ...
    def act_fn(self, up: Tensor) -> Tensor: ...
    def post_expert_norm(self, out: Tensor) -> Tensor: ...


def attach(module: nn.Module, layer: int, runtime: ExpertRuntime) -> None:
    """Tell an experts module where its experts come from. layer: its number among the layers that have experts."""
    module.greenroom_layer = layer  # type: ignore[assignment]
    module.greenroom_runtime = runtime  # type: ignore[assignment]
    module.greenroom_transposed = _transposed(module)  # type: ignore[assignment]
    module.greenroom_weighs_input = bool(getattr(module, "weighs_input", False))  # type: ignore[assignment]
    module.greenroom_shares = _shares(module)  # type: ignore[assignment]
    module.greenroom_small = _small(module, runtime.layout_of(layer))  # type: ignore[assignment]


def _transposed(module: nn.Module) -> frozenset[str]:
    """Parameters stored ``[columns, rows]``: by transformers' flag all of them, in an adapter's experts some."""
    all_of_them = {"gate_up_proj", "up_proj", "down_proj"} if module.is_transposed else ()
    return frozenset(getattr(module, "transposed", all_of_them))


def _shares(module: nn.Module) -> bool:
    """True when rows that are gated together get the very bits they would get alone.

    torch runs the rows of a strided input (one half of gate_up) one by one, but a contiguous one from end to end, and
    there the last few numbers take a scalar path that rounds otherwise: whose they are depends on the company. So only
    transformers' own gate, with an activation that is one kernel; the product after it rounds alike everywhere.
    """
    own_gate = getattr(type(module), "_apply_gate", None) is getattr(moe, "_default_apply_gate", ())
    gated_only = bool(module.has_gate) and not module.has_post_expert_norm
    return own_gate and gated_only and isinstance(module.act_fn, _ONE_KERNEL)


def _small(module: nn.Module, layout: ExpertLayout) -> bool:
    """True when numpy may compute one row on these experts: their products are so short that calling torch takes as
    long as they do (16 experts of 221 KB: 0.50 ms a layer against 0.69, one thread)."""
    plain = bool(module.greenroom_shares) and not module.has_bias and not module.greenroom_transposed
    return plain and layout.dtype == torch.float32 and layout.nbytes <= SMALL


def experts_forward(module: nn.Module, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """Routed experts' weighted sum, ``[T, H]``, in ``hidden_states``' number format; zero before ``attach``."""
    if not hasattr(module, "greenroom_layer"):
        return torch.zeros_like(hidden_states)
    experts = cast(_Experts, module)
    if top_k_index.shape[0] == 1:
        return _one_token(experts, hidden_states, top_k_index, top_k_weights)
    return _many_tokens(experts, hidden_states, top_k_index, top_k_weights)


ALL_EXPERTS_FUNCTIONS.register(IMPLEMENTATION, experts_forward)


def _one_token(experts: _Experts, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Decode. What is served together shares the small operations: with one row each, calls cost more than numbers."""
    runtime, layer = experts.greenroom_runtime, experts.greenroom_layer
    if runtime.resident_pass is not None:
        runtime.may_go_on()
        return _picked_by_the_card(experts, runtime.resident_pass, hidden, index[0], weights[0])
    chosen = index[0].tolist()
    ids = [expert for expert in chosen if expert < experts.num_experts]
    runtime.observer.routed(layer, ids)
    if experts.greenroom_weighs_input:  # each expert has an input of its own; summed in ascending order, as below
        ascending = index.argsort(dim=1)
        return _many_tokens(experts, hidden, index.gather(1, ascending), weights.gather(1, ascending))
    if len(set(ids)) < len(ids):  # a hash router's table may name one expert twice
        return _many_tokens(experts, hidden, index, weights)
    wanted = np.array(sorted(ids), dtype=np.int64)
    order = sorted(range(len(chosen)), key=chosen.__getitem__)[: len(ids)]
    here = runtime.at_once(layer, wanted) if ids else None
    if here is not None:
        return _summed(experts, _at_home(_experts_on_one_row, experts, here, hidden), weights, order, hidden.dtype)
    done: list[int] = []
    parts: list[Tensor] = []
    with closing(runtime.serve(layer, wanted, np.ones(len(wanted), np.uint32))) as serving:
        for served, views in serving:
            done.extend(served)
            parts.append(_at_home(_experts_on_one_row, experts, views, hidden))
    if not parts:
        return torch.zeros_like(hidden)
    outputs = parts[0] if len(parts) == 1 else torch.cat(parts)
    if done != sorted(done):  # whoever came first: the sum below always runs in ascending order
        outputs = outputs[np.argsort(done).tolist()]
    return _summed(experts, outputs, weights, order, hidden.dtype)


def _summed(experts: _Experts, outputs: Tensor, weights: Tensor, order: list[int], dtype: torch.dtype) -> Tensor:
    """``outputs [n, H]``, by rising expert, times the weights at ``order`` of ``weights [1, k]``: ``[1, H]``."""
    if experts.greenroom_small and outputs.device.type == "cpu" and outputs.dtype == weights.dtype == torch.float32:
        return torch.from_numpy(np.dot(weights.numpy()[0].take(order), outputs.numpy())).unsqueeze(0).to(dtype)
    return (outputs * weights[0, order].unsqueeze(-1)).sum(dim=0, keepdim=True).to(dtype)


def _picked_by_the_card(experts: _Experts, resident: Resident, hidden: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
    """Nobody can be missing, so the host need not know who is wanted: everything is queued and nothing waited for. The
    same calls on the same numbers as below."""
    views, ascending_weights = resident.pick(experts.greenroom_layer, ids, weights)
    if experts.greenroom_weighs_input:
        pairs = zip(views, ascending_weights.unbind(0), strict=True)
        parts = [_expert(experts, parameters, hidden * weight) for parameters, weight in pairs]
        return torch.cat(parts).sum(dim=0, keepdim=True).to(hidden.dtype)
    outputs = _experts_on_one_row(experts, views, hidden)
    return (outputs * ascending_weights.unsqueeze(-1)).sum(dim=0, keepdim=True).to(hidden.dtype)


def _many_tokens(experts: _Experts, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    runtime, layer = experts.greenroom_runtime, experts.greenroom_layer
    tokens, k = index.shape
    flat = index.reshape(-1)
    by_expert = flat.argsort(stable=True)  # positions in [T * k], grouped by expert
    counts = torch.bincount(flat, minlength=experts.num_experts + 1)[: experts.num_experts].cpu().numpy()
    ends = counts.cumsum()
    wanted = np.flatnonzero(counts)
    outputs = hidden.new_zeros(tokens * k, hidden.shape[1])
    with closing(runtime.serve(layer, wanted, counts[wanted].astype(np.uint32))) as serving:
        for served, views in serving:
            for expert, parameters in zip(served, views, strict=True):
                positions = by_expert[ends[expert] - counts[expert] : ends[expert]]
                rows = hidden[positions // k]
                if experts.greenroom_weighs_input:
                    rows = rows * weights.reshape(-1, 1)[positions]
                outputs[positions] = _at_home(_expert, experts, parameters, rows)
    choices = outputs.view(tokens, k, -1)
    weighted = choices if experts.greenroom_weighs_input else choices * weights.unsqueeze(-1)
    return weighted.sum(dim=1).to(hidden.dtype)


def compute_on_host(module: nn.Module, parameters: Parameters, rows: Tensor) -> Tensor:
    """One expert of an experts module, its parameters and ``rows [n, H]`` in RAM: ``[n, H]``. RuntimeError where the
    module keeps weights of its own on a card (a norm behind every expert, say)."""
    return _expert(cast(_Experts, module), parameters, rows)


def _at_home(compute: Callable[[_Experts, Any, Tensor], Tensor], experts: _Experts, views: Any, rows: Tensor) -> Tensor:
    """``compute`` on the device where the experts are: with several cards it is not always where the rows are."""
    home = next(iter((views if isinstance(views, dict) else views[0]).values())).device
    if home == rows.device:
        return compute(experts, views, rows)
    return compute(experts, views, rows.to(home)).to(rows.device)


def _experts_on_one_row(experts: _Experts, views: Sequence[Parameters], row: Tensor) -> Tensor:
    """Several experts on ``row [1, H]``: ``[len(views), H]``; each row as ``_expert`` gives it, to the last bit."""
    if not experts.greenroom_shares:
        return torch.cat([_expert(experts, parameters, row) for parameters in views])
    if experts.greenroom_small and row.device.type == "cpu" and row.dtype == torch.float32:
        return _small_experts_on_one_row(experts, views, row)
    up = torch.cat([_project(experts, parameters, "gate_up_proj", row) for parameters in views])
    rows = zip(views, experts._apply_gate(up).split(1), strict=True)
    return torch.cat([_project(experts, parameters, "down_proj", one) for parameters, one in rows])


def _small_experts_on_one_row(experts: _Experts, views: Sequence[Parameters], row: Tensor) -> Tensor:
    numbers = row.numpy()[0]
    up = np.empty((len(views), views[0]["gate_up_proj"].shape[0]), np.float32)
    for parameters, place in zip(views, up, strict=True):
        np.dot(parameters.numbers["gate_up_proj"], numbers, out=place)
    out = np.empty((len(views), len(numbers)), np.float32)
    for parameters, inner, place in zip(views, experts._apply_gate(torch.from_numpy(up)).numpy(), out, strict=True):
        np.dot(parameters.numbers["down_proj"], inner, out=place)
    return torch.from_numpy(out)


def _expert(experts: _Experts, parameters: Parameters, rows: Tensor) -> Tensor:
    """One expert on ``rows [n, H]``, honouring the flags the architecture declares."""
    name = "gate_up_proj" if experts.has_gate else "up_proj"
    up = _project(experts, parameters, name, rows)
    inner = experts._apply_gate(up) if experts.has_gate else experts.act_fn(up)
    out = _project(experts, parameters, "down_proj", inner)
    return experts.post_expert_norm(out) if experts.has_post_expert_norm else out


def _project(experts: _Experts, parameters: Parameters, name: str, rows: Tensor) -> Tensor:
    weight = parameters[name]
    bias = parameters[f"{name}_bias"] if experts.has_bias else None
    return linear(rows, weight.t() if name in experts.greenroom_transposed else weight, bias)
