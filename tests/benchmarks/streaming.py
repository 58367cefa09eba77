"""What showing an answer costs the engine: ``python tests/benchmarks/streaming.py [--rounds N] [--by-turns] [--json]``.

The real window, panels shown, and the real engine, which decodes the same greedy tokens each time; only the text that
they bring differs: 64 KB of plain words, or of code, tables, lists and marks. Far more characters to a token than any
model writes, so that an answer of 64 KB takes a minute and not an hour. Turns rotate from round to round; the ratio is
the median of the rounds' own. GUI thread: what it computed, as a share of the time, which a busy machine changes least.
Gaps: between two ticks of it while decoding, in milliseconds, and how much of them was its own work. Drawn into memory.

Where other programs slow the machine for a minute and not the next, answers cannot be compared: with ``--by-turns`` an
answer has both texts, 64 KB of each, in turns of some 4 KB, and what is compared are the tokens of neighbouring turns.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtWidgets import QApplication

from app.chat.answer import AnswerView
from app.engine_client import EngineClient
from app.gaps import GapMeter
from app.garbage import GarbageCollector
from app.main_window import MainWindow
from app.selftest import SAMPLE
from app.selftest_tools import until
from app.settings import Settings
from app.theme import Theme
from engine.generation import generate
from engine.generation.text import TextStream
from engine.messages import Finished, LoadModel

SIZE = 64 * 1024
TURN = 4096  # characters
SETTLING = 4  # tokens of a turn that still wait for the one before it to be shown
CONTEXT = 4096  # tokens
PROMPT = "Tell me about the sea."
KINDS = {"plain": "Some words of an answer that goes on for a while without any mark in it.\n\n", "markdown": SAMPLE}


def pieces(kind: str, tokens: int) -> Iterator[str]:
    """What each of so many tokens brings."""
    text = (KINDS[kind] * (SIZE // len(KINDS[kind]) + 1))[:SIZE]
    each = -(-SIZE // tokens)
    return (text[start : start + each] for start in range(0, SIZE, each))


def in_turns(tokens: int) -> list[tuple[str, list[str]]]:
    """Kind and pieces of each turn: markdown ends its last block before plain words begin."""
    turns: list[tuple[str, list[str]]] = []
    each = -(-SIZE // tokens)
    lengths = dict.fromkeys(KINDS, 0)
    while min(lengths.values()) < SIZE:
        for kind, text in KINDS.items():
            turn = (text.rstrip() + "\n\n") * max(1, TURN // len(text))
            lengths[kind] += len(turn)
            turns.append((kind, [turn[start : start + each] for start in range(0, len(turn), each)]))
    return turns


def compared(turns: list[tuple[str, list[str]]], times: list[float]) -> list[float]:
    """Markdown's speed over plain's, for each two neighbouring turns. times: when each token's text was asked for."""
    means: list[float] = []
    place = 0
    for _, turn in turns:
        own = [after - before for before, after in itertools.pairwise(times[place : place + len(turn) + 1])]
        means.append(statistics.mean(own[SETTLING:]))
        place += len(turn)
    kinds = [kind for kind, _ in turns]
    pairs = []
    for (one, first), (_, second) in itertools.pairwise(zip(kinds, means, strict=True)):
        pairs.append(first / second if one == "plain" else second / first)
    return pairs


