"""What was learnt about one model, kept between loads: past requests' matrices and the fitted predictors.

One file per model in ``profiles/`` of the data folder, ``<signature>.npz``: named arrays, and a line of JSON that says
whose they are. It is a convenience, never a need: a file that is damaged, foreign or from a newer program is put aside
in a sentence, and learning starts anew. Files are read without pickle, so an imported one cannot run code.
"""

from __future__ import annotations

import contextlib
import glob
import json
import logging
import os
import time
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import psutil

from engine.errors import OptionError
from engine.paths import data_dir
from engine.prediction.shape import PHASES, Shape, State

log = logging.getLogger("greenroom.experience")

VERSION = 1
KIND = "greenroom-profile"
MAX_BYTES = 512 << 20  # unpacked; a larger file is refused, larger tables are left out of one
_META = "about"
_MAX_TABLES = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """tables: ``Prompter.state()``, arrays by name. signature: of the model, ``ModelFolder.signature``."""

    signature: str
    shape: Shape
    tables: State = field(default_factory=dict)
    saved: str = ""  # UTC, ISO 8601
    accuracy: dict[str, list[float | None]] = field(default_factory=dict)  # predictor -> share of slots by distance

    @property
    def requests(self) -> dict[str, int]:
        """Past requests kept, by phase."""
        tables = {phase: self.tables.get(f"eam/{phase}") for phase in PHASES}
        return {phase: len(table) for phase, table in tables.items() if table is not None and table.ndim}

    @property
    def tokens_learnt(self) -> dict[str, int]:
        """Tokens behind each fitted predictor."""
        learnt = {}
        for predictor, name in (("gate-fitted", "gate-fitted/0/rows"), ("call-sheet", "call-sheet/rows")):
            table = self.tables.get(name)
            if table is not None and table.shape == () and table.dtype.kind in "iu":
                learnt[predictor] = int(table)
        return learnt

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in self.tables.values())


class ProfileError(OptionError):
    """A file is no profile of this model; the text says why."""


Mark: TypeAlias = tuple[int, int, int]
"""What tells a profile's file from any other in its place: its number, time of change in ns, and bytes."""


class Saved(NamedTuple):
    """notes: what had to be left out, in sentences."""

    mark: Mark
    notes: list[str]


def mark_of(signature: str) -> Mark | None:
    """Of the model's profile as it is now; None when there is none."""
    try:
        return _mark(profile_path(signature))
    except OSError:
        return None


def _mark(path: Path) -> Mark:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def profile_path(signature: str) -> Path:
    """Where this model's profile lives; the folder is made on first use."""
    folder = data_dir() / "profiles"
    folder.mkdir(exist_ok=True)
    return folder / f"{signature}.npz"


def save_profile(profile: Profile, path: Path | None = None) -> Saved:
    """Write it, whole or not at all. OSError when the disk takes nothing.

    path: somewhere else than the model's own place.
    """
    path = path or profile_path(profile.signature)
    tables, notes = _within_bounds(profile.tables)
    about = {
        "kind": KIND,
        "version": VERSION,
        "signature": profile.signature,
        "layers": profile.shape.layers,
        "experts": profile.shape.experts,
        "top_k": profile.shape.top_k,
        "hidden": profile.shape.hidden,
        "saved": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "accuracy": profile.accuracy,
    }
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    _clear_drafts(path)
    try:
        with draft.open("wb") as file:
            np.savez(file, **{_META: np.array(json.dumps(about))}, **tables)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        mark = _mark(draft)  # before it is in its place, where somebody else may replace it at once
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    for note in notes:
        log.info(note)
    return Saved(mark, notes)


def _clear_drafts(path: Path) -> None:
    """What programs that were killed while they saved left behind; others may be at it now."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        number = left.name.split(".")[-2]
        if number.isdecimal() and not psutil.pid_exists(int(number)):
            with contextlib.suppress(OSError):
                left.unlink(missing_ok=True)


def read_profile(path: Path) -> Profile:
    """Any model's profile. ProfileError in a sentence when the file is damaged, foreign, or a newer program's."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > MAX_BYTES or len(entries) > _MAX_TABLES:
                raise ProfileError(f"{path.name} is larger than any profile Greenroom writes, and is left alone.")
        with np.load(path, allow_pickle=False) as arrays:
            about = json.loads(str(arrays[_META]))
            profile = _described(path, about)
            profile.tables.update({name: arrays[name] for name in arrays.files if name != _META})
            return profile
    except FileNotFoundError:
        raise ProfileError(f"There is no file {path}. Name one that was exported.") from None
    except OSError as error:
        why = "it is a folder; name a file that was exported" if path.is_dir() else error.strerror or str(error)
        raise ProfileError(f"{path.name or path} cannot be read: {why}.") from error
    except (
        zipfile.BadZipFile,
        zlib.error,
        KeyError,
        ValueError,
        EOFError,
        NotImplementedError,
        RuntimeError,
        MemoryError,
    ) as error:
        raise ProfileError(f"{path.name} is damaged, or no profile at all.") from error


