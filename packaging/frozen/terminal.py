"""Where the frozen program ``greenroom-engine`` begins: ``python -m engine`` without a Python."""

import multiprocessing
import sys

from engine.cli import main

if __name__ == "__main__":
    multiprocessing.freeze_support()
    sys.exit(main())
