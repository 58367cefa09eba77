"""Decode speed of a model with true shapes: ours, resident and offloaded, and transformers' own, in turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import torch
from transformers import AutoModelForCausalLM, Qwen3MoeConfig

from engine.experience import Experience
from engine.generation.generate import Ended, TextGenerator
from engine.kv.past import Past
from engine.loading import load
from engine.messages import LoadModel, Sampling
from tests.gpu.check import ROOM_FOR_ONE_MORE, Check

Turn: TypeAlias = Callable[[], tuple[float, list[int]]]

BUDGETS = ("100%", "50%", "25%", "12.5%")
HELPED = "25%, the processor helps"  # its last digits may differ, so it may say other words
STOCK = ("eager", "grouped_mm", "batched_mm")
ROUNDS = 3
PROMPT = [5, 17, 3, 99, 42, 7, 23, 11]
TRUE_SHAPES = {
    "vocab_size": 32_000, "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 64,
    "num_experts_per_tok": 8, "norm_topk_prob": True, "max_position_embeddings": 2048,
}  # fmt: skip
SMALL_SHAPES = TRUE_SHAPES | {
    "vocab_size": 256, "hidden_size": 64, "intermediate_size": 64, "moe_intermediate_size": 32,
    "num_attention_heads": 4, "head_dim": 16, "num_experts": 16, "num_experts_per_tok": 4,
}  # fmt: skip


class Ours:
    """Our model with one budget, predicting and fetching ahead as in a chat."""

    def __init__(self, folder: Path, budget: str, device: str, tokens: int, on_miss: str = "off") -> None:
        command = LoadModel(str(folder), budget, device=device, dtype="bfloat16", context=512, compute_on_miss=on_miss)
        self.loaded = load(command)
        self.loaded.runtime.warm(self.loaded.runtime.everyone)
        self._experience = Experience(self.loaded, command)
        self._generator = TextGenerator(self.loaded)
        self._sampling = Sampling(temperature=0, max_tokens=tokens)

    def turn(self) -> tuple[float, list[int]]:
        """Tokens/s of decode, and the tokens."""
        rate = 0.0
        self._experience.begin_request()
        for step in self._generator.complete(PROMPT, self._sampling):
            self._experience.passed()
            if isinstance(step, Ended):
                rate = step.timings.decode_rate or 0.0
        self._experience.end_request()
        return rate, self._generator.past.tokens[len(PROMPT) :]

    @property
    def counters(self) -> dict[str, Any]:
        return asdict(self.loaded.runtime.observer.counters(self.loaded.runtime.evictions))

    def close(self) -> None:
        self._experience.close()
        self.loaded.close()


def resident_and_offloaded(check: Check) -> dict[str, Any]:
    """Tokens/s and ratios; ours must say the same words with every budget, to the last bit of bfloat16."""
    layers = _layers_that_fit(check)
    folder = write_model(check.folder / "shapes", check, layers)
    tokens = 8 if check.small else 64
    ours: dict[str, Ours] = {}
    try:
        for budget in BUDGETS:
            ours[budget] = Ours(folder, budget, check.device, tokens)
        ours[HELPED] = Ours(folder, "25%", check.device, tokens, "calibrated")
        helper_says = [note for note in ours[HELPED].loaded.info.notes if note not in ours["25%"].loaded.info.notes]
        contenders = {f"ours {budget}": one.turn for budget, one in ours.items()}
        theirs, left_out = _stock(folder, check.device, tokens)
        contenders |= theirs
        rates, said, rounds = _rounds(contenders, check)
        counters = {budget: one.counters for budget, one in ours.items()}
    finally:
        for one in ours.values():
            one.close()
    for budget in BUDGETS[1:]:
        same = said[f"ours {budget}"] == said["ours 100%"]
        check.expect(same, f"with {budget} of the experts on the card other words come out than with all of them")
        check.expect(counters[budget]["decode_misses"] > 0, f"with {budget} of the experts nothing was fetched")
    best = max((rates[name] for name in theirs), default=0.0)
    check.expect(best > 0, f"none of transformers' own ways ran: {left_out}")
    return {
        "layers": layers,
        "tokens_per_second": {name: round(rate, 2) for name, rate in rates.items()},
        "ratios": {
            "resident_vs_best_stock": round(rates["ours 100%"] / best, 3) if best else None,
            "half_vs_resident": round(rates["ours 50%"] / rates["ours 100%"], 3),
            "quarter_vs_resident": round(rates["ours 25%"] / rates["ours 100%"], 3),
            "eighth_vs_resident": round(rates["ours 12.5%"] / rates["ours 100%"], 3),
        },
        "helped": {
            "vs_quarter": round(rates[f"ours {HELPED}"] / rates["ours 25%"], 3),
            "same_words": said[f"ours {HELPED}"] == said["ours 100%"],
            "says": helper_says,
        },
        "left_out": left_out,
        "counters": counters,
        "rounds": rounds,
        "tokens": tokens,
    }


def write_model(folder: Path, check: Check, layers: int) -> Path:
    """A qwen3_moe with random weights, written as transformers writes one; on the card it takes seconds."""
    torch.manual_seed(0)
    shapes = SMALL_SHAPES if check.small else TRUE_SHAPES
    with torch.device(check.device):
        model = AutoModelForCausalLM.from_config(
            Qwen3MoeConfig(**shapes, num_hidden_layers=layers), dtype=torch.bfloat16
        )
    model.save_pretrained(folder)
    return folder


def _layers_that_fit(check: Check) -> int:
    """All contenders share the card: 5.2 times a layer's experts (0.6 GB) and 8 times embeddings and attention."""
    if check.small:
        return 2
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info(check.device)[0]
    return max(1, min(4, int((free * 0.8 - 2.8e9) / 3.3e9)))


def _stock(folder: Path, device: str, tokens: int) -> tuple[dict[str, Turn], dict[str, str]]:
    """transformers' own ways that run here, and why the others do not."""
    turns: dict[str, Turn] = {}
    left_out: dict[str, str] = {}
    for name in STOCK:
        try:
            turn = _stock_turn(folder, name, device, tokens)
            turn()
        except Exception as error:  # a kernel that this card or this torch does not have
            left_out[name] = f"{type(error).__name__}: {str(error)[:200]}"
        else:
            turns[f"stock {name}"] = turn
    return turns, left_out


def _stock_turn(folder: Path, implementation: str, device: str, tokens: int) -> Turn:
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, experts_implementation=implementation, local_files_only=True
    )
    model = model.eval().to(torch.device(device))

    def turn() -> tuple[float, list[int]]:
        past = Past(model)
        with torch.inference_mode():
            token = int(past.run(PROMPT, model.device).argmax())
            began = time.perf_counter()
            for _ in range(tokens - 1):
                token = int(past.run([token], model.device).argmax())
        return (tokens - 1) / (time.perf_counter() - began), past.tokens[len(PROMPT) :]

    return turn


def _rounds(contenders: dict[str, Turn], check: Check) -> tuple[dict[str, float], dict[str, list[int]], int]:
    """Tokens/s of each, median of interleaved rounds after one that does not count; that one's tokens; how many rounds
    there was time for."""
    said = {name: turn()[1] for name, turn in contenders.items()}
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    done = 0
    while done < ROUNDS and (not done or check.seconds_left > ROOM_FOR_ONE_MORE):
        for name, turn in contenders.items():
            rates[name].append(turn()[0])
        done += 1
    return {name: median(found) for name, found in rates.items()}, said, done
