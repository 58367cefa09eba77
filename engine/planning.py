"""Answers about memory before anything is loaded: for a slider, and for a model on the hub before its download.

A slider asks many times a second, so the models last asked about stay open: the first answer reads the headers, those
that follow are arithmetic.
"""

from __future__ import annotations

import json
import tempfile
from collections import OrderedDict
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from engine.errors import GreenroomError, ModelError
from engine.hardware.limits import ram
from engine.hardware.probes import card
from engine.inspection import OpenModel
from engine.loading import Inspection, inspect
from engine.messages import LoadModel, MemoryBar, MemoryPart, MemoryPlanned, MemorySnapshot, ModelSummary, PlanMemory
from engine.models.folder import ModelFolder, parts_of, refuse_packed
from engine.models.headers import TensorRef
from engine.models.hub import HubModel
from engine.models.index import ExpertIndex
from engine.models.skeleton import Skeleton, load_config, make_skeleton

KEPT_OPEN = 4  # models; the headers of a large one take some tens of MB

_HEADER_WORDS = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}


class Planner:
    """Lives on the librarian's thread."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, OpenModel] = OrderedDict()

    def forget(self) -> None:
        """Read folders anew: they may have changed."""
        self._open.clear()

    def answer(self, question: PlanMemory, coming_free: Mapping[str, int] | None = None) -> MemoryPlanned:
        """Raises ModelError and OptionError. coming_free: as for ``OpenModel.describe``."""
        model = self._open.get(question.source)
        if model is None:
            model = self._open[question.source] = OpenModel(inspect(question.source))
        self._open.move_to_end(question.source)
        while len(self._open) > KEPT_OPEN:
            self._open.popitem(last=False)
        return planned(question, model, coming_free or {})


def held_by_model(snapshot: MemorySnapshot | None) -> dict[str, int]:
    """Bytes of "VRAM" and "RAM" that go free when the model of this snapshot is unloaded."""
    freed: dict[str, int] = {}
    for bar in snapshot.bars if snapshot else ():
        memory = "VRAM" if bar.name.startswith("VRAM") else "RAM"
        freed[memory] = sum(part.bytes for part in bar.parts if part.kind != "other")
    return freed


def planned(question: PlanMemory, model: OpenModel, coming_free: Mapping[str, int]) -> MemoryPlanned:
    """The answer to ``question`` about an open model."""
    command = LoadModel(
        question.source, question.experts, context=question.context, device=question.device, dtype=question.dtype
    )
    facts = model.describe(command, coming_free)
    plan = facts["plan"] or {}
    return MemoryPlanned(
        question,
        facts["verdict"],
        _bars(facts, coming_free),
        dtype=facts["dtype"],
        shortfall=facts["shortfall_bytes"],
        reason=facts["reason"],
        slots=plan.get("slots", 0),
        slots_at_full_context=plan.get("slots_at_full_context", 0),
        total_experts=facts["total_experts"],
        slot_bytes=facts["slot_bytes"],
        dense_bytes=facts["dense_bytes"],
        context=plan.get("context", question.context),
        longest_context=facts["longest_context"],
        kv_bytes=plan.get("kv_bytes", 0),
        workspace_bytes=plan.get("workspace_bytes", facts["workspace_bytes"]),
        on_disk=plan.get("on_disk", facts["total_experts"]),
        notes=tuple(plan.get("notes", ())),
    )


def _bars(facts: dict[str, Any], coming_free: Mapping[str, int]) -> tuple[MemoryBar, ...]:
    memory, plan = facts["memory"], facts["plan"]
    host = ram()
    graphics = card() if memory == "VRAM" else None
    total = graphics.total if graphics else host.total if memory == "RAM" else facts["free_bytes"]
    name = host.name if memory == "RAM" else memory
    bars = [MemoryBar(name, total, (*_parts(facts), MemoryPart("other", max(0, total - facts["free_bytes"]))))]
    slots = plan["slots_at_full_context"] if plan else 0
    if memory == "VRAM" and plan:
        held = MemoryPart("experts", plan["host_slots"] * facts["slot_bytes"])
        free = min(host.total, host.available + coming_free.get("RAM", 0))
        bars.append(MemoryBar(host.name, host.total, (held, MemoryPart("other", host.total - free))))
        slots = max(slots, plan["host_slots"])
    stored = facts["expert_bytes_stored"]
    on_disk = stored * max(0, facts["total_experts"] - slots) // facts["total_experts"]
    return (*bars, MemoryBar("disk", stored, (MemoryPart("experts", on_disk),)))


def _parts(facts: dict[str, Any]) -> tuple[MemoryPart, ...]:
    """The device's memory at its fullest. Slots that are given back for context are counted as slots."""
    plan, dense = facts["plan"], facts["dense_bytes"]
    if plan:
        workspace, experts, needed = plan["workspace_bytes"], plan["expert_bytes"], plan["needed_bytes"]
        context = max(0, needed - dense - workspace - experts)
    else:
        workspace, context = facts["workspace_bytes"], 0
        experts = max(0, facts["free_bytes"] + facts["shortfall_bytes"] - dense - workspace)
    return (
        MemoryPart("dense", dense),
        MemoryPart("experts", experts),
        MemoryPart("kv", context),
        MemoryPart("workspace", workspace),
    )


