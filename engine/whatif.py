"""What other choices would have cost: replays of session logs, beside a model that goes on answering.

A replay is minutes of small steps in Python. In a thread it would take the interpreter away from decode thousands of
times a second, so each has a process of its own, of low priority, that ends at once when it is stopped; it imports
neither torch nor a model. One runs at a time, the others wait.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from engine.errors import GreenroomError, SessionError, explain
from engine.messages import (
    Event,
    Failed,
    WhatIf,
    WhatIfForesight,
    WhatIfLine,
    WhatIfPoint,
    WhatIfProgress,
    WhatIfResult,
)

if TYPE_CHECKING:
    from engine.replay.compare import Outcome
    from engine.replay.trace import Trace

log = logging.getLogger("greenroom.whatif")

DOING = "what if"
TELL_SECONDS = 0.1  # between two words about how far it is
READING = 0.05  # share of the whole that reading the logs takes, about
NICENESS = 15  # of 0..19, the last to be served
END_SECONDS = 5.0

Tell: TypeAlias = Callable[[WhatIfProgress], None]


class Replayer:
    """Answers ``WhatIf``, one after the other; every one ends in ``WhatIfResult`` or ``Failed``. Any thread may call.

    emit: called from a thread of its own, with WhatIfProgress, WhatIfResult and Failed.
    """

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._waiting: queue.SimpleQueue[WhatIf | None] = queue.SimpleQueue()
        self._guard = threading.Lock()  # for all below
        self._asked: set[str] = set()  # waiting or running
        self._stopped: set[str] = set()  # of these, those that shall end
        self._running: tuple[str, BaseProcess] | None = None
        self._thread: threading.Thread | None = None

    def ask(self, command: WhatIf) -> None:
        """Returns at once."""
        with self._guard:
            self._asked.add(command.request_id)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="greenroom-whatif", daemon=True)
                self._thread.start()
        self._waiting.put(command)

    def stop(self, request_id: str) -> None:
        """End that one. Nothing happens when there is none, or no longer."""
        with self._guard:
            if request_id not in self._asked:
                return
            self._stopped.add(request_id)
            if self._running is not None and self._running[0] == request_id:
                self._running[1].terminate()

    def close(self) -> None:
        """End all of them, and the thread."""
        with self._guard:
            thread, asked = self._thread, list(self._asked)
        for request_id in asked:
            self.stop(request_id)
        if thread is not None:
            self._waiting.put(None)
            thread.join(END_SECONDS)

    def _run(self) -> None:
        while (command := self._waiting.get()) is not None:
            try:
                event = self._answer(command)
            except Exception as error:
                log.exception("a replay could not be run")
                event = Failed(DOING, explain(error), command.request_id, traceback.format_exc())
            with self._guard:
                stopped = command.request_id in self._stopped
                self._asked.discard(command.request_id)
                self._stopped.discard(command.request_id)
            if stopped:
                event = Failed(DOING, "The replay was stopped.", command.request_id)
            self._emit(event)

    def _answer(self, command: WhatIf) -> Event:
        """What the process says last."""
        spawn = multiprocessing.get_context("spawn")
        ours, theirs = spawn.Pipe(duplex=False)
        process = spawn.Process(target=_in_a_process, args=(theirs, command), name="greenroom-whatif", daemon=True)
        last: Event = Failed(DOING, "The replay ended before it was done. Try fewer sizes.", command.request_id)
        with ours:
            with self._guard:
                if command.request_id in self._stopped:
                    theirs.close()
                    return last
                process.start()
                self._running = command.request_id, process
            theirs.close()
            try:
                while isinstance(event := ours.recv(), WhatIfProgress):
                    self._emit(event)
                last = event
            except (EOFError, OSError):
                log.info("the replay's process ended early")
            finally:
                with self._guard:
                    self._running = None
                process.join(END_SECONDS)
        return last


def _in_a_process(connection: Connection, command: WhatIf) -> None:
    """The whole life of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C at a terminal is for the program that started this one
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
    _step_back()
    told = float("-inf")

    def tell(progress: WhatIfProgress) -> None:
        nonlocal told
        if time.monotonic() - told >= TELL_SECONDS:
            told = time.monotonic()
            connection.send(progress)

    try:
        connection.send(what_if(command, tell))
    except (BrokenPipeError, ConnectionError):
        return  # nobody is there any more
    except Exception as error:
        details = "" if isinstance(error, GreenroomError) else traceback.format_exc()
        connection.send(Failed(DOING, explain(error), command.request_id, details))


