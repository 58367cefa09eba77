"""A machine with so much free RAM, whatever this one has."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from engine.hardware import limits


def free_ram(patch: pytest.MonkeyPatch, nbytes: int) -> None:
    """So many bytes are free, and no container says otherwise."""
    real = psutil.virtual_memory()
    patch.setattr(psutil, "virtual_memory", lambda: real._replace(available=nbytes))
    patch.setattr(limits, "ROOT", Path("no container"))
