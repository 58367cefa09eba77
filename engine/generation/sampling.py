"""Logits -> next token, by transformers' own processors in transformers' own order."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from math import inf
from typing import Any, Protocol, cast

import torch
from transformers import (
    GenerationConfig,
    GenerationMixin,
    LogitsProcessorList,
    MaxTimeCriteria,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    StoppingCriteriaList,
    StopStringCriteria,
)

from engine.declared import RULES
from engine.errors import ModelError, OptionError
from engine.messages import FinishReason, Sampling

COLDEST = 1e-5  # temperature; below, logits outgrow float32, and there is nothing left to draw


class Chooser(Protocol):
    """Names the token that follows."""

    def choose(self, logits: torch.Tensor, tokens: list[int]) -> int:
        """The next token for ``logits [vocabulary]``; ``tokens``: prompt and answer so far."""
        ...


class Sampler:
    """Chooses tokens as ``sampling`` says, within what the model declares; the same seed and logits give the same
    tokens again, and those that ``generate`` of transformers draws after ``torch.manual_seed`` of it.

    declared: the model's generation_config; of it, the rules that hold whatever the user sets. ends: tokens that end an
    answer. prompt: tokens before the answer. limit: the most tokens it may have. tokenizer: for strings that end it.
    Raises OptionError for a setting that means nothing.
    """

    def __init__(
        self,
        sampling: Sampling,
        declared: GenerationConfig | None = None,
        ends: Collection[int] = (),
        prompt: int = 1,
        limit: int | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
    ) -> None:
        check_sampling(sampling)
        self.greedy = sampling.temperature == 0
        self.seed = sampling.seed if sampling.seed is not None else secrets.randbits(31)
        self._generator = torch.Generator().manual_seed(self.seed)
        longest = prompt + (sampling.max_tokens if limit is None else limit)
        config = _merged(sampling, declared, ends, longest)
        self._bears_nonsense = bool(config.remove_invalid_values)
        recipe = cast(Any, _Recipe())
        self._processors: LogitsProcessorList = recipe._get_logits_processor(config, prompt, device="cpu")
        self._criteria: list[tuple[FinishReason, StoppingCriteriaList]] = []
        if config.stop_strings is not None and tokenizer is not None:
            strings = StopStringCriteria(tokenizer, config.stop_strings)
            self._criteria.append(("end", StoppingCriteriaList([strings])))
        if config.max_time is not None:
            self._criteria.append(("length", StoppingCriteriaList([MaxTimeCriteria(config.max_time)])))

    def choose(self, logits: torch.Tensor, tokens: list[int]) -> int:
        """The next token for ``logits [vocabulary]``; ``tokens``: prompt and answer so far.

        Raises ModelError when the model computed no numbers, OptionError when the settings make none of them.
        """
        row = logits.detach().to("cpu", torch.float32).unsqueeze(0)
        if not self._bears_nonsense:
            check_logits(row)
        if self._processors:
            row = self._processors(_ids(tokens), cast(torch.FloatTensor, row))
        if not bool(row.max().isfinite()):
            raise OptionError(
                "With these sampling settings no token can be chosen. Bring the temperature and the repetition penalty "
                "nearer to 1."
            )
        if self.greedy:
            return int(row.argmax())
        return int(torch.multinomial(row.softmax(-1), 1, generator=self._generator))

    def over(self, tokens: Sequence[int], token: int) -> FinishReason | None:
        """Why the answer is over after ``token`` follows ``tokens``: a string that ends it, or the time; else None."""
        if not self._criteria:
            return None
        ids = _ids([*tokens, token])
        scores = cast(torch.FloatTensor, torch.empty(0))
        return next((reason for reason, criteria in self._criteria if bool(criteria(ids, scores).any())), None)


def answer_limit(sampling: Sampling, prompt: int, context: int) -> int:
    """The most tokens an answer to a prompt of so many tokens may have, at least 1.

    ``max_length`` counts the prompt, as in transformers; a prompt that has as many already would leave nothing, so it
    holds for shorter ones alone.
    """
    limit = min(sampling.max_tokens, context - prompt)
    left = sampling.max_length - prompt
    return min(limit, left) if left > 0 else limit


def check_logits(logits: torch.Tensor) -> None:
    """Raise ModelError where no token can be told from them: a NaN is never the largest, yet ``argmax`` names it."""
    if not bool(logits.max().isfinite()):  # the maximum of what holds a NaN is NaN
        raise ModelError(
            "The model computed no numbers (NaN or infinite): its values outgrew the precision, or its weights are "
            "damaged. Load it in bfloat16 or float32; if it computes in one of them already, download it again."
        )


def check_sampling(sampling: Sampling) -> None:
    """Raise OptionError for a setting that means nothing."""
    wrong = [  # written so that NaN is wrong everywhere
        (not 0 <= sampling.temperature < inf, "temperature", "0 (greedy) or above"),
        (not 0 <= sampling.top_p <= 1, "top_p", "at least 0, at most 1"),
        (sampling.top_k < 0, "top_k", "0 (off) or above"),
        (not 0 <= sampling.min_p <= 1, "min_p", "0 (off) or above, at most 1"),
        (not 0 < sampling.typical_p <= 1, "typical_p", "above 0, at most 1 (off)"),
        (not 0 <= sampling.top_h <= 1, "top_h", "0 (off) or above, at most 1"),
        (not 0 <= sampling.epsilon_cutoff < 1, "epsilon_cutoff", "0 (off) or above, below 1"),
        (not 0 <= sampling.eta_cutoff < 1, "eta_cutoff", "0 (off) or above, below 1"),
        (not 0 < sampling.repetition_penalty < inf, "repetition_penalty", "above 0; 1 is off"),
        (sampling.no_repeat_ngram_size < 0, "no_repeat_ngram_size", "0 (off) or above"),
        (sampling.max_tokens < 1, "max_tokens", "1 or above"),
        (not -(2**63) <= (sampling.seed or 0) < 2**64, "seed", "a whole number of at most 64 bits"),
    ]
    for bad, name, rule in wrong:
        if bad:
            raise OptionError(f"{name} is {getattr(sampling, name)}; it must be {rule}.")


class _Recipe(GenerationMixin):
    """No model, only the recipe that ``generate`` makes its logits processors by; it asks a model for its config."""

    config = PreTrainedConfig()


def _merged(
    sampling: Sampling, declared: GenerationConfig | None, ends: Collection[int], longest: int
) -> GenerationConfig:
    """The model's rules and the user's sampling as one config. ``longest``: prompt and answer, in tokens."""
    config: Any = GenerationConfig()
    for name in RULES:
        setattr(config, name, getattr(declared, name, None))
    config.do_sample = sampling.temperature > 0
    config.temperature = max(sampling.temperature, COLDEST)
    config.top_k, config.top_p = sampling.top_k, sampling.top_p
    config.min_p, config.top_h = sampling.min_p or None, sampling.top_h or None
    config.typical_p = sampling.typical_p
    config.epsilon_cutoff, config.eta_cutoff = sampling.epsilon_cutoff, sampling.eta_cutoff
    config.repetition_penalty = float(sampling.repetition_penalty)
    config.no_repeat_ngram_size = sampling.no_repeat_ngram_size
    config.max_length = longest
    config._eos_token_tensor = torch.tensor(sorted(ends)) if ends else None
    if not ends:
        config.exponential_decay_length_penalty = None  # makes ends likelier, and there are none
    return cast(GenerationConfig, config)


def _ids(tokens: list[int]) -> torch.LongTensor:
    return cast(torch.LongTensor, torch.tensor([tokens]))
