"""Where the frozen program ``greenroom`` begins: ``python -m app`` without a Python.

On Linux the same file is also ``greenroom-engine``, the terminal's face, when it is called by that name.
"""

import multiprocessing
import sys
from pathlib import Path

if __name__ == "__main__":
    multiprocessing.freeze_support()  # a replay for the window has its own process, which is this program once more
    if Path(sys.argv[0]).name == "greenroom-engine":
        from engine.cli import main
    else:
        from app.__main__ import main
    sys.exit(main())
