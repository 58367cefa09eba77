"""Running pip quietly: everything into a log file, one moving line for the user, a sentence when it fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from installed import libraries
from lines import lines_of
from progress import Progress

_COUNTED = re.compile(r"^Progress (\d+) of (\d+)")
_TOLD = re.compile(r"^\s*(Collecting|Downloading|Installing collected packages|Building|Preparing|Processing)\b.*")
_CAUSES: tuple[tuple[str, str], ...] = (
    (
        r"No space left on device|Errno 28|WinError 112|Disk quota exceeded",
        "The disk is full. Greenroom needs about 3 GB (about 9 GB with CUDA); free some space and start again.",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError",
        "The secure connection was refused, which proxies and wrong clocks cause; check both and start again.",
    ),
    (
        r"Temporary failure in name resolution|NewConnectionError|getaddrinfo failed|Network is unreachable|"
        r"Failed to establish|NameResolutionError|ProxyError|Read timed out|ConnectTimeout|Connection refused|"
        r"Connection reset|ConnectionError|Could not fetch URL|IncompleteRead|ProtocolError",
        "The network could not be reached. Greenroom downloads its libraries once; go online and start again.",
    ),
    (
        r"Permission denied|Errno 13|WinError 5\b|Read-only file system",
        "A folder may not be written to. Put Greenroom into a folder of your own and start again.",
    ),
    (
        r"No matching distribution found for (\S+)",
        "No build of {0} was found for this Python ({python}) and system; Python 3.11 to 3.13 are safe choices.",
    ),
)


class PipFailed(Exception):
    """pip did not do it; the text says why as far as that can be told, and names the log."""


def run_pip(python: Path, arguments: Sequence[str], log: Path, progress: Progress) -> None:
    """Run ``pip install`` with these arguments; PipFailed when it fails."""
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    command += ["--progress-bar", "raw" if _counts(python) else "off", *arguments]
    # What pip unpacks must not fill a small /tmp: it goes where the libraries go.
    drafts = log.parent / "pip-drafts"
    drafts.mkdir(exist_ok=True)
    environ = {**os.environ, "PIP_USER": "0", "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
    environ |= {name: str(drafts) for name in ("TMPDIR", "TEMP", "TMP")}
    environ.pop("PYTHONHOME", None)
    with log.open("a", encoding="utf-8", errors="replace") as record:
        record.write(f"\n$ pip install {' '.join(arguments)}\n")
        record.flush()
        begin = record.tell()
        pip = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=environ,
        )
        try:
            _follow(pip, record, progress)
        except BaseException:
            pip.terminate()
            pip.wait()
            raise
        finally:
            shutil.rmtree(drafts, ignore_errors=True)
    if pip.returncode != 0:
        with log.open(encoding="utf-8", errors="replace") as record:
            record.seek(begin)
            raise PipFailed(explain(record.read(), log))


def explain(output: str, log: Path) -> str:
    """Why pip failed, from what it printed."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for pattern, sentence in _CAUSES:
        found = re.search(pattern, output)
        if found:
            return f"{sentence.format(*found.groups(), python=version)}\nAll that pip said is in {log}."
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "it said nothing")
    return f"pip failed: {last.strip()}\nAll that it said is in {log}."


def _follow(pip: subprocess.Popen[str], record: TextIO, progress: Progress) -> None:
    """Copy pip's lines to the log and keep the user posted until it ends."""
    assert pip.stdout is not None
    doing, share = "Asking what there is", None
    for line in lines_of(pip.stdout):
        if counted := _COUNTED.match(line):
            share = int(counted[1]) / max(1, int(counted[2]))
        elif line:
            record.write(line)
            record.flush()
            if _TOLD.match(line):
                doing, share = _short(line), None
        progress.doing(doing, share)
    pip.wait()


def _counts(python: Path) -> bool:
    """Whether this pip can say in plain numbers how far a download is; those before 24.1 cannot."""
    place = libraries(python.parent.parent)
    for notes in place.glob("pip-*.dist-info") if place else ():
        numbers = re.findall(r"\d+", notes.name)
        return [int(number) for number in numbers[:2]] >= [24, 1]
    return False


def _short(line: str) -> str:
    words = line.split()
    if words[0] == "Installing":
        return "Installing"
    name = words[1] if len(words) > 1 else ""
    if words[0] in ("Downloading", "Processing"):
        name = name.rsplit("/", 1)[-1].split("-")[0]
        size = re.search(r"\(([\d.]+ [kMG]B)\)", line)
        return f"{words[0]} {name}" + (f" ({size[1]})" if size else "")
    return f"{words[0]} {name}"[:60]
