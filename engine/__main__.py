"""``python -m engine``."""

import sys

try:
    from engine.cli import main

    code = main()
except KeyboardInterrupt:  # while libraries are imported, before anybody else could catch it
    print("greenroom: stopped.", file=sys.stderr)
    code = 130
raise SystemExit(code)
