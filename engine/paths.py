"""Where Greenroom keeps the user's files.

Everything the user owns (conversations, settings, models built here) is in one data folder, never in a cache folder
that the system may empty. A small file in the usual place, ``moved.json``, says where the user moved it;
``GREENROOM_DATA`` says so from outside, and wins. ``GREENROOM_MODELS`` keeps the models built here apart from the rest.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from platformdirs import user_data_path

from engine.durable import write_whole
from engine.errors import DataFolderError

POINTER = "moved.json"


@dataclass(frozen=True, slots=True)
class Moved:
    """Where the data folder is now, and the folder it was copied from, kept until the user lets it go ("": gone)."""

    folder: str
    old: str = ""


def default_dir() -> Path:
    """Where data are unless they were moved."""
    return user_data_path("greenroom", appauthor=False)


def set_from_outside() -> bool:
    """Whether ``GREENROOM_DATA`` says where the data are."""
    return bool(os.environ.get("GREENROOM_DATA"))


def moved() -> Moved | None:
    """Where the user moved the data folder; None when it is where it always is. A damaged note is as good as none."""
    try:
        stored = json.loads((default_dir() / POINTER).read_text(encoding="utf-8"))
        if not isinstance(stored["folder"], str) or not Path(stored["folder"]).is_absolute():
            return None
        return Moved(stored["folder"], str(stored.get("old", "")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def note_move(note: Moved) -> None:
    """From the next start on the data are there. Whole or not at all; OSError when the disk takes nothing."""
    folder = default_dir()
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / POINTER, json.dumps(asdict(note), ensure_ascii=False))


def data_dir() -> Path:
    """The user's data folder; created on first use. DataFolderError when it cannot be, or was moved to a place that is
    not there now."""
    return _made(_data_folder())


def _data_folder() -> Path:
    override = os.environ.get("GREENROOM_DATA")
    note = moved() if not override else None
    folder = Path(override) if override else Path(note.folder) if note else default_dir()
    if note and not folder.is_dir():
        raise DataFolderError(errno.ENOENT, "the disk it was moved to is not there", str(folder))
    return folder


def keep_apart(folder: Path) -> None:
    """From now on this program, and whatever it starts, keeps everything in ``folder`` and leaves the user's data
    alone. Only the models built here stay where they are, so that none is built twice. Raises like ``data_dir``."""
    os.environ["GREENROOM_MODELS"] = str(_models_folder().absolute())
    os.environ["GREENROOM_DATA"] = str(folder.absolute())


def conversations_dir() -> Path:
    """One session log per conversation lives here."""
    return _made(data_dir() / "conversations")


def pasts_dir() -> Path:
    """What models have read of the last chats, to go on with them at once. Its first writer makes it."""
    return _data_folder() / "pasts"


def models_dir() -> Path:
    """Models that Greenroom itself builds, such as the demo."""
    return _made(_models_folder())


def _models_folder() -> Path:
    elsewhere = os.environ.get("GREENROOM_MODELS")
    return Path(elsewhere) if elsewhere else _data_folder() / "models"


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "a file has its name" if isinstance(error, FileExistsError) else error.strerror
        raise DataFolderError(error.errno or 0, why, str(folder)) from error
    return folder


def resources_dir() -> Path:
    """Icons, themes and the demo's recipe: beside the packages, or inside a frozen build."""
    bundled = getattr(sys, "_MEIPASS", None)
    root = Path(bundled) if bundled else Path(__file__).resolve().parent.parent
    return root / "resources"
