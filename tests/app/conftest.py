"""A window with its engine, both real or with an engine that says what the test tells it to."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.chat.transcript import Transcript
from app.engine_client import EngineClient
from app.main_window import MainWindow
from app.settings import Settings
from app.theme import Theme
from engine.messages import (
    CacheCounters,
    Command,
    EngineReady,
    Event,
    Finished,
    Generate,
    ListModels,
    LoadModel,
    ModelList,
    ModelLoaded,
    ShutDown,
    Started,
    Stopped,
    Timings,
    Token,
)

LOAD_MS = 120_000  # torch's import on a busy machine

LOADED = ModelLoaded(
    "demo", "SmolLM2 demo", "qwen2_moe", "abc", 30, 32, 12, "CPU", "float32", "lru", 240, 960, 90_000, 10**8, 8192, True
)


_TESTS_BETWEEN = 25  # two full collections; one takes as long as a short test
_number = itertools.count(1)


@pytest.fixture(autouse=True)
def garbage_on_this_thread() -> Iterator[None]:
    """As in the program, Python collects on the GUI thread alone: on a helper's it would delete Qt objects there."""
    gc.disable()
    yield
    gc.collect(1 if next(_number) % _TESTS_BETWEEN else 2)


@pytest.fixture(scope="session", autouse=True)
def nothing_left_on_the_clipboard(qapp) -> Iterator[None]:
    """Without a window system the clipboard is emptied after Python has ended, and what Python made cannot go then."""
    yield
    qapp.clipboard().clear()


@pytest.fixture
def theme(qapp) -> Theme:
    return Theme("dark")


@pytest.fixture
def transcript(theme: Theme, qtbot) -> Transcript:
    """By itself, as wide as the column that is read."""
    view = Transcript(theme)
    qtbot.addWidget(view)
    view.resize(820, 700)
    view.show()
    return view


class ObedientEngine:
    """Answers commands at once, on the caller's thread; an answer waits until the test gives it."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self.emit = emit
        self.sent: list[Command] = []
        self.stops = 0
        self.refuse: Event | None = None  # said instead of ModelLoaded

    def start(self) -> None:
        self.emit(EngineReady("greenroom", "torch", "CPU"))

    def send(self, command: Command) -> None:
        self.sent.append(command)
        if isinstance(command, LoadModel):
            self.emit(self.refuse or LOADED)
        elif isinstance(command, ListModels):
            self.emit(ModelList(()))
        elif isinstance(command, ShutDown):
            self.emit(Stopped())

    def stop(self) -> None:
        self.stops += 1

    def join(self, timeout: float | None = None) -> bool:
        return True

    @property
    def asked(self) -> Generate:
        """The latest question."""
        return [command for command in self.sent if isinstance(command, Generate)][-1]

    def answer(self, text: str, reason: str = "end", error: str = "") -> None:
        """Answer the latest question in one go."""
        request = self.asked.request_id
        self.emit(Started(request, 10, 0))
        self.emit(Token(request, text, 3))
        self.finish(text, reason, error)

    def finish(self, text: str, reason: str = "end", error: str = "") -> None:
        timings = Timings(10, 0, 3, 0.5, 0.4, 1.0)
        self.emit(Finished(self.asked.request_id, reason, text, timings, CacheCounters(), 1, error))  # type: ignore[arg-type]


class Bench:
    """A window and the engine behind it."""

    def __init__(self, data: Path, qtbot, kind: type[ObedientEngine] = ObedientEngine) -> None:
        self.data = data
        made: list[ObedientEngine] = []

        def make(emit: Callable[[Event], None]) -> ObedientEngine:
            made.append(kind(emit))
            return made[0]

        self.client = EngineClient(make)
        self.engine = made[0]
        self.settings = Settings(data / "settings.json")
        self.window = MainWindow(self.client, Theme("light"), self.settings, data / "conversations", "greenroom test")
        self._qtbot = qtbot
        qtbot.addWidget(self.window)

    def start(self, model: str | None = None) -> MainWindow:
        """Show the window with a model ready."""
        self.window.resize(1280, 800)
        self.window.show()
        self.window.start(model)
        self._qtbot.waitUntil(lambda: self.window.state.model is not None or bool(self.window.state.problem))
        return self.window

    def close(self) -> None:
        if self.client.running:
            with self._qtbot.waitSignal(self.client.stopped, timeout=10_000):
                self.window.close()


@pytest.fixture
def bench(tmp_path: Path, qtbot) -> Iterator[Bench]:
    bench = Bench(tmp_path, qtbot)
    yield bench
    bench.close()


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """No token ends an answer. Asked for before ``window``: a random model would end by itself now and then."""
    monkeypatch.setattr("engine.generation.generate.end_tokens", lambda loaded: set())


@pytest.fixture
def window(tmp_path: Path, tiny_chat_model: Path, qtbot) -> Iterator[MainWindow]:
    """The real window with the real engine and a tiny model that is ready."""
    settings = Settings(tmp_path / "settings.json")
    settings.preset, settings.max_tokens = "precise", 24
    window = MainWindow(EngineClient(), Theme("dark"), settings, tmp_path / "conversations", "greenroom test")
    qtbot.addWidget(window)
    window.show()
    window.start(str(tiny_chat_model))
    qtbot.waitUntil(lambda: window.state.model is not None or bool(window.state.problem), timeout=LOAD_MS)
    assert window.state.problem == ""
    yield window
    if window.client.running:
        with qtbot.waitSignal(window.client.stopped, timeout=10_000):
            window.close()
    assert window.client.join(5)


class Pause:
    """Holds the engine in the middle of an answer."""

    def __init__(self) -> None:
        self._after: int | None = None
        self._open = threading.Event()

    def after(self, tokens: int) -> None:
        """From now on, wait before the token with this number, counted from 0, until ``go``."""
        self._after = tokens
        self._open.clear()

    def go(self) -> None:
        self._after = None
        self._open.set()

    def wait(self) -> None:
        """On the engine's thread, before each token."""
        if self._after is not None:
            if self._after == 0:
                self._open.wait(60)
            else:
                self._after -= 1


@pytest.fixture
def pause(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pause]:
    from engine.generation.sampling import Sampler

    pause, choose = Pause(), Sampler.choose

    def paused(sampler, *arguments):
        pause.wait()
        return choose(sampler, *arguments)

    monkeypatch.setattr(Sampler, "choose", paused)
    yield pause
    pause.go()