# ------------------------------------------------------------------------------------------ not here yet


def plan_from_hub(model: HubModel) -> tuple[ModelSummary, MemoryPlanned | None]:
    """What a model on the hub is, and its plan with "auto"; from its config and the sizes of its files alone."""
    try:
        found = _as_if_here(model)
    except GreenroomError as error:
        family = str(model.config.get("model_type", ""))
        return ModelSummary(model.name, model.name, problem=str(error), family=family, license=model.license), None
    experts = _expert_parameters(found.skeleton) * _stored_size(model.config)
    summary = ModelSummary(
        model.name,
        model.name,
        family=found.folder.family,
        layers=found.layers,
        experts=found.experts,
        top_k=found.skeleton.top_k,
        dtype=_stored(model.config),
        total_bytes=found.index.total_bytes,
        expert_bytes=experts,
        license=model.license,
        has_template=model.has_template,
    )
    return summary, planned(PlanMemory(model.name), OpenModel(found, experts), {})


def _as_if_here(model: HubModel) -> Inspection:
    """The model's shape from its config. Raises ModelError where it could not be used."""
    if not model.config.get("model_type"):
        raise ModelError(f"config.json of {model.name} names no model_type, so its architecture is unknown.")
    refuse_packed(model.config)
    with tempfile.TemporaryDirectory(prefix="greenroom-") as place:
        path = Path(place)
        (path / "config.json").write_text(json.dumps(model.config), "utf-8")
        word = _HEADER_WORDS[_stored(model.config)]
        tensors = {
            file.name: TensorRef(file.name, path / file.name, 0, file.size, word, ()) for file in model.weight_files
        }
        folder = ModelFolder(path, model.config, tensors)
        skeleton = make_skeleton(load_config(folder))
        shape = skeleton.meta_model()
    if not skeleton.experts:
        raise ModelError(f"{model.name} is a dense model: it has no routed experts for Greenroom to keep and fetch.")
    total = folder.total_bytes
    if skeleton.senses:  # the files hold towers too, and no header is here to say how much of them
        numbers = _expert_parameters(skeleton) + sum(parameter.numel() for parameter in shape.parameters())
        total = numbers * _stored_size(model.config)
    weights = TensorRef(model.name, path, 0, total, word, ())
    return Inspection(folder, skeleton, shape, ExpertIndex(tuple(skeleton.experts), (), frozenset(), (weights,)))


def _stored(config: dict[str, Any]) -> str:
    """The precision that a config names for its weights; float32, as transformers, where it names none."""
    said = [part.get(key) for part in parts_of(config) for key in ("dtype", "torch_dtype")]
    return next((str(name) for name in said if name in _HEADER_WORDS), "float32")


def _stored_size(config: dict[str, Any]) -> int:
    return 4 if _stored(config) == "float32" else 2


def _expert_parameters(skeleton: Skeleton) -> int:
    """Numbers in all routed experts."""
    return sum(module.num_experts * sum(map(prod, module.parameters.values())) for module in skeleton.experts)
