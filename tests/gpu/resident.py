"""With every expert on the card, the card picks them: the bits of the usual way, no host read, and what it takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from engine import loading
from engine.experts.forward import IMPLEMENTATION, experts_forward
from engine.loading import LoadedModel, load
from engine.messages import LoadModel
from tests.engine.experts.cards import stand_in
from tests.gpu.check import Check
from tests.gpu.ratios import write_model

PASSES = 16  # of each way, in turn
WARM_UP = 4


def the_card_picks_by_itself(check: Check) -> dict[str, Any]:
    folder = write_model(check.folder / "resident", check, 2)
    with _card(check):
        loaded = load(LoadModel(str(folder), "100%", device=check.device, dtype="bfloat16", context=512, threads=1))
    try:
        runtime = loaded.runtime
        runtime.warm(runtime.everyone)
        runtime.begin_answer(True)
        seconds: dict[bool, list[float]] = {True: [], False: []}
        wrong = 0
        with _no_host_reads(loaded):
            for number in range(PASSES + WARM_UP):
                logits = {way: _pass(loaded, number, way, seconds) for way in (True, False)}
                wrong += int((logits[True] != logits[False]).sum())
        took = {way: median(found[WARM_UP:]) for way, found in seconds.items()}
        by_itself = runtime._everybody is not None
        counts = runtime.observer.total.sum(axis=1).tolist()
    finally:
        loaded.close()
    check.expect(by_itself, "every expert is on the card, and yet the host asks for each layer's ids")
    check.expect(wrong == 0, f"{wrong} logits differ between the card's own pick and the usual way")
    expected = 2 * (PASSES + WARM_UP) * loaded.info.top_k
    check.expect(set(counts) == {expected}, f"uses per layer are {counts} and should be {expected}")
    return {
        "different_logits": wrong,
        "ms_by_card": round(took[True] * 1e3, 3),
        "ms_usual": round(took[False] * 1e3, 3),
        "by_card_vs_usual": round(took[False] / took[True], 3),
    }


def _pass(loaded: LoadedModel, number: int, by_card: bool, seconds: dict[bool, list[float]]) -> torch.Tensor:
    """Logits of one decode pass without a past."""
    runtime = loaded.runtime
    if runtime._everybody is not None:
        runtime._everybody.race.by_card = by_card
    ids = torch.tensor([[number % 200 + 1]], device=loaded.device)
    _settle()
    began = time.perf_counter()
    runtime.begin_pass("decode", 1, 1)
    with torch.inference_mode():
        logits: torch.Tensor = loaded.model(input_ids=ids).logits
    runtime.end_pass(time.perf_counter() - began)
    _settle()
    seconds[by_card].append(time.perf_counter() - began)
    return logits.cpu()


@contextmanager
def _no_host_reads(loaded: LoadedModel) -> Iterator[None]:
    """On a card torch raises when the host waits for it inside the hook while the card is to pick by itself."""

    def watched(module: Any, *arguments: Any) -> torch.Tensor:
        if loaded.runtime.resident_pass is None or loaded.device.type != "cuda":
            return experts_forward(module, *arguments)
        torch.cuda.set_sync_debug_mode("error")
        try:
            return experts_forward(module, *arguments)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    with patch.dict(ALL_EXPERTS_FUNCTIONS._global_mapping, {IMPLEMENTATION: watched}):
        yield


@contextmanager
def _card(check: Check) -> Iterator[None]:
    """The small check has a stand-in for the card."""
    if check.device != "cpu":
        yield
        return
    with patch.object(loading, "make_devices", lambda names: [stand_in()[0]]):
        yield


def _settle() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
