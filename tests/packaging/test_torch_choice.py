"""The right build of torch: never several GB of CUDA by accident, never the CPU build where a card waits."""

from pathlib import Path

import pytest
import torch_choice
from torch_choice import ChoiceError, attempts, wanted_kind


@pytest.fixture
def card(monkeypatch):
    def set_card(reason):
        monkeypatch.setattr(torch_choice, "nvidia_card", lambda system: reason)

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


def test_a_driver_that_fails_is_no_card(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed: no driver'\nexit 9\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(()))
    assert torch_choice.nvidia_card("linux") == ""
    tool.write_text("#!/bin/sh\necho 'GPU 0: Some Card (UUID: GPU-1)'\n")
    assert torch_choice.nvidia_card("linux") == "nvidia-smi lists a card"