class Bench:
    def __init__(self, folder: Path, model: str, tokens: int) -> None:
        self.tokens = tokens
        self._pieces: Iterator[str] = iter(())
        self.times: list[float] = []  # of the present answer's tokens
        bench = self

        class Scripted(TextStream):
            def push(self, token: int) -> str:
                bench.times.append(time.perf_counter())
                return next(bench._pieces, "")

            def flush(self) -> str:
                return ""

        generate.TextStream = Scripted  # type: ignore[misc]
        generate.end_tokens = lambda loaded: set()
        self.client = EngineClient()
        settings = Settings(None)
        settings.preset, settings.max_tokens = "precise", tokens
        self.window = MainWindow(self.client, Theme("dark"), settings, folder / "c", "greenroom benchmark")
        self.garbage = GarbageCollector(lambda: self.window.chat.busy)
        self.client.ready.connect(self.garbage.set_aside)
        self.window.resize(1440, 1300)
        self.window.show()
        self.ended: list[Finished] = []
        self.client.finished.connect(self.ended.append)
        self.settings = settings
        self.window.start_with(LoadModel(model, "50%", prefetch="off", context=CONTEXT))
        state = self.window.state
        until(lambda: state.model is not None or bool(state.problem), 900, "the model")

    def answer(self, kind: str) -> tuple[float, float, GapMeter, GapMeter]:
        """Tokens per second of one answer; the GUI thread's share of the time; the gaps, and its own part of them."""
        return self._answer(pieces(kind, self.tokens), SIZE)

    def by_turns(self) -> list[float]:
        """Markdown's speed over plain's, for each two neighbouring turns of one answer."""
        turns = in_turns(self.tokens)
        texts = [piece for _, turn in turns for piece in turn]
        self.settings.max_tokens = len(texts) + 1  # the last one's time is told by who comes after it
        self._answer(iter(texts), sum(map(len, texts)))
        return compared(turns, self.times)

    def _answer(self, texts: Iterator[str], size: int) -> tuple[float, float, GapMeter, GapMeter]:
        window, before = self.window, len(self.ended)
        self._pieces = texts
        self.times.clear()
        window.new_chat()
        gaps, work = GapMeter("decoding"), GapMeter("decoding", clock=time.thread_time)
        computed, began = time.thread_time(), time.perf_counter()
        window.send(PROMPT)
        until(lambda: len(self.ended) > before and not window.chat.busy, 1800, "the answer")
        share = (time.thread_time() - computed) / (time.perf_counter() - began)
        gaps.stop()
        work.stop()
        view = window.transcript.findChildren(AnswerView)[-1]
        until(lambda: view.body.settled, 120, "all of it on the screen")
        end = self.ended[-1]
        assert len(end.text) == size and end.timings.decode_rate, end.error or end.reason
        return end.timings.decode_rate, share, gaps, work

    def close(self) -> None:
        self.window.close()
        until(lambda: not self.client.running, 30, "the engine's end")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--model", default="demo", help="as in LoadModel.source")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=512, help="that bring the 64 KB (default: 512)")
    parser.add_argument("--by-turns", action="store_true", help="compare turns within an answer, not answers")
    arguments = parser.parse_args()
    app = QApplication([])
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    shares: dict[str, list[float]] = {kind: [] for kind in KINDS}
    results: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), arguments.model, arguments.tokens)
        if arguments.by_turns:
            bench.by_turns()  # warms up
            ratios = [ratio for _ in range(arguments.rounds) for ratio in bench.by_turns()]
            bench.close()
            results["pairs of turns"] = len(ratios)
            results["markdown / plain, median of pairs"] = round(statistics.median(ratios), 3)
            low, _, high = statistics.quantiles(ratios)
            results |= {"lower quartile": round(low, 3), "upper quartile": round(high, 3)}
            _tell(results, arguments.json)
            return
        names = list(KINDS)
        for turn in range(-1, arguments.rounds):  # the first round warms up
            for kind in names if turn % 2 else reversed(names):
                rate, share, gaps, work = bench.answer(kind)
                if turn >= 0:
                    rates[kind].append(rate)
                    shares[kind].append(share)
                    for what, meter in (("gap", gaps), ("work", work)):
                        for figure, found in (("longest", meter.longest_ms), ("p99", meter.p99_ms)):
                            name = f"{kind}, {figure} {what}, ms"
                            results[name] = round(max(results.get(name, 0.0), found["decoding"]), 1)
        bench.close()
    del app
    for kind, measured in rates.items():
        results[f"{kind}, tokens/s"] = round(statistics.median(measured), 2)
        results[f"{kind}, GUI thread, share of the time"] = round(statistics.median(shares[kind]), 4)
    pairs = [one / other for one, other in zip(rates["markdown"], rates["plain"], strict=True)]
    results["markdown / plain, median of rounds"] = round(statistics.median(pairs), 3)
    results["markdown / plain, bests"] = round(max(rates["markdown"]) / max(rates["plain"]), 3)
    _tell(results, arguments.json)


def _tell(results: dict[str, float], as_json: bool) -> None:
    if as_json:
        print(json.dumps(results, indent=2))
    else:
        for name, value in results.items():
            print(f"{name:40} {value:g}")


if __name__ == "__main__":
    main()
