"""The engine thread: one loop, takes a Command, emits Events.

The heavy libraries (torch, transformers) are imported by the thread itself, as its first act, so that whoever makes an
``EngineService`` has a window up before that. Questions (ListModels, InspectModel, PlanMemory, CountTokens) have a
small thread of their own and are answered while an answer is being generated; downloads have one as well, and WhatIf a
process. No error ends any of them.
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.errors import GreenroomError, explain
from engine.messages import (
    Command,
    CountTokens,
    DownloadModel,
    Event,
    Failed,
    Generate,
    InspectModel,
    ListModels,
    LoadModel,
    LookUpModel,
    MemoryPlanned,
    MemorySnapshot,
    ModelList,
    ModelSummary,
    ModelUnloaded,
    PlanMemory,
    Progress,
    ShutDown,
    Stop,
    StopDownload,
    Stopped,
    StopWhatIf,
    UnloadModel,
    UseProfile,
    WhatIf,
)
from engine.models.download import Downloads
from engine.whatif import Replayer

if TYPE_CHECKING:
    from engine.models.hub import HubModel
    from engine.planning import Planner
    from engine.prediction.profile_writer import ProfileWriter
    from engine.session import ModelSession

LAST_QUESTION = 1.0  # seconds that it may take at the end

log = logging.getLogger("greenroom.engine")

Question = ListModels | InspectModel | PlanMemory | CountTokens | UseProfile
Emit = Callable[[Event], None]


class EngineService:
    """A model and its thread, behind a queue.

    emit: called with every Event, from the engine's threads; must return at once and never raise.
    """

    def __init__(self, emit: Emit) -> None:
        self._tell = emit
        self._commands: queue.SimpleQueue[tuple[int, Command]] = queue.SimpleQueue()
        self._questions: queue.SimpleQueue[Question | None] = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        self._sent = 0
        self._imported = threading.Event()  # two threads that import transformers at once break each other's import
        self._stopped_up_to = 0  # commands with a number up to this one are to stop
        self._thread = threading.Thread(target=self._run, name="greenroom-engine", daemon=True)
        self._librarian = threading.Thread(target=self._answer_questions, name="greenroom-library", daemon=True)
        self._replayer = Replayer(emit)
        self._session: ModelSession | None = None
        self._counting = threading.Lock()  # held while the library's thread refers to the session
        self._memory: MemorySnapshot | None = None  # the latest
        self._asked: dict[str, PlanMemory] = {}  # the latest question about each source
        self._planner: Planner | None = None
        self._downloads = Downloads(emit, self._plan_from_hub)
        self._profiles: ProfileWriter | None = None  # from the first load on

    def start(self) -> None:
        self._thread.start()
        self._librarian.start()

    def send(self, command: Command) -> None:
        """Queue a command. Returns at once."""
        if isinstance(command, Stop):
            self.stop()
        elif isinstance(command, StopDownload):
            self._downloads.stop()
        elif isinstance(command, LookUpModel | DownloadModel):
            self._downloads.send(command)
        elif isinstance(command, Question):
            if isinstance(command, PlanMemory):
                self._asked[command.source] = command
            self._questions.put(command)
        elif isinstance(command, WhatIf):
            self._replayer.ask(command)
        elif isinstance(command, StopWhatIf):
            self._replayer.stop(command.request_id)
        else:
            if isinstance(command, ShutDown):
                self.stop()
                self._downloads.close()
                self._questions.put(None)
            self._sent = next(self._numbers)
            self._commands.put((self._sent, command))

    def stop(self) -> None:
        """Stop what was asked for so far, running or waiting; acts between layers. Any thread may call it."""
        self._stopped_up_to = self._sent

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the engine thread to end after ShutDown. False when it did not in ``timeout`` seconds.

        The library's thread ends about then; if a question keeps it, the program may go without its answer.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        self._librarian.join(LAST_QUESTION)
        return True

    def _emit(self, event: Event) -> None:
        if isinstance(event, MemorySnapshot):
            self._memory = event
        self._tell(event)

    # ------------------------------------------------------------------------------------- the engine thread

    def _run(self) -> None:
        try:
            from engine.session import describe_engine

            self._emit(describe_engine())
        except Exception as error:  # a broken installation: every later command fails the same way, in words
            self._fail("start", error)
        finally:
            self._imported.set()
        while True:
            number, command = self._commands.get()
            if isinstance(command, ShutDown):
                break
            try:
                self._carry_out(number, command)
            except Exception as error:
                self._fail(_DOING[type(command)], error, getattr(command, "request_id", ""))
            if isinstance(command, LoadModel) and self._session is None:
                self._release_unused()  # the load broke off, and nothing refers to it any more
        try:
            self._unload()
        except Exception as error:  # the window waits for the last word all the same
            self._fail("unload", error)
        self._replayer.close()
        if self._profiles is not None:
            self._profiles.close()
        self._emit(Stopped())

    def _carry_out(self, number: int, command: Command) -> None:
        from engine.session import ModelSession

        def stopped() -> bool:
            return number <= self._stopped_up_to

        if isinstance(command, LoadModel):
            self._unload()
            self._session = ModelSession(command, self._emit, self._report(command), stopped, self._profile_writer())
            self._session.announce()
        elif isinstance(command, UnloadModel):
            self._unload()
            self._emit(ModelUnloaded())
        elif isinstance(command, Generate):
            if self._session is None:
                raise GreenroomError("No model is loaded; choose one first.")
            self._session.generate(command, stopped)

    def _unload(self) -> None:
        with self._counting:
            session, self._session = self._session, None
        if session is not None:
            session.close()
            del session  # the last reference: no cycle runs through a model
            self._release_unused()
            from engine.hardware.probes import memory_snapshot

            self._emit(memory_snapshot({}))

    def _release_unused(self) -> None:
        """Let the next plan, and other programs, have what a model had on a card."""
        try:
            from engine.experts.device import release_unused

            release_unused()
        except Exception as error:  # a broken installation, a card that gave up: the next load says so in words
            log.warning("no card's memory was released: %s", error)

    def _profile_writer(self) -> ProfileWriter:
        if self._profiles is None:
            from engine.prediction.profile_writer import ProfileWriter

            self._profiles = ProfileWriter()
        return self._profiles

    def _report(self, command: LoadModel) -> Callable[[str, float | None], None]:
        name = "the demo model" if command.source == "demo" else command.source
        return lambda detail, fraction: self._emit(Progress(f"Loading {name}", detail, fraction))

    def _fail(self, doing: str, error: Exception, request_id: str = "") -> None:
        details = ""
        if not isinstance(error, GreenroomError):
            details = traceback.format_exc()
            log.error("unexpected fault while trying to %s\n%s", doing, details)
        self._emit(Failed(doing, explain(error), request_id, details))

    # ---------------------------------------------------------------------------------- the library's thread

    def _answer_questions(self) -> None:
        self._imported.wait()
        while True:
            question = self._questions.get()
            if question is None:
                return
            if isinstance(question, CountTokens):
                self._count(question)
                continue
            try:
                if isinstance(question, PlanMemory):
                    self._plan(question)
                elif isinstance(question, UseProfile):
                    from engine.prediction.deeds import use_profile

                    if self._profiles is not None:
                        self._profiles.settle(question.signature)
                    self._emit(use_profile(question))
                elif isinstance(question, ListModels):
                    from engine.models.catalog import find_models

                    if self._planner is not None:
                        self._planner.forget()
                    self._emit(ModelList(find_models(question.folders)))
                else:
                    from engine.models.catalog import summarize

                    self._emit(ModelList((summarize(question.source),)))
            except Exception as error:
                if isinstance(question, PlanMemory):
                    self._fail("plan", error, question.source)
                elif isinstance(question, UseProfile):
                    self._fail("profile", error, question.signature)
                else:
                    self._fail("list", error)

    def _plan(self, question: PlanMemory) -> None:
        if self._asked.get(question.source) is not question:
            return  # asked again meanwhile
        from engine.planning import Planner, held_by_model

        if self._planner is None:
            self._planner = Planner()
        self._emit(self._planner.answer(question, held_by_model(self._memory)))

    def _count(self, question: CountTokens) -> None:
        with self._counting:
            try:
                if self._session is not None:
                    self._emit(self._session.count(question))
            except Exception as error:
                self._fail("count", error, question.request_id)

    def _plan_from_hub(self, model: HubModel) -> tuple[ModelSummary, MemoryPlanned | None]:
        self._imported.wait()
        from engine.planning import plan_from_hub

        return plan_from_hub(model)


_DOING: dict[type[Command], str] = {LoadModel: "load", UnloadModel: "unload", Generate: "generate"}
