"""Which build of torch belongs on this machine, and where pip finds it.

Plain ``pip install torch`` is right nowhere near always: on Linux it brings several GB of CUDA libraries even without
a card, on Windows it brings the CPU build even with one. ``GREENROOM_TORCH`` overrides the choice.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

VERSION = "2.13.0"  # what Greenroom is tested with
INDEX = "https://download.pytorch.org/whl/"  # where torch's makers keep the builds that are not on PyPI
KINDS = ("cpu", "cuda", "rocm")
# Newest first; which of them exist changes with every torch release, so they are tried in turn.
_WINDOWS_CUDA = ("cu130", "cu128", "cu126")
_KFD = Path("/sys/class/kfd/kfd/topology/nodes")
# The cards that torch's builds for ROCm have code for.
_ROCM_TARGETS = (
    *("gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950"),
    *("gfx1030", "gfx1100", "gfx1101", "gfx1102", "gfx1150", "gfx1151", "gfx1200", "gfx1201"),
)
_ROCM = ("rocm7.2", "rocm7.1", "rocm7.0", "rocm6.4")


class ChoiceError(Exception):
    """The override asks for something that does not exist; the text says what does."""


@dataclass(frozen=True)
class Attempt:
    """One way to get torch: what pip is asked for."""

    arguments: tuple[str, ...]
    name: str  # for the user


def wanted_kind(environ: Mapping[str, str], system: str) -> tuple[str, str]:
    """The kind of build and the reason in words."""
    override = environ.get("GREENROOM_TORCH", "").strip().lower()
    if override:
        if override not in KINDS:
            raise ChoiceError(f"GREENROOM_TORCH is “{override}”; it can be {', '.join(KINDS)}, or not set at all.")
        return override, "GREENROOM_TORCH asks for it"
    if system == "darwin":
        return "cpu", "macOS has one build"
    card = nvidia_card(system)
    if card:
        return "cuda", card
    target = amd_target(system)
    if target in _ROCM_TARGETS:
        return "rocm", f"an AMD card is there ({target})"
    if target:
        return "cpu", f"the AMD card here ({target}) is none that torch has a build for"
    return "cpu", "no NVIDIA or AMD card found" if system.startswith("linux") else "no NVIDIA card found"


def attempts(kind: str, system: str, local: bool) -> list[Attempt]:
    """The ways to install this kind, best first. ``local``: pip is set up with a wheel of torch on this disk."""
    plain = Attempt((f"torch=={VERSION}",), f"torch {VERSION}")
    if kind == "rocm":
        return [_from_index(build) for build in _ROCM]
    if kind == "cuda":
        return [_from_index(build) for build in _WINDOWS_CUDA] if system == "win32" else [plain]
    if local or not system.startswith("linux"):
        return [plain]
    return [_from_index("cpu")]


def nvidia_card(system: str) -> str:
    """What shows that an NVIDIA driver runs here; empty when nothing does."""
    if system == "win32":
        return "an NVIDIA driver is installed" if _loads("nvml.dll") else ""
    if any(Path("/proc/driver/nvidia/gpus").glob("*")):
        return "an NVIDIA card is there"
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    try:
        answer = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return "nvidia-smi lists a card" if answer.returncode == 0 and "GPU" in answer.stdout else ""


def amd_target(system: str) -> str:
    """What the newest AMD card here is called by compilers, such as "gfx1100"; empty when there is none.

    Linux only, as are torch's builds for ROCm. The kernel's own driver lists the cards; one that torch has a build for
    comes before others, since many processors have a small one inside.
    """
    if not system.startswith("linux"):
        return ""
    found = []
    for node in sorted(_KFD.glob("*/properties")):
        try:
            version = re.search(r"^gfx_target_version (\d+)$", node.read_text(), re.MULTILINE)
        except OSError:
            continue  # the user is not in the group that may use it
        if version and int(version[1]):  # a processor is listed too, as 0
            number = int(version[1])  # 110000 is gfx1100, 90010 gfx90a
            found.append((number, f"gfx{number // 10000}{number // 100 % 100:x}{number % 100:x}"))
    names = [name for _, name in sorted(found, reverse=True)]
    return next((name for name in names if name in _ROCM_TARGETS), names[0] if names else "")


def has_local_wheel(python: Path) -> bool:
    """Whether pip's own configuration offers this torch as a file, as machines without the internet do."""
    command = [str(python), "-m", "pip", "install", "--dry-run", "--no-deps", "--no-index", "--ignore-installed"]
    command += ["--quiet", "--report", "-", f"torch=={VERSION}"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        report = json.loads(answer.stdout)
        item = report["install"][0]
        return item["download_info"]["url"].startswith("file:") or item["metadata"]["version"].endswith("+cpu")
    except (OSError, subprocess.SubprocessError, ValueError, LookupError):
        return False


def _from_index(build: str) -> Attempt:
    # The version names the build, so that pip cannot take PyPI's instead when the index is out of reach.
    return Attempt((f"torch=={VERSION}+{build}", "--extra-index-url", INDEX + build), f"torch {VERSION} ({build})")


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def describe(kind: str, reason: str) -> str:
    """The choice as a sentence."""
    names = {"cpu": "the CPU build of torch", "cuda": "torch with CUDA (several GB)", "rocm": "torch for ROCm"}
    hint = (
        ""
        if "GREENROOM_TORCH" in os.environ or sys.platform == "darwin"
        else "; GREENROOM_TORCH=cpu|cuda|rocm overrides"
    )
    return f"Installing {names[kind]}: {reason}{hint}."
