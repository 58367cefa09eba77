"""Reading what another program prints, without waiting for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import IO

_PAUSE = 0.25  # seconds


def lines_of(stream: IO[str]) -> Iterator[str]:
    """Each line as it comes, and an empty text whenever nothing came for a moment; ends with the stream."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in stream:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=_PAUSE)
        except queue.Empty:
            yield ""
            continue
        if line is None:
            return
        yield line
