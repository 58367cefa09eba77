"""What an answer taught is there at the next load: in the profile, and in the slots before the first word."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine import session
from engine.experience import Experience
from engine.generation.generate import TextGenerator
from engine.loading import LoadedModel, load
from engine.messages import (
    CacheSnapshot,
    Cell,
    ChatMessage,
    ExpertSnapshot,
    Failed,
    Finished,
    Generate,
    LoadModel,
    ModelLoaded,
    ProfileFacts,
    Sampling,
    Stopped,
    UseProfile,
)
from engine.prediction import profile_writer
from engine.prediction.predictors import Sample
from engine.prediction.predictors.gate_fitted import GateFitted
from engine.prediction.profile import Profile, profile_path, read_profile, save_profile
from engine.prediction.profile_writer import ProfileWriter
from engine.prediction.ridge import Ridge
from tests.engine.listening import Engine

ASK = Generate("r", (ChatMessage("user", "Hello there"),), Sampling(temperature=1.0, seed=5, max_tokens=24))


def _load(engine: Engine, model: Path, experts: str = "50%") -> tuple[ModelLoaded, CacheSnapshot]:
    engine.send(LoadModel(str(model), experts=experts))
    return engine.wait_for(ModelLoaded), engine.wait_for(CacheSnapshot)


def test_finished_answers_enter_the_profile_one_by_one(tiny_chat_model: Path) -> None:
    with Engine() as engine:
        loaded, cache = _load(engine, tiny_chat_model)
        assert cache.resident == 0  # nothing known yet
        for _ in range(2):
            engine.send(ASK)
            engine.wait_for(Finished)
        used = engine.of(ExpertSnapshot)[-1].total
    profile = read_profile(profile_path(loaded.signature))
    assert profile.requests == {"prefill": 2, "decode": 2}
    kept = profile.tables["eam/prefill"].sum(axis=0) + profile.tables["eam/decode"].sum(axis=0)
    assert (kept.reshape(used.shape) == used).all()


def test_the_next_load_starts_with_the_experts_past_answers_used(tiny_chat_model: Path) -> None:
    with Engine() as engine:
        _load(engine, tiny_chat_model)
        engine.send(ASK)
        first = engine.wait_for(Finished).cache
        loaded, cache = _load(engine, tiny_chat_model)
        assert cache.resident == loaded.slots == 12
        assert cache.counters.fetched_bytes == 0  # filling is no use
        resident = (engine.of(ExpertSnapshot)[-1].cells & Cell.RESIDENT) > 0
        counts = read_profile(profile_path(loaded.signature)).tables["eam/decode"].sum(axis=0).reshape(3, 8)
        share = counts / counts.sum(axis=1, keepdims=True)
        assert share[resident].min() >= share[~resident].max() - 1e-6
        engine.send(ASK)
        second = engine.wait_for(Finished).cache
    assert second.prefill_misses < first.prefill_misses


def test_slots_filled_beforehand_hold_the_right_experts(tiny_chat_model: Path) -> None:
    answers = []
    with Engine() as engine:
        for experts in ("100%", "100%", "25%"):
            _load(engine, tiny_chat_model, experts)
            engine.send(ASK)
            answers.append(engine.wait_for(Finished).text)
    assert answers[0] == answers[1] == answers[2]


class SlowDisk:
    """Takes a profile only when it is told to; everything else goes on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked, self.takes, self._save = threading.Event(), threading.Event(), save_profile
        monkeypatch.setattr(profile_writer, "save_profile", self._slow)

    def _slow(self, profile: Profile) -> object:
        self.asked.set()
        assert self.takes.wait(60)
        return self._save(profile)


