"""Greenroom among the user's own programs: put there by ``start.py install``, taken away without a trace by
``start.py uninstall``. Nothing needs an administrator, and nothing here knows where conversations are kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import menu_linux
import menu_macos
import menu_windows
from start_error import StartError, from_os


def install(root: Path, python: Path, environ: Mapping[str, str] = os.environ, system: str = sys.platform) -> str:
    """Add it, with icons drawn by the environment's ``python``; a sentence for the user. StartError if impossible."""
    try:
        if system == "win32":
            place = menu_windows.install(root, python, environ)
        elif system == "darwin":
            place = menu_macos.install(root, python, Path.home())
        else:
            place = menu_linux.install(root, python, environ)
    except subprocess.CalledProcessError as error:
        said = (error.stderr or b"").decode(errors="replace").strip().splitlines()
        raise StartError(f"Greenroom could not be added to the menu: {said[-1] if said else error}") from error
    except OSError as error:
        raise from_os(error, Path(error.filename or root), "Adding Greenroom to the menu") from error
    return f"Greenroom is among your programs now ({place}). It opens what is in {root}: leave that folder there."


def uninstall(root: Path, environ: Mapping[str, str] = os.environ, system: str = sys.platform) -> str:
    """Take it away; a sentence for the user. StartError if impossible."""
    try:
        if system == "win32":
            removed = menu_windows.uninstall(root, environ)
        elif system == "darwin":
            removed = menu_macos.uninstall(root, Path.home())
        else:
            removed = menu_linux.uninstall(environ)
    except OSError as error:
        raise from_os(error, Path(error.filename or root), "Taking Greenroom out of the menu") from error
    first = "Greenroom is no longer among your programs." if removed else "Greenroom was not among your programs."
    return f"{first} The program itself is the folder {root}, which you can delete; your conversations are elsewhere."
