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

from typing import TypeAlias

from engine.messages.chat import (
    ChatMessage,
    CountTokens,
    Finished,
    FinishReason,
    Generate,
    PrefillProgress,
    Role,
    Sampling,
    Started,
    Stop,
    Thinking,
    Timings,
    Token,
    TokenCount,
)
from engine.messages.choices import (
    COMPUTE_ON_MISS,
    DEFAULT_POLICY,
    DEFAULT_PREDICTOR,
    KEEP_PAST,
    POLICIES,
    PRECISIONS,
    PREDICTORS,
    PREFETCH,
    READ_MODES,
    Prefetch,
    ReadMode,
)
from engine.messages.engine import (
    EngineReady,
    Failed,
    Progress,
    ShutDown,
    Stopped,
)
from engine.messages.experts import (
    CacheCounters,
    CacheSnapshot,
    Cell,
    ExpertSnapshot,
    Fetched,
    PrefetchState,
)
from engine.messages.memory import (
    MemoryBar,
    MemoryPart,
    MemoryPlanned,
    MemorySnapshot,
    PlanMemory,
)
from engine.messages.models import (
    DownloadDone,
    DownloadModel,
    DownloadProgress,
    InspectModel,
    Language,
    ListModels,
    LoadModel,
    LookUpModel,
    ModelList,
    ModelLoaded,
    ModelOnHub,
    ModelSummary,
    ModelUnloaded,
    StopDownload,
    UnloadModel,
)
from engine.messages.profile import (
    ProfileDeed,
    ProfileFacts,
    UseProfile,
)
from engine.messages.what_if import (
    StopWhatIf,
    WhatIf,
    WhatIfForesight,
    WhatIfLine,
    WhatIfPoint,
    WhatIfProgress,
    WhatIfResult,
)

__all__ = [
    "COMPUTE_ON_MISS",
    "DEFAULT_POLICY",
    "DEFAULT_PREDICTOR",
    "KEEP_PAST",
    "POLICIES",
    "PRECISIONS",
    "PREDICTORS",
    "PREFETCH",
    "READ_MODES",
    "CacheCounters",
    "CacheSnapshot",
    "Cell",
    "ChatMessage",
    "Command",
    "CountTokens",
    "DownloadDone",
    "DownloadModel",
    "DownloadProgress",
    "EngineReady",
    "Event",
    "ExpertSnapshot",
    "Failed",
    "Fetched",
    "FinishReason",
    "Finished",
    "Generate",
    "InspectModel",
    "Language",
    "ListModels",
    "LoadModel",
    "LookUpModel",
    "MemoryBar",
    "MemoryPart",
    "MemoryPlanned",
    "MemorySnapshot",
    "ModelList",
    "ModelLoaded",
    "ModelOnHub",
    "ModelSummary",
    "ModelUnloaded",
    "PlanMemory",
    "Prefetch",
    "PrefetchState",
    "PrefillProgress",
    "ProfileDeed",
    "ProfileFacts",
    "Progress",
    "ReadMode",
    "Role",
    "Sampling",
    "ShutDown",
    "Started",
    "Stop",
    "StopDownload",
    "StopWhatIf",
    "Stopped",
    "Thinking",
    "Timings",
    "Token",
    "TokenCount",
    "UnloadModel",
    "UseProfile",
    "WhatIf",
    "WhatIfForesight",
    "WhatIfLine",
    "WhatIfPoint",
    "WhatIfProgress",
    "WhatIfResult",
]

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
