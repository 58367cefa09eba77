"""Where Greenroom keeps the user's files.

Everything the user owns (conversations, settings, models built here) is in one data folder, never in a cache folder
that the system may empty. ``GREENROOM_DATA`` moves it, for tests and for people who keep data on another disk.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from platformdirs import user_data_path


def data_dir() -> Path:
    """The user's data folder; created on first use."""
    override = os.environ.get("GREENROOM_DATA")
    folder = Path(override) if override else user_data_path("greenroom", appauthor=False)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def conversations_dir() -> Path:
    """One session log per conversation lives here."""
    folder = data_dir() / "conversations"
    folder.mkdir(exist_ok=True)
    return folder


def models_dir() -> Path:
    """Models that Greenroom itself builds, such as the demo."""
    folder = data_dir() / "models"
    folder.mkdir(exist_ok=True)
    return folder


def resources_dir() -> Path:
    """Icons, themes and the demo's recipe: beside the packages, or inside a frozen build."""
    bundled = getattr(sys, "_MEIPASS", None)
    root = Path(bundled) if bundled else Path(__file__).resolve().parent.parent
    return root / "resources"