def _described(path: Path, about: Any) -> Profile:
    """The profile without its tables. ProfileError, KeyError or ValueError when the description is none of ours."""
    if not isinstance(about, dict) or about.get("kind") != KIND:
        raise ValueError("not a profile")
    if not isinstance(about["version"], int) or about["version"] < 1:
        raise ValueError("the version is none")
    if about["version"] > VERSION:
        raise ProfileError(f"{path.name} was written by a newer Greenroom, and this one does not know how to read it.")
    numbers = [about[key] for key in ("layers", "experts", "top_k", "hidden")]
    if not all(isinstance(number, int) and 0 <= number < 1 << 20 for number in numbers):
        raise ValueError("the shape is none")
    accuracy = about.get("accuracy")
    return Profile(
        str(about["signature"]),
        Shape(*numbers),
        saved=str(about.get("saved", "")),
        accuracy={name: shares for name, shares in accuracy.items() if _are_shares(shares)}
        if isinstance(accuracy, dict)
        else {},
    )


def _are_shares(shares: Any) -> bool:
    return isinstance(shares, list) and all(share is None or type(share) in (int, float) for share in shares)


def load_profile(signature: str, shape: Shape) -> tuple[Profile, str]:
    """What is known of the model, and a sentence for the user when something known had to be put aside.

    An empty profile when there is none or it is unusable. The unusable file stays until the next save replaces it.
    """
    empty = Profile(signature, shape)
    try:
        path = profile_path(signature)
        if not path.exists():
            return empty, ""
    except OSError as error:
        return empty, f"What is learnt about this model cannot be kept: {error.strerror or error}."
    try:
        profile = read_profile(path)
        if profile.signature != signature:
            raise ProfileError(f"{path.name} belongs to another model.")
        if (profile.shape.layers, profile.shape.experts) != (shape.layers, shape.experts):
            raise ProfileError(f"{path.name} is of another shape than the model.")
    except ProfileError as error:
        return empty, f"What was learnt about this model before is not used: {error} Learning starts anew."
    return profile, ""


def import_profile(source: Path, signature: str) -> Profile:
    """Put a profile exported elsewhere in the model's place. ProfileError when it is not this model's."""
    profile = read_profile(source)
    if profile.signature != signature:
        raise ProfileError(
            f"{source.name} was learnt on another model (signature {profile.signature[:16]}, not {signature}), "
            "whose experts have nothing in common with this one's."
        )
    _written(profile, None)
    return profile


def export_profile(signature: str, target: Path) -> Profile:
    """Copy the model's profile to a file. ProfileError when there is none, or it is unusable."""
    path = profile_path(signature)
    if not path.exists():
        raise ProfileError("Nothing was learnt about this model yet, so there is nothing to export.")
    profile = read_profile(path)
    _written(profile, target)
    return profile


def clear_profile(signature: str) -> bool:
    """Forget what was learnt; whether there was anything."""
    path = profile_path(signature)
    there = path.exists()
    path.unlink(missing_ok=True)
    return there


def _written(profile: Profile, path: Path | None) -> None:
    try:
        save_profile(profile, path)
    except OSError as error:
        where = (path or profile_path(profile.signature)).absolute()
        why = error.strerror or str(error)
        if not where.parent.is_dir():
            why = f"there is no folder {where.parent}; make it, or name another place"
        raise ProfileError(f"{where} cannot be written: {why}.") from error


def _within_bounds(tables: State) -> tuple[State, list[str]]:
    """The tables that fit together into ``MAX_BYTES``: history and small ones first, whole predictors at a time."""
    sizes: dict[str, int] = {}
    for name, table in tables.items():
        owner = name.split("/")[0]
        sizes[owner] = sizes.get(owner, 0) + table.nbytes
    kept: set[str] = set()
    left = MAX_BYTES - (1 << 20)  # headers
    notes = []
    for owner in sorted(sizes, key=lambda one: (one != "eam", sizes[one])):
        if sizes[owner] <= left:
            kept.add(owner)
            left -= sizes[owner]
        else:
            notes.append(f"What {owner} learnt takes {sizes[owner] / 1e6:.0f} MB, too much for the profile.")
    return {name: table for name, table in tables.items() if name.split("/")[0] in kept}, notes
