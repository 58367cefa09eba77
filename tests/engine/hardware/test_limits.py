"""RAM and cores are what the process may use: control groups of both versions, as files below a folder, and ulimit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from engine import loading
from engine.cli import main
from engine.hardware import limits
from engine.hardware.limits import Ram, cores, ram
from engine.hardware.probes import computing_threads, memory_snapshot
from engine.inspection import OpenModel
from engine.messages import LoadModel, MemorySnapshot, ModelLoaded, PlanMemory
from engine.planning import Planner
from tests.engine.listening import Engine

GB, MB = 10**9, 10**6
UNLIMITED = "9223372036854771712"  # as version 1 says it
MACHINE = SimpleNamespace(total=64 * GB, available=48 * GB)

MOUNT_2 = "30 23 0:26 {shown} {at} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
MOUNT_1 = "{n} 23 0:3{n} {shown} {at}/{controller} rw,nosuid shared:{n} - cgroup cgroup rw,{controller}\n"

Place = Callable[[dict[str, str]], Path]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Puts the process into a machine of 64 GB and 16 cores whose files are those given."""
    root = tmp_path / "root"
    monkeypatch.setattr(psutil, "virtual_memory", lambda: MACHINE)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)
    monkeypatch.setattr(limits, "ROOT", root)

    def write(files: dict[str, str]) -> Path:
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, "utf-8")
        return root

    threads = torch.get_num_threads()
    yield write
    torch.set_num_threads(threads)


def version_2(path: str = "/", shown: str = "/", at: str = "/sys/fs/cgroup") -> dict[str, str]:
    """Where the process is, in a version 2 hierarchy. shown: the group at the mount's top."""
    return {"proc/self/cgroup": f"0::{path}\n", "proc/self/mountinfo": MOUNT_2.format(shown=shown, at=at)}


def version_1(path: str = "/", shown: str = "/", at: str = "/sys/fs/cgroup") -> dict[str, str]:
    """The same in version 1, with one hierarchy for memory and one for processor time."""
    groups = f"12:pids:{path}\n4:memory:{path}\n3:cpu,cpuacct:{path}\n1:name=systemd:{path}\n"
    mounts = [MOUNT_1.format(n=n, shown=shown, at=at, controller=name) for n, name in ((4, "memory"), (3, "cpu"))]
    return {"proc/self/cgroup": groups, "proc/self/mountinfo": "".join(mounts)}


def two_gb_and_half_a_core() -> dict[str, str]:
    """A container as Docker and Kubernetes make them today."""
    return version_2() | {
        "sys/fs/cgroup/memory.max": f"{2 * GB}\n",
        "sys/fs/cgroup/memory.high": "max\n",
        "sys/fs/cgroup/memory.current": f"{100 * MB}\n",
        "sys/fs/cgroup/memory.stat": "anon 90000000\ninactive_file 0\nactive_file 0\nfile_mapped 0\n",
        "sys/fs/cgroup/cpu.max": "50000 100000\n",
    }


def group_1(folder: str, limit: int | str, used: int, stat: str = "") -> dict[str, str]:
    return {
        f"{folder}/memory.limit_in_bytes": f"{limit}\n",
        f"{folder}/memory.usage_in_bytes": f"{used}\n",
        f"{folder}/memory.stat": stat,
    }


def group_2(folder: str, limit: int | str, used: int, stat: str = "", high: int | str = "max") -> dict[str, str]:
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.high": f"{high}\n",
        f"{folder}/memory.current": f"{used}\n",
        f"{folder}/memory.stat": stat,
    }


# --------------------------------------------------------------------------------------------- memory


def test_without_a_limit_it_is_the_machines(place: Place) -> None:
    for files in ({}, version_2() | group_2("sys/fs/cgroup", "max", GB), version_1(), {"proc/self/cgroup": "0::/\n"}):
        place(files)
        assert ram() == Ram(64 * GB, 48 * GB)
        assert (ram().name, ram().note) == ("RAM", "")
    place(version_1() | group_1("sys/fs/cgroup/memory", UNLIMITED, GB, f"hierarchical_memory_limit {UNLIMITED}\n"))
    assert ram() == Ram(64 * GB, 48 * GB)


