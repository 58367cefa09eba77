"""Folders that are whole or not there: the work happens in one of its own, which is renamed into place at the end.

A folder of work carries its process's number; what a killed process left is removed by the next.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import psutil

from engine.durable import make_durable


def own_partial(target: Path) -> Path:
    """An empty folder beside ``target`` that only this process writes to."""
    partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    return partial


def remove_leftovers(folder: Path) -> None:
    """Remove the partial folders of processes that are gone."""
    for partial in folder.glob("*.partial-*"):
        number = partial.name.rpartition("-")[2]
        if not number.isdigit() or not psutil.pid_exists(int(number)):
            shutil.rmtree(partial, ignore_errors=True)


def into_place(partial: Path, folder: Path) -> None:
    """Make a model's files durable, then show them all at once under their final name."""
    usual = partial.stat().st_mode & 0o666  # of what the user's programs write; safetensors keeps others from reading
    for path in partial.iterdir():
        path.chmod(usual)
        make_durable(path)
    try:
        partial.rename(folder)
    except OSError:
        if not (folder / "config.json").is_file():  # else another process was first, with the same result
            raise
