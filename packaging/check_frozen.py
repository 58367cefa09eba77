"""Does a frozen folder keep its promises here? Run with any Python 3.11, it needs nothing else:

    python packaging/check_frozen.py dist/greenroom REPORT [--largest 1.2e9]

The folder is put into one with spaces and accents and run with an empty environment: no PATH, no Python, no display, a
home that is new. Nothing in it may have changed at the end. REPORT gets the self-test's pictures and report and
``frozen.json`` with what was measured. The exit code is 1 when anything did not hold. With Xvfb and xwininfo at hand
the time to the first window is measured too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

AWKWARD = "Größe 你好 & co"
PICTURES = ("03-empty", "05-answered", "07-markdown", "08-picker", "14-what-if", "20-about")
ANSWER_LIMIT = 900  # seconds for any one program
STARTS = 3
_EXE = ".exe" if os.name == "nt" else ""


class Broken(Exception):
    """A promise that was not kept, and what was seen."""


class Check:
    """One folder under trial. Every ``check_`` method is a promise; it returns what it measured."""

    def __init__(self, folder: Path, report: Path, home: Path, largest: float) -> None:
        self.folder, self.report, self.home, self.largest = folder, report, home, largest
        inside = folder / "Contents" / "MacOS"  # of an app on macOS
        self.programs = inside if inside.is_dir() else folder
        self.environment = bare_environment(home)
        self.before = listing(folder)

    def run(self, program: str, *arguments: str) -> str:
        """Run one of the folder's programs to its end; what it printed. Raises Broken when it fails."""
        command = [str(self.programs / (program + _EXE)), *arguments]
        done = subprocess.run(
            command, env=self.environment, cwd=self.home, capture_output=True, timeout=ANSWER_LIMIT, check=False
        )
        told = done.stdout.decode("utf-8", "replace")
        if done.returncode:
            errors = done.stderr.decode("utf-8", "replace")
            raise Broken(f"{program} {' '.join(arguments)} ended with {done.returncode}: {(told + errors)[-2000:]}")
        return told

    def check_size(self) -> dict[str, float]:
        files = [path for path in self.folder.rglob("*") if path.is_file() and not path.is_symlink()]
        total = sum(path.stat().st_size for path in files)
        expect(total <= self.largest, f"the folder has {total / 1e6:.0f} MB, {self.largest / 1e6:.0f} are allowed")
        return {"bytes": total, "files": len(files)}

    def check_licences(self) -> dict[str, int]:
        listed = next(self.folder.rglob("third-party.json"))
        parts = json.loads(listed.read_text("utf-8"))
        texts = listed.with_name("THIRD-PARTY-LICENCES.txt").read_text("utf-8")
        names = {part["name"].lower() for part in parts}
        expect({"python", "torch", "transformers", "numpy"} <= names, f"the list of licences has only {sorted(names)}")
        untold = [part["name"] for part in parts if part["name"] not in texts or not part["licence"]]
        expect(not untold, f"no licence in full for {untold}")
        return {"parts": len(parts)}

    def check_version(self) -> dict[str, str]:
        window, terminal = self.run("greenroom", "--version"), self.run("greenroom-engine", "--version")
        expect(window == terminal or os.name == "nt", f"two versions: {window!r} and {terminal!r}")
        return {"version": terminal.strip()}

    def check_self_test(self) -> dict[str, object]:
        """The walk through the window; the hook's own counters say that no other code computed the experts."""
        self.run("greenroom", "--self-test", str(self.report))
        told = json.loads((self.report / "report.json").read_text("utf-8"))
        expect(told["ok"], "report.json says that it failed")
        expect(told["expert_hook_calls"] > 0, "the experts' hook never ran")
        expect(told["expert_hits"] + told["expert_misses"] > 0, "the hook counted no expert")
        for name in PICTURES:
            for mode in ("light", "dark"):
                check_picture(self.report / f"{name}-{mode}.png")
        counters = {key: told[key] for key in ("expert_hook_calls", "expert_hits", "expert_misses")}
        return {**counters, "steps": len(told["steps"])}

    def check_exactness(self) -> dict[str, object]:
        """Token for token what transformers' own experts say, with a quarter of them in memory."""
        told = self.run("greenroom-engine", "verify", "demo", "--experts", "25%", "--max-tokens", "8", "--json")
        return {"verify": json.loads(told)}

    def check_start(self) -> dict[str, object]:
        """Seconds from the command to a window that is mapped, after a first start that filled the file cache."""
        if not all(shutil.which(tool) for tool in ("Xvfb", "xwininfo")):
            return {"seconds": "not measured: Xvfb or xwininfo is missing"}
        with display() as number:
            times = [self._time_to_window(number) for _ in range(1 + STARTS)]
        later = sorted(times[1:])
        expect(later[len(later) // 2] <= 3.0, f"the window took {later} seconds")
        return {"seconds": [round(one, 2) for one in times]}

    def _time_to_window(self, number: str) -> float:
        environment = {**self.environment, "DISPLAY": number}
        del environment["QT_QPA_PLATFORM"]
        began = time.monotonic()
        program = subprocess.Popen([str(self.programs / "greenroom")], env=environment, cwd=self.home)
        try:
            while not window_shown(number):
                if program.poll() is not None or time.monotonic() - began > 60:
                    raise Broken("no window came")
                time.sleep(0.02)
            return time.monotonic() - began
        finally:
            program.terminate()
            program.wait(30)

    def check_untouched(self) -> dict[str, str]:
        """Nothing was written where the program lies."""
        now = listing(self.folder)
        expect(now == self.before, f"changed: {sorted(set(now.items()) ^ set(self.before.items()))[:5]}")
        return {}

    def all(self) -> bool:
        """Try every promise in turn; whether all held."""
        names = ("size", "licences", "version", "self_test", "exactness", "start", "untouched")
        results: dict[str, object] = {}
        for name in names:
            promise: Callable[[], dict[str, object]] = getattr(self, f"check_{name}")
            began = time.monotonic()
            try:
                results[name] = {"ok": True, **promise()}
            except (Broken, OSError, ValueError, LookupError, StopIteration, subprocess.TimeoutExpired) as error:
                results[name] = {"ok": False, "why": str(error)}
            print(f"{name} ({time.monotonic() - began:.1f} s): {json.dumps(results[name])[:600]}", flush=True)
        text = json.dumps(results, indent=2, ensure_ascii=False)
        (self.report / "frozen.json").write_text(text + "\n", encoding="utf-8")
        return all(isinstance(result, dict) and result["ok"] for result in results.values())


def expect(holds: bool, otherwise: str) -> None:
    """Raise Broken unless it holds."""
    if not holds:
        raise Broken(otherwise)


def bare_environment(home: Path) -> dict[str, str]:
    """What a program must do with: nothing, but a home and a place for temporary files."""
    if os.name == "nt":  # Windows itself does not work without these
        kept = {name: os.environ[name] for name in ("SYSTEMROOT", "WINDIR") if name in os.environ}
        return {**kept, "USERPROFILE": str(home), "LOCALAPPDATA": str(home), "TEMP": str(home), "TMP": str(home)}
    return {"PATH": "", "HOME": str(home), "TMPDIR": str(home), "QT_QPA_PLATFORM": "offscreen"}


def check_picture(file: Path) -> None:
    """Raise Broken unless it is a whole PNG that shows more than one colour, told by how little it compresses."""
    content = file.read_bytes()
    expect(content[:8] == b"\x89PNG\r\n\x1a\n" and content[-8:-4] == b"IEND", f"{file.name} is no whole PNG")
    expect(len(content) > 4000, f"{file.name} shows nothing")


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Every path below with its size and time of change."""
    found = {}
    for path in folder.rglob("*"):
        about = path.lstat()
        found[str(path.relative_to(folder))] = (about.st_size, about.st_mtime_ns)
    return found


@contextmanager
def display() -> Iterator[str]:
    """An X server of our own; its name."""
    reading, writing = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(writing), "-screen", "0", "1600x1000x24", "-nolisten", "tcp"],
        pass_fds=[writing],
        stderr=subprocess.DEVNULL,
    )
    os.close(writing)
    try:
        with os.fdopen(reading) as told:
            yield f":{told.readline().strip()}"
    finally:
        server.terminate()
        server.wait(30)


def window_shown(number: str) -> bool:
    """Whether a large window of Greenroom is on the display."""
    for line in window_facts(number, "-root", "-tree"):
        identity, _, rest = line.partition(" ")
        if not identity.startswith("0x") or "greenroom" not in rest.lower():
            continue
        facts = window_facts(number, "-id", identity)
        width = next((int(fact.split(":")[1]) for fact in facts if fact.startswith("Width:")), 0)
        if width > 400 and any("IsViewable" in fact for fact in facts):
            return True
    return False


def window_facts(number: str, *which: str) -> list[str]:
    """What xwininfo says, by lines."""
    command = ["xwininfo", "-display", number, *which]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except subprocess.TimeoutExpired:
        return []
    return [line.strip() for line in told.stdout.splitlines()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Check one folder; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="the frozen folder, or the app on macOS")
    parser.add_argument("report", type=Path, help="where pictures and figures go")
    parser.add_argument("--largest", type=float, default=1.2e9, metavar="BYTES", help="how big it may be (%(default)s)")
    options = parser.parse_args(arguments)
    report = options.report.resolve()
    report.mkdir(parents=True, exist_ok=True)
    source = options.folder.resolve()
    # beside the folder, so that the files need not be copied
    with tempfile.TemporaryDirectory(prefix="check-frozen-", dir=source.parent) as place:
        folder, home = Path(place) / AWKWARD / source.name, Path(place) / "home"
        home.mkdir()
        shutil.copytree(source, folder, symlinks=True, copy_function=os.link)
        return 0 if Check(folder, report, home, options.largest).all() else 1


if __name__ == "__main__":
    sys.exit(main())
