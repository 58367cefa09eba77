"""One loaded model at work for the engine thread: loads, answers, and tells what happened."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
import transformers

from engine.errors import explain
from engine.experience import Experience
from engine.experts.records import PassRecord, Phase
from engine.generation.generate import Decoded, Ended, Prefilled, PromptReady, Repeated, Step
from engine.generation.template import template_facts
from engine.generation.text_to_text import TextToText, language_codes, text_generator
from engine.hardware.plan import disk_for_pasts
from engine.hardware.probes import memory_snapshot, processor_name
from engine.kv.store import PastStore, clear
from engine.loading import LoadedModel, load
from engine.messages import (
    CacheCounters,
    CountTokens,
    EngineReady,
    Event,
    Failed,
    Finished,
    FinishReason,
    Generate,
    Language,
    LoadModel,
    PrefillProgress,
    Started,
    Timings,
    Token,
    TokenCount,
)
from engine.models import demo
from engine.paths import data_dir, pasts_dir
from engine.prediction.profile_writer import ProfileWriter
from engine.recording import Recorder
from engine.telemetry import Telemetry
from engine.version import __version__

log = logging.getLogger("greenroom.engine")

MEMORY_INTERVAL = 1.0  # seconds between looks at the system's memory

Emit = Callable[[Event], None]


def program() -> str:
    """Name and version, as logs carry it."""
    return f"greenroom {__version__}"


def describe_engine() -> EngineReady:
    """What this engine is made of and runs on."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    cards = tuple(torch.cuda.get_device_name(number) for number in range(count))
    libraries = f"torch {torch.__version__}, transformers {transformers.__version__}"
    return EngineReady(program(), libraries, cards[0] if cards else processor_name(), cards)


