"""Running pip quietly: everything into a log file, one moving line for the user, a sentence when it fails."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

_HEARTBEAT = 30.0  # seconds between lines where there is no terminal
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


def run_pip(python: Path, arguments: Sequence[str], log: Path, say: Callable[[str], None]) -> None:
    """Run ``pip install`` with these arguments; PipFailed when it fails."""
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *arguments]
    environ = {**os.environ, "PIP_USER": "0", "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
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
            _follow(pip, record, say)
        except BaseException:
            pip.terminate()
            pip.wait()
            raise
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


def _follow(pip: subprocess.Popen[str], record: TextIO, say: Callable[[str], None]) -> None:
    """Copy pip's lines to the log and keep the user posted until it ends."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert pip.stdout is not None
        for line in pip.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    moving = sys.stdout.isatty()
    begin = told = time.monotonic()
    doing = "starting"
    while True:
        try:
            line = lines.get(timeout=0.5)
        except queue.Empty:
            line = ""
        if line is None:
            break
        record.write(line)
        if line:
            record.flush()
        if _TOLD.match(line):
            doing = _short(line)
        passed = time.monotonic() - begin
        if moving:
            sys.stdout.write(f"\r  {doing}  {int(passed) // 60}:{int(passed) % 60:02d}\x1b[K")
            sys.stdout.flush()
        elif time.monotonic() - told > _HEARTBEAT:
            told = time.monotonic()
            say(f"  {doing} ({int(passed)} s so far)")
    if moving:
        sys.stdout.write("\r\x1b[K")
        sys.stdout.flush()
    pip.wait()


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
