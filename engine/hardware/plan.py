"""The memory plan: how many expert slots, how much context, and does it fit. Arithmetic only, no device.

Everything that stays on the device (dense weights, KV cache, workspace, expert slots) shares one budget: a plan that
filled it with experts and died at the first long prompt would be a defect. So the plan begins with room for a first
piece of context; the experts have the rest, and give slots back as the conversation grows. Where the device is a card,
RAM under it keeps experts too; whoever is in neither is read from disk. Sizes are decimal: 1 GB = 1e9 bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from engine.errors import MemoryPlanError, OptionError

DEFAULT_CONTEXT = 8192  # tokens, where the model allows as many
FIRST_CONTEXT = 2048  # tokens that have their room from the start; experts give back what later ones need
SHORTEST_CONTEXT = 512  # tokens; context that nobody asked for is given up down to this before the plan fails
AUTO_SHARE = {"RAM": 0.8, "VRAM": 0.9}  # of the free memory that "auto" takes; the rest is for other programs
BASE_WORKSPACE = {"RAM": 200_000_000, "VRAM": 500_000_000}  # bytes: allocator, libraries; on a card their kernels too
PREFILL_CHUNK = 512  # tokens whose activations are there at once
CHECKPOINT_SHARE = 1 / 16  # of the free memory, for states to go back to, where layers cannot simply be cut
MOST_CHECKPOINTS = 1_000_000_000  # bytes for them, at most
KEPT_SHARE = 1 / 32  # of the free RAM, for what was read of other chats
MOST_KEPT = 1_000_000_000  # bytes for that, at most
KEPT_CHATS = 4  # long ones, at most
MOST_KEPT_ON_DISK = 4_000_000_000  # bytes, unless the user says otherwise

Verdict = Literal["fits", "fits with disk", "too big"]

_UNITS = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_WAYS = 'write "auto", a share ("25%"), a size ("2GB", "750 MB") or a number of slots ("64 slots")'


@dataclass(frozen=True, slots=True)
class Demand:
    """What a model asks of a device's memory, and what that memory has. Bytes, tokens and counts."""

    memory: Literal["RAM", "VRAM"]  # the device's
    free: int  # bytes that could be used now
    dense_bytes: int
    slot_bytes: int  # of one expert in its slot
    total_experts: int  # layers x experts
    kv_bytes_per_token: int
    longest_context: int  # tokens the model was made for
    workspace_bytes: int = BASE_WORKSPACE["RAM"]
    scores_bytes_per_token: int = 0  # attention scores, where the architecture writes them all out
    least_slots: int = 1  # one for each expert layout
    host_free: int = 0  # where the device is a card: bytes of RAM that could be used now
    checkpoint_bytes: int = 0  # for states of windows and recurrent layers to go back to
    kept_bytes: int = 0  # of RAM, for what was read of other chats
    ram_limit: str = ""  # why there is no more RAM, where that is not the machine's size: a sentence for the user
    others_free: tuple[int, ...] = ()  # of further cards: each holds as many experts as the first, and nothing else

    @property
    def past_bytes(self) -> int:
        """What going back takes of the device's memory, whatever the conversation's length."""
        return self.checkpoint_bytes + (self.kept_bytes if self.memory == "RAM" else 0)

    @property
    def token_bytes(self) -> int:
        """What one more token of context takes."""
        return self.kv_bytes_per_token + self.scores_bytes_per_token