def test_a_container_of_version_2_has_its_limit_and_what_is_left_of_it(place: Place) -> None:
    found = ram(place(version_2() | group_2("sys/fs/cgroup", 2 * GB, 500 * MB)))
    assert (found.total, found.available) == (2 * GB, 1500 * MB)
    assert found.name == "RAM (of this container)"
    assert found.note == "This container may use 2.0 GB of RAM (/sys/fs/cgroup/memory.max)."


def test_a_container_of_version_1_likewise(place: Place) -> None:
    place(version_1("/docker/abc", shown="/docker/abc") | group_1("sys/fs/cgroup/memory", 2 * GB, 500 * MB))
    assert (ram().total, ram().available) == (2 * GB, 1500 * MB)
    assert ram().note.endswith("(/sys/fs/cgroup/memory/memory.limit_in_bytes).")


@pytest.mark.parametrize(("version", "names"), [(1, "total_{}_file"), (2, "{}_file")])
def test_the_file_cache_gives_way_but_not_the_libraries_at_work(place: Place, version: int, names: str) -> None:
    mapped = {1: "total_mapped_file", 2: "file_mapped"}[version]
    cache = f"{names.format('inactive')} {700 * MB}\n{names.format('active')} {300 * MB}\n{mapped} {100 * MB}\n"
    if version == 1:
        files = version_1() | group_1("sys/fs/cgroup/memory", 2 * GB, 1900 * MB, f"inactive_file 5\n{cache}")
    else:
        files = version_2() | group_2("sys/fs/cgroup", 2 * GB, 1900 * MB, f"anon 1\n{cache}")
    place(files)
    assert ram().available == 2 * GB - (1900 - 700 - 200) * MB


def test_a_soft_limit_counts_since_a_group_past_it_hardly_runs(place: Place) -> None:
    place(version_2() | group_2("sys/fs/cgroup", 8 * GB, GB, high=4 * GB))
    assert (ram().total, ram().available) == (4 * GB, 3 * GB)
    assert "memory.high" in ram().note


@pytest.mark.parametrize("limited", ["user.slice/app", "user.slice", ""])
def test_the_limits_of_all_groups_above_count(place: Place, limited: str) -> None:
    top = "sys/fs/cgroup"
    files = version_2("/user.slice/app")
    for group in ("user.slice/app", "user.slice", ""):
        files |= group_2(f"{top}/{group}".rstrip("/"), 3 * GB if group == limited else "max", 2 * GB)
    place(files)
    assert (ram().total, ram().available) == (3 * GB, GB)
    assert ram().note.endswith(f"({'/'.join(filter(None, ('/sys/fs/cgroup', limited)))}/memory.max).")


def test_what_others_in_a_group_above_use_is_not_left(place: Place) -> None:
    files = version_2("/pod/one") | group_2("sys/fs/cgroup/pod", 6 * GB, 5500 * MB)
    place(files | group_2("sys/fs/cgroup/pod/one", 4 * GB, GB))
    assert (ram().total, ram().available) == (4 * GB, 500 * MB)
    assert ram().note == "This container may use 6.0 GB of RAM (/sys/fs/cgroup/pod/memory.max)."


def test_version_1_knows_of_groups_above_that_the_container_does_not_see(place: Place) -> None:
    stat = f"hierarchical_memory_limit {3 * GB}\n"
    place(version_1() | group_1("sys/fs/cgroup/memory", UNLIMITED, GB, stat))
    assert (ram().total, ram().available) == (3 * GB, 2 * GB)


