"""llama.cpp as a peer, in a process of its own: so that a cap on its memory is a cap on nothing else.

llama.cpp maps the GGUF file, and what it keeps of it is the file cache's business. The same budget then means a cgroup
(version 2, with the memory controller given to this user) whose limit counts those pages as well. Where there is none
to be had, the process gets a limit on its own allocations, and the report says that the file's pages are not counted.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engine.bench.contender import PathInfo, Peer, Sample, Unavailable
from engine.bench.disk import drop_pages
from engine.errors import ModelError, OptionError

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


def check_llama(gguf: Path | None) -> Path:
    """The GGUF file, when llama.cpp can take part. Raises OptionError saying what is missing."""
    if importlib.util.find_spec("llama_cpp") is None:
        raise OptionError(
            "llama.cpp cannot take part: llama-cpp-python is not installed (pip install llama-cpp-python)."
        )
    if gguf is None:
        raise OptionError("llama.cpp reads its own format: name a GGUF file of the same weights with --gguf FILE.")
    try:
        with gguf.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ModelError(f"{gguf} cannot be read: {error.strerror or error}.") from error
    if magic != b"GGUF":
        raise ModelError(f"{gguf} is no GGUF file; make one of the same weights with llama.cpp's converter.")
    return gguf


class Llama(Peer):
    """llama.cpp on ``gguf``, mapped, holding ``cap`` bytes at most."""

    def __init__(
        self, gguf: Path, cap: int, context: int, threads: int, path: PathInfo, report: Callable[[str], None]
    ) -> None:
        self.name = path.key
        self.need = cap
        self.paths: Sequence[PathInfo] = [path]
        self.note = ""  # how far the cap reaches, a sentence; known once open
        self._gguf, self._context, self._threads = gguf, context, threads
        self._report = report
        self._process: subprocess.Popen[str] | None = None
        self._cap: MemoryCap | None = None

    def open(self) -> None:
        self._report(f"{self.name}: loading")
        drop_pages([self._gguf])  # pages that are cached already would count against nobody
        self._cap = MemoryCap(self.need)
        self.note = self._cap.note
        self._process = subprocess.Popen(
            [sys.executable, "-m", "engine.bench.llama_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            cwd=Path(__file__).parents[2],
        )
        self._cap.hold(self._process.pid)
        limit = 0 if self._cap.counts_pages else self.need
        said = self._ask(model=str(self._gguf), context=self._context, threads=self._threads, limit=limit)
        if limit and not said["limited"]:
            self.note = "llama.cpp ran without a memory cap: this system has neither cgroups for us nor such limits."

    def run(self, path: PathInfo, prompt: list[int], steps: int) -> Sample:
        said = self._ask(prompt=prompt, steps=steps)
        return Sample(len(prompt), said["prefill_seconds"], tuple(said["tokens"]), said["seconds"])

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None and process.stdout is not None
            with contextlib.suppress(OSError):
                process.stdin.close()  # its cue to end
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
        if self._cap is not None:
            self._cap.lift()
        self._cap = None

    def _ask(self, **request: Any) -> dict[str, Any]:
        """One line there, one line back. Raises Unavailable when the process says no, or ends."""
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            code = self._process.wait()
            why = "its memory cap was too small for it" if code == -9 else f"its process ended with {code}"
            raise Unavailable(f"llama.cpp gave up: {why}")
        said: dict[str, Any] = json.loads(line)
        if "error" in said:
            raise Unavailable(f"llama.cpp refused: {said['error']}")
        return said


class MemoryCap:
    """A cgroup with a limit, for one process; or, where that cannot be had, nothing but the sentence in ``note``."""

    def __init__(self, limit: int, root: Path = CGROUPS, own: Path = OWN_CGROUP) -> None:
        self.counts_pages = False
        self.note = (
            f"llama.cpp's own allocations were capped at {limit / 1e9:.1f} GB, and the pages of its file that the "
            "system kept were not: this system gives us no cgroup to count them in."
        )
        self._folder: Path | None = None
        parent = _parent_cgroup(root, own)
        if parent is None:
            return
        folder = parent / f"greenroom-bench-{os.getpid()}-{time.monotonic_ns()}"
        try:
            folder.mkdir()
            self._folder = folder
            (folder / "memory.max").write_text(str(limit))
            if (folder / "memory.swap.max").exists():
                (folder / "memory.swap.max").write_text("0")
        except OSError:
            self.lift()
            return
        self.counts_pages = True
        self.note = f"llama.cpp ran in a cgroup of {limit / 1e9:.1f} GB, which counts the pages of its file."

    def hold(self, process: int) -> None:
        """From now on the limit is the process's."""
        if self._folder is None:
            return
        try:
            (self._folder / "cgroup.procs").write_text(str(process))
        except OSError:
            self.counts_pages = False
            self.note = "llama.cpp could not be moved into its cgroup, so the pages of its file were not counted."

    def lift(self) -> None:
        """To be called when the process has ended."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.rmdir()
        self._folder = None


def _parent_cgroup(root: Path, own: Path) -> Path | None:
    """The nearest cgroup above ours that hands the memory controller on and lets us make groups. One that holds
    processes itself may not (the rule of version 2), so ours is not a candidate."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    path = next((line.removeprefix("0::") for line in lines if line.startswith("0::/")), None)
    if path is None:
        return None
    here = root / path.strip("/")
    while here != root and root in here.parents:
        here = here.parent
        try:
            hands_on = "memory" in (here / "cgroup.subtree_control").read_text().split()
        except OSError:
            return None
        if hands_on and os.access(here, os.W_OK):
            return here
    return None
