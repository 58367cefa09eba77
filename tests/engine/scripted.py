"""A runtime whose experts are numbers, whose store can be held, broken or slow, whose prompter reads from a script."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from engine.errors import ModelError
from engine.experts.device import CpuDevice
from engine.experts.layout import expert_layout
from engine.experts.records import PassRecord
from engine.experts.runtime import ExpertRuntime

PATIENCE = 30.0  # seconds; only a hang takes them
LAYERS, EXPERTS, TOP_K = 4, 8, 2
LAYOUT = expert_layout({"down_proj": (4, 4)}, torch.uint8)
Script = Mapping[
    int, Mapping[int, float]
]  # layer meant (up to the one asked after: in the next pass) -> expert -> chance


class NumberStore:
    """An expert's bytes are all ``16 * layer + expert``. Experts in ``held`` are not read before they are let through;
    those in ``broken`` cannot be. ``before(layer, expert)`` is called at the start of each read."""

    quick = False

    def __init__(self, before: Callable[[int, int], None] = lambda layer, expert: None) -> None:
        self.held: set[tuple[int, int]] = set()
        self.broken: set[tuple[int, int]] = set()
        self.begun: list[tuple[int, int]] = []
        self.closed = False
        self._before = before
        self._changed = threading.Condition()

    def read(self, layer: int, expert: int, blob: torch.Tensor) -> int:
        with self._changed:
            self.begun.append((layer, expert))
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: (layer, expert) not in self.held, PATIENCE), "nobody let it through"
        self._before(layer, expert)
        if (layer, expert) in self.broken:
            blob.fill_(255)  # half a read: what is in the slot is worth nothing
            raise ModelError("The disk is gone.")
        blob.fill_(16 * layer + expert)
        return blob.nbytes

    def describe(self) -> str:
        return "made up"

    def close(self) -> None:
        self.closed = True

    def let_through(self, *experts: tuple[int, int]) -> None:
        with self._changed:
            self.held -= set(experts) or set(self.held)
            self._changed.notify_all()

    def wait_until_begun(self, layer: int, expert: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: (layer, expert) in self.begun, PATIENCE)


@dataclass
class Guess:
    layer: int
    chances: np.ndarray
    worth: float


class Prompted:
    """Stands where ``Foresight`` stands. ``says``: asked after each layer's routing, -1: before the first."""

    def __init__(self, says: Callable[[int], Script]) -> None:
        self._says = says
        self._order: Any = None

    def bind(self, order: Any) -> None:
        self._order = order

    asking = True

    def begin_pass(self, phase: str, tokens: int, complete: bool = False, unheard: bool = False) -> None:
        if phase == "decode":
            self._order(-1, self._guesses(-1))

    def routed(self, layer: int, experts: np.ndarray, counts: np.ndarray) -> Sequence[Guess]:
        return self._guesses(layer)

    def end_pass(self, seconds: float) -> float:
        return 0.0

    def close(self) -> None:
        pass

    def _guesses(self, layer: int) -> list[Guess]:
        guesses = []
        for target, named in self._says(layer).items():
            chances = np.zeros(EXPERTS, np.float32)
            chances[list(named)] = list(named.values())
            distance = (target - layer - 1) % LAYERS + 1
            guesses.append(Guess(target, chances, 1 - distance / LAYERS))
        return guesses


class Stage:
    """A runtime of LAYERS x EXPERTS numbers on ``devices`` CPU devices that share ``store``."""

    def __init__(
        self,
        slots: int,
        says: Callable[[int], Any] = lambda layer: {},
        policy: str = "lru",
        store: NumberStore | None = None,
        devices: int = 1,
    ) -> None:
        self.store = store or NumberStore()
        stages = [(CpuDevice(), self.store) for _ in range(devices)]
        self.runtime = ExpertRuntime([LAYOUT] * LAYERS, {LAYOUT: slots}, EXPERTS, TOP_K, policy, stages)
        self.runtime.foresee(Prompted(says))  # type: ignore[arg-type]

    def serve(self, layer: int, wanted: Iterable[int]) -> Iterator[list[int]]:
        """Experts as they are served, each checked to be who it should be."""
        ids = np.array(sorted(wanted), dtype=np.int64)
        for experts, views in self.runtime.serve(layer, ids, np.ones(len(ids), np.uint32)):
            for expert, parameters in zip(experts, views, strict=True):
                assert (parameters["down_proj"] == 16 * layer + expert).all(), (layer, expert)
            yield list(experts)

    def token(self, *layers: Iterable[int], seconds: float = 0.01, wait: bool = True) -> PassRecord:
        """A decode pass; wait: for what was fetched ahead, before each layer and at the end."""
        self.runtime.begin_pass("decode", 1)
        for layer, wanted in enumerate(layers):
            if wait:
                self.arrived()
            ids = list(wanted)
            assert sorted(expert for served in self.serve(layer, ids) for expert in served) == sorted(ids)
        if wait:
            self.arrived()
        return self.runtime.end_pass(seconds)

    def arrived(self) -> None:
        """Wait for everything that is being fetched ahead."""
        for out in self.runtime._ahead._out:
            for early in list(out.values()):
                early.fetch.wait()

    @property
    def out(self) -> set[tuple[int, int]]:
        """Who was fetched ahead and has neither been used nor let go."""
        return {divmod(key, EXPERTS) for out in self.runtime._ahead._out for key in out}

    def resident(self, layer: int, expert: int) -> bool:
        return bool(self.runtime.resident_mask()[layer, expert])

    def counters(self) -> Any:
        return self.runtime.observer.counters(self.runtime.evictions)

    def close(self) -> None:
        self.store.let_through()
        self.runtime.close()
