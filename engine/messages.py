"""The whole conversation between a face (window, terminal) and the engine thread.

Commands travel one way, Events the other, each over a plain queue. Everything here is frozen plain data: numbers,
strings, tuples and small numpy arrays that nobody writes to after they are sent; no tensors, no Qt, no locks.

Order of events for one ``LoadModel``:  Progress* then ModelLoaded, or Failed.
Order of events for one ``Generate``:   Started, (PrefillProgress | Token)*, Finished; or Failed instead of Started.
A ``Finished`` always follows a ``Started``, with reason "error" and ``error`` set when something broke half way.
Snapshots (Expert, Cache, Memory) are sampled: they arrive a few times a second while something happens, and one last
time when it ends. A missed snapshot is never needed to understand the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Literal, TypeAlias

import numpy as np

FinishReason = Literal["end", "length", "stopped", "error"]
Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn, as the chat template receives it.

    open: the turn is not over. Only for the last one, an answer that was cut: the model goes on where ``text`` ends.
    """

    role: Role
    text: str
    open: bool = False


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen. ``temperature`` 0 is greedy and ignores the rest but the repetition penalty."""

    temperature: float = 0.7
    top_p: float = 0.95
    top_k: int = 0  # 0: off
    min_p: float = 0.0  # 0: off
    repetition_penalty: float = 1.0  # 1: off
    seed: int | None = None  # None: a new one each time, reported in Finished
    max_tokens: int = 1024


# Who leaves when a slot is needed: name -> a sentence for the user. This is the registry: a policy is a line here and a
# file in engine/experts/policies/ with that ``name``, and appears in every list, option and replay.
POLICIES: dict[str, str] = {
    "lru": "The expert that was used longest ago leaves. Quick to follow a change of subject; needs room for a token.",
    "lfu": "The expert that was used least often leaves. Steady when only a few fit.",
    "lfu-aged": "As lfu, but old uses fade, so it follows the subject as well.",
    "least-stale": "The expert whose layer had its turn without calling it leaves; those still to come stay.",
    "eam": "The expert that this answer's tokens chose least leaves, late layers first (MoE-Infinity's rule).",
    "next-use": "The expert that will probably be needed again last leaves. Learns while you chat; hits most often.",
}

DEFAULT_POLICY = "next-use"

# Who is expected next, and so fetched before anybody asks: name -> a sentence for the user. A registry as well:
# the files are in engine/prediction/predictors/.
PREDICTORS: dict[str, str] = {
    "none": "Nobody is fetched before they are called.",
    "next-index": "The experts with the lowest numbers, as if they lay on a tape. A baseline to compare with.",
    "popularity": "The experts that were called most often so far.",
    "previous-token": "The experts that the last token called.",
    "eam": "The experts that similar past requests called from here on (MoE-Infinity's rule).",
    "gate": "The next layers' own routers are asked about this layer's state.",
    "gate-fitted": "A map learnt while you chat, from what a router sees to what the next ones will say.",
    "apprentice": "As gate, until gate-fitted has learnt to foresee more; then as that.",
    "call-sheet": "A map learnt while you chat that names the whole token's experts before it starts.",
    "blend": "All of them, weighed by who was right of late.",
}

DEFAULT_PREDICTOR = "apprentice"

Prefetch = Literal["auto", "on", "off"]
PREFETCH: dict[Prefetch, str] = {
    "auto": "Fetch ahead while that saves time; measured again and again while the model answers.",
    "on": "Always fetch ahead.",
    "off": "Never fetch ahead.",
}

ReadMode = Literal["auto", "direct", "buffered"]
READ_MODES: dict[ReadMode, str] = {
    "auto": "Whichever was faster on this disk; small experts through the system's file cache.",
    "direct": "Past the system's file cache: what the budget leaves out is in no memory.",
    "buffered": "Through the system's file cache, which may keep copies in free memory.",
}

COMPUTE_ON_MISS: dict[str, str] = {
    "off": "Missing experts are always fetched.",
    "calibrated": "Some are computed by the processor where they wait in RAM, if that is measured to be faster here; "
    "an answer's last digits then depend on who was missing.",
}

PRECISIONS: dict[str, str] = {
    "auto": "As the model is stored; what is small is computed in float32 on a processor, which is faster there.",
    "float32": "Most exact, and twice the memory of the other two.",
    "bfloat16": "Half the memory of float32; the digits that most models are made with.",
    "float16": "Half the memory of float32; for graphics cards that are slow in bfloat16.",
}

# ---------------------------------------------------------------------------------------------- commands


@dataclass(frozen=True, slots=True)
class LoadModel:
    """Load a model, unloading the present one first.

    source: "demo", a folder, or a hub name already in the hub cache ("Qwen/Qwen3-30B-A3B").
    experts: memory for routed experts: "auto", a share ("25%"), a size ("2GB", "750 MB") or a slot count ("64 slots").
    policy, predictor, prefetch, reads, dtype, compute_on_miss: a name out of POLICIES, PREDICTORS, PREFETCH,
    READ_MODES, PRECISIONS, COMPUTE_ON_MISS.
    context: tokens the KV cache may hold; 0 lets the plan choose.
    """

    source: str
    experts: str = "auto"
    policy: str = DEFAULT_POLICY
    context: int = 0
    device: str = "auto"  # "auto", "cpu", "cuda", "cuda:1"; several with commas between share the experts
    dtype: str = "auto"  # for computing
    threads: int = 0  # cores for computing; 0: all but one
    predictor: str = DEFAULT_PREDICTOR
    prefetch: Prefetch = "auto"
    reads: ReadMode = "auto"
    compute_on_miss: str = "off"


@dataclass(frozen=True, slots=True)
class UnloadModel:
    pass


@dataclass(frozen=True, slots=True)
class Generate:
    """Answer ``messages`` (the whole history, oldest first; the engine finds out what its KV cache already holds).

    When the last message is ``open``, its answer is continued: ``Token`` and ``Finished`` carry the new text alone.

    log: path of the conversation's session log, to which the engine appends the answer as it streams and what every
    forward pass did; "" writes nothing. answer_id/parent_id: the ids the answer gets in that log.
    """

    request_id: str
    messages: tuple[ChatMessage, ...]
    sampling: Sampling = field(default_factory=Sampling)
    log: str = ""
    answer_id: str = ""
    parent_id: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the running load or answer. Acts between layers, in prefill too; the text so far stays.

    Sent through ``EngineService.stop()`` as well, which does not wait in the queue behind other commands.
    """


