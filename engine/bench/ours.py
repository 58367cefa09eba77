"""Greenroom's own contender: a model loaded and answering as a session has it, off the record."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import torch

from engine.bench.contender import TOUCH, Pages, PathInfo, Sample, Stopwatch
from engine.experience import Experience
from engine.experts.arena import Arena
from engine.experts.device import CpuDevice
from engine.experts.layout import expert_layout
from engine.experts.store import DiskStore
from engine.experts.transfer import READERS
from engine.generation.generate import Decoded, Ended, PromptReady, TextGenerator
from engine.hardware.disk import Span
from engine.loading import Inspection, LoadedModel, load
from engine.messages import CacheCounters, LoadModel, ReadMode, Sampling
from engine.prediction.shape import State

__all__ = ["READERS", "ExpertReader", "Ours", "load_whole"]


class Lessons:
    """What one model learnt in its warm-up, for the others with the same predictor: learning once is enough."""

    def __init__(self) -> None:
        self.tables: dict[str, State] = {}  # by predictor


def load_whole(command: LoadModel, tables: State | None) -> tuple[LoadedModel, Experience]:
    """Load as a session does, the predictor at work. The user's profile is neither used nor changed: the first begins
    knowing nothing, and its warm-up teaches."""
    loaded = load(command)
    try:
        if loaded.info.slots == loaded.info.total_experts:
            loaded.runtime.warm(_everyone(loaded))  # "all in memory" from the first token on
        return loaded, Experience(loaded, command, tables=tables)
    except BaseException:
        loaded.close()
        raise


def _everyone(loaded: LoadedModel) -> np.ndarray:
    """Every expert's key, ``layer * experts + expert``."""
    counts = [int(loaded.model.get_submodule(path).num_experts) for path in loaded.expert_modules]  # type: ignore[arg-type]
    return np.concatenate([layer * loaded.info.experts + np.arange(count) for layer, count in enumerate(counts)])


class ExpertReader:
    """The expert store by itself: experts from the model's files into slots, as many in flight as a session has."""

    def __init__(self, found: Inspection, dtype: torch.dtype, reads: ReadMode) -> None:
        self._layouts = [expert_layout(module.parameters, dtype) for module in found.index.modules]
        self._store = DiskStore(found.index, self._layouts, found.model, reads)
        self.way = self._store.describe()  # in words
        self._arenas = {layout: Arena(layout, READERS, CpuDevice()) for layout in set(self._layouts)}
        for arena in self._arenas.values():
            for slot in range(READERS):
                arena.blob(slot).zero_()  # memory is had at the first touch

    def rate(self, experts: Sequence[tuple[int, int]]) -> float:
        """Read every (layer, expert); bytes per second."""
        began = time.perf_counter()
        with ThreadPoolExecutor(READERS) as pool:
            shares = [experts[first::READERS] for first in range(READERS)]
            read = sum(pool.map(self._read_all, shares, range(READERS)))
        return read / (time.perf_counter() - began)

    def close(self) -> None:
        self._store.close()

    def _read_all(self, experts: Sequence[tuple[int, int]], slot: int) -> int:
        return sum(
            self._store.read(layer, expert, self._arenas[self._layouts[layer]].blob(slot)) for layer, expert in experts
        )


class Ours:
    """A model with some share of its experts in memory."""

    def __init__(
        self,
        command: LoadModel,
        paths: Sequence[PathInfo],
        spans: Sequence[Span],
        need: int,
        lessons: Lessons,
        report: Callable[[str], None],
    ) -> None:
        self.name = paths[0].key
        self.need = need
        self.paths = paths
        self._command = command
        self._spans = spans
        self._lessons = lessons
        self._report = report
        self._loaded: LoadedModel | None = None
        self._experience: Experience | None = None
        self._generator: TextGenerator | None = None

    def open(self) -> None:
        self._report(f"{self.name}: loading")
        self._loaded, self._experience = load_whole(self._command, self._lessons.tables.get(self._command.predictor))
        self._generator = TextGenerator(self._loaded, ends=set())

    @property
    def _whole(self) -> bool:
        assert self._loaded is not None
        return self._loaded.info.slots == self._loaded.info.total_experts

    def close(self) -> None:
        if self._experience is not None:
            self._experience.close()
        if self._loaded is not None:
            self._loaded.close()
        self._loaded = self._experience = self._generator = None

    def warm_up(self, asked: int) -> int:
        return min(asked, TOUCH) if self._whole or self._command.predictor in self._lessons.tables else asked

    def warmed_up(self) -> None:
        assert self._experience is not None
        if self._whole:  # it hardly listens, and needs to foresee nobody
            return
        known = self._experience.settle()
        self._lessons.tables[self._command.predictor] = {name: table.copy() for name, table in known.items()}

    def run(self, path: PathInfo, prompt: list[int], steps: int) -> Sample:
        assert self._generator is not None and self._experience is not None
        self._generator.past.clear()
        pages = Pages(self._spans, path.held)
        pages.before_answer()
        answer = self._generator.complete(prompt, Sampling(temperature=0.0, max_tokens=steps + 1))
        begun = next(answer)
        assert isinstance(begun, PromptReady)
        self._experience.begin_request()
        while not isinstance(next(answer), Decoded):
            self._experience.passed()  # a piece of the prompt; the first token comes out of the last
        before, linked = self._counters(), self._link_seconds()  # what the prompt cost is not what a token costs
        watch = Stopwatch()
        for step in range(steps):
            pages.before_token()
            if path.held and step == steps // 2:
                pages.look()
            with watch:
                next(answer)
                self._experience.passed()
        cost, linked = self._counters().minus(before), self._link_seconds() - linked
        tokens = tuple(self._generator.past.tokens[len(prompt) :])
        ended = next(answer)
        assert isinstance(ended, Ended) and len(tokens) == steps
        self._experience.end_request()
        self._experience.settle()
        prefill = ended.timings.prefill_seconds
        return Sample(len(prompt), prefill, tokens, watch.seconds, watch.cpu_seconds, cost, pages.share, linked)

    def _link_seconds(self) -> float:
        assert self._loaded is not None
        return self._loaded.runtime.link_seconds

    def _counters(self) -> CacheCounters:
        assert self._loaded is not None
        runtime = self._loaded.runtime
        return runtime.observer.counters(runtime.evictions)


def without_prefetch(command: LoadModel) -> LoadModel:
    """The same model when nobody is fetched before being called."""
    return replace(command, predictor="none", prefetch="off")
