"""A memory plan in words. The engine decides; here it is only said."""

from __future__ import annotations

from datetime import datetime

from PySide6.QtCore import QCoreApplication

from app.panels import format
from engine.messages import MemoryPlanned, ModelSummary


def _tr(text: str, **values: object) -> str:
    return QCoreApplication.translate("ModelPicker", text).format(**values)


def short(plan: MemoryPlanned) -> str:
    """For a row of the list: "fits", "fits with disk", "too big: 1.2 GB short"."""
    if plan.verdict == "too big":
        return _tr("too big: {size} short", size=format.size(plan.shortfall))
    return _tr("fits with disk") if plan.on_disk else _tr("fits")


def sentences(plan: MemoryPlanned, model: ModelSummary, policy: str) -> list[str]:
    """What the plan means for the user, the verdict first."""
    if plan.verdict == "too big":
        by = _tr("Too big by {size}.", size=format.size(plan.shortfall))
        return [by, plan.reason] if plan.reason else [by]
    said = [_verdict(plan)]
    wanted = model.layers * model.top_k
    if plan.on_disk and wanted:
        said.append(
            _tr(
                "Each token wants {count} experts, {top_k} in each of {layers} layers.",
                count=format.count(wanted),
                top_k=model.top_k,
                layers=model.layers,
            )
        )
        if plan.slots < wanted and policy == "lru":
            said.append(
                _tr("With fewer slots than that, lru throws out just what comes next: keep more, or take next-use.")
            )
    return [*said, *plan.notes]


def _verdict(plan: MemoryPlanned) -> str:
    if not plan.on_disk:
        if plan.slots >= plan.total_experts:
            return _tr("Fits: every expert stays in memory, and after its first use none is fetched again.")
        return _tr("Fits: {count} experts are on the card, the others wait in RAM.", count=format.count(plan.slots))
    return _tr(
        "Fits with disk: {here} of {total} experts have a place in memory; the others are read from disk when they are "
        "called.",
        here=format.count(plan.total_experts - plan.on_disk),
        total=format.count(plan.total_experts),
    )


def used_when(when: datetime | None, now: datetime) -> str:
    """ "used today", "used 3 days ago"; "never used" where nobody knows."""
    if when is None:
        return _tr("never used")
    days = (now.date() - when.astimezone(now.tzinfo).date()).days
    if days <= 0:
        return _tr("used today")
    return _tr("used yesterday") if days == 1 else _tr("used {days} days ago", days=days)
