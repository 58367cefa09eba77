"""What the memory bars show: nothing counted twice, and no card is no error."""

import sys
from types import SimpleNamespace

import psutil
import pytest

from engine.hardware import limits, probes
from engine.messages import MemoryPart


@pytest.fixture
def nvml(monkeypatch):
    """A stand-in for NVIDIA's library, so that both outcomes are tested on any machine."""

    def install(**functions):
        defaults = {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetCount": lambda: 1,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=12_000, used=9_000),
            "nvmlDeviceGetName": lambda handle: b"Card 9000",
        }
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(**(defaults | functions)))
        probes._nvml.cache_clear()

    yield install
    probes._nvml.cache_clear()


def model(dense, experts, kv):
    return [MemoryPart("dense", dense), MemoryPart("experts", experts), MemoryPart("kv", kv)]


def fail(*arguments):
    raise RuntimeError("driver not loaded")


def parts(bar):
    return {part.kind: part.bytes for part in bar.parts}


def test_a_machine_without_a_card_shows_ram_alone(nvml):
    nvml(nvmlInit=fail)
    [ram] = probes.memory_snapshot({"cpu": model(30, 20, 10)}).bars
    assert (ram.name, ram.total) == (limits.ram().name, limits.ram().total)
    assert (parts(ram)["dense"], parts(ram)["experts"], parts(ram)["kv"]) == (30, 20, 10)


def test_a_driver_that_is_missing_is_asked_once(nvml):
    calls = []
    nvml(nvmlInit=lambda: calls.append(1) or fail())
    assert [probes.card() for _ in range(5)] == [None] * 5
    assert len(calls) == 1


@pytest.mark.parametrize("failing", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetName"])
def test_a_card_that_answers_only_in_part_is_left_out(nvml, failing):
    nvml(**{failing: fail})
    assert probes.card() is None


def test_a_model_on_the_card_is_in_the_vram_bar_and_not_in_ram_too(nvml):
    nvml()
    vram, ram = probes.memory_snapshot({"cuda": model(3_000, 2_000, 1_000)}).bars
    assert (vram.name, vram.total) == ("VRAM · Card 9000", 12_000)
    assert parts(vram) == {"dense": 3_000, "experts": 2_000, "kv": 1_000, "other": 3_000}
    assert set(parts(ram)) == {"other"}


def test_a_model_in_ram_leaves_the_card_to_others(nvml):
    nvml()
    vram, ram = probes.memory_snapshot({"cpu": model(30, 20, 10)}).bars
    assert parts(vram) == {"other": 9_000}
    assert parts(ram)["experts"] == 20


def test_every_card_has_a_bar_with_what_the_model_has_there(nvml):
    nvml(nvmlDeviceGetCount=lambda: 3, nvmlDeviceGetMemoryInfo=lambda i: SimpleNamespace(total=100 + i, used=90))
    held = {"cuda:0": model(30, 20, 10), "cuda:2": [MemoryPart("experts", 50)]}
    *cards, ram = probes.memory_snapshot(held).bars
    assert [(bar.name, bar.total) for bar in cards] == [(f"VRAM {i} · Card 9000", 100 + i) for i in range(3)]
    assert [parts(bar) for bar in cards] == [
        {"dense": 30, "experts": 20, "kv": 10, "other": 30},
        {"other": 90},
        {"experts": 50, "other": 40},
    ]
    assert set(parts(ram)) == {"other"}


@pytest.mark.parametrize(("allowed", "asked"), [("2,0", [2, 0]), ("GPU-7f", ["GPU-7f"]), ("", []), ("-1", [])])
def test_cards_are_counted_as_the_environment_lets_torch_see_them(nvml, monkeypatch, allowed, asked):
    handles = []
    nvml(
        nvmlDeviceGetCount=lambda: 3,
        nvmlDeviceGetHandleByIndex=lambda i: handles.append(i) or i,
        nvmlDeviceGetHandleByUUID=lambda name: handles.append(name) or 0,
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", allowed)
    bars = probes.memory_snapshot({}).bars
    assert handles == asked
    assert len(bars) == len(asked) + 1


def test_the_parts_of_ram_add_up_to_what_is_used(nvml, monkeypatch):
    nvml(nvmlInit=fail)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=1_000, available=400))
    [ram] = probes.memory_snapshot({"cpu": model(100, 200, 0)}).bars
    assert parts(ram) == {"dense": 100, "experts": 200, "other": 300}
    [ram] = probes.memory_snapshot({"cpu": model(500, 200, 0)}).bars
    assert parts(ram)["other"] == 0  # pages that were not touched yet are not in use


def test_the_processor_has_a_name_and_at_least_one_core():
    assert probes.computing_threads() >= 1
    assert "core" in probes.processor_name()
