"""What a finished environment holds, and how that is remembered in it."""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

import torch_choice
from start_error import StartError

STEPS = 1  # raise it when an existing environment must be installed again though pyproject.toml is the same
_FILE = "greenroom.json"
_ASIDE = "greenroom.json.before"


@dataclass(frozen=True)
class Stamp:
    """What a finished environment holds."""

    requirements: str  # hash of what pyproject.toml asks for
    python: str  # "3.11" of the environment
    torch: str  # kind of build
    extras: tuple[str, ...] = ()
    checked: bool = False  # the libraries were imported once, the system's own among them
    demo: str = ""  # folder of the demo model, once it was built
    demo_for: str = ""  # GREENROOM_DATA and the recipe it was built with


def requirements(root: Path) -> str:
    """A hash of everything that decides what gets installed; wording and tool settings do not count."""
    try:
        with (root / "pyproject.toml").open("rb") as file:
            project = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise StartError(f"{root / 'pyproject.toml'} cannot be read ({error}); this copy is not complete.") from error
    decisive = [STEPS, torch_choice.VERSION, project.get("build-system"), project.get("project")]
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def read_stamp(folder: Path) -> Stamp | None:
    """The stamp of a finished environment, None when there is none that can be read."""
    try:
        values = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        values["extras"] = tuple(values["extras"])
        return Stamp(**values)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write_stamp(folder: Path, stamp: Stamp) -> None:
    """Replace the stamp in one go."""
    draft = folder / f"{_FILE}.part"
    draft.write_text(json.dumps(asdict(stamp)), encoding="utf-8")
    draft.replace(folder / _FILE)
    (folder / _ASIDE).unlink(missing_ok=True)


def set_aside(folder: Path) -> None:
    """From now on the environment is not known to be finished; ``put_back`` takes that back."""
    if (folder / _FILE).exists():
        (folder / _FILE).replace(folder / _ASIDE)


def put_back(folder: Path) -> None:
    """The environment is what its stamp says after all. Needs no room on the disk, which may be what was lacking."""
    if (folder / _ASIDE).exists():
        (folder / _ASIDE).replace(folder / _FILE)
