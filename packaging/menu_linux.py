"""The user's own folders of a Linux desktop (XDG base directories): desktop entry, icons, AppStream metainfo."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from menu_parts import draw, remove, remove_empty

_ID = "greenroom"  # the window's app id too: desktops find entry and icon by it


def install(root: Path, python: Path, environ: Mapping[str, str]) -> Path:
    """Write everything; the entry's path."""
    data, parts = data_home(environ), root / "packaging" / "linux"
    draw(python, root, "hicolor", data / "icons" / "hicolor")
    about = _metainfo(data)
    about.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(parts / about.name, about)
    entry = _entry(data)
    entry.parent.mkdir(parents=True, exist_ok=True)
    entry.write_text(entry_for(root, (parts / entry.name).read_text(encoding="utf-8")), encoding="utf-8")
    entry.chmod(0o755)  # KDE asks before it opens an entry that may not be executed
    return entry


def uninstall(environ: Mapping[str, str]) -> bool:
    """Remove what ``install`` wrote, and folders that are empty then; False when there was no entry."""
    data = data_home(environ)
    there = _entry(data).exists()
    icons = [path for ending in ("png", "svg") for path in data.glob(f"icons/hicolor/*/apps/{_ID}.{ending}")]
    for path in (_entry(data), _metainfo(data), *icons):
        remove(path)
        remove_empty(path.parent, data)
    return there


def data_home(environ: Mapping[str, str]) -> Path:
    """``$XDG_DATA_HOME``, or its default where it is not set to an absolute path."""
    given = environ.get("XDG_DATA_HOME", "")
    return Path(given) if given.startswith("/") else Path.home() / ".local" / "share"


def entry_for(root: Path, text: str) -> str:
    """The desktop entry ``text`` for the program in this folder."""
    program = str(root / "packaging" / "greenroom.sh")
    lines = []
    for line in text.splitlines():
        if line.startswith("Exec="):
            # desktops hide an entry whose TryExec is gone, so a deleted folder leaves no dead one
            lines += [f"TryExec={_text(program)}", f"Exec={_text(_argument(program))} --window"]
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def _argument(text: str) -> str:
    """One argument of Exec, quoted as the Desktop Entry Specification has it."""
    for character in ("\\", '"', "`", "$"):
        text = text.replace(character, "\\" + character)
    return '"' + text.replace("%", "%%") + '"'


def _text(text: str) -> str:
    """A value of type string."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def _entry(data: Path) -> Path:
    return data / "applications" / f"{_ID}.desktop"


def _metainfo(data: Path) -> Path:
    return data / "metainfo" / f"{_ID}.metainfo.xml"
