"""Whose work is in a frozen folder, told by what was put into it: a list for the about sheet, and all licences in full.

Nothing here names a library. Each collected file is traced back to the Python distribution, the system package or the
resource it came from; licences are what those say themselves. A part that names no licence stops the build.
"""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from app.licences import LIST, TEXTS, licence_of

_LICENCE_FILE = re.compile(r"(LICEN[CS]E|COPYING|NOTICE|COPYRIGHT)", re.IGNORECASE)
_PROGRAM_FILE = (".py", ".pyc", ".pyi", ".so", ".pyd")
_HERE = Path(__file__).resolve().parent
_COMMON = _HERE / "licences"  # texts of licences, for those who only name theirs
_DEBIANS = re.compile(r"/usr/share/common-licenses/([\w.-]*\w)")
_RULE = "=" * 100
_SHORT = 90  # characters of a licence in the list; the whole is in the file of texts


class LicenceMissing(Exception):
    """Something would be shipped that names no licence."""


@dataclass(frozen=True)
class Part:
    """Somebody's work, and the licences it comes under."""

    name: str
    version: str
    licence: str  # in a few words
    home: str  # where it is from; "" when it does not say
    texts: tuple[str, ...]  # licences in full


def parts_of(collected: Iterable[str | Path], resources: Path, tools: Iterable[str] = ()) -> list[Part]:
    """Everybody whose files are in ``collected``, by name; ``tools`` are distributions that leave a part of themselves.

    collected: paths of the files as they are on this machine. resources: the program's own folder of fonts and models.
    Raises LicenceMissing.
    """
    # a library's metadata may be there for others to read, without the library
    files = sorted({Path(file).resolve() for file in collected if ".dist-info" not in str(file)})
    owners = _owners()
    strangers = [file for file in files if str(file) not in owners]
    names = {owners[str(file)] for file in files if str(file) in owners} | set(tools)
    libraries = [distribution_part(metadata.distribution(name)) for name in sorted(names - {"greenroom"})]
    parts = [*libraries, python_part(), *resource_parts(resources)]
    if sys.platform.startswith("linux"):
        parts += system_parts(file for file in strangers if ".so" in file.name)
    nameless = sorted(part.name for part in parts if not part.licence)
    if nameless:
        raise LicenceMissing(f"These parts name no licence; find out before shipping them: {', '.join(nameless)}.")
    return sorted(parts, key=lambda part: part.name.lower())


@cache
def _owners() -> dict[str, str]:
    """Which installed distribution brought each file."""
    owners = {}
    for distribution in metadata.distributions():
        base, name = str(Path(str(distribution.locate_file(""))).resolve()), distribution.name
        # not ``distribution.files``, which looks for each of tens of thousands of files on the disk
        for row in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
            owners[os.path.normpath(os.path.join(base, row[0]))] = name  # noqa: PTH118
    return owners


def distribution_part(distribution: metadata.Distribution) -> Part:
    """A library from a package index, by its own metadata."""
    about = distribution.metadata
    texts = []
    for file in distribution.files or ():
        vendored = sum(part.endswith(".dist-info") for part in file.parts) and not file.parts[0].endswith(".dist-info")
        if _LICENCE_FILE.match(file.name) and file.suffix not in _PROGRAM_FILE and not vendored:
            texts.append(_read(Path(str(distribution.locate_file(file)))))
    licence = licence_of(about)
    if not texts:
        texts = [*_head_notes(distribution), *_common_texts(licence)]
    return Part(distribution.name, distribution.version, licence, _home(about), tuple(dict.fromkeys(texts)))


def _home(about: metadata.PackageMetadata) -> str:
    addresses = [str(url).partition(", ") for url in about.get_all("Project-URL") or ()]
    named = [url for label, _, url in addresses if label.lower() in ("homepage", "repository", "source")]
    return str((about.get_all("Home-page") or named or [""])[0])


def _head_notes(distribution: metadata.Distribution) -> list[str]:
    """Copyright and licence in the first comment of a module, where that is the only place for them."""
    notes = []
    for file in distribution.files or ():
        if len(file.parts) != 1 or file.suffix != ".py":
            continue
        lines = []
        for line in _read(Path(str(distribution.locate_file(file)))).splitlines():
            if not line.startswith("#"):
                break
            lines.append(line.lstrip("# ").rstrip())
        note = "\n".join(lines).strip()
        if "copyright" in note.lower():
            notes.append(note)
    return notes


def _common_texts(licence: str) -> list[str]:
    """The texts of licences that are only named: those whose name is in ``licence``, and what these refer to."""
    names = {file.stem: file for file in sorted(_COMMON.glob("*.txt"))}
    wanted = [name for name in names if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.])", licence)]
    if any(name.startswith("LGPL-3.0") for name in wanted):
        wanted += [name for name in names if name.startswith("GPL-3.0") and name not in wanted]
    own = [_HERE.parent / "LICENSE"] if "apache" in licence.lower() else []
    return [_read(file) for file in (*own, *(names[name] for name in wanted))]