def _step_back() -> None:
    """Let every other process of the user go first."""
    import psutil

    try:
        psutil.Process().nice(psutil.BELOW_NORMAL_PRIORITY_CLASS if sys.platform == "win32" else NICENESS)
    except (psutil.Error, OSError) as error:
        log.info("the replay runs at the usual priority: %s", error)


def what_if(command: WhatIf, tell: Tell = lambda progress: None) -> WhatIfResult:
    """The replay itself, here and now; figures are those of ``engine.replay.report``. Raises SessionError, OptionError.

    tell: called often.
    """
    from engine.replay.compare import parse_budgets, parse_policies, runs
    from engine.replay.foreseen import foresee, parse_predictors
    from engine.replay.trace import Request, read_trace

    policies = parse_policies(",".join(command.policies)) if command.policies else []
    predictors = parse_predictors(",".join(command.predictors)) if command.predictors else []
    if not command.logs:
        raise SessionError("There is nothing to replay: no answer was logged yet.")
    tell(WhatIfProgress(command.request_id, 0.0, "reading what was logged"))
    trace = read_trace([Path(path) for path in command.logs])
    budgets = parse_budgets(",".join(command.budgets), trace.model)
    lines: list[WhatIfLine] = []
    parts = len(policies) + 1 + len(predictors)
    done = 0

    def moved(name: str, share: float) -> None:
        fraction = READING + (1 - READING) * (done + share) / parts
        tell(WhatIfProgress(command.request_id, fraction, f"replaying {name}", tuple(lines)))

    for outcomes in runs(trace, policies, budgets, moved):
        lines.append(_line(outcomes))
        done += 1
    foresight: list[WhatIfForesight] = []
    for name in predictors:
        moved(name, 0.0)
        foresight += [
            WhatIfForesight(one.predictor, one.distance, one.source, one.precision, one.recall)
            for one in foresee(trace, [name])
        ]
        done += 1
    last = trace.last_model
    return WhatIfResult(
        request_id=command.request_id,
        lines=tuple(lines),
        foresight=tuple(foresight),
        model=trace.model.name,
        signature=trace.model.signature,
        total_experts=trace.model.layers * trace.model.experts,
        slot_bytes=trace.model.slot_bytes,
        prefill_tokens=trace.tokens("prefill"),
        decode_tokens=trace.tokens("decode"),
        answers=sum(isinstance(one, Request) for one in trace.happenings),
        policy=last.policy,
        slots=last.slots,
        predictor=last.predictor,
        hit_rate=_hit_rate(trace),
    )


def _line(outcomes: Sequence[Outcome]) -> WhatIfLine:
    points = (
        WhatIfPoint(outcome.budget.text, outcome.budget.slots, outcome.decode_hit_rate, outcome.bytes_per_token)
        for outcome in outcomes
    )
    return WhatIfLine(outcomes[0].policy, tuple(points))


def _hit_rate(trace: Trace) -> float | None:
    """Share of decode's uses that were hits when the logs were written."""
    steps = [step for step in trace.steps if step.phase == "decode"]
    uses = sum(len(experts) for step in steps for _, experts, _ in step.wanted)
    misses = sum(int(step.missed.sum()) for step in steps)
    return (uses - misses) / uses if uses else None