@dataclass(frozen=True, slots=True)
class ListModels:
    """Look for models: the demo, the hub cache, and in ``folders``. ``ModelList`` answers, also while generating."""

    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InspectModel:
    """What is in this folder, and can it be used? Reads headers only. Answered by ``ModelList`` with one entry."""

    source: str


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
class LookUpModel:
    """What is this model on the hub, and would it fit? Contacts the network. ``ModelOnHub`` answers, or Failed."""

    name: str  # "Qwen/Qwen3-30B-A3B"


@dataclass(frozen=True, slots=True)
class DownloadModel:
    """Fetch a model from the hub into the hub cache, going on where an earlier try ended. Contacts the network.

    DownloadProgress* then DownloadDone, or Failed with the name as its request_id.
    """

    name: str


@dataclass(frozen=True, slots=True)
class StopDownload:
    """Stop the running download. What was fetched stays, and the next one goes on from there."""


@dataclass(frozen=True, slots=True)
class CountTokens:
    """How long would the prompt of ``messages`` be? ``TokenCount`` answers, also while generating.

    max_tokens: the room that the answer would like, as in Sampling.
    """

    request_id: str
    messages: tuple[ChatMessage, ...]
    max_tokens: int = 1024


ProfileDeed = Literal["show", "export", "import", "clear"]


