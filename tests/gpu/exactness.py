"""Greedy tokens on the card are the stock model's on the card, whoever has to be fetched."""

from __future__ import annotations

from typing import Any

import torch

from engine.messages import LoadModel
from engine.verify import verify
from tests.families import make_tiny
from tests.gpu.check import ROOM_FOR_ONE_MORE, Check

# plain; fused gate; biases and a gate of its own; grouped sigmoid router with correction and a dense first layer; norms
FAMILIES = ("qwen2_moe", "mixtral", "gpt_oss", "deepseek_v3", "olmoe")
SETTINGS = (  # experts, policy, predictor, prefetch
    ("1 slot", "lru", "none", "off"),
    ("25%", "next-use", "gate", "on"),
    ("50%", "eam", "call-sheet", "auto"),
    ("100%", "lfu-aged", "none", "off"),
)


def greedy_tokens_are_the_stock_models(check: Check) -> dict[str, Any]:
    torch.backends.cuda.matmul.allow_tf32 = False  # both sides in true float32
    families = FAMILIES[:1] if check.small else FAMILIES
    found: dict[str, Any] = {}
    for family in families:
        if check.seconds_left < ROOM_FOR_ONE_MORE:
            found["left_out"] = families[families.index(family) :]
            break
        folder = make_tiny(family, check.folder / family)
        for experts, policy, predictor, prefetch in SETTINGS:
            command = LoadModel(
                str(folder), experts, policy, device=check.device, predictor=predictor, prefetch=prefetch, threads=1
            )
            verdict = verify(command, "", 8 if check.small else 24)
            name = f"{family} {experts} {policy} {predictor} {prefetch}"
            found[name] = {
                "equal": verdict.equal,
                "tokens": verdict.tokens,
                "max_logit_diff": verdict.max_logit_diff,
                "misses": verdict.prefill_misses + verdict.decode_misses,
            }
            check.expect(verdict.equal, f"{name}: greedy tokens are not the stock model's")
            check.expect(experts != "1 slot" or verdict.decode_misses > 0, f"{name}: nothing had to be fetched")
    return found
