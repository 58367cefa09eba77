"""Is it exact? The stock model, fully resident, and ours, offloaded, side by side: greedy tokens and logits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from engine.errors import OptionError
from engine.experience import Experience
from engine.generation.generate import end_tokens
from engine.generation.kv import KvCache
from engine.generation.prompt import prompt_tokens
from engine.generation.sampling import check_logits
from engine.loading import LoadedModel, load
from engine.messages import ChatMessage, LoadModel
from engine.models.folder import resolve

RANDOM_PROMPT = 24  # tokens, for a folder without a tokenizer


@dataclass(frozen=True, slots=True)
class Verdict:
    """equal: every greedy token is the stock model's. tokens: compared. max_logit_diff: largest over all of them."""

    equal: bool
    tokens: int
    max_logit_diff: float
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
    """Compare on ``prompt`` (seeded random tokens, where the model has no tokenizer) over ``max_tokens`` greedy tokens.

    Raises GreenroomError when there is nothing to compare, or one of the two computes no numbers.

    Both run in float32. Ours is fed the stock model's tokens after a difference, so that every position is compared.
    """
    if max_tokens < 1:
        raise OptionError(f"There is nothing to compare in {max_tokens} tokens; write 1 or more.")
    report("loading ours, experts offloaded")
    command = replace(command, dtype="float32")
    loaded = load(command)
    experience = Experience(loaded, command)
    try:
        ids = _prompt_ids(loaded, prompt)
        if not ids:
            raise OptionError("The prompt is empty; write some words after --prompt.")
        report("loading the stock model, fully resident")
        stock = _stock(command, loaded)
        report(f"comparing {max_tokens} tokens after a prompt of {len(ids)}")
        return _compare(stock, loaded, experience, ids, max_tokens)
    finally:
        experience.close()
        loaded.close()


def _compare(
    stock: PreTrainedModel, loaded: LoadedModel, learner: Experience, ids: list[int], max_tokens: int
) -> Verdict:
    ours, theirs = KvCache(loaded.model), KvCache(stock)
    ends = end_tokens(loaded)
    runtime = loaded.runtime
    runtime.begin_answer(new_chat=True)
    learner.begin_request()
    equal, difference, count = True, 0.0, 0
    feed = ids
    with torch.inference_mode():
        while count < max_tokens:
            began = time.perf_counter()
            runtime.begin_pass("decode" if len(feed) == 1 else "prefill", len(feed))
            mine = ours.run(feed, loaded.device).cpu()
            runtime.end_pass(time.perf_counter() - began)
            learner.passed()
            other = theirs.run(feed, loaded.device).cpu()
            check_logits(mine)
            check_logits(other)
            difference = max(difference, float((mine - other).abs().max()))
            count += 1
            token = int(other.argmax())
            equal = equal and int(mine.argmax()) == token
            if token in ends:
                break
            feed = [token]
    runtime.end_answer()
    counters = runtime.observer.counters(loaded.runtime.evictions)
    return Verdict(
        equal,
        count,
        difference,
        counters.prefill_hits,
        counters.prefill_misses,
        counters.decode_hits,
        counters.decode_misses,
        counters.prefetch_used,
        counters.prefetch_late,
        counters.prefetch_wasted,
        loaded.info.slots,
        loaded.info.total_experts,
    )


def _prompt_ids(loaded: LoadedModel, prompt: str) -> list[int]:
    if loaded.tokenizer is not None:
        return prompt_tokens(loaded.tokenizer, [ChatMessage("user", prompt)])[0]
    vocabulary = int(loaded.model.config.get_text_config().vocab_size)
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, vocabulary, (RANDOM_PROMPT,), generator=generator).tolist()


def _stock(command: LoadModel, loaded: LoadedModel) -> PreTrainedModel:
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(
        resolve(command.source),
        dtype=torch.float32,
        experts_implementation="eager",
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
    )
    return model.eval().to(loaded.device)
