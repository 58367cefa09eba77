"""What the two sliders mean: slots, ``LoadModel.experts``, lengths of context, and words. Arithmetic only."""

from __future__ import annotations

import re

from PySide6.QtCore import QCoreApplication

from app.panels import format

AUTO = "auto"
SHORTEST_CONTEXT = 512  # tokens; less is of no use for a conversation
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def option(slots: int) -> str:
    """``LoadModel.experts`` for a number of slots."""
    return f"{slots} slots"


def slots_of(experts: str, total: int, slot_bytes: int = 0) -> int | None:
    """The slots that a ``LoadModel.experts`` means for a model of ``total`` experts; None for "auto", for nonsense, and
    for a size as long as nobody knows a slot's."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%|slots?|[kmg]i?b|b)\s*", experts, re.IGNORECASE)
    if match is None or not total:
        return None
    number, unit = float(match[1]), match[2].upper()
    if unit == "%":
        slots = round(total * number / 100)
    elif unit.startswith("SLOT"):
        slots = int(number)
    elif slot_bytes:
        slots = int(number * _UNITS[unit] // slot_bytes)
    else:
        return None
    return min(max(slots, 1), total)


def words(slots: int, total: int, slot_bytes: int = 0) -> str:
    """ "0.13 GB · 240 of 960 · 25%"; without the size where it is not known."""
    pieces = [format.size(slots * slot_bytes)] if slot_bytes else []
    of = QCoreApplication.translate("ModelPicker", "{some} of {all}")
    pieces += [
        of.format(some=format.count(slots), all=format.count(total)),
        format.percent(slots / total if total else None),
    ]
    return " · ".join(pieces)


def context_stops(longest: int) -> list[int]:
    """Where the context slider stops, in tokens: 512, 768, 1024, 1536, 2048 .. ``longest``."""
    stops, power = [], SHORTEST_CONTEXT
    while power < longest:
        stops += [stop for stop in (power, power * 3 // 2) if stop < longest]
        power *= 2
    return [*stops, longest] if longest > 0 else stops


def nearest_stop(stops: list[int], tokens: int) -> int:
    """The index of the stop closest to ``tokens``."""
    return min(range(len(stops)), key=lambda index: abs(stops[index] - tokens)) if stops else 0
