"""Files that survive a power cut: whole, or as they were before."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def make_durable(path: Path) -> None:
    """What is in the file will be there after a power cut. OSError when the disk does not promise that."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def write_whole(path: Path, text: str) -> None:
    """A small text file, whole or as it was before. OSError when the disk takes nothing."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        draft.write_text(text, "utf-8")
        make_durable(draft)
        draft.replace(path)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
