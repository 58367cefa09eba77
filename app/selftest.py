"""``python -m app --self-test DIR``: one walk through the real window with the real engine, pictures on the way.

``longest_gap_ms`` says how long the window stood still, ``longest_work_ms`` how much of that was its own work: the rest
went to the engine and to other programs on the machine. ``p99``: what 99 of 100 ticks do not exceed.

Conversations, settings and what answers teach live in a temporary folder; the demo model stays where the user's models
are, so that it is built at most once. Every step waits for a condition, for so long and no longer. ``report.json`` says
what held.
"""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from PySide6.QtCore import QEventLoop, QPoint, QRegularExpression, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget

from app.chat.answer import AnswerView
from app.chat.cards import Card
from app.chat.prose import TextView
from app.export import write_export
from app.gaps import GapMeter
from app.program import Program
from app.selftest_conversations import ConversationSteps
from app.selftest_dialogs import DIALOGS, DialogSteps
from app.selftest_families import FamilySteps
from app.selftest_tools import StepFailed, check, until
from app.selftest_window import WindowSteps
from engine.messages import CacheCounters, CacheSnapshot, Finished
from engine.paths import keep_apart
from engine.sessions.conversation import new_id
from engine.sessions.log import SessionLog
from engine.sessions.reader import read_conversation, recount

WATCHDOG_SECONDS = 1800
SCALE_CHILD = "GREENROOM_SELF_TEST_SCALED"  # set for the child that takes the pictures at 200 %

PROMPT = "What is the capital of France? Answer in one sentence."
LONG_PROMPT = "Tell me a long story about a lighthouse keeper, with many details."

SAMPLE = """Walk both lists with one index each and always take the *smaller* head. That touches every item **once**:

```python
def merge(a: list[int], b: list[int]) -> list[int]:
    i = j = 0
    out = []
    while i < len(a) and j < len(b):
        if a[i] <= b[j]:
            out.append(a[i]); i += 1  # from the first
        else:
            out.append(b[j]); j += 1
    return out + a[i:] + b[j:]
```

The standard library has it too: `heapq.merge(a, b)` does the same lazily, for any number of inputs.

| Way | Time | Notes |
|:----|-----:|:------|
| `merge` | 1.2 ms | by hand |
| `heapq.merge` | 2.4 ms | lazy, *any* number of inputs |
| `sorted(a + b)` | 3.9 ms | shortest to write |

1. Both lists must be sorted already.
2. Equal items keep their order:
   - those of the first list come first,
   - `std::vector<int>` and <think> are text here.

> Merging is the easy half of merge sort.
"""


@dataclass(slots=True)
class Step:
    name: str
    ok: bool
    seconds: float
    detail: str