def test_both_versions_side_by_side(place: Place) -> None:
    one, two = version_1("/service"), version_2("/service", at="/sys/fs/cgroup/unified")
    files = {name: one[name] + two[name] for name in one}
    place(files | group_1("sys/fs/cgroup/memory/service", 2 * GB, GB) | {"sys/fs/cgroup/cpu/cpu.shares": "1024"})
    assert (ram().total, ram().available, cores()) == (2 * GB, GB, 16)
    place(
        {"sys/fs/cgroup/cpu/service/cpu.cfs_quota_us": "300000", "sys/fs/cgroup/cpu/service/cpu.cfs_period_us": "1e5"}
    )
    assert cores() == 16  # a period that is no number
    place({"sys/fs/cgroup/cpu/service/cpu.cfs_period_us": "100000"})
    assert cores() == 3


def test_groups_are_found_where_they_are_mounted_and_under_odd_names(place: Place) -> None:
    place(version_2("/my group", at="/run/my\\040groups") | group_2("run/my groups/my group", 2 * GB, GB))
    assert ram().total == 2 * GB


@pytest.mark.parametrize(
    ("path", "shown", "limited"),
    [
        ("/", "/", True),  # a namespace of its own
        ("/docker/abc", "/docker/abc", True),  # none, and the container's own group mounted
        ("/docker/abc/sub", "/docker/abc", True),
        ("/", "/../..", True),  # mounted outside of the namespace
        ("/docker/abc", "/docker/xyz", False),  # another container's
        ("/../other", "/", False),  # moved out of the namespace
    ],
)
def test_whatever_a_namespace_shows_only_groups_above_the_process_count(
    place: Place, path: str, shown: str, limited: bool
) -> None:
    place(version_2(path, shown) | group_2("sys/fs/cgroup", 2 * GB, GB))
    assert ram().total == (2 if limited else 64) * GB


@pytest.mark.parametrize("damage", ["", "garbage", "\x00\x01", "-5", "1.5e9", "٣", "0", "12 34 56", "\n\n"])
def test_a_damaged_file_is_as_good_as_none(place: Place, damage: str) -> None:
    whole = two_gb_and_half_a_core()
    where = {"proc/self/cgroup", "proc/self/mountinfo"}

    def seen(broken: str) -> bool:
        total = 64 * GB if broken in where or broken.endswith("memory.max") else 2 * GB
        return (ram().total, cores()) == (total, 16 if broken in where or broken.endswith("cpu.max") else 1)

    for name in whole:
        file = place(whole | {name: damage}) / name
        assert seen(name), name
        file.write_bytes(b"\xff\xfe\xff")
        assert seen(name), name
        file.unlink()
        assert seen(name), name
        file.mkdir()  # is there and cannot be read, by root neither
        assert seen(name), name
        file.rmdir()


def test_a_group_that_uses_more_than_its_limit_has_nothing_left(place: Place) -> None:
    place(version_2() | group_2("sys/fs/cgroup", 2 * GB, 3 * GB))
    assert ram().available == 0


def test_a_limit_that_changes_is_seen_at_once(place: Place) -> None:
    for size in (2, 3, 1):
        place(version_2() | group_2("sys/fs/cgroup", size * GB, 0))
        assert ram().total == size * GB


def test_a_full_machine_is_full_in_a_container_too(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=64 * GB, available=GB))
    place(version_2() | group_2("sys/fs/cgroup", 8 * GB, 2 * GB))
    assert (ram().total, ram().available, ram().note) == (8 * GB, GB, "")


