"""What the transcript costs the window: ``python tests/benchmarks/transcript.py [--json]``.

Opening: a saved conversation of 2,000 messages, from the click to the first painted frame, then scrolling through it by
the page and by dragging. Streaming: answers of 64 KB fed 30 times a second into the window that is shown, in
milliseconds of the GUI thread's own time for a second of streaming, the longest tick apart. Drawn into memory, no
engine; the thread's own time leaves out what other programs take.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QEventLoop, Qt, QTimer
from PySide6.QtWidgets import QApplication

from app.engine_client import EngineClient
from app.gaps import GapMeter
from app.main_window import MainWindow
from app.selftest import SAMPLE
from app.settings import Settings
from app.theme import Theme
from engine.messages import CacheCounters, Command, Event, Finished, Timings
from engine.sessions.conversation import new_id
from engine.sessions.log import SessionLog

MESSAGES = 2000
SIZE = 64 * 1024
RATE = 30  # ticks a second
PER_TICK = 256  # characters: 64 KB in about nine seconds, some 2,000 tokens a second
KINDS = {
    "plain": "Some words of an answer that goes on for a while without any mark in it.\n\n" * 900,
    "mixed": SAMPLE * 80,
    "code": "```python\n" + "    x = compute('a', 1)  # a comment\n" * 1900 + "```\n",
    "list": "- an item with **bold** words and `code`\n" * 1700,
    "table": "| a | b | c |\n|---|---|---|\n" + "| some | *words* | `here` |\n" * 2400,
    "mathematics": r"So $x_{1,2} = \frac{-b \pm \sqrt{b^2 - 4ac}}{2a}$, and" + "\n\n$$\\sum_{i=1}^n i^2 = x$$\n\n",
    "one paragraph": "word another longer " * 3400,
    "one line of code": "```\n" + "word another longer " * 3400,
}
KINDS["mathematics"] *= 700


class NoEngine:
    """An engine that never says anything."""

    def __init__(self, emit: Callable[[Event], None]) -> None: ...
    def start(self) -> None: ...
    def send(self, command: Command) -> None: ...
    def stop(self) -> None: ...
    def join(self, timeout: float | None = None) -> bool:
        return True


def settle(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Run the event loop until the condition holds, or for so long."""
    loop = QEventLoop()
    deadline = time.monotonic() + seconds
    timer = QTimer()
    timer.setInterval(10)
    timer.timeout.connect(lambda: loop.quit() if condition() or time.monotonic() > deadline else None)
    timer.start()
    loop.exec()


def saved(folder: Path) -> Path:
    with SessionLog.create(folder, "greenroom benchmark") as log:
        parent = None
        for number in range(MESSAGES):
            this = new_id()
            if number % 2 == 0:
                log.append_message(this, parent, "user", f"Question {number}: how do I merge two lists?")
            else:
                log.append_message(this, parent, "assistant", f"Answer {number}.\n\n{SAMPLE}", reason="end")
            parent = this
        return log.path


def opening(app: QApplication, window: MainWindow, path: Path) -> dict[str, float]:
    transcript = window.transcript
    began, work = time.perf_counter(), time.thread_time()
    window.open_conversation(path)
    settle(lambda: window.chat.session.path == path)
    transcript.viewport().repaint()
    painted, worked = time.perf_counter() - began, time.thread_time() - work
    settle(lambda: False, 3)
    idle = len(transcript.column.widgets())
    bar = transcript.verticalScrollBar()
    steps: list[float] = []
    for _ in range(60):
        began = time.thread_time()
        bar.setValue(bar.value() - transcript.viewport().height() // 4)
        app.processEvents()
        steps.append(1000 * (time.thread_time() - began))
    jumps: list[float] = []
    for number in range(40):
        began = time.thread_time()
        bar.setValue(round(bar.maximum() * ((number * 0.377) % 1)))
        app.processEvents()
        jumps.append(1000 * (time.thread_time() - began))
    return {
        "painted_ms": round(1000 * painted, 1),
        "painted_work_ms": round(1000 * worked, 1),
        "built": idle,
        "built_after_scrolling": len(transcript.column.widgets()),
        "scroll_step_median_ms": round(statistics.median(steps), 1),
        "scroll_step_max_ms": round(max(steps), 1),
        "jump_median_ms": round(statistics.median(jumps), 1),
        "jump_max_ms": round(max(jumps), 1),
    }


def streaming(app: QApplication, window: MainWindow, text: str) -> dict[str, float]:
    window.new_chat()
    transcript = window.transcript
    transcript.add_user("Tell me")
    answer = transcript.add_answer()
    window._refresh()
    app.processEvents()
    text = text[:SIZE]
    position = 0
    loop = QEventLoop()
    quarters: list[float] = []

    def feed() -> None:
        nonlocal position
        if position >= len(quarters) * len(text) // 4:
            quarters.append(time.thread_time())
        if position >= len(text):
            loop.quit()
        answer.feed(text[position : position + PER_TICK])
        position += PER_TICK

    timer = QTimer()
    timer.setTimerType(Qt.TimerType.PreciseTimer)
    timer.setInterval(1000 // RATE)
    timer.timeout.connect(feed)
    gaps = GapMeter("streaming", clock=time.thread_time)
    timer.start()
    began = time.perf_counter()
    loop.exec()
    timer.stop()
    gaps.stop()
    seconds = time.perf_counter() - began
    ended = time.perf_counter()
    answer.finish(Finished("r", "end", text, Timings(), CacheCounters(), 1))
    settle(lambda: answer.body.settled)
    return {
        "ms_per_second": round(1000 * (quarters[-1] - quarters[0]) / seconds, 1),
        "first_quarter": round(1000 * (quarters[1] - quarters[0]) / (seconds / 4), 1),
        "last_quarter": round(1000 * (quarters[-1] - quarters[-2]) / (seconds / 4), 1),
        "longest_tick_ms": round(gaps.longest_ms["streaming"], 1),
        "settled_after_s": round(time.perf_counter() - ended, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("kinds", nargs="*", default=["opening", *KINDS])
    arguments = parser.parse_args()
    app = QApplication([])
    with tempfile.TemporaryDirectory() as folder:
        theme = Theme("dark")
        window = MainWindow(
            EngineClient(NoEngine), theme, Settings(None), Path(folder) / "conversations", "greenroom benchmark"
        )
        window.resize(1440, 900)
        window.show()
        app.processEvents()
        results: dict[str, dict[str, float]] = {}
        for kind in arguments.kinds:
            if kind == "opening":
                results[kind] = opening(app, window, saved(Path(folder) / "conversations"))
            else:
                results[kind] = streaming(app, window, KINDS[kind])
            if not arguments.json:
                print(f"{kind:18}", "  ".join(f"{name} {value:g}" for name, value in results[kind].items()), flush=True)
        if arguments.json:
            print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
