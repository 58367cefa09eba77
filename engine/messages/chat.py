"""An answer: what is asked for, what comes back while it is written, and what it took."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from engine.messages.experts import CacheCounters

FinishReason = Literal["end", "length", "stopped", "error"]
Role = Literal["system", "user", "assistant"]

# Whether a model's thinking before its answer can be switched: not at all; yes, and unasked it is on, or off; it can be
# told to think less, but not to stop.
Thinking = Literal["fixed", "on", "off", "effort"]


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
    """How the next token is chosen; each field as transformers' GenerationConfig has it.

    ``temperature`` 0 is greedy and ignores the rest but the repetition penalty, the repeats and the lengths.
    """

    temperature: float = 0.7
    top_p: float = 0.95
    top_k: int = 0  # 0: off
    min_p: float = 0.0  # 0: off
    repetition_penalty: float = 1.0  # 1: off
    no_repeat_ngram_size: int = 0  # no run of so many tokens is written twice; 0: off
    typical_p: float = 1.0  # 1: off
    top_h: float = 0.0  # 0: off
    epsilon_cutoff: float = 0.0  # 0: off
    eta_cutoff: float = 0.0  # 0: off
    seed: int | None = None  # None: a new one each time, reported in Finished
    max_tokens: int = 1024
    max_length: int = 0  # of prompt and answer together, where the prompt leaves any; 0: off


@dataclass(frozen=True, slots=True)
class Generate:
    """Answer ``messages`` (the whole history, oldest first; the engine finds out what its KV cache already holds).

    When the last message is ``open``, its answer is continued: ``Token`` and ``Finished`` carry the new text alone.

    log: path of the conversation's session log, to which the engine appends the answer as it streams and what every
    forward pass did; "" writes nothing. answer_id/parent_id: the ids the answer gets in that log.
    thinking: for the model's switch, if it has one (``ModelLoaded.thinking``); None: as it does unasked.
    source_language, target_language: codes out of ``ModelLoaded.languages``; "" where it has none, or for the first.
    """

    request_id: str
    messages: tuple[ChatMessage, ...]
    sampling: Sampling = field(default_factory=Sampling)
    log: str = ""
    answer_id: str = ""
    parent_id: str = ""
    thinking: bool | None = None
    source_language: str = ""
    target_language: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the running load or answer. Acts between layers, in prefill too; the text so far stays.

    Sent through ``EngineService.stop()`` as well, which does not wait in the queue behind other commands.
    """


@dataclass(frozen=True, slots=True)
class CountTokens:
    """How long would the prompt of ``messages`` be? ``TokenCount`` answers, also while generating.

    max_tokens: the room that the answer would like, as in Sampling. thinking: as in Generate.
    """

    request_id: str
    messages: tuple[ChatMessage, ...]
    max_tokens: int = 1024
    thinking: bool | None = None


@dataclass(frozen=True, slots=True)
class TokenCount:
    """What ``Generate`` would do with these messages now. Not sent while no model is loaded."""

    request_id: str
    tokens: int  # of the prompt, without what is left out
    left_out: int  # the oldest messages that would not be given to the model
    context: int  # tokens the conversation may hold; a prompt of as many or more is refused


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