def python_part() -> Part:
    """The interpreter and its library."""
    places = [Path(sysconfig.get_path("stdlib")) / "LICENSE.txt", Path(sys.base_prefix) / "LICENSE.txt"]
    places.append(Path(f"/usr/share/doc/python{sys.version_info.major}.{sys.version_info.minor}/copyright"))
    texts = tuple(_read(place) for place in places if place.is_file())[:1]
    return Part("Python", sys.version.split()[0], "PSF-2.0" if texts else "", "https://www.python.org/", texts)


def resource_parts(resources: Path) -> list[Part]:
    """Fonts and models among the program's resources: whatever has a licence beside it."""
    parts = []
    for file in sorted(resources.rglob("*")):
        stem = file.stem
        if file.suffix == ".txt" and stem.startswith("OFL-"):
            parts.append(Part(f"{stem.removeprefix('OFL-')}, a typeface", "", "OFL-1.1", "", (_read(file),)))
        if file.name == "model-LICENSE":
            card = file.with_name("model-README.md").read_text("utf-8")
            licence = re.search(r"^license: *(\S+)", card, re.MULTILINE)
            base = re.search(r"^base_model: *(\S+)", card, re.MULTILINE)
            name = f"{base[1] if base else file.parent.name}, made into the demo model"
            parts.append(Part(name, "", licence[1] if licence else "", "", (_read(file), card)))
    return parts


def system_parts(libraries: Iterable[Path]) -> list[Part]:
    """Shared libraries of this Linux system, by the package each came from. Those of no package belong to Python."""
    found: dict[str, Part] = {}
    for library in libraries:
        package = debian_package(library)
        if package and package not in found:
            name = package.partition(":")[0]
            file = Path("/usr/share/doc") / name / "copyright"
            text = _read(file) if file.is_file() else ""
            referred = [Path(place) for place in dict.fromkeys(match[0] for match in _DEBIANS.finditer(text))]
            texts = (text, *(_read(other) for other in referred if other.is_file()))
            found[package] = Part(name, _dpkg_version(package), _licences_in(text) if text else "", "", texts)
    return list(found.values())


def debian_package(file: Path) -> str:
    """The installed Debian package that ``file`` belongs to, with its architecture; "" when none does."""
    for place in dict.fromkeys((str(file), str(file).removeprefix("/usr"), f"/usr{file}")):
        answer = subprocess.run(["dpkg-query", "-S", place], capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            return answer.stdout.splitlines()[0].rpartition(": ")[0].split(", ")[0]
    return ""


def _dpkg_version(package: str) -> str:
    command = ["dpkg-query", "-W", "-f", "${Version}", package]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _licences_in(copyright_file: str) -> str:
    """The licences of a Debian copyright file in a few words."""
    names = re.findall(r"^License: *(\S.*)$", copyright_file, re.MULTILINE)
    return " AND ".join(dict.fromkeys(names)) or "see its text"


def write(parts: Iterable[Part], folder: Path) -> tuple[Path, Path]:
    """The list for the about sheet and the licences in full, written into ``folder``; their paths."""
    parts = list(parts)
    listed = [
        {"name": part.name, "version": part.version, "licence": _in_short(part.licence)}
        for part in parts
        if part.version  # fonts and models have none; the about sheet knows them anyway
    ]
    short, full = folder / LIST, folder / TEXTS
    short.write_text(json.dumps(listed, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    chapters = [
        "Greenroom is under the Apache License 2.0. This build of it contains work of others, listed here with its\n"
        "licences. Libraries lie in the program's folder as files of their own and can be replaced there by others\n"
        "with the same interface, as the LGPL asks.\n\n"
        + "\n".join(f"{part.name} {part.version}".strip() + f": {part.licence}" for part in parts)
    ]
    told: dict[str, str] = {}  # a text that many share is printed once
    for part in parts:
        head = [f"{part.name} {part.version}".strip(), f"Licence: {part.licence}", *([part.home] if part.home else [])]
        body = []
        for text in part.texts:
            first = told.setdefault(text.strip(), part.name)
            known = f"{text.strip().splitlines()[0].strip()} ...: the text stands under {first}."
            body.append(text.strip() if first == part.name else known)
        if not body:
            body.append("It names its licence and ships no text of it.")
        chapters.append("\n".join(head) + "\n\n" + f"\n\n{'-' * 40}\n\n".join(body))
    full.write_text(f"\n\n{_RULE}\n\n".join(chapters) + "\n", encoding="utf-8")
    return short, full


def _in_short(licence: str) -> str:
    return textwrap.shorten(licence, _SHORT, placeholder=" …")


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n")