def test_the_next_answer_does_not_wait_for_the_last_ones_profile(
    tiny_chat_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(monkeypatch)
    with Engine() as engine:
        loaded, _ = _load(engine, tiny_chat_model)
        for _ in range(3):
            engine.send(ASK)
            engine.wait_for(Finished)
        assert disk.asked.wait(60)
        assert not profile_path(loaded.signature).exists()
        engine.send(UseProfile(loaded.signature, "show"))  # is told of all three, and so waits
        disk.takes.set()
        assert engine.wait_for(ProfileFacts).requests == 3
    assert read_profile(profile_path(loaded.signature)).requests["decode"] == 3


def test_clearing_a_profile_is_not_undone_by_one_on_its_way(
    tiny_chat_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(monkeypatch)
    with Engine() as engine:
        loaded, _ = _load(engine, tiny_chat_model)
        engine.send(ASK)
        engine.wait_for(Finished)
        assert disk.asked.wait(60)
        engine.send(UseProfile(loaded.signature, "clear"))
        disk.takes.set()
        assert not engine.wait_for(ProfileFacts).there
        engine.send(LoadModel(str(tiny_chat_model)))
        engine.wait_for(ModelLoaded)
        assert engine.wait_for(CacheSnapshot).resident == 0
    assert not profile_path(loaded.signature).exists()


def test_a_profile_that_cannot_be_saved_is_told_once(tiny_chat_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(profile: Profile) -> object:
        raise OSError(28, "No space left on device", str(profile_path(profile.signature)))

    monkeypatch.setattr(profile_writer, "save_profile", full)
    with Engine() as engine:
        _load(engine, tiny_chat_model)
        engine.send(ASK)
        told = engine.wait_for(Failed, fail=False)
        assert told.text.startswith("What the answers teach is not saved for the next time: No space left on device (")
        engine.send(ASK)
        engine.wait_for(Finished)
    rest = list(iter(lambda: engine.events.get(timeout=60), Stopped()))
    assert not any(isinstance(event, Failed) for event in rest)


def test_damaged_profile_is_put_aside_in_a_sentence(tiny_chat_model: Path) -> None:
    with Engine() as engine:
        loaded, _ = _load(engine, tiny_chat_model)
        path = profile_path(loaded.signature)
        path.write_bytes(b"not a profile")
        loaded, cache = _load(engine, tiny_chat_model)
        assert cache.resident == 0
        assert any("damaged" in note for note in loaded.notes)


@pytest.mark.parametrize("keys", [[], [5, 9, 2]])
def test_warming_takes_what_there_is(tiny_chat_model: Path, keys: list[int]) -> None:
    loaded = load(LoadModel(str(tiny_chat_model), experts="25%"))
    try:
        assert loaded.runtime.warm(np.array(keys, dtype=np.int64)) == len(keys)
        assert np.flatnonzero(loaded.runtime.resident_mask()).tolist() == sorted(keys)
    finally:
        loaded.close()


@pytest.mark.parametrize("meanwhile", ["nothing", "cleared", "imported"])
def test_what_was_learnt_since_the_last_answer_is_saved_at_the_end(tiny_chat_model: Path, meanwhile: str) -> None:
    command = LoadModel(str(tiny_chat_model), predictor="gate-fitted")
    loaded, writer = load(command), ProfileWriter()
    experience = Experience(loaded, command, writer)
    try:
        for _ in experience_answer(loaded, experience):
            pass
        writer.settle(loaded.info.signature)
        fitted = experience.foresight.prompter.predictor
        assert isinstance(fitted, GateFitted)
        shape, random = fitted.shape, np.random.default_rng(1)
        inputs = random.normal(size=(150, shape.layers, shape.hidden)).astype(np.float32)
        scores = random.normal(size=(150, shape.layers, shape.experts)).astype(np.float32)
        before = fitted.learnt
        fitted.study(Sample(inputs, scores))
        experience.passed()
        end = time.monotonic() + 30
        while fitted.learnt < before + 64:
            assert time.monotonic() < end
            time.sleep(0.01)
        path = profile_path(loaded.info.signature)
        if meanwhile == "cleared":
            path.unlink()
        elif meanwhile == "imported":
            save_profile(Profile(loaded.info.signature, shape, {}))
    finally:
        experience.close()
        loaded.close()
        writer.close()
    if meanwhile == "cleared":
        assert not path.exists()
    else:
        learnt = {"gate-fitted": fitted.learnt} if meanwhile == "nothing" else {}
        assert read_profile(path).tokens_learnt == learnt


def experience_answer(loaded: LoadedModel, experience: Experience) -> Iterator[object]:
    """An answer as a session gives it."""
    experience.begin_request()
    for step in TextGenerator(loaded, set()).complete([5, 17, 3, 99], Sampling(temperature=0, max_tokens=8)):
        experience.passed()
        yield step
    experience.end_request()


def test_learning_that_breaks_off_goes_on_with_the_next_rows(
    tiny_chat_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = LoadModel(str(tiny_chat_model), predictor="gate-fitted")
    loaded = load(command)
    experience = Experience(loaded, command)
    failed = threading.Event()
    honest = Ridge.fold

    def scarce(self: Ridge, x: np.ndarray, y: np.ndarray) -> None:
        if not failed.is_set():
            failed.set()
            raise MemoryError
        honest(self, x, y)

    monkeypatch.setattr(Ridge, "fold", scarce)
    try:
        for _ in experience_answer(loaded, experience):
            pass
        assert failed.wait(30)
        for _ in experience_answer(loaded, experience):
            pass
        fitted = experience.foresight.prompter.predictor
        assert isinstance(fitted, GateFitted)
        end = time.monotonic() + 30
        while not fitted.learnt:
            assert time.monotonic() < end, "nobody learns any more"
            time.sleep(0.01)
        experience.settle()  # not between two of its maps
        assert {ridge.rows for ridge in fitted.maps} == {fitted.learnt}
    finally:
        experience.close()
        loaded.close()


def test_a_model_whose_session_cannot_begin_is_closed(tiny_chat_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*told: object) -> object:
        raise RuntimeError("this family's cache cannot be made")

    closed: list[object] = []
    for kind in (LoadedModel, Experience):
        monkeypatch.setattr(kind, "close", lambda self, close=kind.close: (closed.append(type(self)), close(self)))
    monkeypatch.setattr(session, "text_generator", none)
    with pytest.raises(RuntimeError, match="cannot be made"):
        session.ModelSession(
            LoadModel(str(tiny_chat_model)), lambda event: None, lambda *told: None, lambda: False, ProfileWriter()
        )
    assert closed == [Experience, LoadedModel]
