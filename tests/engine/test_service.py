"""The engine thread: what a face sees of it, with a real small model."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.errors import ModelError
from engine.experts.cache import ExpertCache
from engine.experts.policies import make_policy
from engine.messages import (
    CacheSnapshot,
    Cell,
    ChatMessage,
    CountTokens,
    EngineReady,
    ExpertSnapshot,
    Failed,
    Finished,
    Generate,
    InspectModel,
    ListModels,
    LoadModel,
    MemorySnapshot,
    ModelList,
    ModelLoaded,
    ModelUnloaded,
    PrefillProgress,
    Progress,
    Sampling,
    Started,
    Stopped,
    Token,
    TokenCount,
    UnloadModel,
)
from engine.session import ModelSession
from engine.sessions.log import SessionLog
from engine.sessions.reader import decode_pass, read_conversation, read_records, recount
from tests.engine.listening import Engine

# a random model ends at random: a high temperature with a fixed seed gives a long enough answer
SAMPLING = Sampling(temperature=1.0, top_p=1.0, seed=5, max_tokens=24)
HELLO = (ChatMessage("user", "Hello there, how are you today?"),)


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as engine:
        yield engine


def _ask(request: str = "r", log: Path | None = None, **changes: object) -> Generate:
    sampling = replace(SAMPLING, **changes)  # type: ignore[arg-type]
    return Generate(request, HELLO, sampling, str(log or ""), f"answer-{request}", "question" if log else "")


def _log(tmp_path: Path) -> Path:
    with SessionLog.create(tmp_path, "greenroom test") as log:
        log.append_message("question", None, "user", HELLO[0].text)
        return log.path


def test_an_answer_arrives_in_order(engine: Engine, tiny_chat_model: Path) -> None:
    engine.wait_for(EngineReady)
    engine.send(LoadModel(str(tiny_chat_model), experts="25%"))
    loaded = engine.wait_for(ModelLoaded)
    assert (loaded.slots, loaded.total_experts, loaded.family) == (6, 24, "qwen2_moe")
    assert engine.of(Progress)
    engine.send(_ask())
    finished = engine.wait_for(Finished)
    kinds = [type(event) for event in engine.seen if isinstance(event, Started | PrefillProgress | Token | Finished)]
    assert kinds[0] is Started
    assert kinds[-1] is Finished
    assert kinds.index(PrefillProgress) < kinds.index(Token)
    assert "".join(token.text for token in engine.of(Token)) == finished.text
    assert engine.of(Token)[-1].count == finished.timings.answer_tokens
    assert finished.seed == 5
    passes = 1 + finished.timings.answer_tokens - (finished.reason == "length")
    assert finished.cache.hook_calls == 3 * passes


@pytest.mark.parametrize("prefetch", ["off", "on"])
def test_snapshots_tell_where_experts_are(engine: Engine, tiny_chat_model: Path, prefetch: str) -> None:
    engine.send(LoadModel(str(tiny_chat_model), experts="50%", prefetch=prefetch))
    engine.send(_ask())
    finished = engine.wait_for(Finished)
    cells, cache = engine.of(ExpertSnapshot)[-1], engine.of(CacheSnapshot)[-1]
    assert cells.cells.shape == (3, 8)
    resident = (cells.cells & Cell.RESIDENT) > 0
    assert resident.sum() == cache.resident
    # whoever left for a fetch that was taken back may have been fetched into another slot meanwhile
    assert cache.resident == 12 or (prefetch == "on" and 0 < cache.resident < 12)
    routed = (cells.cells & Cell.ROUTED) > 0
    assert (routed.sum(axis=1) == 2).all()
    assert (routed == (((cells.cells & Cell.HIT) > 0) ^ ((cells.cells & Cell.MISS) > 0))).all()
    assert cells.answer.sum() == cells.total.sum()
    assert cache.counters.decode_hits == finished.cache.decode_hits
    assert not cells.cells.flags.writeable
    memory = engine.of(MemorySnapshot)[-1]
    parts = {part.kind: part.bytes for part in memory.bars[-1].parts}
    assert parts["experts"] == 12 * engine.of(ModelLoaded)[-1].slot_bytes
    assert parts["kv"] > 0
    assert sum(parts.values()) <= memory.bars[-1].total


def test_hits_shown_equal_a_recount_from_the_log(engine: Engine, tiny_chat_model: Path, tmp_path: Path) -> None:
    path = _log(tmp_path)
    engine.send(LoadModel(str(tiny_chat_model), experts="50%"))
    engine.send(_ask(log=path))
    engine.wait_for(Finished)
    shown = engine.of(CacheSnapshot)[-1].counters
    counted = recount(path)
    assert (counted.decode_hits, counted.decode_misses) == (shown.decode_hits, shown.decode_misses)
    assert (counted.prefill_hits, counted.prefill_misses) == (shown.prefill_hits, shown.prefill_misses)
    assert counted.fetched_bytes == shown.fetched_bytes
    assert shown.decode_hits > 0
    assert shown.decode_misses > 0


@pytest.mark.parametrize("policy", ["lru", "lfu"])
def test_log_alone_replays_every_hit_and_miss(
    engine: Engine, tiny_chat_model: Path, tmp_path: Path, policy: str
) -> None:
    path = _log(tmp_path)
    engine.send(LoadModel(str(tiny_chat_model), experts="50%", policy=policy, prefetch="off"))
    engine.send(_ask(log=path))
    engine.wait_for(Finished)
    records = list(read_records(path))
    model = next(record for record in records if record["type"] == "model")
    layers, experts = model["layers"], model["experts"]
    cache = ExpertCache(model["slots"], layers, experts, make_policy(policy, layers, experts))
    passes = [decode_pass(r, layers, experts, model["top_k"]) for r in records if r["type"] == "pass"]
    assert len(passes) > 3
    for done in passes:
        missed = np.zeros_like(done.missed)
        cache.begin_pass(done.phase)
        streaming = done.phase == "prefill" and cache.streams(model["top_k"], done.tokens)
        for layer in range(layers):
            leases = []
            for lease in cache.waves(layer, np.flatnonzero(done.counts[layer]), streaming=streaming):
                missed[layer, lease.experts[lease.missing]] = True
                leases.append(lease)
                while cache.must_wait(len(leases), streaming):
                    cache.release(leases.pop(0))
            for lease in leases:
                cache.release(lease)
        assert (missed == done.missed).all()


def test_answer_is_in_the_log_with_what_it_cost(engine: Engine, tiny_chat_model: Path, tmp_path: Path) -> None:
    path = _log(tmp_path)
    engine.send(LoadModel(str(tiny_chat_model), experts="25%"))
    engine.send(_ask("a", path))
    finished = engine.wait_for(Finished)
    conversation = read_conversation(path)
    answer = conversation.messages["answer-a"]
    assert (answer.text, answer.parent, answer.reason) == (finished.text, "question", finished.reason)
    assert answer.timings == finished.timings
    assert answer.cache == finished.cache


def test_stop_ends_the_answer_and_the_next_one_works(
    engine: Engine, tiny_chat_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.generation.generate.end_tokens", lambda loaded: set())  # else it ends at random
    engine.send(LoadModel(str(tiny_chat_model), experts="25%"))
    engine.wait_for(ModelLoaded)
    engine.send(_ask("long", max_tokens=200, seed=5))
    engine.wait_for(Token)
    engine.service.stop()
    stopped = engine.wait_for(Finished)
    assert stopped.reason == "stopped"
    assert stopped.timings.answer_tokens < 200
    engine.send(_ask("next"))
    assert engine.wait_for(Finished).reason in ("end", "length")


def test_stop_reaches_a_command_that_still_waits(engine: Engine, tiny_chat_model: Path) -> None:
    engine.send(LoadModel(str(tiny_chat_model), experts="25%"))
    engine.send(_ask("waiting"))
    engine.service.stop()  # long before the engine gets to either
    failed = engine.wait_for(Failed)
    assert "stopped" in failed.text
    engine.send(LoadModel(str(tiny_chat_model), experts="25%"))
    engine.send(_ask("later"))
    engine.wait_for(ModelLoaded, fail=False)
    assert engine.wait_for(Finished).request_id == "later"


def test_every_error_is_a_sentence_and_the_thread_lives_on(
    engine: Engine, tiny_chat_model: Path, tmp_path: Path
) -> None:
    engine.send(_ask())
    assert "No model is loaded" in engine.wait_for(Failed).text
    for command in (
        LoadModel(str(tmp_path / "nothing")),
        LoadModel(str(tmp_path)),
        LoadModel(str(tiny_chat_model), experts="many"),
        LoadModel(str(tiny_chat_model), policy="best"),
        LoadModel(str(tiny_chat_model), dtype="float3"),
        LoadModel(str(tiny_chat_model), device="cuda"),
    ):
        engine.send(command)
        failed = engine.wait_for(Failed)
        assert failed.doing == "load"
        assert failed.details == "", failed.details  # foreseen: no traceback
        assert failed.text.endswith(".") or failed.text.endswith(")."), failed.text
    engine.send(LoadModel(str(tiny_chat_model), experts="25%"))
    engine.wait_for(ModelLoaded)
    engine.send(_ask(temperature=-1.0))
    assert "temperature" in engine.wait_for(Failed).text
    engine.send(_ask("fine"))
    assert engine.wait_for(Finished).request_id == "fine"


def test_file_that_vanishes_in_the_middle_of_an_answer(engine: Engine, tiny_chat_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_chat_model, folder)
    engine.send(LoadModel(str(folder), experts="1 slots"))
    engine.wait_for(ModelLoaded)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:4096])
    engine.send(_ask())
    finished = engine.wait_for(Finished)
    assert finished.reason == "error"
    assert "shorter" in finished.error
    engine.send(LoadModel(str(tiny_chat_model), experts="25%"))
    engine.wait_for(ModelLoaded)
    engine.send(_ask("after"))
    assert engine.wait_for(Finished).reason in ("end", "length")


def test_models_are_listed_while_an_answer_runs(engine: Engine, tiny_chat_model: Path, tmp_path: Path) -> None:
    engine.send(LoadModel(str(tiny_chat_model), experts="25%"))
    engine.send(ListModels((str(tiny_chat_model.parent),)))
    found = {Path(model.source).name: model for model in engine.wait_for(ModelList).models}
    assert found["demo"].source == "demo"
    tiny = found[tiny_chat_model.name]
    assert (tiny.problem, tiny.layers, tiny.experts, tiny.top_k, tiny.has_template) == ("", 3, 8, 2, True)
    engine.send(InspectModel(str(tmp_path)))
    assert "no config.json" in engine.wait_for(ModelList).models[0].problem


def test_unload_gives_the_memory_back_at_once(engine: Engine, tiny_chat_model: Path) -> None:
    """Without the garbage collector: the window keeps it off, and sets aside what a loaded model is made of."""

    def experts_modules() -> list[weakref.ref[object]]:
        return [weakref.ref(o) for o in gc.get_objects() if type(o).__name__ == "Qwen2MoeExperts"]

    before = {id(ref()) for ref in experts_modules()}  # other tests' models, held by what they left behind
    engine.send(LoadModel(str(tiny_chat_model), experts="100%"))
    engine.send(_ask())
    engine.wait_for(Finished)
    ours = [ref for ref in experts_modules() if id(ref()) not in before]
    assert len(ours) == 3
    gc.disable()
    try:
        engine.send(UnloadModel())
        engine.wait_for(ModelUnloaded)
        assert [ref() for ref in ours] == [None, None, None]
    finally:
        gc.enable()
    engine.send(_ask())
    assert "No model is loaded" in engine.wait_for(Failed).text


def test_a_load_that_ends_at_its_last_step_leaves_no_thread_behind(
    tiny_chat_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> int:
        raise ModelError("The disk is gone.")

    monkeypatch.setattr("engine.experts.runtime.ExpertRuntime.warm", broken)
    before = set(threading.enumerate())
    with Engine() as engine:
        engine.send(LoadModel(str(tiny_chat_model), experts="25%"))
        assert "disk is gone" in engine.wait_for(Failed).text
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("greenroom")]


def test_thread_ends_in_the_middle_of_an_answer(tiny_chat_model: Path) -> None:
    before = set(threading.enumerate())
    with Engine() as engine:
        engine.send(LoadModel(str(tiny_chat_model), experts="25%"))
        engine.wait_for(ModelLoaded)
        engine.send(_ask(max_tokens=200))
        engine.wait_for(Started)
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("greenroom")]


def test_the_last_word_comes_even_when_the_model_cannot_be_given_back(
    tiny_chat_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window that quits waits for it."""

    def gives_up(session: ModelSession) -> None:
        close(session)
        raise RuntimeError("the card fell out")

    close = ModelSession.close
    monkeypatch.setattr(ModelSession, "close", gives_up)
    with Engine() as engine:
        engine.send(LoadModel(str(tiny_chat_model), "25%"))
        engine.wait_for(ModelLoaded)
    assert "the card fell out" in engine.wait_for(Failed, fail=False).text
    engine.wait_for(Stopped)


