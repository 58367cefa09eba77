"""Whose work is in the program, under which licence, as the installed libraries say themselves. No Qt.

A frozen build carries two files that its making left (``packaging/third_party.py``): the list of everything in it, and
all licences in full. Run from a folder, the libraries that Greenroom asks for are looked up where they are installed.
"""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

from engine.paths import resources_dir

LIST = "third-party.json"
TEXTS = "THIRD-PARTY-LICENCES.txt"
_LONGEST = 160  # characters; whoever puts more into the field "License" has put the whole text there

Part = tuple[str, str, str]  # name, version, licence


def libraries() -> list[Part]:
    """What Greenroom stands on, by name: all that a frozen build holds, else the libraries it asks for."""
    shipped = resources_dir() / LIST
    if shipped.is_file():
        return [(part["name"], part["version"], part["licence"]) for part in json.loads(shipped.read_text("utf-8"))]
    return _required()


def texts() -> Path | None:
    """The file with all licences in full; only a frozen build has one."""
    file = resources_dir() / TEXTS
    return file if file.is_file() else None


def licence_of(about: metadata.PackageMetadata) -> str:
    """A library's licence in a few words, out of any of the places where it may say so; "" when it does not."""
    short = str((about.get_all("License-Expression") or [""])[0])
    if not short:
        said = str((about.get_all("License") or [""])[0]).strip()
        short = said if said.count("\n") == 0 and len(said) <= _LONGEST else ""
    if not short:
        classes = [
            line.split(" :: ")[-1] for line in about.get_all("Classifier") or () if line.startswith("License ::")
        ]
        short = ", ".join(name for name in classes if name != "OSI Approved")
    return short


def _required() -> list[Part]:
    try:
        wanted = metadata.requires("greenroom") or []
    except metadata.PackageNotFoundError:
        return []
    found: dict[str, Part] = {}
    for requirement in wanted:
        if "extra ==" in requirement.replace('"', "").replace("'", ""):
            continue
        name = _name(requirement)
        try:
            about = metadata.metadata(name)
        except metadata.PackageNotFoundError:
            continue
        found[name.lower()] = (about["Name"], about["Version"], licence_of(about))
    return [found[name] for name in sorted(found)]


def _name(requirement: str) -> str:
    end = next((at for at, sign in enumerate(requirement) if not (sign.isalnum() or sign in "-_.")), len(requirement))
    return requirement[:end]
