"""What the panels cost: ``python tests/benchmarks/panels.py [heatmap] [work] [decode] [--model M] [--json]``.

heatmap: a frame of 96 x 512 experts, from the snapshot to the painted widget, in milliseconds of the thread's own time,
in the column (334 px) and in a window of its own. work: milliseconds of the GUI thread's own time for a second of
snapshots, ten of each kind, with all panels shown, all hidden, and without any. decode: tokens per second of the real
engine with panels shown, hidden and none, in turns that rotate from round to round; ratios are of medians and of bests.
Drawn into memory.
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

import numpy as np
from PySide6.QtWidgets import QApplication

from app.engine_client import EngineClient
from app.main_window import MainWindow
from app.panels.cells import Mode
from app.panels.heatmap import Heatmap
from app.panels_column import NAMES
from app.selftest_tools import until
from app.settings import Settings
from app.theme import Theme
from engine.messages import (
    CacheCounters,
    CacheSnapshot,
    Cell,
    Command,
    EngineReady,
    Event,
    ExpertSnapshot,
    Finished,
    LoadModel,
    MemoryBar,
    MemoryPart,
    MemorySnapshot,
    ModelLoaded,
    PrefetchState,
)

WAYS = ("none", "hidden", "shown")
PROMPTS = ("Tell me about the sea.", "Why is the sky blue?", "How is bread made?", "What does a lighthouse keeper do?")
LEGAL = [
    0,
    Cell.RESIDENT,
    Cell.RESIDENT | Cell.ROUTED | Cell.HIT,
    Cell.RESIDENT | Cell.ROUTED | Cell.MISS,
    Cell.PREDICTED,
    Cell.RESIDENT | Cell.ROUTED | Cell.HIT | Cell.PREFETCHED,
    Cell.RESIDENT | Cell.ROUTED | Cell.HIT | Cell.LATE,
    Cell.WASTED,
]


class NoEngine:
    """Loads at once, and otherwise says what the benchmark lets it."""

    def __init__(self, emit: Callable[[Event], None], model: ModelLoaded) -> None:
        self.emit, self._model = emit, model

    def start(self) -> None:
        self.emit(EngineReady("benchmark", "", "CPU"))

    def send(self, command: Command) -> None:
        if isinstance(command, LoadModel):
            self.emit(self._model)

    def stop(self) -> None: ...

    def join(self, timeout: float | None = None) -> bool:
        return True


def snapshot(layers: int, experts: int, seed: int) -> ExpertSnapshot:
    random = np.random.default_rng(seed)
    shape = (layers, experts)
    answer = random.poisson(random.exponential(3, shape)).astype(np.uint32)
    cells = random.choice(np.array(LEGAL, np.uint8), shape)
    fetched = random.integers(0, 5, shape).astype(np.uint8)
    return ExpertSnapshot(cells, answer, answer * 3, answer * 20, "decode", seed + 1, fetched)


def heatmap(app: QApplication) -> dict[str, float]:
    """Milliseconds a frame, median of 60, by size and mode."""
    snapshots = [snapshot(96, 512, seed) for seed in range(4)]
    results: dict[str, float] = {}
    for name, (width, height) in {"column": (334, 480), "window": (1280, 900)}.items():
        widget = Heatmap(Theme("dark"))
        widget.set_shape(96, 512)
        widget.setMaximumHeight(height)
        widget.resize(width, height)
        widget.show()
        app.processEvents()
        for mode in Mode:
            widget.set_mode(mode)
            times = []
            for turn in range(60):
                widget.show_snapshot(snapshots[turn % 4])
                began = time.thread_time()
                widget.repaint()
                times.append(1000 * (time.thread_time() - began))
            results[f"{name}, {mode.value}"] = round(statistics.median(times), 2)
        widget.hide()
    return results


def model(layers: int, experts: int) -> ModelLoaded:
    total = layers * experts
    return ModelLoaded(
        "m", "m", "f", "s", layers, experts, 8, "CPU", "float32", "lru", total // 2, total, 10**6, 10**8, 8192, True
    )


def dress(window: MainWindow, way: str) -> None:
    """Panels shown, all hidden, or hidden and not even their past noted."""
    panels, client = window.panels, window.client
    for name in NAMES:
        panels.show_panel(name, way == "shown")
    window.settings.panels_open = True
    panels.setVisible(way == "shown")
    for signal, note in (
        (client.cache_snapshot, panels.history.add_cache),
        (client.memory_snapshot, panels.history.add_memory),
        (client.started, panels.history.started),
        (client.prefill_progress, panels.history.prefilled),
    ):
        noted = window.property("noted") is not False
        if noted and way == "none":
            signal.disconnect(note)
        elif not noted and way != "none":
            signal.connect(note)
    window.setProperty("noted", way != "none")


def work(app: QApplication, folder: Path) -> dict[str, float]:
    """Milliseconds of GUI work for a second of snapshots."""
    results: dict[str, float] = {}
    for layers, experts in ((30, 32), (96, 512)):
        made: list[NoEngine] = []

        def make(emit: Callable[[Event], None], shape: tuple[int, int] = (layers, experts)) -> NoEngine:
            made.append(NoEngine(emit, model(*shape)))  # noqa: B023  # called before the next shape begins
            return made[0]  # noqa: B023

        client = EngineClient(make)
        window = MainWindow(client, Theme("dark"), Settings(None), folder / f"{layers}", "greenroom benchmark")
        window.resize(1440, 1300)
        window.show()
        window.start("m")
        until(lambda: window.state.model is not None, 300, "the model")  # noqa: B023
        snapshots = [snapshot(layers, experts, seed) for seed in range(4)]
        for way in reversed(WAYS):
            dress(window, way)
            app.processEvents()
            steps = []
            for turn in range(40):
                counters = CacheCounters(decode_hits=100 * turn, decode_misses=turn, prefetch_used=turn)
                state = PrefetchState(True, f"Fetching ahead saves {turn} ms per token.", 0.1, 0.1, (0.9, 0.8))
                parts = (MemoryPart("dense", 10**8), MemoryPart("experts", 10**9 - turn), MemoryPart("kv", turn))
                made[0].emit(snapshots[turn % 4])
                made[0].emit(CacheSnapshot(counters, 0.8 + turn / 999, 1e6 + turn, 0.001, 10 + turn, 9, 9, state))
                if turn % 10 == 0:
                    made[0].emit(MemorySnapshot((MemoryBar("RAM", 2 * 10**9, parts),)))
                began, due = time.thread_time(), time.monotonic() + 0.1
                client._drain()
                until(lambda: time.monotonic() >= due, 300, "the next snapshot")  # noqa: B023
                steps.append(1000 * (time.thread_time() - began))
            results[f"{layers} x {experts}, {way}"] = round(10 * statistics.mean(steps[10:]), 1)
        window.close()
    return results


def decode(folder: Path, source: str, rounds: int, tokens: int) -> dict[str, float]:
    """Rates with panels shown, hidden and none, and their ratios."""
    client = EngineClient()
    settings = Settings(None)
    settings.preset, settings.max_tokens = "precise", tokens
    window = MainWindow(client, Theme("dark"), settings, folder / "decode", "greenroom benchmark")
    window.resize(1440, 1300)
    window.show()
    window.start()
    until(lambda: window.state.engine is not None, 300, "the engine")
    window.load(LoadModel(source, "50%", prefetch="off"))
    until(lambda: window.state.model is not None or bool(window.state.problem), 900, "the model")
    ended: list[Finished] = []
    client.finished.connect(ended.append)
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(-1, rounds):  # the first round warms up
        for place in range(len(WAYS)):
            way = WAYS[(turn + place) % len(WAYS)]
            dress(window, way)
            window.new_chat()
            before = len(ended)
            window.send(PROMPTS[turn % len(PROMPTS)])
            until(lambda: len(ended) > before, 300, "the answer")  # noqa: B023
            until(lambda: not window.chat.busy, 300, "the answer's end")
            rate = ended[-1].timings.decode_rate
            if turn >= 0 and rate is not None:
                rates[way].append(rate)
    window.close()
    until(lambda: not client.running, 300, "the engine's end")
    results = {f"{way}, tokens/s": round(statistics.median(rates[way]), 2) for way in WAYS}
    for way in WAYS[1:]:
        pairs = [one / other for one, other in zip(rates[way], rates["none"], strict=True)]
        results[f"{way} / none, median of rounds"] = round(statistics.median(pairs), 3)
        results[f"{way} / none, medians"] = round(statistics.median(rates[way]) / statistics.median(rates["none"]), 3)
        results[f"{way} / none, bests"] = round(max(rates[way]) / max(rates["none"]), 3)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--model", default="demo", help="for decode: as in LoadModel.source")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("what", nargs="*", default=["heatmap", "work", "decode"])
    arguments = parser.parse_args()
    app = QApplication([])
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for what in arguments.what:
            if what == "heatmap":
                results[what] = heatmap(app)
            elif what == "work":
                results[what] = work(app, Path(folder))
            else:
                results[what] = decode(Path(folder), arguments.model, arguments.rounds, arguments.tokens)
            if not arguments.json:
                for name, value in results[what].items():
                    print(f"{what:8} {name:34} {value:g}", flush=True)
    if arguments.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
