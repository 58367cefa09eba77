"""Whether what was installed is still there, and loads."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

from start_error import StartError

_DEBIAN = (
    "libegl1 libgl1 libglib2.0-0 libfontconfig1 libdbus-1-3 libx11-xcb1 libxkbcommon-x11-0 libxcb-cursor0 "
    "libxcb-icccm4 libxcb-image0 libxcb-keysyms1 libxcb-randr0 libxcb-render-util0 libxcb-shape0 libxcb-sync1 "
    "libxcb-xfixes0 libxcb-xkb1 libwayland-cursor0"
)
_FEDORA = (
    "mesa-libEGL mesa-libGL glib2 fontconfig dbus-libs libxkbcommon-x11 xcb-util-cursor xcb-util-wm xcb-util-keysyms "
    "xcb-util-renderutil xcb-util-image libwayland-cursor"
)


# What Qt cannot even be imported without; the rest of the packages is for opening a window.
_ESSENTIAL = (
    *("libEGL.so.1", "libGL.so.1", "libX11.so.6", "libxkbcommon.so.0", "libfontconfig.so.1", "libdbus-1.so.3"),
    *("libglib-2.0.so.0", "libgthread-2.0.so.0"),
)
# These come with torch and Qt: when one is gone, it is the environment that is broken.
_BUNDLED = ("libtorch", "libc10", "libgomp-", "libQt6", "libpyside6", "libshiboken6")
_TOP_FILE = re.compile(r"^([^/,\n]+(?:/__init__)?\.py),", re.MULTILINE)


def interpreter(folder: Path) -> Path:
    """Where the environment's Python is."""
    return folder / "Scripts" / "python.exe" if os.name == "nt" else folder / "bin" / "python"


def libraries(folder: Path) -> Path | None:
    """Where the environment's libraries are; None when they are gone."""
    if os.name == "nt":
        return folder / "Lib" / "site-packages"
    return next(iter(folder.glob("lib/python*/site-packages")), None)


def damaged(folder: Path) -> str:
    """The name of a library of which only a part is there; empty when there is none.

    Looks at the first file of every package only, which costs a start about a tenth of a second.
    """
    place = libraries(folder)
    if place is None or not place.is_dir():
        return ""
    for notes in sorted(place.glob("*.dist-info")):
        name = notes.name.split("-")[0]
        try:
            record = (notes / "RECORD").read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return name
        if not all((place / file).exists() for file in _TOP_FILE.findall(record)):
            return name
    return ""


def import_error(folder: Path) -> str:
    """Import what is most likely to lack something; the reason when that fails, empty when all is well.

    StartError when it is the system that lacks something, which no new environment would change.
    """
    code = "import torch, transformers, PySide6.QtGui, PySide6.QtWidgets"
    answer = subprocess.run([str(interpreter(folder)), "-c", code], capture_output=True, text=True, cwd=folder)
    if answer.returncode == 0:
        return ""
    last = (answer.stderr.strip().splitlines() or [f"it ended with {answer.returncode}"])[-1]
    if sys.platform.startswith("linux") and "cannot open shared object file" in last:
        library = last.split("Error: ", 1)[-1].split(":")[0]
        if not library.startswith(_BUNDLED):
            raise StartError(_lacks(library))
    return last


def require_system_libraries() -> None:
    """StartError when the system lacks what the window needs: better told before a long download than after it."""
    if not sys.platform.startswith("linux"):
        return
    for library in _ESSENTIAL:
        try:
            ctypes.CDLL(library)
        except OSError as error:
            if "cannot open shared object file" in str(error):
                raise StartError(_lacks(str(error).split(":")[0])) from error


def _lacks(library: str) -> str:
    return (
        f"the system lacks {library}, which the window needs. Install these, then start again.\n"
        f"  Debian, Ubuntu:  sudo apt install {_DEBIAN}\n  Fedora:          sudo dnf install {_FEDORA}"
    )