def test_a_prompt_is_counted_before_it_is_sent_and_while_another_is_answered(
    engine: Engine, tiny_chat_model: Path
) -> None:
    engine.send(LoadModel(str(tiny_chat_model), context=256))
    engine.wait_for(ModelLoaded)
    engine.send(CountTokens("before", HELLO))
    count = engine.wait_for(TokenCount)
    assert (count.request_id, count.left_out, count.context) == ("before", 0, 256)
    engine.send(_ask(max_tokens=180))
    started = engine.wait_for(Started)
    assert started.prompt_tokens == count.tokens
    engine.send(CountTokens("meanwhile", HELLO))
    engine.wait_for(TokenCount)
    assert not engine.of(Finished)
    engine.service.stop()
    engine.wait_for(Finished)


def test_a_conversation_too_long_for_the_context_is_answered_without_its_oldest_turns(
    engine: Engine, tiny_chat_model: Path
) -> None:
    engine.send(LoadModel(str(tiny_chat_model), context=128))
    engine.wait_for(ModelLoaded)
    turns = tuple(ChatMessage("assistant" if n % 2 else "user", "some words of message " * 3) for n in range(9))
    engine.send(CountTokens("count", turns, max_tokens=8))
    count = engine.wait_for(TokenCount)
    assert count.left_out > 0
    engine.send(replace(_ask(max_tokens=8), messages=turns))
    started = engine.wait_for(Started)
    assert started.prompt_tokens == count.tokens < 128
    assert f"{count.left_out} messages" in started.notes[-1]
    engine.wait_for(Finished)