@dataclass(frozen=True, slots=True)
class Tier:
    """One memory, and how many experts it holds that no tier above is sure to hold."""

    memory: Literal["VRAM", "RAM", "disk"]
    experts: int  # when the conversation starts
    experts_at_full_context: int
    bytes: int  # of these experts when the conversation starts


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What fits. ``notes`` are sentences for the user."""

    demand: Demand
    budget: int  # bytes of the device's memory that are shared out
    slots: int  # on the device, when the conversation starts
    context: int  # tokens
    host_slots: int  # experts kept in RAM beside a card; 0 where the device is RAM
    notes: tuple[str, ...] = ()

    def slots_at(self, context_tokens: int) -> int:
        """Slots the experts may hold when the KV cache holds so many tokens: never more with more tokens, at least one
        for each layout, at most ``slots``."""
        return min(self.slots, _room(self.demand, self.budget, min(context_tokens, self.context)))

    @property
    def dense_bytes(self) -> int:
        return self.demand.dense_bytes

    @property
    def expert_bytes(self) -> int:
        """Of the slots when the conversation starts."""
        return self.slots * self.demand.slot_bytes

    @property
    def kv_bytes(self) -> int:
        """Of the whole context."""
        return self.context * self.demand.kv_bytes_per_token

    @property
    def workspace_bytes(self) -> int:
        """At the whole context."""
        return self.demand.workspace_bytes + self.context * self.demand.scores_bytes_per_token

    @property
    def needed(self) -> int:
        """The most the device's memory ever holds: at the start, or when the context is full."""
        demand = self.demand
        moments = (min(FIRST_CONTEXT, self.context), self.context)
        shared = max(self.slots_at(tokens) * demand.slot_bytes + tokens * demand.token_bytes for tokens in moments)
        return demand.dense_bytes + demand.workspace_bytes + demand.past_bytes + shared

    @property
    def on_disk(self) -> int:
        """Experts that may have to be read from disk again when the context is full. RAM beside a card may hold copies
        of what is on it, so of the two only the larger counts."""
        return self.demand.total_experts - max(self.slots_at(self.context), self.host_slots)

    @property
    def verdict(self) -> Verdict:
        return "fits with disk" if self.on_disk else "fits"

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """From the device down to the disk."""
        demand, full = self.demand, self.slots_at(self.context)
        tiers = [Tier(demand.memory, self.slots, full, self.expert_bytes)]
        if demand.memory == "VRAM":
            tiers.append(Tier("RAM", self.host_slots, self.host_slots, self.host_slots * demand.slot_bytes))
        rest = demand.total_experts - max(self.slots, self.host_slots)
        return (*tiers, Tier("disk", rest, self.on_disk, rest * demand.slot_bytes))


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
    """Share out the memory. context 0: as long as the model and the memory allow, up to DEFAULT_CONTEXT.

    "auto" leaves some of the free memory alone, unless the model only fits without that; it says so then.
    Raises MemoryPlanError saying what is short, by how much, and what to change; OptionError for a bad wish.
    """
    if context < 0:
        raise OptionError(f"{context} is no length of context; write a number of tokens, or 0 to let the plan choose.")
    wanted = parse_experts(experts, demand.total_experts, demand.slot_bytes)
    if wanted is not None:
        wanted = max(wanted, demand.least_slots)
    tokens, notes = _context(demand, context)
    if demand.ram_limit:
        notes.append(demand.ram_limit)
    plan: MemoryPlan | None = None
    if wanted is None:
        plan = _first_plan(demand, int(demand.free * AUTO_SHARE[demand.memory]), None, tokens, not context, notes)
        if plan is None:
            notes.append(f"{demand.memory} is nearly full with this model; other programs may become slow.")
    plan = plan or _first_plan(demand, demand.free, wanted, tokens, not context, notes)
    if plan is None:
        raise _too_big(demand, wanted, tokens if context else min(tokens, SHORTEST_CONTEXT))
    return plan


def what_is_counted(reads: str) -> str:
    """What the figures leave out, in two sentences. reads: how experts come off the disk, in one sentence."""
    counted = "Counted are weights, expert slots, context and workspace, not the system's file cache, which gives way."
    return f"{counted} Reading: {reads[:1].lower()}{reads[1:].rstrip('.')}."


