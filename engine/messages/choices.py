"""What may be chosen about how experts are kept and fetched: each name with a sentence for the user."""

from __future__ import annotations

from typing import Literal

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

KEEP_PAST: dict[str, str] = {
    "auto": "What the model has read of the last chats is kept, to go on with them at once: up to 4 GB of disk, and "
    "never more than a tenth of what is free.",
    "1GB": "Up to 1 GB of disk for what the model has read of the last chats.",
    "20GB": "Up to 20 GB of disk for what the model has read of the last chats.",
    "off": "A chat that is gone on with is read again from its beginning; what was kept is deleted.",
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
