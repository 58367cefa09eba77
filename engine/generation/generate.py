"""The answer, step by step: prompt, prefill in chunks, decode until an end token, the limit, or a stop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from transformers import GenerationConfig

from engine.errors import LIBRARY_MEMORY, Cancelled, MemoryPlanError, OptionError
from engine.experts.records import PassRecord, Phase, Settled
from engine.generation.ends import end_tokens
from engine.generation.fit import Prompt, fit_prompt
from engine.generation.passes import message_ends, pass_ends
from engine.generation.sampling import Chooser, Sampler, answer_limit
from engine.generation.text import TextStream
from engine.kv.past import Past
from engine.kv.pasts import Pasts, RunningPast
from engine.kv.store import PastStore
from engine.loading import LoadedModel
from engine.messages import ChatMessage, FinishReason, Sampling, Timings

log = logging.getLogger("greenroom.generation")


@dataclass(frozen=True, slots=True)
class PromptReady:
    prompt_tokens: int
    reused_tokens: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Prefilled:
    """A chunk of the prompt is in the KV cache."""

    record: PassRecord
    done_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True)
class Decoded:
    """One more token. ``record`` None: it came out of the last prefill pass."""

    text: str
    count: int
    record: PassRecord | None


@dataclass(frozen=True, slots=True)
class Repeated:
    """The card's memory ran out in a pass; experts gave some back, and the pass begins anew. ``note``: for the user.

    ``record``: the layers that the broken pass came through. What it did to the cache after them is in no record: a log
    must say anew who is where."""

    note: str
    record: PassRecord


@dataclass(frozen=True, slots=True)
class Ended:
    """The answer is over. ``text``: what is left of the last character. ``records``: passes not told of yet, such as
    the one that gave the end token, or one that was stopped half way. ``settled``: what was still being fetched."""

    reason: FinishReason
    text: str
    timings: Timings
    seed: int
    records: tuple[PassRecord, ...] = ()
    settled: Settled | None = None


Step: TypeAlias = PromptReady | Prefilled | Decoded | Repeated | Ended
Steps: TypeAlias = Generator[Step, None, None]


class TextGenerator:
    """Answers for one loaded model; keeps the past of the latest conversation."""

    def __init__(self, loaded: LoadedModel, ends: set[int] | None = None, store: PastStore | None = None) -> None:
        """ends: tokens that end an answer; None: those the model declares. store: keeps the pasts of other chats."""
        self._loaded = loaded
        self.past: RunningPast = Past(loaded.model, loaded.checkpoint_bytes, loaded.past_kind)
        self.pasts = Pasts(self.past, None if loaded.past_kind.whole else store)
        self._ends = end_tokens(loaded) if ends is None else ends
        if loaded.tokenizer is not None:
            loaded.tokenizer("")  # drops a truncation that came with it: from here on, any thread may use it

    def answer(
        self,
        messages: Sequence[ChatMessage],
        sampling: Sampling,
        stop: Callable[[], bool] = lambda: False,
        thinking: bool | None = None,
        chooser: Chooser | None = None,
        chat: str = "",
    ) -> Steps:
        """Answer ``messages``, or go on with the last when it is open. Yields PromptReady, Prefilled*, Decoded*, Ended;
        Repeated before a pass that is done again.

        stop: asked between layers; the text so far stays. thinking: for the template's switch; None: as it does it.
        chooser, chat: as for ``complete``. Raises ModelError, OptionError, MemoryPlanError; the past stays usable.
        """
        self._begin(messages)
        prompt = self.prompt(messages, sampling.max_tokens, thinking)
        goes_on = bool(messages) and messages[-1].open
        yield from self.complete(prompt.ids, sampling, stop, prompt.notes, goes_on, chooser, chat)

    def prompt(self, messages: Sequence[ChatMessage], max_tokens: int, thinking: bool | None = None) -> Prompt:
        """What the model is given of ``messages``. Computes nothing; any thread may ask. Raises ModelError."""
        return fit_prompt(self._loaded.tokenizer, messages, self._loaded.info.context, max_tokens, thinking)

    def complete(
        self,
        prompt: list[int],
        sampling: Sampling,
        stop: Callable[[], bool] = lambda: False,
        notes: tuple[str, ...] = (),
        goes_on: bool = False,
        chooser: Chooser | None = None,
        chat: str = "",
    ) -> Steps:
        """As ``answer``, from token ids. goes_on: the text continues the prompt's, so a space between is part of it.
        chooser: names the tokens instead of ``sampling``. chat: the log of the conversation."""
        context = self._loaded.info.context
        if not prompt:
            raise OptionError("There is nothing to answer: the prompt is empty.")
        if len(prompt) >= context:
            raise OptionError(
                f"The conversation has {len(prompt):,} tokens and the context holds {context:,}. Start a new chat, "
                "shorten the text, or load the model with a longer context."
            )
        before = self._before(prompt)
        limit = answer_limit(sampling, before, context)
        sampler = Sampler(sampling, self._declared(), self._ends, before, limit, self._loaded.tokenizer)
        chooser = chooser or sampler
        if self._loaded.past_kind.whole:
            self.past.clear()
        reused = self.pasts.turn_to(prompt, chat)
        runtime = self._loaded.runtime
        runtime.begin_answer(new_chat=reused == 0)
        runtime.stop_when(stop)
        yield PromptReady(len(prompt), reused, notes)

        clock = Clock(Timings(len(prompt), reused))
        after = prompt if goes_on else ()
        stream = TextStream(self._loaded.tokenizer, after) if self._loaded.tokenizer else None
        reason: FinishReason = "length"
        record: PassRecord | None = None
        try:
            logits = yield from self._prefill(prompt, clock)
            for count in range(1, limit + 1):
                token = chooser.choose(logits, self.past.tokens)
                if token in self._ends:
                    reason = "end"
                    break
                clock.token(count)
                yield Decoded(stream.push(token) if stream else "", count, record)
                record = None
                if (over := sampler.over(self.past.tokens, token)) is not None:
                    reason = over
                    break
                if count == limit:
                    break
                if stop():
                    raise Cancelled("Stopped.")
                logits, record = yield from self._pass([token], "decode")
                if self.past.checkpoint_due:
                    self.past.checkpoint()
        except Cancelled:
            reason = "stopped"
            record = runtime.end_pass(0.0) if runtime.observer.in_pass else None
        finally:
            runtime.stop_when(lambda: False)
        self.past.checkpoint()
        text, records = stream.flush() if stream else "", (record,) if record else ()
        yield Ended(reason, text, clock.timings(), sampler.seed, records, runtime.end_answer())

    def _begin(self, messages: Sequence[ChatMessage]) -> None:
        """Note what of ``messages`` the prompt does not say."""

    def _before(self, prompt: list[int]) -> int:
        """How many tokens stand before the answer's first."""
        return len(prompt)

    def _declared(self) -> GenerationConfig:
        """What the model declares about this answer."""
        declared: GenerationConfig = self._loaded.model.generation_config
        return declared

    def _prefill(self, prompt: list[int], clock: Clock) -> Generator[Step, None, torch.Tensor]:
        """Read what the past does not hold of ``prompt``, and keep checkpoints on the way."""
        past, start = self.past, len(self.past.tokens)
        marks = message_ends(prompt, self._ends) if self._loaded.past_kind.needs_checkpoints else []
        logits = past.logits if past.logits is not None else torch.empty(0)
        for end in pass_ends(start, len(prompt), marks, self._loaded.past_kind.in_pieces):
            logits, record = yield from self._pass(prompt[len(past.tokens) : end], "prefill")
            past.checkpoint()
            clock.prefilled()
            yield Prefilled(record, end - start, len(prompt) - start)
        return logits

    def _pass(self, tokens: list[int], phase: Phase) -> Generator[Step, None, tuple[torch.Tensor, PassRecord]]:
        """Once more when the card's memory ran out and experts can give some back; MemoryPlanError when they cannot, or
        when that was not enough. The pass then stays open: whoever logs closes it."""
        runtime = self._loaded.runtime
        done = self._try(tokens, phase)
        if done is not None:
            return done
        if not runtime.has_room_to_give:
            raise MemoryPlanError(
                "VRAM ran out, and experts have none left to give. Shorten the chat, or close other programs that use "
                "the card."
            )
        before, record = runtime.slots, runtime.end_pass(0.0)
        runtime.give_room()
        given = before - runtime.slots
        yield Repeated(
            f"VRAM ran out in an answer: experts gave back {given:,} of {before:,} slots, and the answer goes on. Give "
            "experts less memory if this happens often.",
            record,
        )
        done = self._try(tokens, phase)
        if done is None:
            raise MemoryPlanError(
                f"VRAM ran out again after experts gave back {given:,} of {before:,} slots. Give experts less memory, "
                "shorten the chat, or close other programs that use the card."
            )
        return done

    def _try(self, tokens: list[int], phase: Phase) -> tuple[torch.Tensor, PassRecord] | None:
        """None: the card's memory ran out; when this returns, nobody holds what the broken pass had computed."""
        runtime = self._loaded.runtime
        try:
            runtime.begin_pass(phase, len(tokens), len(self.past.tokens) + len(tokens))
            began = time.perf_counter()
            with torch.inference_mode():
                logits = self.past.run(tokens, self._loaded.device)
            return logits, runtime.end_pass(time.perf_counter() - began)
        except RuntimeError as error:
            if not isinstance(error, torch.OutOfMemoryError) and LIBRARY_MEMORY not in str(error).lower():
                raise  # CUBLAS and its kin ask the card for memory of their own, and say so in their own way
            log.warning("a %s pass over %d tokens found no memory: %s", phase, len(tokens), error)
        return None


class Clock:
    """Wall times of one answer, prompt to last token."""

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self._began = self._prefill_end = self._last = time.perf_counter()

    def prefilled(self) -> None:
        self._prefill_end = self._last = time.perf_counter()

    def token(self, count: int) -> None:
        self._last = time.perf_counter()
        first = self._timings.first_token_seconds
        self._timings = replace(
            self._timings,
            answer_tokens=count,
            first_token_seconds=self._last - self._began if first is None else first,
        )

    def timings(self) -> Timings:
        return replace(
            self._timings,
            prefill_seconds=self._prefill_end - self._began,
            decode_seconds=self._last - self._prefill_end,
        )
