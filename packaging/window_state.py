"""What the progress window shows, without a toolkit: ``window_tk.py`` and ``window_qt.py`` draw it.

The window is a process of its own. start.py writes one JSON object a line to its standard input:

    {"do": "step", "name": "torch", "text": "..."}    a step begins; those before it are done
    {"do": "say", "text": "..."}                      a line for the record
    {"do": "doing", "text": "...", "share": 0.4}      what goes on; share may be null
    {"do": "failed", "heading": "...", "text": "...", "log": "..."}   it cannot go on; log may be null
    {"do": "done", "heading": "...", "text": "..."}   it is done, and this is to be read
    {"do": "opening"}                                 all is ready

It prints ``shown`` once it is on the screen, and ends with AGAIN when the user wants to try again, with 0 when the
window was closed.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import queue
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from progress import STEPS

AGAIN = 3  # exit code
LINGER = 1500  # ms that the window stays after its last word was "opening", until the program's own window is there
WIDTH, HEIGHT = 540, 412  # px at 96 dpi
ICON = Path(__file__).resolve().parent.parent / "resources" / "icons"

# The program's own palettes (app/colors.py), which cannot be read before its libraries are there.
DARK = {
    "window": "#14181a",
    "surface": "#20272a",
    "border": "#2c3437",
    "text": "#e6eae9",
    "text_muted": "#a3acaa",
    "text_faint": "#8f9896",
    "accent": "#48c299",
    "accent_soft": "#20322d",
    "on_accent": "#0d1513",
    "danger": "#ff8071",
}
LIGHT = {
    "window": "#f6f8f7",
    "surface": "#ebf0ee",
    "border": "#d9e0dd",
    "text": "#161b1a",
    "text_muted": "#525d59",
    "text_faint": "#5f6a66",
    "accent": "#13714f",
    "accent_soft": "#dcece5",
    "on_accent": "#ffffff",
    "danger": "#b3261e",
}
FAMILIES = ("Inter", "Segoe UI", "SF Pro Text", "Cantarell", "Noto Sans", "Ubuntu", "DejaVu Sans", "Helvetica")


@dataclass
class Row:
    """One step of the list."""

    label: str
    status: str = "waiting"  # or "running", "done", "failed"
    begin: float = 0.0  # seconds on the clock that ``apply`` is given
    seconds: float = 0.0  # it took; only once it is done

    def passed(self, now: float) -> str:
        """How long it has been running or took, "1:23"; empty while that is nothing to speak of."""
        if self.status == "waiting":
            return ""
        seconds = int(now - self.begin if self.status == "running" else self.seconds)
        return f"{seconds // 60}:{seconds % 60:02d}" if seconds else ""


@dataclass
class State:
    """Everything that is to be seen, changed by messages only."""

    rows: dict[str, Row] = field(default_factory=lambda: {name: Row(label) for name, label in STEPS.items()})
    heading: str = "Setting up Greenroom"
    below: str = "This is done once. Later starts need no network."
    why: str = ""  # what the running step does and why so
    detail: str = ""  # what it is at right now
    share: float | None = None
    last_word: str = ""  # what is to be read at the end: why it failed, or what was done
    again: bool = False  # trying again may help
    log: str = ""
    opening: bool = False
    lines: list[str] = field(default_factory=list)

    def apply(self, message: dict[str, Any], now: float) -> None:
        """Take in one message at ``now``, seconds on a clock that only goes forwards."""
        kind, text = message.get("do"), str(message.get("text", ""))
        if kind in ("step", "say", "failed"):
            self.lines.append(text)
        if kind == "step":
            self._finish(now, "done", until=str(message["name"]))
            row = self.rows[str(message["name"])]
            row.status, row.begin = "running", now
            self.why, self.detail, self.share = text, "", None
        elif kind == "say":
            self.detail = text.strip()
        elif kind == "doing":
            self.detail, self.share = text, message.get("share")
        elif kind == "failed":
            self._finish(now, "failed")
            self.heading, self.below = str(message["heading"]), "Nothing of yours was changed."
            self.last_word, self.log = text[:1].upper() + text[1:], message.get("log") or ""
            self.again = True
        elif kind == "done":
            self._finish(now, "done", until=None)
            self.heading, self.below, self.last_word = str(message["heading"]), "", text
        elif kind == "opening":
            self._finish(now, "done", until=None)
            self.heading, self.below, self.detail, self.share = "Opening Greenroom", "All is ready.", "", 1.0
            self.why = ""
            self.opening = True

    def to_copy(self) -> str:
        """All that somebody who is to help would ask for."""
        system = f"Python {platform.python_version()} on {platform.platform()}"
        return "\n".join([self.heading, *self.lines, *([self.log] if self.log else []), system])

    def _finish(self, now: float, status: str, until: str | None = "") -> None:
        """End the running row with this status; with ``until`` all before that row are done (None: all)."""
        for name, row in self.rows.items():
            if name == until:
                break
            if row.status == "running":
                row.status, row.seconds = status, now - row.begin
            elif until != "" and row.status == "waiting":
                row.status = "done"


class Feed:
    """Reads messages on a thread, so that the window never waits for them."""

    def __init__(self) -> None:
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def take(self) -> tuple[list[dict[str, Any]], bool]:
        """What has come since the last call, and whether the sender is gone."""
        taken, ended = [], False
        while not self._messages.empty():
            message = self._messages.get()
            if message is None:
                ended = True
            else:
                taken.append(message)
        return taken, ended

    def _read(self) -> None:
        with open(sys.stdin.fileno(), encoding="utf-8", errors="replace", closefd=False) as stream:
            for line in stream:
                try:
                    message = json.loads(line)
                except ValueError:
                    continue
                if isinstance(message, dict):
                    self._messages.put(message)
        self._messages.put(None)


def shown() -> None:
    """Tell start.py that the window is there."""
    print("shown", flush=True)


def colors() -> dict[str, str]:
    """The palette that the system's own setting asks for."""
    return DARK if _dark() else LIGHT


def open_file(path: str) -> None:
    """Show a text file with whatever the system shows them with."""
    if sys.platform == "win32":
        os.startfile(path)
        return
    command = ["open", "-t", path] if sys.platform == "darwin" else ["xdg-open", path]
    with contextlib.suppress(OSError):  # without such a program its path can be copied
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _dark() -> bool:
    if sys.platform == "win32":
        import winreg

        key = r"Software\Microsoft\Windows\CurrentVersion\Themes\Personalize"
        try:
            with winreg.OpenKey(winreg.HKEY_CURRENT_USER, key) as opened:
                return winreg.QueryValueEx(opened, "AppsUseLightTheme")[0] == 0
        except OSError:
            return False
    if sys.platform == "darwin":
        return "Dark" in _output("defaults", "read", "-g", "AppleInterfaceStyle")
    return "dark" in _output("gsettings", "get", "org.gnome.desktop.interface", "color-scheme")


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
