"""Set Greenroom up and open it. Needs nothing but Python 3.11 or newer:

    python3 packaging/start.py             make the environment, fetch the demo model, open the window
    python3 packaging/start.py setup       make the environment only ("setup dev": with the tools that tests need)
    python3 packaging/start.py test ...    run every test (what follows goes to pytest)
    python3 packaging/start.py install     set up, and add Greenroom to your own menu of programs
    python3 packaging/start.py uninstall   take it out of the menu again; conversations stay

With --window first, progress and failures are shown in a window, as the launchers want it.
Old Pythons must be able to read this file, to look for a newer one or say that they are old.
The work is in commands.py.
"""

import os
import shutil
import subprocess
import sys

OLDEST = (3, 11)


def newer_python():
    # type: () -> str | None
    """The path of a Python beside this one that is new enough, or None."""
    for minor in ("13", "12", "11", "14"):  # those that torch and Qt know best come first
        path = shutil.which("python3." + minor) if hasattr(shutil, "which") else None
        if path and _works(path):
            return path
    return None


def _works(path):
    # type: (str) -> bool
    """Whether it starts, which the stand-in of a version manager may not."""
    code = "import sys; sys.exit(sys.version_info < " + repr(OLDEST) + ")"
    asked = subprocess.Popen([path, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    asked.communicate()
    return asked.returncode == 0


if sys.version_info < OLDEST:
    newer = newer_python()
    if newer:
        words = list(sys.argv)
        words.insert(0, newer)
        os.execv(newer, words)
    message = (
        "Greenroom needs Python 3.11 or newer, and this is Python "
        + ".".join(str(part) for part in sys.version_info[:3])
        + ".\nInstall a newer one beside it and start with that, for example: python3.12 packaging/start.py\n"
    )
    if sys.stderr is not None:
        sys.stderr.write(message)
    sys.exit(1)

if __name__ == "__main__":
    import commands

    sys.exit(commands.main(sys.argv[1:]))