FIRST_QUESTIONS = """
import queue, sys, time
from importlib.abc import MetaPathFinder

class SlowDisk(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in ("engine.session", "transformers.utils"):
            time.sleep(1.5)

sys.meta_path.insert(0, SlowDisk())
from engine.messages import EngineReady, Failed, InspectModel, ListModels, LoadModel, ModelList, ModelLoaded, ShutDown
from engine.service import EngineService

events = queue.Queue()
engine = EngineService(events.put)
engine.start()
for command in (ListModels((sys.argv[2],)), InspectModel(sys.argv[1]), LoadModel(sys.argv[1], "25%")):
    engine.send(command)
answers = []
while len(answers) < 4:
    event = events.get(timeout=120)
    if isinstance(event, Failed):
        sys.exit(event.text + event.details)
    answers += [event] if isinstance(event, EngineReady | ModelList | ModelLoaded) else []
if not isinstance(answers[0], EngineReady):
    sys.exit("a question was answered beside the import")
engine.send(ShutDown())
sys.exit(0 if engine.join(60) else "the thread did not end")
"""


def test_questions_wait_while_the_libraries_are_imported(tiny_chat_model: Path, tmp_path: Path) -> None:
    """The first things a window says, in a program that has not imported transformers yet: a second thread that
    imported it meanwhile would get half of it."""
    told = subprocess.run(
        [sys.executable, "-c", FIRST_QUESTIONS, str(tiny_chat_model), str(tmp_path)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "HF_HUB_CACHE": str(tmp_path), "GREENROOM_DATA": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert told.returncode == 0, told.stderr
