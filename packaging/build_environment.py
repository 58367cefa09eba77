"""The environment that a frozen build is made in: what goes into the build, the build's tools, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import torch_choice

ROOT = Path(__file__).resolve().parent.parent


class NotPrepared(Exception):
    """Why there is no environment to build in."""


def prepare(folder: Path) -> Path:
    """Make or finish the environment in ``folder``; its Python. Raises NotPrepared; pip itself says why above.

    torch is the CPU build: one that fits every machine. Who wants CUDA in a frozen program installs that into the
    environment first.
    """
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.is_file():
        venv.create(folder, with_pip=True, symlinks=os.name != "nt")
    if not _runs(python, "-c", "import torch"):
        local = torch_choice.has_local_wheel(python)
        attempts = torch_choice.attempts("cpu", sys.platform, local)
        if not any(_runs(python, "-m", "pip", "install", *attempt.arguments) for attempt in attempts):
            raise NotPrepared(f"torch {torch_choice.VERSION} could not be installed into {folder}.")
    if not _runs(python, "-m", "pip", "install", "--editable", f"{ROOT}[frozen]"):
        raise NotPrepared(f"Greenroom and the tools of the build could not be installed into {folder}.")
    return python


def _runs(python: Path, *arguments: str) -> bool:
    return subprocess.run([str(python), *arguments], check=False).returncode == 0
