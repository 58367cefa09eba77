"""A model described for a person: what it is, what it weighs, and whether it fits. Reads headers only."""

from __future__ import annotations

from typing import Any

from engine.errors import MemoryPlanError
from engine.experts.device import make_device
from engine.experts.layout import expert_layout
from engine.loading import choose_dtype, inspect, make_plan
from engine.messages import LoadModel


def describe(command: LoadModel) -> dict[str, Any]:
    """Facts as plain values; sizes in bytes. ``plan`` is None when it does not fit, and ``verdict`` says why."""
    found = inspect(command.source)
    device = make_device(command.device)
    dtype = choose_dtype(command.dtype, found, device)
    layouts = [expert_layout(module.parameters, dtype) for module in found.index.modules]
    facts: dict[str, Any] = {
        "name": found.folder.name,
        "folder": str(found.folder.path),
        "family": found.folder.family,
        "signature": found.folder.signature,
        "layers": found.layers,
        "experts": found.experts,
        "top_k": found.skeleton.top_k,
        "total_experts": found.total_experts,
        "stored_dtypes": sorted({ref.dtype for ref in found.folder.tensors.values()}),
        "dtype": str(dtype).removeprefix("torch."),
        "total_bytes": found.folder.total_bytes,
        "expert_bytes_stored": found.index.stored_bytes(),
        "slot_bytes": max(layout.nbytes for layout in layouts),
        "dense_bytes": found.dense_parameters * dtype.itemsize,
        "device": str(device.torch_device),
    }
    try:
        plan = make_plan(command, found, layouts, dtype, device)
    except MemoryPlanError as error:
        return {**facts, "plan": None, "verdict": str(error)}
    facts["plan"] = {
        "slots": plan.slots,
        "expert_bytes": plan.expert_bytes,
        "context": plan.context,
        "kv_bytes": plan.kv_bytes,
        "workspace_bytes": plan.workspace_bytes,
        "needed_bytes": plan.needed,
        "notes": list(plan.notes),
    }
    rest = found.total_experts - plan.slots
    facts["verdict"] = (
        "Fits." if rest <= 0 else f"Fits with disk: {rest:,} of {found.total_experts:,} experts wait there."
    )
    return facts


def report_lines(facts: dict[str, Any]) -> list[str]:
    """The same for reading."""
    rows = [
        ("model", f"{facts['name']} ({facts['family']}, {', '.join(facts['stored_dtypes'])} stored)"),
        ("experts", f"{facts['layers']} layers x {facts['experts']}, {facts['top_k']} per token"),
        ("weights", f"{_gb(facts['total_bytes'])}, of these {_gb(facts['expert_bytes_stored'])} routed experts"),
        ("computing in", f"{facts['dtype']} on {facts['device']}: {_mb(facts['slot_bytes'])} per expert"),
        ("dense", _gb(facts["dense_bytes"])),
    ]
    plan = facts["plan"]
    if plan:
        share = plan["slots"] / facts["total_experts"]
        rows += [
            ("expert cache", f"{plan['slots']:,} slots ({share:.0%}), {_gb(plan['expert_bytes'])}"),
            ("context", f"{plan['context']:,} tokens, {_gb(plan['kv_bytes'])}"),
            ("needs", _gb(plan["needed_bytes"])),
        ]
    rows.append(("verdict", " ".join([facts["verdict"], *(plan["notes"] if plan else [])])))
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}}  {value}" for name, value in rows]


def _gb(count: int) -> str:
    return f"{count / 1e9:.2f} GB"


def _mb(count: int) -> str:
    return f"{count / 1e6:.2f} MB"
