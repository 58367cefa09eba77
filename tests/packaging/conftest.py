"""start.py's modules are no package (they run before anything is installed), so tests find them by path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "packaging"))
