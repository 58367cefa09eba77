"""A model described for a person: what it is, what it weighs, and whether it fits. Reads headers only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, cast

import torch

from engine.errors import MemoryPlanError
from engine.experts.device import Device, make_devices
from engine.experts.layout import ExpertLayout, expert_layout
from engine.hardware.limits import ram
from engine.hardware.plan import FIRST_CONTEXT, MemoryPlan, what_is_counted
from engine.loading import Inspection, check_options, choose_dtype, inspect, make_plan, most_workspace
from engine.messages import READ_MODES, LoadModel


def describe(command: LoadModel) -> dict[str, Any]:
    """Facts as plain values; sizes in bytes. Raises ModelError and OptionError.

    ``verdict`` is "fits", "fits with disk" or "too big"; then ``plan`` is None, ``shortfall_bytes`` says how much is
    missing and ``reason`` what to do.
    """
    check_options(command)
    return OpenModel(inspect(command.source)).describe(command)


class OpenModel:
    """A model whose folder was read once, and that is described for one set of options after another.

    The first description of a device and a precision walks over all tensors; those that follow only plan.
    """

    def __init__(self, found: Inspection, expert_bytes: int | None = None) -> None:
        """expert_bytes: stored, where the headers are not there to say it."""
        self._found = found
        self._config = found.skeleton.config.get_text_config()
        self._same: dict[str, Any] = {
            "name": found.folder.name,
            "folder": str(found.folder.path),
            "family": found.folder.family,
            "signature": found.folder.signature,
            "layers": found.layers,
            "experts": found.experts,
            "top_k": found.skeleton.top_k,
            "total_experts": found.total_experts,
            "stored_dtypes": sorted({ref.dtype for ref in found.index.tensors}),
            "total_bytes": found.index.total_bytes,
            "expert_bytes_stored": found.index.stored_bytes() if expert_bytes is None else expert_bytes,
            "notes": list(found.folder.notes),
            "longest_context": int(getattr(self._config, "max_position_embeddings", 0) or 0),
        }
        self._dtypes: dict[tuple[str, bool], torch.dtype] = {}
        self._layouts: dict[torch.dtype, list[ExpertLayout]] = {}

    def describe(self, command: LoadModel, coming_free: Mapping[str, int] | None = None) -> dict[str, Any]:
        """As ``describe``; ``command.source`` is not looked at.

        coming_free: bytes of "VRAM" and "RAM" that a load would find free beside what is free now, because it unloads
        the present model first.
        """
        found, more = self._found, coming_free or {}
        real = make_devices(command.device)
        memory: Literal["VRAM", "RAM"] = "VRAM" if real[0].on_card else "RAM"
        device = cast(Device, _Roomier(real[0], more.get(memory, 0)))
        devices = [device, *real[1:]]
        key = (command.dtype, device.on_card)
        if key not in self._dtypes:
            self._dtypes[key] = choose_dtype(command.dtype, found, device)
        dtype = self._dtypes[key]
        if dtype not in self._layouts:
            self._layouts[dtype] = [expert_layout(module.parameters, dtype) for module in found.index.modules]
        layouts = self._layouts[dtype]
        facts = self._same | {
            "dtype": str(dtype).removeprefix("torch."),
            "slot_bytes": max(layout.nbytes for layout in layouts),
            "dense_bytes": found.dense_parameters * dtype.itemsize,
            "device": str(device.torch_device),
            "memory": memory,
            "free_bytes": device.free(),
            "workspace_bytes": most_workspace(found, dtype.itemsize, memory),
            "verdict": "too big",
            "shortfall_bytes": 0,
            "reason": "",
            "plan": None,
        }
        try:
            plan = make_plan(command, found, layouts, dtype, devices)
        except MemoryPlanError as error:
            return facts | {"shortfall_bytes": error.shortfall, "reason": str(error)}
        counted = what_is_counted(READ_MODES[command.reads])
        return facts | {"verdict": plan.verdict, "plan": _plan_facts(plan, found.skeleton.notes, counted)}


class _Roomier:
    """A device as it will be once some of its memory is given back."""

    def __init__(self, device: Device, more: int) -> None:
        self._device, self._more = device, more

    def free(self) -> int:
        free = self._device.free() + self._more
        # slots that nothing was read into yet are held, and take no RAM: they count only once
        return free if self._device.on_card else min(free, ram().total)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)


def _plan_facts(plan: MemoryPlan, about: Sequence[str], counted: str) -> dict[str, Any]:
    return {
        "memory": plan.demand.memory,
        "free_bytes": plan.demand.free,
        "budget_bytes": plan.budget,
        "slots": plan.slots,
        "slots_at_full_context": plan.slots_at(plan.context),
        "expert_bytes": plan.expert_bytes,
        "context": plan.context,
        "context_at_start": min(FIRST_CONTEXT, plan.context),
        "kv_bytes_per_token": plan.demand.kv_bytes_per_token,
        "kv_bytes": plan.kv_bytes,
        "checkpoint_bytes": plan.demand.checkpoint_bytes,
        "kept_bytes": plan.demand.kept_bytes,
        "workspace_bytes": plan.workspace_bytes,
        "needed_bytes": plan.needed,
        "host_slots": plan.host_slots,
        "on_disk": plan.on_disk,
        "tiers": [asdict(tier) for tier in plan.tiers],
        "notes": [*about, *plan.notes],
        "counted": counted,
    }


def report_lines(facts: dict[str, Any]) -> list[str]:
    """The same for reading."""
    rows = [
        ("model", f"{facts['name']} ({facts['family']}, {', '.join(facts['stored_dtypes'])} stored)"),
        ("experts", f"{facts['layers']} layers x {facts['experts']}, {facts['top_k']} per token"),
        ("weights", f"{_size(facts['total_bytes'])}, of these {_size(facts['expert_bytes_stored'])} routed experts"),
        ("computing in", f"{facts['dtype']} on {facts['device']}: {_size(facts['slot_bytes'])} per expert"),
        ("dense", _size(facts["dense_bytes"])),
        *(("files", note) for note in facts["notes"]),
    ]
    plan = facts["plan"]
    if plan is None:
        rows.append(("verdict", f"too big, {_size(facts['shortfall_bytes'])} missing"))
        rows.append(("", facts["reason"]))
    else:
        rows += _plan_rows(plan, facts["total_experts"])
        rows.append(("verdict", facts["verdict"]))
        rows += [("", note) for note in (*plan["notes"], plan["counted"])]
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}}  {value}" for name, value in rows]


def _plan_rows(plan: dict[str, Any], total: int) -> list[tuple[str, str]]:
    context = f"{plan['context']:,} tokens, {_size(plan['kv_bytes'])}"
    needs = f"{_size(plan['needed_bytes'])} of {_size(plan['free_bytes'])} free {plan['memory']}"
    rows = [("context", context), ("workspace", _size(plan["workspace_bytes"])), ("needs", needs)]
    if plan["checkpoint_bytes"]:
        rows.insert(-2, ("checkpoints", f"{_size(plan['checkpoint_bytes'])}, to go back in a conversation"))
    if plan["kept_bytes"]:
        rows.insert(-2, ("other chats", f"{_size(plan['kept_bytes'])}, to go on with them at once"))
    for tier in plan["tiers"]:
        if tier["memory"] == "disk":
            most = "at most " if plan["host_slots"] else ""  # RAM may or may not hold copies of what the card has
            text = f"{most}{tier['experts']:,} of {total:,} experts"
        else:
            share = tier["experts"] / total
            text = f"{tier['experts']:,} slots ({share:.0%}), {_size(tier['bytes'])}"
        if tier["experts_at_full_context"] != tier["experts"]:
            text += f"; {tier['experts_at_full_context']:,} when the context is full"
        rows.append((f"in {tier['memory']}" if tier["memory"] != "disk" else "only on disk", text))
    return rows


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.2f} MB"
