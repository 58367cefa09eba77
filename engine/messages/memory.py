"""Who holds, or would hold, how much of which memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class PlanMemory:
    """Would ``LoadModel`` with these options fit, and what would hold how much? ``MemoryPlanned`` answers, also while
    generating. Of several questions about one source that wait, only the latest is answered.
    """

    source: str
    experts: str = "auto"
    context: int = 0
    device: str = "auto"
    dtype: str = "auto"


@dataclass(frozen=True, slots=True)
class MemoryPlanned:
    """What ``LoadModel`` with these options would do now; what the present model holds counts as free.

    Sizes in bytes. Where it is too big, slots are 0, ``shortfall`` says how much is missing and ``reason`` what to do;
    ``bars`` then show what it would take.
    """

    question: PlanMemory
    verdict: Literal["fits", "fits with disk", "too big"]
    bars: tuple[MemoryBar, ...]  # the device's, then RAM beside a card, then "disk": experts that are read from there
    dtype: str = ""  # computing precision
    shortfall: int = 0
    reason: str = ""
    slots: int = 0  # expert slots on the device when the conversation starts
    slots_at_full_context: int = 0
    total_experts: int = 0
    slot_bytes: int = 0
    dense_bytes: int = 0
    context: int = 0  # tokens
    longest_context: int = 0  # tokens the model was made for
    kv_bytes: int = 0  # of the whole context
    workspace_bytes: int = 0
    on_disk: int = 0  # experts that may have to be read from disk again
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """A piece of one memory. kind: "dense", "experts", "kv", "workspace" (of plans alone), "other" (the rest of
    this program and other programs)."""

    kind: Literal["dense", "experts", "kv", "workspace", "other"]
    bytes: int


@dataclass(frozen=True, slots=True)
class MemoryBar:
    """One memory, split by what holds it; what ``parts`` do not cover is free."""

    name: str  # "VRAM · RTX 4070", "RAM", or "RAM (of this container)" where that may have less
    total: int
    parts: tuple[MemoryPart, ...]


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    bars: tuple[MemoryBar, ...]  # VRAM first, when there is a card