class SelfTest(ConversationSteps, DialogSteps, WindowSteps, FamilySteps):
    """The walk. Each ``step_`` method is one step, in this order."""

    def __init__(self, out: Path, data: Path, model: str | None) -> None:
        self.out, self.data, self.model = out, data, model or "demo"
        self.steps: list[Step] = []
        self.program = Program(data / "settings.json", data / "conversations", out / "logs")
        self.window = self.program.window
        self.meter = GapMeter("starting")
        self.work = GapMeter("starting", clock=time.thread_time)
        self.counters = CacheCounters()
        self.answers: list[Finished] = []
        client = self.program.client
        client.cache_snapshot.connect(self._count)
        client.finished.connect(self.answers.append)
        client.tokens.connect(lambda *_: self._decoding())
        self.program.settings.preset = "precise"
        self.program.settings.max_tokens = 96

    def _count(self, snapshot: CacheSnapshot) -> None:
        self.counters = max(self.counters, snapshot.counters, key=lambda counters: counters.hook_calls)

    def _enter(self, phase: str) -> None:
        self.meter.phase = self.work.phase = phase

    def _decoding(self) -> None:
        if self.meter.phase == "prefilling":
            self._enter("decoding")

    # ------------------------------------------------------------------------------------------- running

    def run(self, names: list[str], families: Sequence[Path] = ()) -> bool:
        steps = {name: getattr(self, f"step_{name}") for name in names}
        asked = {f"family {folder.name}": partial(self.step_family, folder) for folder in families}
        for name, step in ({**steps, **asked, "close": self.step_close} if asked else steps).items():
            began = time.monotonic()
            detail, ok = "", True
            try:
                detail = step() or ""
            except StepFailed as error:
                ok, detail = False, str(error)
            except Exception:
                ok, detail = False, traceback.format_exc()
            self.steps.append(Step(name, ok, round(time.monotonic() - began, 3), detail))
            print(f"{'ok  ' if ok else 'FAIL'} {name} {self.steps[-1].seconds:.1f} s {detail}", flush=True)
            if not ok and name in ("window", "engine", "load"):
                break
        if self.program.client.running:
            self.program.client.shut_down(5)
            self.program.client.join(5)
        return all(step.ok for step in self.steps)

    def shot(self, name: str, widget: QWidget | None = None) -> None:
        """A picture of the window, or of a widget, in both themes; the clock stands still meanwhile."""
        window = self.window
        with self.meter.paused(), self.work.paused(), window.toast.paused(), window.undo_toast.paused():
            theme = self.program.theme
            for mode in ("light", "dark"):
                theme.set_mode("dark" if mode == "dark" else "light")
                for _ in range(2):  # what the first round changes, the second lays out
                    self.program.app.processEvents(QEventLoop.ProcessEventsFlag.ExcludeUserInputEvents, 200)
                picture = (widget or window).grab()
                if not picture.save(str(self.out / f"{name}-{mode}.png")):
                    raise StepFailed(f"{name}-{mode}.png could not be written")

    # --------------------------------------------------------------------------------------------- steps

    def step_window(self) -> None:
        self.window.resize(1440, 900)
        self.window.show()
        until(self.window.isVisible, 10, "the window")
        self.shot("01-starting")

    def step_engine(self) -> str:
        self.window.start(self.model)
        until(lambda: self.window.state.engine is not None, 120, "the engine's libraries")
        self._enter("loading")
        engine = self.window.state.engine
        return f"{engine.libraries} on {engine.device}" if engine else ""

    def step_load(self) -> str:
        state = self.window.state
        until(lambda: state.loading is not None or state.model is not None, 10, "the loading to begin")
        if state.model is None:
            self.shot("02-loading")
        until(lambda: state.model is not None or bool(state.problem), 900, "the model")
        check(state.model is not None, state.problem)
        assert state.model is not None
        self._enter("idle")
        self.shot("03-empty")
        return f"{state.model.name}: {state.model.slots} of {state.model.total_experts} experts in memory"

    def _ask(self, text: str) -> AnswerView:
        """Type and press Enter, as a user does."""
        window = self.window
        QTest.keyClicks(window.composer.input, text)
        self._enter("prefilling")
        QTest.keyClick(window.composer.input, Qt.Key.Key_Return)
        check(window.chat.busy, "Enter sent nothing")
        check(window.composer.text == "", "the composer kept what was sent")
        return window.transcript.findChildren(AnswerView)[-1]

    def step_answer(self) -> str:
        view = self._ask(PROMPT)
        until(lambda: bool(view.shown_text) or not self.window.chat.busy, 600, "the first word")
        self.shot("04-answering")
        until(lambda: not self.window.chat.busy, 600, "the end of the answer")
        self._enter("idle")
        check(len(self.answers) == 1, "the engine never finished the answer")
        answer = self.answers[-1]
        check(answer.reason in ("end", "length"), f"it ended with {answer.reason}: {answer.error}")
        check(bool(answer.text.strip()), "the answer is empty")
        self.shot("05-answered")
        return (
            f"{answer.timings.answer_tokens} tokens, {answer.timings.decode_rate or 0:.1f} tok/s: {answer.text[:80]!r}"
        )

    def step_log(self) -> str:
        """What the window showed is what the log says, down to every hit."""
        path = self.window.chat.session.path
        assert path is not None
        saved = [m for m in read_conversation(path).messages.values() if m.role == "assistant"]
        answer = self.answers[-1]
        check(saved[-1].text == answer.text, f"the log holds {saved[-1].text[:60]!r}")
        counted = recount(path, saved[-1].id)
        check(counted.decode_hits == answer.cache.decode_hits, f"hits: {counted} against {answer.cache}")
        check(counted.decode_misses == answer.cache.decode_misses, f"misses: {counted} against {answer.cache}")
        return f"{counted.passes} passes, {counted.decode_hits} hits and {counted.decode_misses} misses"

    def step_panels(self) -> str:
        """A word is clicked and its experts light up; a panel in a window of its own; a hidden one hears nothing."""
        panels = self.window.panels
        view = self.window.transcript.findChildren(AnswerView)[-1]
        prose = view.body.findChildren(TextView)[0]
        word = prose.document().find(QRegularExpression(r"\w{2,}"))
        check(not word.isNull(), "the answer has no word to click")
        word.setPosition(word.selectionStart())
        box = prose.cursorRect(word)
        QTest.mouseClick(prose.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(box.left() + 3, box.center().y()))
        until(lambda: panels.experts.heading.note.endswith(self.window.tr("replay")), 20, "the token's experts")
        self.shot("05b-replay")
        note = panels.experts.heading.note
        QTest.mouseClick(panels.experts.player.now, Qt.MouseButton.LeftButton)
        check(not panels.experts.replaying, "the panel stayed in the past")
        panels.float_panel("experts")
        self.shot("05c-experts", panels.windows["experts"])
        panels.dock_panel("experts")
        panels.show_panel("cache", False)
        check(not panels.cache.listening, "a hidden panel still listens")
        panels.show_panel("cache", True)
        self.shot("05d-panels", panels.widget())
        return note

    def step_stop(self) -> str:
        self.program.settings.max_tokens = 2048
        self.window.new_chat()
        view = self._ask(LONG_PROMPT)
        until(lambda: len(view.shown_text) > 20 or not self.window.chat.busy, 300, "some words to stop")
        check(self.window.chat.busy, f"the answer ended before it could be stopped: {self._last_words()}")
        began = time.perf_counter()
        self._enter("stopping")
        QTest.mouseClick(self.window.composer.action, Qt.MouseButton.LeftButton)
        until(lambda: not self.window.chat.busy, 30, "the answer to stop")
        self._enter("idle")
        answer = self.answers[-1]
        check(answer.reason == "stopped", f"it ended with {answer.reason}")
        check(bool(view.text) and view.text == answer.text, "the partial answer is gone")
        self.shot("06-stopped")
        return f"stopped after {1000 * (time.perf_counter() - began):.0f} ms"

    def _last_words(self) -> str:
        """The end of the transcript, to explain a failed step."""
        cards = self.window.transcript.findChildren(Card)
        return cards[-1].text.text() if cards else self.answers[-1].text[-200:]

    def step_markdown(self) -> str:
        """A saved conversation, opened from the list with a click."""
        path = self._sample()
        self.window.sidebar.refresh()
        self.click_row(path)
        until(lambda: self.window.chat.session.path == path, 10, "the conversation to open")
        transcript = self.window.transcript
        until(lambda: any(v.text == SAMPLE for v in transcript.findChildren(AnswerView)), 10, "the saved answer")
        self.shot("07-markdown")
        return ""

    def _sample(self) -> Path:
        with SessionLog.create(self.data / "conversations", "greenroom self-test") as log:
            question = new_id()
            log.append_message(question, None, "user", "How do I merge two sorted lists without sorting again?")
            log.append_message(new_id(), question, "assistant", SAMPLE, reason="end")
            return log.path

    def step_export(self) -> str:
        path = self.window.chat.session.path
        assert path is not None
        for name in ("conversation.md", "conversation.html", "conversation.jsonl"):
            problem = write_export(path, self.out / name)
            check(not problem, problem)
        texts = [m.text for m in read_conversation(self.out / "conversation.jsonl").messages.values()]
        check(SAMPLE in texts, "the exported log lacks the answer")
        check("heapq.merge" in (self.out / "conversation.md").read_text("utf-8"), "the Markdown lacks the answer")
        return ""

    def step_hook(self) -> str:
        """A model can also answer with the library's own experts: where the hook ran, experts were counted."""
        uses = self.counters.decode_hits + self.counters.decode_misses
        check(self.counters.hook_calls > 0, "the experts' hook was never called")
        check(uses > 0, "the experts' hook ran, and counted no hit and no miss")
        return f"{self.counters.hook_calls} calls, {uses} uses while decoding"

    def step_close(self) -> None:
        ended: list[bool] = []
        self.window.closed.connect(lambda: ended.append(True))
        self._enter("quitting")
        self.window.close()
        until(lambda: bool(ended), 15, "the engine to end")
        self.meter.stop()
        self.work.stop()
        check(self.program.client.join(5), "the engine thread is still there")

    def step_scaled(self) -> str:
        """The same window on a screen of twice the density, in a program of its own."""
        command = [sys.executable] if getattr(sys, "frozen", False) else [sys.executable, "-m", "app"]
        child = subprocess.run(
            [*command, "--self-test", str(self.out / "200%"), "--model", self.model],
            env={**os.environ, "QT_SCALE_FACTOR": "2", SCALE_CHILD: "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        check(child.returncode == 0, (child.stdout + child.stderr)[-2000:])
        return ""


CONVERSATIONS = ["search", "rename", "delete", "drop"]
STEPS = [
    "window",
    "engine",
    "load",
    "answer",
    "log",
    "panels",
    *DIALOGS,
    "branches",
    "stop",
    "go_on",
    "markdown",
    *CONVERSATIONS,
]
STEPS += ["picker", "menus", "export", "fold", "refusal", "hook", "close", "scaled"]
SCALED_STEPS = [
    "window",
    "engine",
    "load",
    "answer",
    "panels",
    *DIALOGS,
    "branches",
    "stop",
    "markdown",
    *CONVERSATIONS,
]
SCALED_STEPS += ["picker", "close"]


def self_test(out: Path, model: str | None, families: Sequence[Path] = ()) -> int:
    """Run the walk, or ask the models in ``families``; 0 when every step held."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        os.environ["QT_QPA_PLATFORM"] = "offscreen"
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"Nothing can be written to {out}: {error.strerror}. Name another folder.", file=sys.stderr)
        return 1
    faulthandler.dump_traceback_later(WATCHDOG_SECONDS, exit=True)
    scaled = bool(os.environ.get(SCALE_CHILD))
    with tempfile.TemporaryDirectory(prefix="greenroom-self-test-", ignore_cleanup_errors=True) as data:
        keep_apart(Path(data))
        test = SelfTest(out.resolve(), Path(data), str(families[0]) if families else model)
        steps = ["window", "engine", "load"] if families else SCALED_STEPS if scaled else STEPS
        ok = test.run(steps, families)
    report = {
        "ok": ok,
        "steps": [asdict(step) for step in test.steps],
        "longest_gap_ms": {phase: round(gap, 1) for phase, gap in test.meter.longest_ms.items()},
        "p99_gap_ms": {phase: round(gap, 1) for phase, gap in test.meter.p99_ms.items()},
        "longest_work_ms": {phase: round(work, 1) for phase, work in test.work.longest_ms.items()},
        "p99_work_ms": {phase: round(work, 1) for phase, work in test.work.p99_ms.items()},
        "expert_hook_calls": test.counters.hook_calls,
        "expert_hits": test.counters.decode_hits + test.counters.prefill_hits,
        "expert_misses": test.counters.decode_misses + test.counters.prefill_misses,
    }
    (out / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(json.dumps({key: value for key, value in report.items() if key != "steps"}))
    faulthandler.cancel_dump_traceback_later()
    return 0 if ok else 1
