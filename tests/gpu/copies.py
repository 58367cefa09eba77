"""Rates of the link, and what the processor would take for an expert that is missing."""

from __future__ import annotations

import time
from dataclasses import asdict
from statistics import median
from typing import Any

import torch
from torch.nn.functional import linear, silu

from engine.experts.card import CudaPinner
from engine.experts.device import make_device
from engine.experts.host_tier import CHUNK
from engine.experts.layout import ExpertLayout, expert_layout
from engine.experts.on_miss import calibrate, split
from engine.hardware.probes import cores
from tests.gpu.check import Check

REPEATS = 9
HIDDEN, INNER = 2048, 768  # of Qwen3-30B-A3B: an expert of 9.4 MB in bfloat16


def copy_rates(check: Check) -> dict[str, Any]:
    """GB/s from host to card by block size and kind of memory, and back; GB/s at which memory is pinned."""
    device = make_device(check.device).torch_device
    on_card = device.type == "cuda"
    sizes = (1 << 16,) if check.small else (1 << 20, 9_437_184, 64 << 20)
    found: dict[str, Any] = {}
    for nbytes in sizes:
        there = torch.empty(nbytes, dtype=torch.uint8, device=device)
        kinds: dict[str, torch.Tensor] = {"pageable": torch.ones(nbytes, dtype=torch.uint8)}
        if on_card:
            kinds["pinned"] = torch.ones(nbytes, dtype=torch.uint8, pin_memory=True)
        rates = {kind: rate(host, there) for kind, host in kinds.items()}
        rates["back"] = rate(there, kinds.get("pinned", kinds["pageable"]))
        found[f"{nbytes / 1e6:.1f} MB"] = rates
    if on_card:
        found["pinning"] = _pinning(device)
        largest = found[f"{sizes[-1] / 1e6:.1f} MB"]
        check.expect(largest["pinned"] > largest["pageable"], "pinned memory is not copied faster than pageable memory")
    return found


def _pinning(device: torch.device) -> dict[str, Any]:
    memory = torch.empty(CHUNK, dtype=torch.uint8)
    pinner = CudaPinner(device)
    began = time.perf_counter()
    pinned = pinner.pin(memory)
    seconds = time.perf_counter() - began
    there = torch.empty_like(memory, device=device)
    copied = rate(memory, there)
    if pinned:
        pinner.unpin(memory)
    return {"works": pinned, "GB/s": round(CHUNK / seconds / 1e9, 2), "copy GB/s": copied}


def rate(source: torch.Tensor, target: torch.Tensor) -> float:
    """GB/s of a copy, median of a few."""
    seconds = []
    for _ in range(REPEATS + 1):
        _settle()
        began = time.perf_counter()
        target.copy_(source, non_blocking=True)
        _settle()
        seconds.append(time.perf_counter() - began)
    return round(source.nbytes / median(seconds[1:]) / 1e9, 2)


def _settle() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def compute_on_miss(check: Check) -> dict[str, Any]:
    """What one expert takes on the processor and on the link, and how eight missing ones would be shared out."""
    device = make_device(check.device)
    hidden, inner = (64, 32) if check.small else (HIDDEN, INNER)
    layout = expert_layout({"gate_up_proj": (2 * inner, hidden), "down_proj": (hidden, inner)}, torch.bfloat16)
    count = 4 if check.small else 48  # 450 MB: more than a processor keeps
    pin = device.torch_device.type == "cuda"
    waiting = [_random_expert(layout, pin) for _ in range(count)]
    slots = device.allocate(count * layout.nbytes).view(count, layout.nbytes)
    found: dict[str, Any] = {}
    for threads in sorted({1, max(1, cores() // 2), max(1, cores() - 1)}):
        torch.set_num_threads(threads)
        measured = calibrate(layout, waiting, list(slots), _expert, hidden)
        eight = split(measured, torch.ones(8, dtype=torch.int64).numpy())
        found[f"{threads} threads"] = asdict(measured) | {
            "pays": measured.pays,
            "says": measured.describe(),
            "of_8_missing_on_processor": len(eight.processor),
        }
    return found


def _random_expert(layout: ExpertLayout, pin: bool) -> torch.Tensor:
    blob = torch.empty(layout.nbytes, dtype=torch.uint8, pin_memory=pin)
    for parameter in layout.views(blob).values():
        parameter.normal_(std=0.02)
    return blob


def _expert(parameters: dict[str, torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
    gate, up = linear(rows, parameters["gate_up_proj"]).chunk(2, dim=-1)
    return linear(silu(gate) * up, parameters["down_proj"])
