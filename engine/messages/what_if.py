"""Logged answers, replayed under other choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
