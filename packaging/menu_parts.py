"""What the menus of all three systems need: drawing icons, removing without residue."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def remove_empty(folder: Path, up_to: Path) -> None:
    """Remove a folder and those above it as long as they are empty; ``up_to`` stays."""
    while folder != up_to and up_to in folder.parents:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def draw(python: Path, root: Path, kind: str, target: Path) -> None:
    """Let icons.py write one of its kinds to ``target``; CalledProcessError when it cannot."""
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [str(python), str(root / "packaging" / "icons.py"), kind, str(target)]
    subprocess.run(command, check=True, capture_output=True)


def remove(path: Path) -> bool:
    """Remove a file or a whole folder; False when it was not there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
        return True
    if path.exists() or path.is_symlink():
        path.unlink()
        return True
    return False
