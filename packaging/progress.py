"""What start.py tells while it works, and how a terminal shows it. ``window.py`` shows the same in a window."""

from __future__ import annotations

import sys
import time
from pathlib import Path

# What a first start does, in this order; a later one skips what is done.
STEPS = {
    "environment": "Make a place for the libraries",
    "torch": "Fetch torch, the part that computes",
    "libraries": "Fetch the window and everything else",
    "demo": "Prepare the demo model",
}
_HEARTBEAT = 30.0  # seconds between lines where there is no terminal


class Stopped(Exception):
    """The user does not want it to go on."""


class Progress:
    """Tells on the terminal; where output goes to a file, a line now and then instead of one that moves."""

    def __init__(self) -> None:
        self._moving = sys.stdout is not None and sys.stdout.isatty()
        self._begin = self._told = time.monotonic()
        self._shown = False

    def step(self, name: str, text: str) -> None:
        """One of STEPS begins; ``text`` says what it will do and why."""
        assert name in STEPS
        self._begin = self._told = time.monotonic()
        self.say(text)

    def say(self, text: str) -> None:
        """A line that stays, seen at once."""
        self._wipe()
        print(text, flush=True)

    def doing(self, text: str, share: float | None = None) -> None:
        """What goes on right now, and how much of it is done (0 to 1) where that is known. Called often.

        Raises Stopped when the user has asked to stop meanwhile.
        """
        now = time.monotonic()
        passed = int(now - self._begin)
        percent = "" if share is None else f"  {share:.0%}"
        if self._moving:
            sys.stdout.write(f"\r  {text}{percent}  {passed // 60}:{passed % 60:02d}\x1b[K")
            sys.stdout.flush()
            self._shown = True
        elif now - self._told > _HEARTBEAT:
            self._told = now
            self.say(f"  {text}{percent} ({passed} s so far)")

    def failed(self, heading: str, text: str, log: Path | None = None) -> bool:
        """It cannot go on, and why; ``log`` says more. True when the user wants to try again at once."""
        self._wipe()
        if sys.stderr is not None:
            print(f"\n{heading}: {text}", file=sys.stderr, flush=True)
        return False

    def done(self, heading: str, text: str) -> None:
        """All that was asked for is done, and no program opens that would show it. Waits until it was read."""
        self.say(text)

    def opening(self) -> None:
        """All is ready and the program starts."""
        self._wipe()

    def close(self) -> None:
        """Nothing more will be told."""
        self._wipe()

    def _wipe(self) -> None:
        if self._shown:
            sys.stdout.write("\r\x1b[K")
            sys.stdout.flush()
            self._shown = False
