"""A message for somebody without a terminal, by whatever the system has: no toolkit of our own is needed."""

from __future__ import annotations

import shutil
import subprocess
import sys


def show(title: str, text: str) -> bool:
    """Show it and wait until it is closed; False when nothing here can show it."""
    if sys.platform == "win32":
        import ctypes

        return bool(ctypes.windll.user32.MessageBoxW(None, text, title, 0x10))
    for command in _commands(title, text):
        if shutil.which(command[0]):
            answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
            if answer.returncode in (0, 1):  # 1: closed by the frame's button
                return True
    return False


def _commands(title: str, text: str) -> list[list[str]]:
    if sys.platform == "darwin":
        script = "on run argv\ndisplay alert (item 1 of argv) message (item 2 of argv) as critical\nend run"
        return [["osascript", "-e", script, title, text]]
    return [
        ["zenity", "--error", "--no-markup", "--width=480", f"--title={title}", f"--text={text}"],
        ["kdialog", "--title", title, "--error", text],
        ["xmessage", "-center", f"{title}\n\n{text}"],
        ["notify-send", "--urgency=critical", "--app-name=Greenroom", title, text],
    ]
