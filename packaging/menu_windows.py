"""The user's own Start menu on Windows: a shortcut that starts without a console window."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from menu_parts import draw, remove


def install(root: Path, python: Path, environ: Mapping[str, str]) -> Path:
    """Make the shortcut; its path."""
    draw(python, root, "ico", _icon(root))
    shortcut = _shortcut(environ)
    shortcut.parent.mkdir(parents=True, exist_ok=True)
    command = ["powershell", "-NoProfile", "-ExecutionPolicy", "Bypass", "-File"]
    command += [str(root / "packaging" / "windows" / "shortcut.ps1"), "-Shortcut", str(shortcut)]
    command += ["-Python", str(_windowless())]
    subprocess.run(command, check=True, capture_output=True)
    return shortcut


def uninstall(root: Path, environ: Mapping[str, str]) -> bool:
    """Remove the shortcut and its icon; False when there was no shortcut."""
    remove(_icon(root))
    return remove(_shortcut(environ))


def _shortcut(environ: Mapping[str, str]) -> Path:
    roaming = Path(environ.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    return roaming / "Microsoft" / "Windows" / "Start Menu" / "Programs" / "Greenroom.lnk"


def _icon(root: Path) -> Path:
    return root / "packaging" / "windows" / "greenroom.ico"


def _windowless() -> Path:
    """The Python that runs now, as the program without a console."""
    windowless = Path(sys.base_prefix) / "pythonw.exe"
    return windowless if windowless.exists() else Path(sys.executable)
