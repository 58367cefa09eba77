"""Is it exact? The stock model, fully resident, and a chat with ours, offloaded: greedy tokens and logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from engine.errors import OptionError
from engine.experience import Experience
from engine.generation.ends import end_tokens
from engine.generation.generate import Decoded, Prefilled, PromptReady
from engine.generation.prompt import prompt_tokens
from engine.generation.sampling import check_logits
from engine.generation.text_to_text import TextToText, text_generator
from engine.kv.encoded import EncodedPast
from engine.kv.past import Past
from engine.kv.pasts import RunningPast
from engine.loading import LoadedModel, inspect, load
from engine.messages import ChatMessage, LoadModel, Sampling
from engine.models.mended import mend

RANDOM_PROMPT = 24  # tokens, for a folder without a tokenizer
RANDOM_TURN = 8  # tokens of its second message
SECOND_PROMPT = "Now say it in other words."
EDITED_PROMPT = "Name three animals and say where each lives."
SHORTER = 4  # the steps after the first compare one part in so many of its tokens
CLOSE = 1e-3  # of the largest logit; float32 differs by some 1e-6, a wrong layer by far more


@dataclass(frozen=True, slots=True)
class Compared:
    """One step of a chat. equal: every greedy token is the stock model's, and the logits are close. reused: tokens of
    the prompt that the past still held. max_logit_diff: largest over all tokens; logit_scale: the largest logit."""

    step: str
    equal: bool
    prompt_tokens: int
    reused: int
    tokens: int
    max_logit_diff: float
    logit_scale: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """equal: every step is. tokens: compared. max_logit_diff: largest over all of them."""

    equal: bool
    tokens: int
    max_logit_diff: float
    steps: tuple[Compared, ...]
    prefill_hits: int
    prefill_misses: int
    decode_hits: int
    decode_misses: int
    prefetch_used: int
    prefetch_late: int
    prefetch_wasted: int
    slots: int
    total_experts: int


def verify(
    command: LoadModel, prompt: str, max_tokens: int, report: Callable[[str], None] = lambda text: None
) -> Verdict:
    """Compare a chat that begins with ``prompt`` (seeded random tokens, where the model has no tokenizer).

    Goes the chat's own way: in pieces, on the past that earlier steps left. max_tokens: greedy tokens of the first
    answer; the other steps compare a quarter of that. Raises GreenroomError when there is nothing to compare, or one
    of the two computes no numbers.

    Both run in float32. Ours is fed the stock model's tokens after a difference, so that every position is compared.
    """
    if max_tokens < 1:
        raise OptionError(f"There is nothing to compare in {max_tokens} tokens; write 1 or more.")
    report("loading ours, experts offloaded")
    command = replace(command, dtype="float32")
    loaded = load(command)
    experience = Experience(loaded, command)
    try:
        chat = None if loaded.info.one_text else _Chat(loaded, prompt)
        report("loading the stock model, fully resident")
        comparison = _Comparison(_stock(command, loaded), loaded, experience)
        report("comparing")
        if chat is None:
            _compare_texts(comparison, prompt, max_tokens)
        else:
            _compare_chat(comparison, chat, max_tokens)
        return comparison.verdict()
    finally:
        experience.close()
        loaded.close()


def _compare_chat(comparison: _Comparison, chat: _Chat, max_tokens: int) -> None:
    shorter = max(1, max_tokens // SHORTER)
    first = comparison.step("first turn", chat.first, max_tokens)
    second = chat.second(first)
    answer = comparison.step("second turn", second, shorter)
    comparison.step("regenerated", second, shorter)
    comparison.step("continued", [*second, *answer], shorter)
    comparison.stop(second, shorter)
    comparison.step("after a stop", second, shorter)
    comparison.step("first message edited", chat.edited, shorter)


def _compare_texts(comparison: _Comparison, prompt: str, max_tokens: int) -> None:
    """Of an encoder-decoder, to which each text stands alone."""
    first, other = (comparison.prompt(text) for text in (prompt, EDITED_PROMPT))
    comparison.step("a text", first, max_tokens)
    comparison.step("another text", other, max_tokens)
    comparison.stop(first, max_tokens)
    comparison.step("after a stop", first, max_tokens)


class _Chat:
    """The prompts of two turns, and of an edited first one, in tokens."""

    def __init__(self, loaded: LoadedModel, prompt: str) -> None:
        self._tokenizer = loaded.tokenizer
        self._prompt = prompt
        if self._tokenizer is None:
            vocabulary = int(loaded.model.config.get_text_config().vocab_size)
            numbers = torch.randint(0, vocabulary, (3 * RANDOM_PROMPT,), generator=torch.Generator().manual_seed(0))
            self.first = numbers[:RANDOM_PROMPT].tolist()
            self._more = numbers[-RANDOM_TURN:].tolist()
            self.edited = [*self.first[: RANDOM_PROMPT // 2], *numbers[RANDOM_PROMPT : 2 * RANDOM_PROMPT].tolist()]
            return
        self.first = prompt_tokens(self._tokenizer, [ChatMessage("user", prompt)])[0]
        self.edited = prompt_tokens(self._tokenizer, [ChatMessage("user", EDITED_PROMPT)])[0]
        if not self.first:
            raise OptionError("The prompt is empty; write some words after --prompt.")

    def second(self, answer: list[int]) -> list[int]:
        """The whole prompt of the second turn."""
        if self._tokenizer is None:
            return [*self.first, *answer, *self._more]
        text = str(self._tokenizer.decode(answer, skip_special_tokens=True))
        said = [ChatMessage("user", self._prompt), ChatMessage("assistant", text), ChatMessage("user", SECOND_PROMPT)]
        return prompt_tokens(self._tokenizer, said)[0]


class _Comparison:
    """Answers each prompt with the stock model, from nothing, and with ours, as a chat does."""

    def __init__(self, stock: PreTrainedModel, loaded: LoadedModel, experience: Experience) -> None:
        self._stock, self._loaded, self._experience = stock, loaded, experience
        self._generator = text_generator(loaded)
        self._ends = end_tokens(loaded)
        self._steps: list[Compared] = []

    def prompt(self, text: str) -> list[int]:
        """One message, in tokens."""
        return self._generator.prompt([ChatMessage("user", text)], 0).ids

    def step(self, name: str, prompt: list[int], limit: int) -> list[int]:
        """Compare the answer to ``prompt``; its tokens, without the one that ended it."""
        follower = _Follower(self._expected(prompt, limit))
        reused = 0
        self._experience.begin_request()
        for step in self._generator.complete(prompt, Sampling(max_tokens=limit), chooser=follower):
            if isinstance(step, PromptReady):
                reused = step.reused_tokens
            elif isinstance(step, Prefilled | Decoded):
                self._experience.passed()
        self._experience.end_request()
        close = follower.difference <= CLOSE * follower.scale
        self._steps.append(
            Compared(
                name,
                follower.equal and close,
                len(prompt),
                reused,
                follower.count,
                follower.difference,
                follower.scale,
            )
        )
        return [token for token, _ in follower.expected if token not in self._ends]

    def stop(self, prompt: list[int], limit: int) -> None:
        """Answer ``prompt`` and stop in the middle of a pass; what came until then is not compared."""
        layers = self._loaded.info.layers
        asked = 0

        def stop() -> bool:
            nonlocal asked
            asked += 1
            return asked > 2 * layers + layers // 2

        for _ in self._generator.complete(prompt, Sampling(temperature=0, max_tokens=limit), stop):
            pass

    def verdict(self) -> Verdict:
        runtime, info = self._loaded.runtime, self._loaded.info
        counters = runtime.observer.counters(runtime.evictions)
        return Verdict(
            all(step.equal for step in self._steps),
            sum(step.tokens for step in self._steps),
            max(step.max_logit_diff for step in self._steps),
            tuple(self._steps),
            counters.prefill_hits,
            counters.prefill_misses,
            counters.decode_hits,
            counters.decode_misses,
            counters.prefetch_used,
            counters.prefetch_late,
            counters.prefetch_wasted,
            info.slots,
            info.total_experts,
        )

    @torch.inference_mode()
    def _expected(self, prompt: list[int], limit: int) -> list[tuple[int, torch.Tensor]]:
        """The stock model's greedy tokens and their logits: the prompt in one pass, then one token at a time."""
        found: list[tuple[int, torch.Tensor]] = []
        past: RunningPast = Past(self._stock)
        feed = prompt
        if isinstance(self._generator, TextToText):
            past = EncodedPast(self._stock)
            past.run(prompt, self._loaded.device)
            feed = [self._generator.first_token]
        while len(found) < limit:
            logits = past.run(feed, self._loaded.device).cpu()
            check_logits(logits)
            token = int(logits.argmax())
            found.append((token, logits))
            if token in self._ends:
                break
            feed = [token]
        return found


class _Follower:
    """Chooses what is expected, whatever the logits say, and notes how far they are from what is expected."""

    def __init__(self, expected: list[tuple[int, torch.Tensor]]) -> None:
        self.expected = expected
        self.equal, self.count, self.difference = True, 0, 0.0
        self.scale = max(float(logits.abs().max()) for _, logits in expected)

    def choose(self, logits: torch.Tensor, tokens: list[int]) -> int:
        token, other = self.expected[self.count]
        mine = logits.cpu()
        check_logits(mine)
        self.count += 1
        self.equal = self.equal and int(mine.argmax()) == token
        self.difference = max(self.difference, float((mine - other).abs().max()))
        return token


def _stock(command: LoadModel, loaded: LoadedModel) -> PreTrainedModel:
    """The class that the checkpoint is of, whole: of a model that sees as well, that part, too."""
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    found = inspect(command.source)
    model = found.skeleton.whole_class.from_pretrained(
        found.folder.path,
        config=found.skeleton.config,
        dtype=torch.float32,
        experts_implementation="eager",
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
    )
    mend(model)
    stock: PreTrainedModel = model.eval().to(loaded.device)
    return stock
