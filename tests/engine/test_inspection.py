"""`inspect`: what a model would need on this machine or another, known before any weight is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine import inspection
from engine.cli import main
from engine.experts.device import LANDINGS
from engine.experts.transfer import READERS
from engine.messages import LoadModel
from tests.families import make_tiny
from tests.machine import free_ram

MB = 10**6
Machine = Callable[..., None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Sets what the probes find: bytes of free RAM and, where there is a card, of free VRAM."""

    def install(ram: int, vram: int | None = None) -> None:
        free_ram(monkeypatch, ram)
        if vram is not None:
            card = SimpleNamespace(torch_device=torch.device("cuda"), on_card=True, free=lambda: vram)
            monkeypatch.setattr(inspection, "make_devices", lambda names: [card for _ in names.split(",")])

    return install


@pytest.fixture
def inspect(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    def run(*arguments: str) -> dict[str, Any]:
        assert main(["inspect", *arguments, "--json"]) == 0
        facts: dict[str, Any] = json.loads(capsys.readouterr().out)
        return facts

    return run


def test_everything_fits_where_there_is_room(tiny_chat_model: Path, machine: Machine, inspect: Any) -> None:
    machine(ram=2000 * MB)
    facts = inspect(str(tiny_chat_model))
    assert (facts["verdict"], facts["shortfall_bytes"], facts["reason"]) == ("fits", 0, "")
    plan = facts["plan"]
    assert plan["slots"] == plan["slots_at_full_context"] == 24
    assert [tier["memory"] for tier in plan["tiers"]] == ["RAM", "disk"]
    assert plan["needed_bytes"] <= plan["budget_bytes"] < plan["free_bytes"] == 2000 * MB
    assert "not the system's file cache" in plan["counted"]


def test_what_the_budget_leaves_out_waits_on_disk(tiny_chat_model: Path, inspect: Any) -> None:
    facts = inspect(str(tiny_chat_model), "--experts", "25%", "--context", "100")
    assert facts["verdict"] == "fits with disk"
    assert {tier["memory"]: tier["experts"] for tier in facts["plan"]["tiers"]} == {"RAM": 6, "disk": 18}
    assert facts["plan"]["on_disk"] == 18


def test_too_big_is_a_report_that_says_how_much_is_missing(
    tiny_chat_model: Path, machine: Machine, inspect: Any
) -> None:
    machine(ram=150 * MB)
    facts = inspect(str(tiny_chat_model))
    assert facts["verdict"] == "too big"
    assert facts["plan"] is None
    assert facts["reason"].startswith("Not enough RAM")
    machine(ram=150 * MB + facts["shortfall_bytes"])
    assert inspect(str(tiny_chat_model))["plan"]["slots"] >= 1


def test_a_card_gets_a_tier_of_ram_under_it(tmp_path: Path, machine: Machine, inspect: Any) -> None:
    folder = make_tiny("qwen2_moe", tmp_path / "wide", changes={"hidden_size": 64, "moe_intermediate_size": 2048})
    machine(ram=2000 * MB)
    slot, free = inspect(str(folder))["slot_bytes"], 500 * MB
    landings = READERS * LANDINGS * slot  # every reader's buffers are in RAM, too
    needed = inspect(str(folder), "--experts", "1 slot")["plan"]["needed_bytes"]
    machine(ram=landings + 20 * slot * 5 // 4 + 1, vram=needed + free)
    plan = inspect(str(folder), "--experts", "10 slots", "--keep-past", "off")["plan"]
    assert {tier["memory"]: tier["experts"] for tier in plan["tiers"]} == {"VRAM": 10, "RAM": 20, "disk": 4}
    assert plan["host_slots"] == 20


def test_a_second_card_takes_half_of_the_experts(tiny_chat_model: Path, machine: Machine, inspect: Any) -> None:
    slot = inspect(str(tiny_chat_model))["slot_bytes"]
    machine(ram=2000 * MB, vram=2000 * MB)
    start = inspect(str(tiny_chat_model), "--experts", "1 slot")["plan"]["needed_bytes"] - slot
    machine(ram=2000 * MB, vram=start + 4 * slot)
    assert inspect(str(tiny_chat_model), "--experts", "8 slots")["verdict"] == "too big"
    both = inspect(str(tiny_chat_model), "--experts", "8 slots", "--device", "cuda:0,cuda:1")
    assert both["plan"]["slots"] == 8


def test_a_model_whose_attention_writes_scores_out_is_planned_with_them(tmp_path: Path, inspect: Any) -> None:
    workspace = {}
    for family in ("qwen2_moe", "gpt_oss"):  # gpt_oss's attention sinks leave it the eager path on a CPU
        facts = inspect(str(make_tiny(family, tmp_path / family)), "--context", "256")
        workspace[family] = facts["plan"]["workspace_bytes"]
    assert workspace["gpt_oss"] - workspace["qwen2_moe"] > 256 * 4 * 512 * 4


def test_the_report_for_reading_says_the_same(
    tiny_chat_model: Path, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(tiny_chat_model), "--experts", "25%"]) == 0
    text = capsys.readouterr().out
    for words in ("in RAM", "6 slots (25%)", "only on disk", "18 of 24 experts", "fits with disk", "file cache"):
        assert words in text
    machine(ram=150 * MB)
    assert main(["inspect", str(tiny_chat_model)]) == 0
    text = capsys.readouterr().out
    assert "too big" in text
    assert "missing" in text


def test_no_weight_is_read(tiny_chat_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("a weight was read")

    monkeypatch.setattr("safetensors.safe_open", refuse)
    monkeypatch.setattr("safetensors.torch.load_file", refuse)
    monkeypatch.setattr("engine.experts.store.DiskStore.read", refuse)
    assert inspection.describe(LoadModel(str(tiny_chat_model)))["plan"]["slots"] == 24