@dataclass(frozen=True, slots=True)
class UseProfile:
    """Look at what was learnt about a model, move it, or forget it. ``ProfileFacts`` answers, also while generating.

    A loaded model goes on with what it knows and saves it after its next answer: load it again after import and clear.
    file: to export to, or to import from.
    """

    signature: str  # as in ModelLoaded
    deed: ProfileDeed = "show"
    file: str = ""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What would logged answers have cost under other choices? Answered while an answer is being generated, too.

    logs: paths of session logs of one model, replayed one after the other from an empty cache.
    policies: names out of POLICIES; Belady's bound comes with them, or alone when there are none.
    budgets: memory for experts, as in ``LoadModel.experts`` but "auto". predictors: names out of PREDICTORS.
    """

    request_id: str
    logs: tuple[str, ...]
    policies: tuple[str, ...]
    budgets: tuple[str, ...]
    predictors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StopWhatIf:
    """End that replay, running or waiting; ``Failed`` says that it did."""

    request_id: str


@dataclass(frozen=True, slots=True)
class ShutDown:
    """Stop whatever runs, close files and end the thread."""


Command: TypeAlias = (
    LoadModel
    | UnloadModel
    | Generate
    | Stop
    | ListModels
    | InspectModel
    | PlanMemory
    | LookUpModel
    | DownloadModel
    | StopDownload
    | CountTokens
    | UseProfile
    | WhatIf
    | StopWhatIf
    | ShutDown
)

# ------------------------------------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class EngineReady:
    """The heavy libraries are imported; commands are answered from here on."""

    program: str  # "greenroom 0.1.0"
    libraries: str  # "torch 2.13.0, transformers 5.24.0"
    device: str  # "CPU, 2 cores" or "NVIDIA GeForce RTX 4070, 12.0 GB"
    cards: tuple[str, ...] = ()  # names of the graphics cards, "cuda:0" first


@dataclass(frozen=True, slots=True)
class Progress:
    """A long task moves on. ``fraction`` None: it is under way but nobody knows how far."""

    task: str  # "Loading SmolLM2 demo"
    detail: str  # "building layer 12 of 30"
    fraction: float | None


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """A model that could be loaded, or the reason why it cannot. Known from the config and the headers alone."""

    source: str  # what LoadModel.source would be
    name: str
    problem: str = ""  # empty: usable
    family: str = ""  # transformers model_type, "qwen3_moe"
    layers: int = 0  # layers that have routed experts
    experts: int = 0  # routed experts per layer
    top_k: int = 0  # experts per token
    dtype: str = ""  # stored precision, "bfloat16"
    total_bytes: int = 0  # of all weights on disk
    expert_bytes: int = 0  # of all routed experts, stored
    license: str = ""
    has_template: bool = False
    built: bool = True  # False: the demo, before its first use
    partial: bool = False  # its download from the hub was begun and did not end


@dataclass(frozen=True, slots=True)
class ModelList:
    models: tuple[ModelSummary, ...]


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
class ModelOnHub:
    """A model on the hub. ``summary.problem`` says why it could not be used; then there is no ``plan``."""

    name: str
    summary: ModelSummary
    plan: MemoryPlanned | None
    files: int
    total_bytes: int  # of these files
    present_bytes: int  # of them, here already
    free_bytes: int  # on the disk they would go to
    folder: str  # where they would go


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    name: str
    file: str
    done_bytes: int  # of all files
    total_bytes: int
    bytes_per_second: float | None  # None: not known yet


@dataclass(frozen=True, slots=True)
class DownloadDone:
    """All files are here and their hashes are right; ``name`` can be loaded."""

    name: str


@dataclass(frozen=True, slots=True)
class ModelLoaded:
    """The model is ready. ``layers`` are the layers with routed experts, ``experts`` the most any of them has."""

    source: str
    name: str
    family: str
    signature: str  # identifies these weights; profiles and logs carry it
    layers: int
    experts: int
    top_k: int
    device: str
    dtype: str  # computing precision
    policy: str
    slots: int  # expert slots on the device
    total_experts: int  # layers x experts
    slot_bytes: int  # of one expert in its slot
    dense_bytes: int  # all weights that are not routed experts
    context: int  # tokens the conversation may hold
    has_template: bool
    notes: tuple[str, ...] = ()  # what the user should know, in sentences
    seconds: float = 0.0
    sampling: Sampling = Sampling()  # what the model's makers advise
    predictor: str = "none"
    prefetch: Prefetch = "off"
    reads: str = ""  # how experts are read from disk, in words: "direct, 2 in flight"


@dataclass(frozen=True, slots=True)
class TokenCount:
    """What ``Generate`` would do with these messages now. Not sent while no model is loaded."""

    request_id: str
    tokens: int  # of the prompt, without what is left out
    left_out: int  # the oldest messages that would not be given to the model
    context: int  # tokens the conversation may hold; a prompt of as many or more is refused


@dataclass(frozen=True, slots=True)
class ModelUnloaded:
    pass


@dataclass(frozen=True, slots=True)
class Started:
    """The prompt is tokenised. ``reused_tokens`` of ``prompt_tokens`` are still in the KV cache."""

    request_id: str
    prompt_tokens: int
    reused_tokens: int
    notes: tuple[str, ...] = ()  # e.g. the template refused a system message


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    request_id: str
    done_tokens: int  # of prompt_tokens - reused_tokens
    total_tokens: int


@dataclass(frozen=True, slots=True)
class Token:
    """New text. ``text`` may be empty while a character is split over tokens."""

    request_id: str
    text: str
    count: int  # tokens of the answer so far, this one included


@dataclass(frozen=True, slots=True)
class CacheCounters:
    """Expert uses since the model was loaded. One use = one (layer, expert) wanted by one forward pass."""

    prefill_hits: int = 0
    prefill_misses: int = 0
    decode_hits: int = 0
    decode_misses: int = 0
    evictions: int = 0
    fetched_bytes: int = 0
    stall_seconds: float = 0.0  # compute waited for experts
    hook_calls: int = 0  # times the experts hook ran (one per layer and pass)
    # Fetched ahead. Each such fetch ends as one of three; a use that found it still under way is a hit, and late.
    prefetch_used: int = 0  # there when it was wanted
    prefetch_late: int = 0  # under way when it was wanted; compute waited for the rest
    prefetch_wasted: int = 0  # evicted before anybody wanted it
    prefetch_bytes: int = 0  # of all three, part of fetched_bytes
    prefetch_wasted_bytes: int = 0
    computed_on_host: int = 0  # misses that the processor computed where they waited; nothing was fetched for them

    @property
    def decode_hit_rate(self) -> float | None:
        """Share of decode uses that were hits, 0..1; None before the first."""
        uses = self.decode_hits + self.decode_misses
        return self.decode_hits / uses if uses else None

    def minus(self, earlier: CacheCounters) -> CacheCounters:
        """What happened since ``earlier``."""
        return CacheCounters(*(getattr(self, name) - getattr(earlier, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Timings:
    """Of one answer. Rates are tokens per second, None where nothing was measured."""

    prompt_tokens: int = 0
    reused_tokens: int = 0
    answer_tokens: int = 0
    first_token_seconds: float | None = None
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0

    @property
    def prefill_rate(self) -> float | None:
        new = self.prompt_tokens - self.reused_tokens
        return new / self.prefill_seconds if self.prefill_seconds > 0 and new > 0 else None

    @property
    def decode_rate(self) -> float | None:
        # the first token comes out of prefill
        steps = self.answer_tokens - 1
        return steps / self.decode_seconds if self.decode_seconds > 0 and steps > 0 else None


@dataclass(frozen=True, slots=True)
class Finished:
    """An answer ended; ``text`` is all of it, ``cache`` what it cost in this request alone."""

    request_id: str
    reason: FinishReason
    text: str
    timings: Timings
    cache: CacheCounters
    seed: int
    error: str = ""


class Cell(IntFlag):
    """What one cell of the heatmap says about one expert, now."""

    RESIDENT = 1  # in a slot on the device
    ROUTED = 2  # chosen in the latest forward pass
    HIT = 4  # chosen and was resident
    MISS = 8  # chosen and had to be fetched
    PREDICTED = 16  # expected next: among the top-k of the latest guess about its layer
    PREFETCHED = 32  # chosen, and there in time because it was fetched ahead; HIT is set as well
    LATE = 64  # chosen while its early fetch was still under way; HIT is set as well
    WASTED = 128  # fetched ahead and thrown out during the latest pass without having been used


class Fetched(IntEnum):
    """How an expert came into its slot the last time, since the model was loaded."""

    NEVER = 0  # not fetched for any answer; the warm-up may have brought it
    DEMAND = 1  # computing waited for all of it
    IN_TIME = 2  # ahead of demand
    LATE = 3  # ahead of demand, and still under way when it was wanted
    WASTED = 4  # ahead of demand, and evicted unused


@dataclass(frozen=True, slots=True, eq=False)
class ExpertSnapshot:
    """Every expert at once. Arrays are ``[layers, experts]`` and read-only."""

    cells: np.ndarray  # uint8, bits of Cell; about the latest forward pass
    answer: np.ndarray  # uint32, uses in the present (or last) answer
    chat: np.ndarray  # uint32, uses since the KV cache was last empty
    total: np.ndarray  # uint32, uses since the model was loaded
    phase: Literal["prefill", "decode", "idle"]
    token: int  # tokens of the answer so far
    fetched: np.ndarray | None = None  # uint8, Fetched; None: nobody kept count


@dataclass(frozen=True, slots=True)
class PrefetchState:
    """Does fetching ahead pay? Costs are seconds per token, with it and without it, of the latest measurement."""

    on: bool
    verdict: str  # one sentence for the user
    cost_with: float | None = None  # None before the first one
    cost_without: float | None = None
    accuracy: tuple[float | None, ...] = ()  # share of a layer's experts foreseen, by distance in layers from 1


@dataclass(frozen=True, slots=True)
class CacheSnapshot:
    """Figures for the cache panel. Window: the last 64 decode tokens."""

    counters: CacheCounters
    window_hit_rate: float | None  # 0..1
    window_bytes_per_token: float | None
    window_stall_per_token: float | None  # seconds
    tokens_per_second: float | None  # decode, window
    slots: int
    resident: int  # slots in use
    prefetch: PrefetchState | None = None


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """A piece of one memory. kind: "dense", "experts", "kv", "workspace" (of plans alone), "other" (the rest of
    this program and other programs)."""

    kind: Literal["dense", "experts", "kv", "workspace", "other"]
    bytes: int


@dataclass(frozen=True, slots=True)
class MemoryBar:
    """One memory, split by what holds it; what ``parts`` do not cover is free."""

    name: str  # "VRAM · RTX 4070" or "RAM"
    total: int
    parts: tuple[MemoryPart, ...]


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    bars: tuple[MemoryBar, ...]  # VRAM first, when there is a card


@dataclass(frozen=True, slots=True)
class ProfileFacts:
    """What a model's profile holds after ``deed``; all else says nothing when it is not ``there``."""

    signature: str
    deed: ProfileDeed
    there: bool
    requests: int = 0  # past requests kept
    tokens: tuple[tuple[str, int], ...] = ()  # fitted predictor, tokens it was fitted to
    accuracy: tuple[
        tuple[str, tuple[float | None, ...]], ...
    ] = ()  # predictor, share of slots right by distance from 1
    saved: str = ""  # UTC, ISO 8601
    file: str = ""
    bytes: int = 0  # of the file