def test_ulimit_counts_what_is_mapped(place: Place) -> None:
    row = "Max address space         {}          unlimited            bytes     \n"
    place({"proc/self/limits": row.format(4 * GB), "proc/self/status": f"Name:\tx\nVmSize:\t {GB // 1024} kB\n"})
    assert ram().total == 4 * GB
    assert 3 * GB <= ram().available < 3 * GB + 1024
    assert (ram().name, ram().note) == (
        "RAM (of this process)",
        "This process may use 4.0 GB of address space (ulimit -v).",
    )
    place({"proc/self/limits": row.format("unlimited ")})
    assert ram() == Ram(64 * GB, 48 * GB)
    place({"proc/self/limits": row.format(70 * GB), "proc/self/status": f"VmSize:\t {60 * GB // 1024} kB\n"})
    assert ram().available <= 10 * GB + 1024  # wider than the machine, and nearly used up


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_real_ulimit_is_found() -> None:
    code = "import resource; resource.setrlimit(resource.RLIMIT_AS, (3_000_000_000,) * 2)\n"
    code += (
        "from engine.hardware.limits import ram; found = ram(); print(found.available < found.total <= 3_000_000_000)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "True\n"


# ---------------------------------------------------------------------------------------------- cores


@pytest.mark.parametrize(
    ("quota", "usable", "threads"),
    [("max 100000", 16, 15), ("50000 100000", 1, 1), ("150000 100000", 1, 1), ("400000 100000", 4, 3), ("25 10", 2, 1)],
)
def test_a_quota_in_whole_cores(place: Place, quota: str, usable: int, threads: int) -> None:
    root = place(version_2() | {"sys/fs/cgroup/cpu.max": quota})
    assert (cores(root), computing_threads()) == (usable, threads)
    mine, period = quota.replace("max", "-1").split()
    folder = "sys/fs/cgroup/cpu"
    place(version_1() | {f"{folder}/cpu.cfs_quota_us": mine, f"{folder}/cpu.cfs_period_us": period})
    assert (cores(), computing_threads()) == (usable, threads)


def test_the_smallest_quota_above_counts_and_the_affinity_mask(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place(version_2("/a/b") | {"sys/fs/cgroup/a/cpu.max": "300000 100000", "sys/fs/cgroup/a/b/cpu.max": "max 100000"})
    assert cores() == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5, 7}, raising=False)
    assert cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(psutil, "cpu_count", lambda: 8)
    assert cores() == 3


# ---------------------------------------------------------------------------------------- the program


def test_the_plan_fits_a_container_of_2_gb_and_half_a_core(
    place: Place, tiny_chat_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(tiny_chat_model)
    place(two_gb_and_half_a_core())
    assert main(["inspect", source, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert plan["free_bytes"] == 1900 * MB
    assert plan["needed_bytes"] <= plan["budget_bytes"] <= 2 * GB
    assert plan["notes"][0] == "This container may use 2.0 GB of RAM (/sys/fs/cgroup/memory.max)."
    assert main(["inspect", source]) == 0
    assert "This container may use 2.0 GB of RAM" in capsys.readouterr().out
    for coming_free in (0, GB):  # from the model that is unloaded first
        bar = Planner().answer(PlanMemory(source), {"RAM": coming_free}).bars[0]
        assert (bar.name, bar.total) == ("RAM (of this container)", 2 * GB)
        assert sum(part.bytes for part in bar.parts) <= 2 * GB
    facts = OpenModel(loading.inspect(source)).describe(LoadModel(source), {"RAM": GB})
    assert facts["free_bytes"] == 2 * GB
    with Engine() as engine:
        engine.send(LoadModel(source))
        loaded = engine.wait_for(ModelLoaded)
        assert torch.get_num_threads() == computing_threads() == 1
        shown = engine.wait_for(MemorySnapshot).bars[-1]
    assert loaded.notes[0] == plan["notes"][0]
    assert (shown.name, shown.total) == ("RAM (of this container)", 2 * GB)
    assert shown == memory_snapshot({"cpu": [part for part in shown.parts if part.kind != "other"]}).bars[-1]


def test_experts_get_what_the_container_leaves(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The machine's 64 GB would hold every expert; the container holds some."""
    from tests.families import make_tiny

    wide = {"hidden_size": 64, "moe_intermediate_size": 2048}
    source = str(make_tiny("qwen2_moe", tmp_path / "wide", changes=wide))
    place(version_2() | group_2("sys/fs/cgroup", 260 * MB, 0))
    assert main(["inspect", source, "--json", "--dtype", "float32"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert 0 < plan["slots"] < 24
    assert plan["needed_bytes"] <= 260 * MB
    place(version_2() | group_2("sys/fs/cgroup", 100 * MB, 0))
    assert main(["inspect", source, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["verdict"] == "too big"
    assert "This container may use 0.1 GB of RAM (/sys/fs/cgroup/memory.max)." in facts["reason"]
    assert facts["reason"].endswith("Raise that limit.")
