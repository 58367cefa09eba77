"""The memory plan: how many expert slots, how much context, and does it fit. Arithmetic only, no device.

Everything that stays in one memory (dense weights, KV cache, workspace, expert slots) shares one budget: a plan that
filled it with experts and died at the first long prompt would be a defect. Sizes are decimal: 1 GB = 1e9 bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.errors import MemoryPlanError, OptionError

DEFAULT_CONTEXT = 8192  # tokens, where the model allows as many
SHORTEST_CONTEXT = 512  # tokens; "auto" gives up context down to this before it fails
AUTO_SHARE = 0.8  # of the free memory that "auto" takes; the rest is for other programs
WORKSPACE = 200_000_000  # bytes for activations and the allocator

_UNITS = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_WAYS = 'write "auto", a share ("25%"), a size ("2GB", "750 MB") or a number of slots ("64 slots")'


@dataclass(frozen=True, slots=True)
class Demand:
    """What a model asks of one memory. Bytes, tokens and counts."""

    memory: str  # "RAM" or "VRAM", for the words
    free: int  # bytes that could be used now
    dense_bytes: int
    slot_bytes: int  # of one expert in its slot
    total_experts: int  # layers x experts
    kv_bytes_per_token: int
    longest_context: int  # tokens the model was made for


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What fits. ``notes`` are sentences for the user."""

    slots: int
    context: int
    dense_bytes: int
    expert_bytes: int
    kv_bytes: int
    workspace_bytes: int
    notes: tuple[str, ...] = ()

    @property
    def needed(self) -> int:
        return self.dense_bytes + self.expert_bytes + self.kv_bytes + self.workspace_bytes


def parse_experts(text: str, total_experts: int, slot_bytes: int) -> int | None:
    """The number of slots that ``text`` asks for, 1..total_experts; None for "auto". Raises OptionError."""
    clean = text.strip()
    if clean.lower() == "auto":
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%|slots?|[kmgt]i?b|b)", clean, re.IGNORECASE)
    if match is None:
        raise OptionError(f"{text!r} is no amount of memory for experts; {_WAYS}.")
    number, unit = float(match[1]), match[2].upper()
    if unit == "%":
        if number > 100:
            raise OptionError(f"{text!r} is more than all experts; {_WAYS}.")
        slots = round(total_experts * number / 100)
    elif unit.startswith("SLOT"):
        slots = int(number)
    else:
        slots = int(number * _UNITS[unit] // slot_bytes)
        if slots < 1:
            raise OptionError(
                f"{text} holds no expert: one needs {slot_bytes / 1e6:.1f} MB. Give experts at least that much."
            )
    return max(1, min(slots, total_experts))


def plan_memory(demand: Demand, experts: str, context: int = 0) -> MemoryPlan:
    """Share out one memory. context 0: as long as the model and the memory allow, up to DEFAULT_CONTEXT.

    "auto" leaves a fifth of the free memory alone, unless the model only fits without that fifth; it says so then.
    Raises MemoryPlanError saying what is short, by how much, and what to change; OptionError for a bad ``experts``.
    """
    wanted = parse_experts(experts, demand.total_experts, demand.slot_bytes)
    tokens, notes = _context(demand, context)
    if wanted is None:
        plan = _share_out(demand, int(demand.free * AUTO_SHARE), None, tokens, not context, notes)
        if plan is not None:
            return plan
        notes.append(f"{demand.memory} is nearly full with this model; other programs may become slow.")
    plan = _share_out(demand, demand.free, wanted, tokens, not context, notes)
    if plan is None:
        raise _too_big(demand, wanted, tokens if context else min(tokens, SHORTEST_CONTEXT))
    return plan


def kv_bytes_per_token(config: object, itemsize: int) -> int:
    """Bytes of keys and values that one token adds, for a transformers text config.

    Multi-head latent attention (DeepSeek-V2, section 2.1) is cached by transformers as full keys and values, so it is
    counted that way. Sliding windows are ignored: the figure is an upper bound.
    """
    layers = int(getattr(config, "num_hidden_layers", 0) or 0)
    heads = int(getattr(config, "num_attention_heads", 0) or 0)
    kv_heads = int(getattr(config, "num_key_value_heads", 0) or heads)
    hidden = int(getattr(config, "hidden_size", 0) or 0)
    if getattr(config, "kv_lora_rank", None):
        key = int(getattr(config, "qk_nope_head_dim", 0) or 0) + int(getattr(config, "qk_rope_head_dim", 0) or 0)
        value = int(getattr(config, "v_head_dim", 0) or key)
        return layers * heads * (key + value) * itemsize
    head_dim = int(getattr(config, "head_dim", 0) or (hidden // heads if heads else 0))
    return layers * kv_heads * head_dim * 2 * itemsize


def _context(demand: Demand, context: int) -> tuple[int, list[str]]:
    """The tokens to aim for, and what the user should know about them."""
    if context <= demand.longest_context:
        return context or min(DEFAULT_CONTEXT, demand.longest_context), []
    note = f"The model was made for {demand.longest_context:,} tokens of context; it gets no more."
    return demand.longest_context, [note]


def _share_out(
    demand: Demand, budget: int, wanted: int | None, tokens: int, may_shorten: bool, notes: list[str]
) -> MemoryPlan | None:
    """A plan within ``budget`` bytes, None when there is none."""
    rest = budget - demand.dense_bytes - WORKSPACE
    kept = tokens
    if may_shorten and demand.kv_bytes_per_token:  # give up context that nobody asked for rather than fail
        kv_share = rest // 2 if wanted is None else rest - wanted * demand.slot_bytes  # "auto": experts need room too
        affordable = kv_share // demand.kv_bytes_per_token
        if affordable < tokens:
            kept = max(affordable, min(tokens, SHORTEST_CONTEXT))
    kv_bytes = kept * demand.kv_bytes_per_token
    room = (rest - kv_bytes) // demand.slot_bytes
    if room < (wanted or 1):
        return None
    slots = wanted if wanted is not None else min(demand.total_experts, room)
    said = list(notes)
    if kept < tokens:
        said.append(f"Context is {kept:,} tokens instead of {tokens:,}, so that it fits in {demand.memory}.")
    return MemoryPlan(slots, kept, demand.dense_bytes, slots * demand.slot_bytes, kv_bytes, WORKSPACE, tuple(said))


def _too_big(demand: Demand, wanted: int | None, tokens: int) -> MemoryPlanError:
    experts = (wanted or 1) * demand.slot_bytes
    kv_bytes = tokens * demand.kv_bytes_per_token
    needed = demand.dense_bytes + WORKSPACE + kv_bytes + experts
    short = needed - demand.free
    ways = []
    if wanted is not None and wanted > 1 and experts > short:
        ways.append(f"give experts at most {(experts - short) / 1e9:.2f} GB")
    if kv_bytes > short and tokens > SHORTEST_CONTEXT:
        ways.append("choose a shorter context")
    ways.append("close other programs")
    sizes = [demand.dense_bytes, experts, kv_bytes, needed, demand.free, short]
    dense_gb, experts_gb, kv_gb, needed_gb, free_gb, short_gb = (f"{size / 1e9:.2f} GB" for size in sizes)
    return MemoryPlanError(
        f"Not enough {demand.memory}: the model needs at least {needed_gb} (dense weights {dense_gb}, "
        f"experts {experts_gb}, context {kv_gb}) and {free_gb} are free, so {short_gb} are missing. {_sentence(ways)}"
    )


def _sentence(ways: list[str]) -> str:
    text = ", or ".join(ways)
    return text[0].upper() + text[1:] + "."
