"""Models: which there are, loading one, fetching one from the hub."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.messages.chat import Sampling, Thinking
from engine.messages.choices import DEFAULT_POLICY, DEFAULT_PREDICTOR, Prefetch, ReadMode
from engine.messages.memory import MemoryPlanned


@dataclass(frozen=True, slots=True)
class LoadModel:
    """Load a model, unloading the present one first.

    source: "demo", a folder, or a hub name already in the hub cache ("Qwen/Qwen3-30B-A3B").
    experts: memory for routed experts: "auto", a share ("25%"), a size ("2GB", "750 MB") or a slot count ("64 slots").
    policy, predictor, prefetch, reads, dtype, compute_on_miss: a name out of POLICIES, PREDICTORS, PREFETCH,
    READ_MODES, PRECISIONS, COMPUTE_ON_MISS.
    context: tokens the KV cache may hold; 0 lets the plan choose.
    keep_past: disk for what the model has read of other chats: a name out of KEEP_PAST, or a size ("5GB").
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
    keep_past: str = "auto"


@dataclass(frozen=True, slots=True)
class UnloadModel:
    pass


@dataclass(frozen=True, slots=True)
class ListModels:
    """Look for models: the demo, the hub cache, and in ``folders``. ``ModelList`` answers, also while generating."""

    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InspectModel:
    """What is in this folder, and can it be used? Reads headers only. Answered by ``ModelList`` with one entry."""

    source: str


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
    total_bytes: int = 0  # of all weights that a load reads, stored
    expert_bytes: int = 0  # of all routed experts, stored
    license: str = ""
    has_template: bool = False
    built: bool = True  # False: the demo, before its first use
    partial: bool = False  # its download from the hub was begun and did not end
    notes: tuple[str, ...] = ()  # what the user should know about its files, in sentences


@dataclass(frozen=True, slots=True)
class ModelList:
    models: tuple[ModelSummary, ...]


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
    bytes_per_second: float | None  # None: not known yet; 0: nothing has come for some seconds


@dataclass(frozen=True, slots=True)
class DownloadDone:
    """All files are here and their hashes are right; ``name`` can be loaded."""

    name: str


@dataclass(frozen=True, slots=True)
class Language:
    """code: the tokenizer's name for it ("eng_Latn"). name: what people call it ("English (Latin)")."""

    code: str
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
    sampling: Sampling = field(default_factory=Sampling)  # what the model's makers advise
    declared: tuple[str, ...] = ()  # which fields of it they declare; the others are defaults
    rules: tuple[str, ...] = ()  # what else they declare, which holds whatever the user sets; in words
    thinking: Thinking = "fixed"  # before the answer, by the chat template's switch
    predictor: str = "none"
    prefetch: Prefetch = "off"
    reads: str = ""  # how experts are read from disk, in words: "direct, 2 in flight"
    one_text: bool = False  # it takes one text and gives one text (encoder-decoder): earlier turns are not sent
    encoder_layers: int = 0  # of ``layers``, the first so many are the encoder's
    languages: tuple[Language, ...] = ()  # between which it translates; empty: it is not asked


@dataclass(frozen=True, slots=True)
class ModelUnloaded:
    pass
