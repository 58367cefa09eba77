"""Logits -> next token, by transformers' own processors."""

from __future__ import annotations

import secrets
from math import inf
from typing import Protocol, cast

import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine.errors import ModelError, OptionError
from engine.messages import Sampling

COLDEST = 1e-5  # temperature; below, logits outgrow float32, and there is nothing left to draw


class Chooser(Protocol):
    """Names the token that follows."""

    def choose(self, logits: torch.Tensor, tokens: list[int]) -> int:
        """The next token for ``logits [vocabulary]``; ``tokens``: prompt and answer so far."""
        ...


class Sampler:
    """Chooses tokens as ``sampling`` says; the same seed and logits give the same tokens again.

    Raises OptionError for a setting that means nothing.
    """

    def __init__(self, sampling: Sampling) -> None:
        _check(sampling)
        self.greedy = sampling.temperature == 0
        self.seed = sampling.seed if sampling.seed is not None else secrets.randbits(31)
        self._generator = torch.Generator().manual_seed(self.seed)
        self._processors = LogitsProcessorList()
        if sampling.repetition_penalty != 1:
            self._processors.append(RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
        if self.greedy:
            return
        self._processors.append(TemperatureLogitsWarper(max(sampling.temperature, COLDEST)))
        if sampling.top_k:
            self._processors.append(TopKLogitsWarper(sampling.top_k))
        if sampling.top_p < 1:
            self._processors.append(TopPLogitsWarper(sampling.top_p))
        if sampling.min_p:
            self._processors.append(MinPLogitsWarper(sampling.min_p))

    def choose(self, logits: torch.Tensor, tokens: list[int]) -> int:
        """The next token for ``logits [vocabulary]``; ``tokens``: prompt and answer so far.

        Raises ModelError when the model computed no numbers, OptionError when the settings make none of them.
        """
        row = logits.detach().to("cpu", torch.float32).unsqueeze(0)
        check_logits(row)
        if self._processors:
            row = self._processors(cast(torch.LongTensor, torch.tensor([tokens])), cast(torch.FloatTensor, row))
        if not bool(row.max().isfinite()):
            raise OptionError(
                "With these sampling settings no token can be chosen. Bring the temperature and the repetition penalty "
                "nearer to 1."
            )
        if self.greedy:
            return int(row.argmax())
        return int(torch.multinomial(row.softmax(-1), 1, generator=self._generator))


def check_logits(logits: torch.Tensor) -> None:
    """Raise ModelError where no token can be told from them: NaN is largest to nobody, and first to ``argmax``."""
    if not bool(logits.max().isfinite()):  # the maximum of what holds a NaN is NaN
        raise ModelError(
            "The model computed no numbers (NaN or infinite): its values outgrew the precision, or its weights are "
            "damaged. Load it in bfloat16 or float32; if it computes in one of them already, download it again."
        )


def _check(sampling: Sampling) -> None:
    wrong = [  # written so that NaN is wrong everywhere
        (not 0 <= sampling.temperature < inf, "temperature", "0 (greedy) or above"),
        (not 0 < sampling.top_p <= 1, "top_p", "above 0, at most 1"),
        (sampling.top_k < 0, "top_k", "0 (off) or above"),
        (not 0 <= sampling.min_p < 1, "min_p", "0 (off) or above, below 1"),
        (not 0 < sampling.repetition_penalty < inf, "repetition_penalty", "above 0; 1 is off"),
        (sampling.max_tokens < 1, "max_tokens", "1 or above"),
        (not -(2**63) <= (sampling.seed or 0) < 2**64, "seed", "a whole number of at most 64 bits"),
    ]
    for bad, name, rule in wrong:
        if bad:
            raise OptionError(f"{name} is {getattr(sampling, name)}; it must be {rule}.")
