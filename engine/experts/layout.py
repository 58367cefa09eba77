"""How one expert lies in memory: one contiguous blob, the same on host and device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import torch

ALIGNMENT = 256  # bytes; what CUDA copies and vector loads like best


@dataclass(frozen=True, slots=True)
class ParameterLayout:
    """One parameter of one expert inside the blob."""

    name: str
    shape: tuple[int, ...]
    offset: int  # bytes from the blob's start, a multiple of ALIGNMENT
    nbytes: int


class Parameters(dict[str, torch.Tensor]):
    """One expert's parameters by name. ``numbers``: the same memory for numpy, where numpy can have it."""

    @cached_property
    def numbers(self) -> dict[str, np.ndarray]:
        return {name: tensor.numpy() for name, tensor in self.items()}


@dataclass(frozen=True, slots=True)
class ExpertLayout:
    """Every parameter of one expert in one number format. Layers with equal layouts share one arena."""

    parameters: tuple[ParameterLayout, ...]
    dtype: torch.dtype
    nbytes: int  # of the blob, padding included

    def views(self, blob: torch.Tensor) -> Parameters:
        """The parameters as views into ``blob`` (uint8, ``[nbytes]``): no copy."""
        return Parameters(
            {p.name: blob[p.offset : p.offset + p.nbytes].view(self.dtype).view(p.shape) for p in self.parameters}
        )


def expert_layout(shapes: dict[str, tuple[int, ...]], dtype: torch.dtype) -> ExpertLayout:
    """Lay the parameters (name -> shape of one expert) one after the other, each aligned."""
    offset = 0
    parameters = []
    for name in sorted(shapes):
        nbytes = prod(shapes[name]) * dtype.itemsize
        parameters.append(ParameterLayout(name, shapes[name], offset, nbytes))
        offset += -(-nbytes // ALIGNMENT) * ALIGNMENT
    return ExpertLayout(tuple(parameters), dtype, offset)