@dataclass(frozen=True, slots=True)
class WhatIfPoint:
    """What one amount of memory would have given."""

    experts: str  # the budget, as it was asked for
    slots: int
    hit_rate: float | None  # in decode, 0..1; None when nothing was decoded
    bytes_per_token: float | None  # fetched for each decode token


@dataclass(frozen=True, slots=True)
class WhatIfLine:
    """One policy over all budgets, in the order they were asked for. policy: out of POLICIES, or "belady"."""

    policy: str
    points: tuple[WhatIfPoint, ...]


@dataclass(frozen=True, slots=True)
class WhatIfForesight:
    """One predictor, ``distance`` layers ahead. Shares of decode's slots, 0..1; None where nothing is known."""

    predictor: str
    distance: int
    source: Literal["replayed", "as it ran", "not in the log"]
    precision: float | None  # of the experts named, those that were then chosen
    recall: float | None  # of the experts chosen, those that had been named


@dataclass(frozen=True, slots=True)
class WhatIfProgress:
    request_id: str
    fraction: float
    detail: str  # "replaying next-use"
    lines: tuple[WhatIfLine, ...] = ()  # those that are done


@dataclass(frozen=True, slots=True)
class WhatIfResult:
    """Order of events for one ``WhatIf``: WhatIfProgress*, then WhatIfResult, or Failed with its request_id.

    policy, slots, predictor and hit_rate: how the logs' last answers ran, and what all of them hit.
    """

    request_id: str
    lines: tuple[WhatIfLine, ...]  # "belady" last
    foresight: tuple[WhatIfForesight, ...]
    model: str
    signature: str
    total_experts: int
    slot_bytes: int
    prefill_tokens: int
    decode_tokens: int
    answers: int
    policy: str
    slots: int
    predictor: str  # "" in a log that does not say
    hit_rate: float | None  # in decode, as logged


@dataclass(frozen=True, slots=True)
class Failed:
    """A command could not be carried out. ``text`` is one or two sentences for the user; the engine lives on."""

    # "load", "generate", "list", "plan", "count", "look up", "download", "what if", "start", "log", "memory"
    doing: str
    text: str
    request_id: str = ""
    details: str = ""  # traceback of an unexpected fault, for the log file only


@dataclass(frozen=True, slots=True)
class Stopped:
    """The engine thread has ended, after ShutDown."""


Event: TypeAlias = (
    EngineReady
    | Progress
    | ModelList
    | MemoryPlanned
    | ModelOnHub
    | DownloadProgress
    | DownloadDone
    | ModelLoaded
    | TokenCount
    | ModelUnloaded
    | Started
    | PrefillProgress
    | Token
    | Finished
    | ExpertSnapshot
    | CacheSnapshot
    | MemorySnapshot
    | ProfileFacts
    | WhatIfProgress
    | WhatIfResult
    | Failed
    | Stopped
)
