"""A .deb made from the frozen folder with dpkg-deb; needs no root. What it depends on is read from the libraries."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from pathlib import Path

import icons
from third_party import debian_package

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = Path("usr/lib/greenroom")  # where the folder goes
PROGRAMS = ("greenroom", "greenroom-engine")
_NEEDED = re.compile(r"^\s+NEEDED\s+(\S+)$", re.MULTILINE)
_GLIBC = re.compile(r"\bGLIBC_(\d+)\.(\d+)\b")
_DESCRIPTION = """chat with models that are bigger than your graphics card
 Greenroom is a desktop program for chatting with Mixture-of-Experts language
 models that are bigger than the graphics card, or than the memory they are
 given. Experts wait on disk and step into memory when they are called.
 .
 It brings a small demo model and uses no network by itself."""


def make_deb(frozen: Path, out: Path, version: str, work: Path) -> Path:
    """Write ``out/greenroom_VERSION_ARCH.deb``; ``work`` is for the tree it is made from. The file's path.

    Raises subprocess.CalledProcessError when dpkg-deb does not like what it gets.
    """
    architecture = _said("dpkg", "--print-architecture").strip()
    tree = work / "deb"
    shutil.rmtree(tree, ignore_errors=True)
    lay_out(frozen, tree, version)
    control = control_file(version, architecture, tree, dependencies(frozen))
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN" / "control").write_text(control, encoding="utf-8")
    (tree / "DEBIAN" / "md5sums").write_text(checksums(tree), encoding="utf-8")
    for path in (tree, *tree.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
    deb = out / f"greenroom_{version}_{architecture}.deb"
    # zstd: Debian 12 and Ubuntu 22.04 read it, older ones could not run what is inside
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zzstd", "-z9", "--build", str(tree), str(deb)], check=True)
    shutil.rmtree(tree)
    return deb


def lay_out(frozen: Path, tree: Path, version: str) -> None:
    """The package's files as they will lie on the system, below ``tree``."""
    # hard links, which copy nothing; the folder must not change before the package is built
    copy = os.link if frozen.stat().st_dev == _device(tree.parent) else shutil.copy2
    shutil.copytree(frozen, tree / LIBRARY, symlinks=True, copy_function=copy)
    binaries = tree / "usr/bin"
    binaries.mkdir(parents=True)
    for program in PROGRAMS:
        (binaries / program).symlink_to(Path("../lib/greenroom") / program)
    share = tree / "usr/share"
    linux = ROOT / "packaging" / "linux"
    _put(linux / "greenroom.desktop", share / "applications" / "greenroom.desktop")
    metainfo = linux / "greenroom.metainfo.xml"
    identity = ElementTree.parse(metainfo).getroot().findtext("id")
    _put(metainfo, share / "metainfo" / f"{identity}.metainfo.xml")
    icons.write_hicolor(share / "icons" / "hicolor")
    documents = share / "doc" / "greenroom"
    documents.mkdir(parents=True)
    (documents / "copyright").write_text(copyright_file(), encoding="utf-8")
    with gzip.GzipFile(documents / "changelog.gz", "wb", mtime=0) as packed:
        packed.write((ROOT / "CHANGELOG.md").read_bytes())
    for file in share.rglob("*"):
        if file.is_file():
            file.chmod(0o644)


def control_file(version: str, architecture: str, tree: Path, depends: Iterable[str]) -> str:
    """DEBIAN/control."""
    kilobytes = sum(-(-path.lstat().st_size // 1024) for path in tree.rglob("*"))
    fields = {
        "Package": "greenroom",
        "Version": version,
        "Architecture": architecture,
        "Maintainer": "The Greenroom developers <greenroom@localhost>",  # the project has no public address yet
        "Installed-Size": str(kilobytes),
        "Depends": ", ".join(depends),
        "Section": "science",
        "Priority": "optional",
        "Description": _DESCRIPTION,
    }
    return "".join(f"{name}: {value}\n" for name, value in fields.items())


def copyright_file() -> str:
    """usr/share/doc/greenroom/copyright: in short here, in full in the folder."""
    texts = f"/{LIBRARY}/_internal/resources/THIRD-PARTY-LICENCES.txt"
    return (
        "Greenroom is under the Apache License 2.0: /usr/share/common-licenses/Apache-2.0\n\n"
        f"The work of others that it brings, each with its licence in full:\n{texts}\n"
    )


def checksums(tree: Path) -> str:
    """DEBIAN/md5sums, with which dpkg --verify finds damaged files."""
    lines = []
    for file in sorted(tree.rglob("*")):
        if file.is_file() and not file.is_symlink() and "DEBIAN" not in file.relative_to(tree).parts[:1]:
            with file.open("rb") as content:
                digest = hashlib.file_digest(content, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
            lines.append(f"{digest}  {file.relative_to(tree).as_posix()}\n")
    return "".join(lines)


def dependencies(frozen: Path) -> list[str]:
    """The packages that hold what the folder's libraries need and do not bring, libc6 with the version it must have."""
    brought = {file.name for file in frozen.rglob("*") if ".so" in file.name}
    needed: set[str] = set()
    glibc = (0, 0)
    for file in sorted(frozen.rglob("*")):
        if file.is_symlink() or not file.is_file() or not is_elf(file):
            continue
        told = _said("objdump", "-p", str(file))
        needed |= set(_NEEDED.findall(told))
        glibc = max([glibc, *((int(major), int(minor)) for major, minor in _GLIBC.findall(told))])
    places = system_libraries()
    packages = {package_of(name, places) for name in needed - brought}
    packages.discard("libc6")
    return [f"libc6 (>= {glibc[0]}.{glibc[1]})", *sorted(packages)]


def is_elf(file: Path) -> bool:
    """Whether it is a program or library of Linux."""
    with file.open("rb") as content:
        return content.read(4) == b"\x7fELF"


def package_of(library: str, places: Mapping[str, Path]) -> str:
    """The Debian package that brings this library. Raises LookupError when this system has none."""
    place = places.get(library)
    package = debian_package(place) if place else ""
    if not package:
        raise LookupError(f"No package of this system brings {library}; install what has it, and build again.")
    return package.partition(":")[0]


def system_libraries() -> dict[str, Path]:
    """Where the system's loader finds each library."""
    found: dict[str, Path] = {}
    for line in _said("/sbin/ldconfig", "-p").splitlines():
        name, arrow, place = line.strip().partition(" => ")
        if arrow:
            found.setdefault(name.partition(" ")[0], Path(place))
    return found


def _put(file: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, place)


def _device(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    return folder.stat().st_dev


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
