"""How much memory the experts may take: between a slider's slots, ``LoadModel.experts`` and words. Arithmetic only."""

from __future__ import annotations

import re

from app.panels import format
from engine.messages import ModelSummary

AUTO = "auto"
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def total_experts(model: ModelSummary) -> int:
    """Routed experts of the whole model: the slots beyond which more would stay empty."""
    return model.layers * model.experts


def one_token(model: ModelSummary) -> int:
    """Experts that one token wants, over all layers."""
    return model.layers * model.top_k


def kept_bytes(slots: int, model: ModelSummary) -> float:
    """Memory of so many experts in the stored precision."""
    total = total_experts(model)
    return model.expert_bytes * slots / total if total else 0.0


def option(slots: int) -> str:
    """``LoadModel.experts`` for a number of slots."""
    return f"{slots} slots"


def share(slots: int, model: ModelSummary) -> str:
    """The same budget as a share, which means something for another model too."""
    total = total_experts(model)
    return f"{100 * slots / total:.9f}%" if total else AUTO


def slots_of(experts: str, model: ModelSummary) -> int | None:
    """The slots that a stored ``LoadModel.experts`` means for this model; None for "auto" and for nonsense."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%|slots?|[kmg]i?b|b)\s*", experts, re.IGNORECASE)
    total = total_experts(model)
    if match is None or not total:
        return None
    number, unit = float(match[1]), match[2].upper()
    if unit == "%":
        slots = round(total * number / 100)
    elif unit.startswith("SLOT"):
        slots = int(number)
    else:
        each = model.expert_bytes / total
        slots = int(number * _UNITS[unit] // each) if each else 0
    return min(max(slots, 1), total)


def words(slots: int, model: ModelSummary) -> str:
    """ "0.13 GB · 240 of 960 · 25%"."""
    total = total_experts(model)
    kept = format.size(kept_bytes(slots, model))
    return f"{kept} · {format.count(slots)} of {format.count(total)} · {format.percent(slots / total)}"