def kv_bytes_per_token(config: object, itemsize: int) -> int:
    """Bytes of keys and values that one token adds, for a transformers text config.

    Multi-head latent attention (DeepSeek-V2, section 2.1) is cached by transformers as full keys and values, so it is
    counted that way. Sliding windows are ignored: the figure is an upper bound.
    """
    layers = int(getattr(config, "num_hidden_layers", 0) or 0)
    heads = int(getattr(config, "num_attention_heads", 0) or 0)
    kv_heads = int(getattr(config, "num_key_value_heads", 0) or heads)
    hidden = int(getattr(config, "hidden_size", 0) or 0)
    if getattr(config, "is_encoder_decoder", False):  # the decoder's own, and what it keeps of the encoder's
        decoder = getattr(config, "decoder_layers", None) or getattr(config, "num_decoder_layers", None) or layers
        head_dim = int(getattr(config, "d_kv", 0) or (hidden // heads if heads else 0))
        return 2 * int(decoder) * heads * head_dim * 2 * itemsize
    if getattr(config, "kv_lora_rank", None):
        key = int(getattr(config, "qk_nope_head_dim", 0) or 0) + int(getattr(config, "qk_rope_head_dim", 0) or 0)
        value = int(getattr(config, "v_head_dim", 0) or key)
        return layers * heads * (key + value) * itemsize
    head_dim = int(getattr(config, "head_dim", 0) or (hidden // heads if heads else 0))
    return layers * kv_heads * head_dim * 2 * itemsize


def checkpoint_bytes(free: int) -> int:
    """Bytes for checkpoints of a conversation, where ``free`` bytes could be used and going back takes them."""
    return min(int(free * CHECKPOINT_SHARE), MOST_CHECKPOINTS)


def kept_bytes(free_ram: int, chat_bytes: int) -> int:
    """Bytes of RAM for what was read of other chats, where ``free_ram`` bytes could be used and a long one takes
    ``chat_bytes``."""
    return min(int(free_ram * KEPT_SHARE), MOST_KEPT, KEPT_CHATS * chat_bytes)


def disk_for_pasts(text: str, free: int) -> int:
    """Bytes of disk that ``text`` ("auto", "off", "5GB") allows for what was read of other chats; 0: nothing is kept.

    free: bytes on that disk. Raises OptionError.
    """
    clean = text.strip().lower()
    if clean == "auto":
        return min(MOST_KEPT_ON_DISK, free // 10)
    if clean in ("off", "0"):
        return 0
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]i?b|b)", clean)
    if match is None:
        raise OptionError(f'{text!r} is no amount of disk for chats; write "auto", "off", or a size ("5GB").')
    return int(float(match[1]) * _UNITS[match[2].upper()])


def scores_bytes_per_token(config: object, itemsize: int) -> int:
    """Bytes of attention scores that one token of context adds to a prefill pass which writes them all out ("eager"):
    ``[heads, chunk, context]``, before and after a softmax in float32."""
    heads = int(getattr(config, "num_attention_heads", 0) or 0)
    return heads * PREFILL_CHUNK * (itemsize + 4)


def workspace_bytes(config: object, itemsize: int, top_k: int, memory: Literal["RAM", "VRAM"]) -> int:
    """Bytes of one prefill pass's activations, and of the libraries: every token's k outputs twice (as computed, and
    weighted), a layer's own, and the widest dense feed-forward."""
    hidden = int(getattr(config, "hidden_size", 0) or 0)
    wide = int(getattr(config, "intermediate_size", 0) or 0)
    return BASE_WORKSPACE[memory] + PREFILL_CHUNK * (2 * top_k * hidden + 8 * hidden + 3 * wide) * itemsize


def _context(demand: Demand, context: int) -> tuple[int, list[str]]:
    """The tokens to aim for, and what the user should know about them."""
    if context <= demand.longest_context:
        return context or min(DEFAULT_CONTEXT, demand.longest_context), []
    note = f"The model was made for {demand.longest_context:,} tokens of context; it gets no more."
    return demand.longest_context, [note]


def _room(demand: Demand, budget: int, tokens: int) -> int:
    """Slots that fit beside so many tokens of context; negative when not even those do. Cards have equal shares of the
    experts, so the one with the least room counts for all."""
    rest = budget - demand.dense_bytes - demand.workspace_bytes - demand.past_bytes - tokens * demand.token_bytes
    for free in demand.others_free:
        rest = min(rest, int(free * (budget / demand.free)) - BASE_WORKSPACE[demand.memory])
    return rest // demand.slot_bytes * (1 + len(demand.others_free))


def _first_plan(
    demand: Demand, budget: int, wanted: int | None, tokens: int, may_shorten: bool, notes: list[str]
) -> MemoryPlan | None:
    """With memory for other chats and for checkpoints where there is some, else without; None when nothing fits."""
    without = [replace(demand, kept_bytes=0), replace(demand, kept_bytes=0, checkpoint_bytes=0)]
    for each in dict.fromkeys([demand, *without]):
        said = list(notes)
        if each.checkpoint_bytes < demand.checkpoint_bytes:
            said.append("There is no memory for checkpoints: an edited or repeated turn is read from the start.")
        plan = _share_out(each, budget, wanted, tokens, may_shorten, said)
        if plan is not None:
            return plan
    return None


def _share_out(
    demand: Demand, budget: int, wanted: int | None, tokens: int, may_shorten: bool, notes: list[str]
) -> MemoryPlan | None:
    """A plan within ``budget`` bytes, None when there is none."""
    most = demand.total_experts if wanted is None else wanted
    kept = tokens
    if may_shorten and demand.token_bytes:
        kept = min(tokens, max(_affordable(demand, budget, wanted, tokens) // demand.token_bytes, SHORTEST_CONTEXT))
    at_start, at_end = (_room(demand, budget, held) for held in (min(kept, FIRST_CONTEXT), kept))
    if at_end < demand.least_slots or at_start < (wanted or 1):
        return None
    slots = min(most, at_start)
    said = list(notes)
    if kept < tokens:
        said.append(f"Context is {kept:,} tokens instead of {tokens:,}, so that it fits in {demand.memory}.")
    if at_end < slots:
        given_back = f"Of {slots:,} expert slots {slots - at_end:,} are given back as the conversation grows"
        said.append(f"{given_back} to {kept:,} tokens.")
    host_slots = 0
    if demand.memory == "VRAM" and min(slots, at_end) < demand.total_experts:
        host_room = max(0, int(demand.host_free * AUTO_SHARE["RAM"]) - demand.kept_bytes)
        host_slots = min(demand.total_experts, host_room // demand.slot_bytes)
    return MemoryPlan(demand, budget, slots, kept, host_slots, tuple(said))


def _affordable(demand: Demand, budget: int, wanted: int | None, tokens: int) -> int:
    """Bytes for context that nobody asked for: what the experts leave over, or half of what both share."""
    rest = budget - demand.dense_bytes - demand.workspace_bytes - demand.past_bytes
    left = rest - _share(demand, demand.total_experts if wanted is None else wanted) * demand.slot_bytes
    if wanted is not None and left < min(tokens, FIRST_CONTEXT) * demand.token_bytes:
        return left  # else the experts could not even start as wished
    return min(max(rest // 2, left), rest - _share(demand, demand.least_slots) * demand.slot_bytes)


def _share(demand: Demand, slots: int) -> int:
    """Of so many slots, those on one card."""
    return -(-slots // (1 + len(demand.others_free)))


def _too_big(demand: Demand, wanted: int | None, tokens: int) -> MemoryPlanError:
    """The moment that asks for most, in words: the start with the experts wanted, or the end with as few as can be."""
    least = _share(demand, demand.least_slots) * demand.slot_bytes
    moments = (
        (_share(demand, wanted or demand.least_slots) * demand.slot_bytes, min(tokens, FIRST_CONTEXT)),
        (least, tokens),
    )
    experts, held = max(moments, key=lambda moment: moment[0] + moment[1] * demand.token_bytes)
    context = held * demand.token_bytes
    needed = demand.dense_bytes + demand.workspace_bytes + context + experts
    short = needed - demand.free
    if demand.others_free and short <= 0:  # the first card has room, another has not
        return _other_card_too_small(demand, moments[0][0])
    ways = []
    if experts - short >= least:
        ways.append(f"give experts at most {(experts - short) * (1 + len(demand.others_free)) / 1e9:.2f} GB")
    if context - short >= SHORTEST_CONTEXT * demand.token_bytes and demand.token_bytes:
        ways.append(f"choose a context of at most {held - -(-short // demand.token_bytes):,} tokens")
    limit = f"{demand.ram_limit} " if demand.ram_limit and demand.memory == "RAM" else ""
    ways.append("raise that limit" if limit else "close other programs")
    sizes = [demand.dense_bytes, demand.workspace_bytes, experts, context, needed, demand.free, short]
    dense_gb, work_gb, experts_gb, context_gb, needed_gb, free_gb, short_gb = (f"{size / 1e9:.2f} GB" for size in sizes)
    return MemoryPlanError(
        f"Not enough {demand.memory}: the model needs at least {needed_gb} (dense weights {dense_gb}, experts "
        f"{experts_gb}, context {context_gb}, workspace {work_gb}) and {free_gb} are free, so {short_gb} are missing. "
        f"{limit}{_sentence(ways)}",
        short,
    )


def _other_card_too_small(demand: Demand, experts: int) -> MemoryPlanError:
    free = min(demand.others_free)
    short = BASE_WORKSPACE[demand.memory] + experts - free
    return MemoryPlanError(
        f"Not enough {demand.memory} on a further card: its share of the experts is {experts / 1e9:.2f} GB and "
        f"{free / 1e9:.2f} GB are free, so {short / 1e9:.2f} GB are missing. Leave it out, or give experts less.",
        short,
    )


def _sentence(ways: list[str]) -> str:
    text = ", or ".join(ways)
    return text[0].upper() + text[1:] + "."
