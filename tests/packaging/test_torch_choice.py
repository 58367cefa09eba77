"""The right build of torch: never several GB of CUDA by accident, never the CPU build where a card waits."""

import os
from pathlib import Path

import pytest
import torch_choice
from torch_choice import ChoiceError, attempts, wanted_kind


@pytest.fixture
def card(monkeypatch):
    def set_card(reason):
        monkeypatch.setattr(torch_choice, "nvidia_card", lambda system: reason)
        monkeypatch.setattr(torch_choice, "amd_target", lambda system: "")

    return set_card


@pytest.mark.parametrize(
    ("system", "found", "kind"),
    [
        ("linux", "", "cpu"),
        ("linux", "an NVIDIA card is there", "cuda"),
        ("win32", "", "cpu"),
        ("win32", "an NVIDIA driver is installed", "cuda"),
        ("darwin", "an old card", "cpu"),
    ],
)
def test_the_machine_decides(card, system, found, kind):
    card(found)
    assert wanted_kind({}, system)[0] == kind


@pytest.mark.parametrize("override", ["cpu", "cuda", "rocm", " CUDA "])
def test_the_user_overrides_the_machine(card, override):
    card("")
    assert wanted_kind({"GREENROOM_TORCH": override}, "linux")[0] == override.strip().lower()


def test_an_override_that_means_nothing_lists_what_would():
    with pytest.raises(ChoiceError, match="cpu, cuda, rocm"):
        wanted_kind({"GREENROOM_TORCH": "metal"}, "linux")


def test_linux_without_a_card_never_asks_for_the_plain_build():
    [attempt] = attempts("cpu", "linux", local=False)
    assert attempt.arguments == (
        "torch==2.13.0+cpu",
        "--extra-index-url",
        "https://download.pytorch.org/whl/cpu",
    )


def test_a_wheel_that_pip_has_on_this_disk_comes_first():
    [attempt] = attempts("cpu", "linux", local=True)
    assert attempt.arguments == ("torch==2.13.0",)


@pytest.mark.parametrize(("kind", "system"), [("cpu", "win32"), ("cpu", "darwin"), ("cuda", "linux")])
def test_pypi_has_the_right_build_there(kind, system):
    assert [attempt.arguments for attempt in attempts(kind, system, local=False)] == [("torch==2.13.0",)]


def test_windows_with_a_card_must_ask_elsewhere():
    builds = [attempt.arguments[0] for attempt in attempts("cuda", "win32", local=False)]
    assert builds
    assert all("+cu" in build for build in builds)


@pytest.mark.skipif(os.name == "nt", reason="a shell script stands in for the driver's tool")
def test_a_driver_that_fails_is_no_card(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed: no driver'\nexit 9\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(()))
    assert torch_choice.nvidia_card("linux") == ""
    tool.write_text("#!/bin/sh\necho 'GPU 0: Some Card (UUID: GPU-1)'\n")
    assert torch_choice.nvidia_card("linux") == "nvidia-smi lists a card"


def kernel_lists(folder, monkeypatch, *versions):
    """What the kernel's driver for AMD cards says: a node for each processor (0) and card."""
    for number, version in enumerate(versions):
        node = folder / str(number)
        node.mkdir()
        (node / "properties").write_text(f"cpu_cores_count 16\ngfx_target_version {version}\nvendor_id 4098\n")
    monkeypatch.setattr(torch_choice, "_KFD", folder)
    monkeypatch.setattr(torch_choice, "nvidia_card", lambda system: "")


@pytest.mark.parametrize(
    ("versions", "kind", "says"),
    [
        ((0, 110000), "rocm", "an AMD card is there (gfx1100)"),
        ((0, 90010), "rocm", "an AMD card is there (gfx90a)"),
        ((0, 100306, 120001), "rocm", "an AMD card is there (gfx1201)"),
        ((0, 110000, 110003), "rocm", "an AMD card is there (gfx1100)"),  # the small one inside the processor is newer
        ((0, 100306), "cpu", "the AMD card here (gfx1036) is none that torch has a build for"),
        ((0,), "cpu", "no NVIDIA or AMD card found"),
        ((), "cpu", "no NVIDIA or AMD card found"),
    ],
)
def test_an_amd_card_is_used_when_torch_has_code_for_it(tmp_path, monkeypatch, versions, kind, says):
    kernel_lists(tmp_path, monkeypatch, *versions)
    assert wanted_kind({}, "linux") == (kind, says)


def test_amd_cards_are_asked_for_where_torch_has_builds_only(tmp_path, monkeypatch):
    kernel_lists(tmp_path, monkeypatch, 110000)
    assert wanted_kind({}, "win32") == ("cpu", "no NVIDIA card found")


def test_an_nvidia_card_wins_over_an_amd_one(tmp_path, monkeypatch):
    kernel_lists(tmp_path, monkeypatch, 110000)
    monkeypatch.setattr(torch_choice, "nvidia_card", lambda system: "an NVIDIA card is there")
    assert wanted_kind({}, "linux")[0] == "cuda"


@pytest.mark.parametrize("kind", torch_choice.KINDS)
def test_the_choice_is_said_with_its_reason_and_how_to_choose_otherwise(kind, monkeypatch):
    monkeypatch.delenv("GREENROOM_TORCH", raising=False)
    monkeypatch.setattr(torch_choice.sys, "platform", "linux")
    sentence = torch_choice.describe(kind, "the reason")
    assert {"cpu": "CPU", "cuda": "CUDA", "rocm": "ROCm"}[kind] in sentence
    assert "the reason; GREENROOM_TORCH=cpu|cuda|rocm overrides" in sentence