class ModelSession:
    """A loaded model with its conversation's KV cache. Lives on the engine thread."""

    def __init__(
        self,
        command: LoadModel,
        emit: Emit,
        report: Callable[[str, float | None], None],
        stopped: Callable[[], bool],
        profiles: ProfileWriter,
    ) -> None:
        """Load, building the demo first when it was never used. Raises GreenroomError.

        profiles: saves what answers teach; ``close`` leaves the last one to it.
        """
        self._emit = emit
        if command.source == "demo" and not demo.is_built():
            demo.build_demo(progress=report, cancelled=stopped)
        self._loaded = load(command, report, stopped)
        with ExitStack() as unwinding:
            unwinding.callback(self._loaded.close)
            self._experience = Experience(
                self._loaded, command, profiles, complain=lambda text: emit(Failed("log", text))
            )
            unwinding.callback(self._experience.close)
            report("filling slots with experts", 0.97)
            everyone = self._loaded.runtime.everyone
            self._loaded.runtime.warm(everyone if len(everyone) else self._experience.likely_first(), stopped)
            thinking, told = template_facts(self._loaded.tokenizer)
            notes = (*self._loaded.info.notes, *told, *self._experience.notes)
            languages = self._languages()
            self._loaded.info = replace(self._loaded.info, notes=notes, thinking=thinking, languages=languages)
            store = _past_store(self._loaded, command)
            unwinding.callback(store.close)
            self._generator = text_generator(self._loaded, store)
            self._telemetry = Telemetry(self._loaded, self._experience.foresight)
            unwinding.pop_all()  # ``close`` ends them
        self._recorded_in = ""  # the log whose last model record is still true
        self._memory_due = 0.0

    def _languages(self) -> tuple[Language, ...]:
        info, tokenizer = self._loaded.info, self._loaded.tokenizer
        codes = language_codes(tokenizer) if info.one_text and tokenizer is not None else []
        return tuple(Language(code, code) for code in codes)

    def announce(self) -> None:
        """Say that the model is there, once questions about it can be answered."""
        self._emit(self._loaded.info)
        self._snapshot_all("idle", 0)

    def close(self) -> None:
        """Keep what was read, and give the memory back."""
        self._generator.pasts.close()
        self._experience.close()
        self._loaded.close()

    def count(self, question: CountTokens) -> TokenCount:
        """How long a prompt would be. Any thread may ask, while another generates. Raises ModelError."""
        prompt = self._generator.prompt(question.messages, question.max_tokens, question.thinking)
        return TokenCount(question.request_id, len(prompt.ids), prompt.left_out, self._loaded.info.context)

    def generate(self, command: Generate, stopped: Callable[[], bool]) -> None:
        """Answer, emitting Started .. Finished. Raises GreenroomError when nothing was started."""
        before = self._counters()
        if isinstance(self._generator, TextToText):
            self._generator.translate(command.source_language, command.target_language)
        with (
            closing(Recorder(command, lambda text: self._emit(Failed("log", text)))) as recorder,
            closing(
                self._generator.answer(command.messages, command.sampling, stopped, command.thinking, chat=command.log)
            ) as steps,
        ):
            ready = next(steps)
            assert isinstance(ready, PromptReady)
            self._begin(command, ready, recorder)
            self._experience.begin_request()
            answer = _Answer(Timings(ready.prompt_tokens, ready.reused_tokens))
            try:
                for step in steps:
                    self._take(step, command.request_id, answer, recorder)
            except Exception as error:
                log.exception("the answer broke off")
                self._close_pass(recorder)
                self._recorded_in = ""  # what the broken pass did to the cache is in no record
                answer.reason, answer.error = "error", explain(error)
            self._snapshot_all("idle", answer.count)
            self._telemetry.pause()
            cost = self._counters().minus(before)
            text = "".join(answer.pieces)
            finished = Finished(
                command.request_id, answer.reason, text, answer.timings, cost, answer.seed, answer.error
            )
            foresight = self._experience.foresight
            recorder.finish(finished, self._loaded.info.predictor, foresight.state().accuracy)
            self._emit(finished)
        self._experience.end_request()

    def _begin(self, command: Generate, ready: PromptReady, recorder: Recorder) -> None:
        if command.log != self._recorded_in:
            # what is resident now is not what that log says last
            recorder.model(self._loaded, program(), describe_engine().device)
            self._recorded_in = command.log
        recorder.start(ready.prompt_tokens, ready.reused_tokens)
        notes = (*ready.notes, *self._loaded.runtime.news.fresh())
        self._emit(Started(command.request_id, ready.prompt_tokens, ready.reused_tokens, notes))

    def _take(self, step: Step, request_id: str, answer: _Answer, recorder: Recorder) -> None:
        if isinstance(step, Prefilled):
            self._record(step.record, recorder)
            self._emit(PrefillProgress(request_id, step.done_tokens, step.total_tokens))
            self._sample("prefill", answer.count)
        elif isinstance(step, Decoded):
            answer.count = step.count
            answer.pieces.append(step.text)
            if step.record is not None:
                self._record(step.record, recorder)
                self._telemetry.add(step.record)
            recorder.text(step.text)
            self._emit(Token(request_id, step.text, step.count))
            self._sample("decode", step.count)
        elif isinstance(step, Repeated):
            self._record(step.record, recorder)
            recorder.model(self._loaded, program(), describe_engine().device)
            self._emit(Failed("memory", step.note))
        elif isinstance(step, Ended):
            for record in step.records:
                self._record(record, recorder)
            recorder.settled(step.settled)
            answer.pieces.append(step.text)
            answer.reason, answer.timings, answer.seed = step.reason, step.timings, step.seed
            if step.text:
                recorder.text(step.text)
                self._emit(Token(request_id, step.text, answer.count))

    def _close_pass(self, recorder: Recorder) -> None:
        """An answer broke off: what its pass came through was counted, so it is logged like that of a stopped one."""
        runtime = self._loaded.runtime
        try:
            if runtime.observer.in_pass:
                self._record(runtime.end_pass(0.0), recorder)
            recorder.settled(runtime.end_answer())
        except Exception:  # a card that gave up
            log.exception("the answer that broke off could not be closed")

    def _record(self, record: PassRecord, recorder: Recorder) -> None:
        recorder.forward_pass(record)
        self._telemetry.note(record)
        self._experience.passed()
        foresight = self._experience.foresight
        if foresight.news:
            foresight.news = ""
            recorder.verdict(foresight.state())

    # ------------------------------------------------------------------------------------------ snapshots

    def _sample(self, phase: Phase, token: int) -> None:
        if self._telemetry.due():
            self._emit(self._telemetry.experts(phase, token))
            self._emit(self._telemetry.cache())
            if time.perf_counter() >= self._memory_due:
                self._emit_memory()

    def _snapshot_all(self, phase: Literal["idle"], token: int) -> None:
        self._emit(self._telemetry.experts(phase, token))
        self._emit(self._telemetry.cache())
        self._emit_memory()

    def _emit_memory(self) -> None:
        self._memory_due = time.perf_counter() + MEMORY_INTERVAL
        self._emit(
            memory_snapshot(self._telemetry.held(self._generator.pasts.nbytes, self._generator.pasts.kept_bytes))
        )

    def _counters(self) -> CacheCounters:
        return self._loaded.runtime.observer.counters(self._loaded.runtime.evictions)


def _past_store(loaded: LoadedModel, command: LoadModel) -> PastStore:
    """Where pasts of other chats are kept. Signed with all that changes a model's numbers."""
    folder, info, kind = pasts_dir(), loaded.info, loaded.past_kind
    try:
        disk = disk_for_pasts(command.keep_past, shutil.disk_usage(data_dir()).free)
    except OSError as error:  # the data folder's disk is gone
        log.warning("what is read is not kept: %s", error)
        return PastStore(None, "", 0, 0)
    if not disk:
        clear(folder)
    made_by = (torch.__version__, transformers.__version__, kind.cache_class.__name__, kind.stepped, str(loaded.device))
    attention = getattr(loaded.model.config, "_attn_implementation", "")
    signature = json.dumps([info.signature, info.dtype, attention, *made_by])
    return PastStore(folder, signature, loaded.kept_bytes if disk else 0, disk)


@dataclass
class _Answer:
    """What is known of the running answer."""

    timings: Timings
    pieces: list[str] = field(default_factory=list)
    count: int = 0
    reason: FinishReason = "error"
    seed: int = 0
    error: str = ""
