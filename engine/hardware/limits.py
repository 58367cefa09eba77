"""How much of the machine's RAM and how many of its cores this process may use.

Linux tells in files: control groups of version 1, version 2 or both (the kernel's admin guide, "Memory Resource
Controller" and "Control Group v2"), and the limits of the process (proc(5)). They are read at each call, because a
limit may change while the program runs; that takes less than a millisecond. Elsewhere, and where a file is missing or
makes no sense, what psutil finds counts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

import psutil

ROOT = Path("/")  # below which /proc and the groups' folders lie

_VERSIONS = {"cgroup": 1, "cgroup2": 2}  # by type of file system
_LIMITS = {1: ("memory.limit_in_bytes",), 2: ("memory.max", "memory.high")}  # past ``high`` a group is slowed to a halt
_USED = {1: "memory.usage_in_bytes", 2: "memory.current"}
_CACHE = {
    1: ("total_inactive_file", "total_active_file", "total_mapped_file"),
    2: ("inactive_file", "active_file", "file_mapped"),
}


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit on memory, and what is left of it. Bytes."""

    total: int
    available: int
    holder: Literal["container", "process"]
    source: str  # where the system says so

    @property
    def sentence(self) -> str:
        """For the user."""
        what = "RAM" if self.holder == "container" else "address space"
        return f"This {self.holder} may use {self.total / 1e9:.1f} GB of {what} ({self.source})."


@dataclass(frozen=True, slots=True)
class Ram:
    """What this process may use of the machine's RAM. Bytes.

    ``available`` counts the file cache as free, since it gives way. ``limits``: those that allow less than the machine
    has, the one with the least left first.
    """

    total: int
    available: int
    limits: tuple[Limit, ...] = ()

    @property
    def name(self) -> str:
        """For the user."""
        return f"RAM (of this {self.limits[0].holder})" if self.limits else "RAM"

    @property
    def note(self) -> str:
        """Which limit decides what is available, in a sentence; "" where the machine itself does."""
        return self.limits[0].sentence if self.limits and self.limits[0].available == self.available else ""


def ram(root: Path | None = None) -> Ram:
    """RAM that this process may use in total, and what of it is available now. root: stands for ROOT."""
    root, machine = root or ROOT, psutil.virtual_memory()
    found = [*_group_limits(root), *_process_limits(root)]
    narrow = [one for one in found if one.total < machine.total or one.available < machine.available]
    limits = sorted(narrow, key=lambda limit: limit.available)
    total = min([machine.total, *(limit.total for limit in limits)])
    return Ram(int(total), int(min([machine.available, *(limit.available for limit in limits)])), tuple(limits))


def cores(root: Path | None = None) -> int:
    """Whole cores that this process may use, at least 1: by the affinity mask, which knows of cpusets, and by the
    quotas of its groups. root: stands for ROOT."""
    try:
        usable = len(os.sched_getaffinity(0))
    except AttributeError:
        usable = psutil.cpu_count() or 1
    return max(1, min([usable, *map(int, _quotas(root or ROOT))]))


# ----------------------------------------------------------------------------------------- what limits say


def _group_limits(root: Path) -> Iterator[Limit]:
    for version, folder in _groups(root, "memory"):
        stat = _fields(folder / "memory.stat")
        said = [(_number(_read(folder / file)), folder / file) for file in _LIMITS[version]]
        if version == 1:  # this one knows of groups above those that can be seen
            said.append((stat.get("hierarchical_memory_limit"), folder / "memory.stat"))
        known = [(total, file) for total, file in said if total]
        if known:
            total, file = min(known)
            used = _number(_read(folder / _USED[version])) or 0
            available = max(0, total - max(0, used - _giving_way(stat, version)))
            yield Limit(total, min(total, available), "container", f"/{file.relative_to(root).as_posix()}")


def _giving_way(stat: Mapping[str, int], version: int) -> int:
    """Bytes of file cache that the kernel takes back before memory runs out: all but what is mapped, such as libraries
    at work."""
    inactive, active, mapped = (stat.get(name, 0) for name in _CACHE[version])
    return inactive + max(0, active - mapped)


def _process_limits(root: Path) -> Iterator[Limit]:
    """RLIMIT_AS, which counts every mapping, touched or not."""
    said = re.search(r"^Max address space +(\d+) ", _read(root / "proc/self/limits"), re.MULTILINE)
    mapped = re.search(r"^VmSize:\s+(\d+) kB$", _read(root / "proc/self/status"), re.MULTILINE)
    if said and mapped:
        total = int(said[1])
        yield Limit(total, max(0, total - int(mapped[1]) * 1024), "process", "ulimit -v")


def _quotas(root: Path) -> Iterator[float]:
    """Cores that the groups' shares of processor time come to."""
    for version, folder in _groups(root, "cpu"):
        if version == 2:
            said = _read(folder / "cpu.max").split()
        else:
            said = [_read(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
        quota, period = map(_number, said) if len(said) == 2 else (None, None)
        if quota and period:
            yield quota / period


# ----------------------------------------------------------------------------------------- where they are


def _groups(root: Path, controller: str) -> Iterator[tuple[int, Path]]:
    """(version, folder) of this process's groups, and of all groups above them that can be seen."""
    own: dict[int, str] = {}
    for line in _read(root / "proc/self/cgroup").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if not controllers:
            own[2] = path
        elif controller in controllers.split(","):
            own[1] = path
    for line in _read(root / "proc/self/mountinfo").splitlines():
        mount, _, kind = (part.split() for part in line.partition(" - "))
        version = _VERSIONS.get(kind[0], 0) if len(mount) > 4 and len(kind) > 2 else 0
        if version not in own or (version == 1 and controller not in kind[2].split(",")):
            continue
        inside = _inside(own[version], _unescaped(mount[3]))
        if inside is not None:
            for group in (inside, *inside.parents):
                yield version, root / _unescaped(mount[4]).lstrip("/") / group


def _inside(path: str, shown: str) -> PurePosixPath | None:
    """Where the group ``path`` is below a mount that shows the group ``shown``; None where it is not.

    Both are seen from a namespace, of whose own groups the ones above begin with "..".
    """
    group, top = PurePosixPath(path), PurePosixPath(shown)
    if ".." in group.parts:
        return None
    if ".." in top.parts:  # the mount begins above: the way down from there has no names
        return PurePosixPath()
    return group.relative_to(top) if group.is_relative_to(top) else None


# ----------------------------------------------------------------------------------------- reading


def _read(file: Path) -> str:
    """What is in it; nothing where it cannot be read."""
    try:
        return file.read_text("utf-8")
    except (OSError, ValueError):
        return ""


def _number(text: str | None) -> int | None:
    """None for "max", for -1 and for whatever is no number."""
    clean = (text or "").strip()
    return int(clean) if clean.isascii() and clean.isdecimal() else None


def _fields(file: Path) -> dict[str, int]:
    """Of lines "name number"."""
    lines = (line.split() for line in _read(file).splitlines())
    return {line[0]: int(line[1]) for line in lines if len(line) == 2 and _number(line[1]) is not None}


def _unescaped(path: str) -> str:
    """Spaces and the like stand as octal numbers in mountinfo."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)
