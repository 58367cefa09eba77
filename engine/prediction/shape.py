"""The few numbers every predictor has to know about a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

Phase = Literal["prefill", "decode"]
PHASES: tuple[Phase, ...] = ("prefill", "decode")
State: TypeAlias = dict[str, np.ndarray]  # what is saved of a predictor: "its name/what" -> array


@dataclass(frozen=True, slots=True)
class Shape:
    """layers: those with routed experts; experts: the most any of them has; hidden: width of the residual stream.

    ``hidden`` 0: nobody will feed hidden states, so the predictors that need them stay silent.
    """

    layers: int
    experts: int
    top_k: int
    hidden: int = 0


def decay(distance: int, layers: int) -> float:
    """What a guess ``distance`` layers ahead is worth: 1 - (i-l)/L (MoE-Infinity, arXiv 2401.14361, section 5)."""
    return max(0.0, 1.0 - distance / layers)
