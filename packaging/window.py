"""start.py's progress in a window, for those who began with a double click."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import message_box
from progress import Progress, Stopped
from window_state import AGAIN

HERE = Path(__file__).resolve().parent
# How each terminal is told what to run, the desktop's own choice first.
_TERMINALS = (
    ("x-terminal-emulator", "-e"),
    ("kgx", "--"),
    ("ptyxis", "--"),
    ("gnome-terminal", "--"),
    ("konsole", "-e"),
    ("xfce4-terminal", "-x"),
    ("mate-terminal", "-x"),
    ("kitty",),
    ("foot",),
    ("alacritty", "-e"),
    ("xterm", "-e"),
)


class Window(Progress):
    """Opens with the first thing that there is to tell, so that a start with nothing to do shows none.

    Where no window can be drawn yet, a terminal is opened that starts anew; where there is none of those either, only a
    failure is shown, by whatever the desktop has for it.
    """

    def __init__(self, environment: Path, again: Sequence[str]) -> None:
        """``environment`` may hold Qt; ``again`` is the command that starts anew, for a terminal."""
        super().__init__()
        self._environment, self._again = environment, again
        self._process: subprocess.Popen[str] | None = None
        self._hopeless = False

    def step(self, name: str, text: str) -> None:
        super().step(name, text)
        self._tell(do="step", name=name, text=text)

    def say(self, text: str) -> None:
        super().say(text)
        self._tell(do="say", text=text)

    def doing(self, text: str, share: float | None = None) -> None:
        super().doing(text, share)
        self._tell(do="doing", text=text, share=share)

    def failed(self, heading: str, text: str, log: Path | None = None) -> bool:
        super().failed(heading, text, log)
        try:
            self._tell(do="failed", heading=heading, text=text, log=str(log) if log and log.exists() else None)
        except Stopped:
            return False
        if self._process is None:
            message_box.show(heading, text)
            return False
        assert self._process.stdin is not None
        self._process.stdin.close()  # it stays until the user has read
        again = self._process.wait() == AGAIN
        self._process = None
        return again

    def done(self, heading: str, text: str) -> None:
        super().done(heading, text)
        self._tell(do="done", heading=heading, text=text)
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()
            self._process = None

    def opening(self) -> None:
        super().opening()
        if self._process is not None:
            self._tell(do="opening")
            self.close()

    def close(self) -> None:
        super().close()
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):  # it was closed meanwhile
                process.stdin.close()

    def _tell(self, **message: Any) -> None:
        """Send to the window; Stopped when the user has closed it."""
        if self._process is None:
            self._open(asks=message["do"] == "failed")
        if self._process is None or self._process.stdin is None:
            return
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it is gone, as the next line finds
        if self._process.poll() is not None:
            self._process = None
            raise Stopped

    def _open(self, asks: bool) -> None:
        if self._hopeless and not asks:
            return
        for command in _commands(self._environment):
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            assert process.stdout is not None
            if process.stdout.readline().strip() == "shown":
                self._process = process
                return
            process.kill()
            process.wait()
        if not self._hopeless and not asks:
            self._hopeless = True
            terminal = _terminal()
            if terminal is not None:
                _continue_in(terminal, self._again)


def can_show() -> bool:
    """Whether there is a screen at all."""
    if sys.platform.startswith("linux"):
        return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return True


def _commands(environment: Path) -> list[list[str]]:
    """What can draw the window here, best first."""
    commands = []
    try:
        import _tkinter  # noqa: F401  # Debian's Python has the rest of tkinter without it
    except ImportError:
        pass
    else:
        commands.append([sys.executable, str(HERE / "window_tk.py")])
    # On Windows a window that runs from the environment would keep its files from being replaced.
    python = environment / "bin" / "python"
    if os.name != "nt" and python.exists() and list(environment.glob("lib/python*/site-packages/PySide6/__init__.py")):
        commands.append([str(python), str(HERE / "window_qt.py")])
    return commands


def _terminal() -> list[str] | None:
    if not sys.platform.startswith("linux"):
        return None
    for name, *option in _TERMINALS:
        found = shutil.which(name)
        if found:
            return [found, *option]
    return None


def _continue_in(terminal: Sequence[str], command: Sequence[str]) -> NoReturn:
    """Let a terminal do all this; it stays open for whoever must read why it failed."""
    wait = 'echo; printf "Press Enter to close this. "; read -r _'
    subprocess.Popen([*terminal, "sh", "-c", f"{shlex.join(command)} || {{ {wait}; }}"], start_new_session=True)
    raise SystemExit(0)
