"""How long the window stands still: ``python tests/benchmarks/gaps.py [--model M] [--json]``.

The real window, all panels shown, and the real engine: starting, loading, prefilling a prompt of 2,000 tokens, decoding
1,000 tokens, stopping an answer, quitting. For each, the gaps between two ticks of a 5 ms timer on the GUI thread: what
99 of 100 do not exceed, the longest, and how much of the longest was the thread's own work (the rest went to the engine
and to other programs). Drawn into memory; with DISPLAY and QT_QPA_PLATFORM=xcb, on a screen.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtWidgets import QApplication

from app.engine_client import EngineClient
from app.gaps import GapMeter
from app.garbage import GarbageCollector
from app.main_window import MainWindow
from app.selftest_tools import until
from app.settings import Settings
from app.theme import Theme
from engine.generation import generate
from engine.messages import ChatMessage, CountTokens, Finished, LoadModel

SENTENCE = "The sea was calm, the lamp was lit, and the keeper wrote down the hour and the wind. "
FAULTLESS = {"p99": 33.0, "longest": 150.0}  # ms


def prompt(client: EngineClient, tokens: int) -> str:
    """Sentences for about so many tokens of the loaded model."""
    counted: dict[str, int] = {}
    client.token_count.connect(lambda count: counted.update({count.request_id: count.tokens}))
    few, many = 10, 30
    for number in (few, many):
        client.send(CountTokens(str(number), (ChatMessage("user", SENTENCE * number),)))
    until(lambda: len(counted) == 2, 60, "the token counts")
    each = (counted[str(many)] - counted[str(few)]) / (many - few)
    return SENTENCE * round((tokens - counted[str(few)]) / each + few)


def measure(model: str, prefill: int, decode: int) -> dict[str, dict[str, float]]:
    meters = {"gap": GapMeter("starting"), "work": GapMeter("starting", clock=time.thread_time)}

    def enter(phase: str) -> None:
        for meter in meters.values():
            meter.phase = phase

    with tempfile.TemporaryDirectory() as folder:
        generate.end_tokens = lambda loaded: set()  # an answer as long as it is asked for
        client = EngineClient()
        settings = Settings(None)
        settings.preset, settings.max_tokens = "precise", decode
        window = MainWindow(client, Theme("dark"), settings, Path(folder) / "c", "greenroom benchmark")
        garbage = GarbageCollector(lambda: window.chat.busy)
        client.ready.connect(garbage.set_aside)
        client.ready.connect(lambda event: enter("loading"))
        ended: list[Finished] = []
        client.finished.connect(ended.append)
        streamed = [0]

        def token(request_id: str, text: str, count: int) -> None:
            streamed[0] = count
            if meters["gap"].phase == "prefilling":
                enter("decoding")

        client.tokens.connect(token)
        window.resize(1440, 1300)
        window.show()
        window.start_with(LoadModel(model, "50%"))
        until(lambda: window.state.model is not None or bool(window.state.problem), 900, "the model")
        enter("idle")
        text = prompt(client, prefill)
        window.new_chat()
        enter("prefilling")
        window.send(text)
        until(lambda: len(ended) == 1 and not window.chat.busy, 3600, "the answer")
        timings = ended[0].timings
        assert timings.answer_tokens == decode, ended[0].error or ended[0].reason
        enter("idle")
        streamed[0] = 0
        window.new_chat()
        window.send("And what did the keeper do then?")
        until(lambda: streamed[0] >= 5, 120, "some tokens")
        enter("stopping")
        window.stop()
        until(lambda: len(ended) == 2 and not window.chat.busy, 60, "the stop")
        enter("quitting")
        window.close()
        until(lambda: not client.running, 60, "the engine's end")
        for meter in meters.values():
            meter.stop()
    gap, work = meters["gap"], meters["work"]
    found = {
        phase: {
            "p99": round(gap.p99_ms.get(phase, 0.0), 1),
            "longest": round(gap.longest_ms[phase], 1),
            "own work": round(work.longest_ms.get(phase, 0.0), 1),
        }
        for phase in gap.longest_ms
    }
    found["tokens"] = {"prefilled": timings.prompt_tokens, "decoded": timings.answer_tokens}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo", help="as in LoadModel.source")
    parser.add_argument("--prefill", type=int, default=2000, help="tokens")
    parser.add_argument("--decode", type=int, default=1000, help="tokens")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    app = QApplication([])
    found = measure(options.model, options.prefill, options.decode)
    del app
    if options.json:
        print(json.dumps(found, indent=2))
        return
    tokens = found.pop("tokens")
    print(f"{tokens['prefilled']} tokens prefilled, {tokens['decoded']} decoded; milliseconds")
    print(f"{'':12}{'p99':>8}{'longest':>10}{'own work':>10}")
    for phase, one in found.items():
        over = [name for name, most in FAULTLESS.items() if one[name] > most]
        print(f"{phase:12}{one['p99']:8}{one['longest']:10}{one['own work']:10}  {'over' if over else ''}")


if __name__ == "__main__":
    main()
