"""Replays for the window: the terminal's figures, beside a model at work, stopped at once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from engine.cli import main
from engine.errors import SessionError
from engine.messages import (
    POLICIES,
    ChatMessage,
    EngineReady,
    Failed,
    Finished,
    Generate,
    LoadModel,
    Sampling,
    StopWhatIf,
    WhatIf,
    WhatIfProgress,
    WhatIfResult,
)
from engine.sessions.log import SessionLog
from engine.whatif import NICENESS, what_if
from tests.engine.listening import Engine
from tests.engine.routing import Routing, write_log

BUDGETS = ("12.5%", "40 slots", "75%")


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as engine:
        yield engine


@pytest.fixture
def logs(tmp_path: Path) -> tuple[str, ...]:
    return tuple(
        str(write_log(tmp_path / f"{n}.jsonl", Routing(6, 16, 4, seed=n), [(20, 30), (5, 20)])) for n in range(2)
    )


def a_long_one(tmp_path: Path, request_id: str) -> WhatIf:
    log = tmp_path / "long.jsonl"
    if not log.exists():
        write_log(log, Routing(12, 16, 4), [(20, 1000)])
    return WhatIf(request_id, (str(log),), tuple(POLICIES), tuple(f"{share}%" for share in range(5, 100, 5)))


def its_process() -> psutil.Process | None:
    """The replay at work, if any: a process of its own, busy in Python."""
    found = [p for p in psutil.Process().children() if "spawn_main" in " ".join(p.cmdline())]
    return found[0] if found else None


def test_figures_equal_the_terminals(engine: Engine, logs: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    predictors = ("popularity", "gate", "previous-token")
    engine.wait_for(EngineReady)  # two threads must not import the heavy libraries at once
    engine.send(WhatIf("w", logs, tuple(POLICIES), BUDGETS, predictors))
    told = engine.wait_for(WhatIfResult)
    assert main(["replay", *logs, "--experts", ",".join(BUDGETS), "--predictor", ",".join(predictors), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    ours = [
        (line.policy, point.experts, point.slots, point.hit_rate, point.bytes_per_token)
        for line in told.lines
        for point in line.points
    ]
    keys = ("policy", "experts", "slots", "decode_hit_rate", "bytes_per_token")
    assert ours == [tuple(row[key] for key in keys) for row in report["results"]]
    assert [line.policy for line in told.lines] == [*POLICIES, "belady"]
    foreseen = [(f.predictor, f.distance, f.source, f.precision, f.recall) for f in told.foresight]
    assert foreseen == [tuple(row.values()) for row in report["predictors"]]
    assert told.hit_rate == report["live"]["decode_hit_rate"]
    assert (told.answers, told.decode_tokens) == (report["answers"], report["decode_tokens"])
    assert (told.total_experts, told.slot_bytes, told.policy, told.slots) == (96, 1000, "lru", 48)
    fractions = [step.fraction for step in engine.of(WhatIfProgress)]
    assert fractions == sorted(fractions)


def test_the_bound_can_be_had_alone(logs: tuple[str, ...]) -> None:
    told = what_if(WhatIf("w", logs[:1], (), ("50%",)))
    assert [line.policy for line in told.lines] == ["belady"]
    assert told.foresight == ()


def test_it_tells_how_far_it_is_and_hands_over_what_is_done(tmp_path: Path) -> None:
    told: list[WhatIfProgress] = []
    result = what_if(a_long_one(tmp_path, "w"), told.append)
    fractions = [step.fraction for step in told]
    assert fractions == sorted(fractions)
    assert fractions[-1] < 1
    assert len({round(fraction, 2) for fraction in fractions}) > 50
    assert "replaying next-use" in [step.detail for step in told]
    assert told[-1].lines == result.lines[:-1]


def test_a_replay_runs_behind_everybody_else_and_ends_at_once_when_stopped(engine: Engine, tmp_path: Path) -> None:
    engine.send(a_long_one(tmp_path, "first"))
    engine.send(a_long_one(tmp_path, "second"))
    assert engine.wait_for(WhatIfProgress).request_id == "first"
    process = its_process()
    assert process is not None
    assert process.nice() == (psutil.BELOW_NORMAL_PRIORITY_CLASS if psutil.WINDOWS else NICENESS)
    began = time.monotonic()
    engine.send(StopWhatIf("second"))  # it still waits
    engine.send(StopWhatIf("first"))
    ended = [engine.wait_for(Failed, fail=False) for _ in range(2)]
    assert time.monotonic() - began < 5  # the whole would take far longer
    assert [(failed.request_id, failed.doing) for failed in ended] == [("first", "what if"), ("second", "what if")]
    assert all("stopped" in failed.text for failed in ended)
    assert not process.is_running()
    engine.send(StopWhatIf("first"))  # nothing is left to stop
    engine.send(WhatIf("third", (str(tmp_path / "long.jsonl"),), (), ("50%",)))
    assert engine.wait_for(WhatIfResult).request_id == "third"


def test_shutting_down_ends_a_replay(tmp_path: Path) -> None:
    with Engine() as engine:
        engine.send(a_long_one(tmp_path, "w"))
        engine.wait_for(WhatIfProgress)
        process = its_process()
    assert process is not None
    assert not process.is_running()


def test_answers_go_on_meanwhile(engine: Engine, tiny_chat_model: Path, tmp_path: Path) -> None:
    engine.send(LoadModel(str(tiny_chat_model), experts="50%"))
    engine.send(a_long_one(tmp_path, "w"))
    engine.wait_for(WhatIfProgress)
    sampling = Sampling(temperature=1.0, seed=5, max_tokens=12)
    engine.send(Generate("r", (ChatMessage("user", "Hello there, how are you?"),), sampling))
    assert engine.wait_for(Finished).text
    assert its_process() is not None
    engine.send(StopWhatIf("w"))
    assert engine.wait_for(Failed, fail=False).request_id == "w"


def test_what_cannot_be_replayed_is_refused_in_a_sentence(
    engine: Engine, logs: tuple[str, ...], tmp_path: Path
) -> None:
    empty = tmp_path / "empty.jsonl"
    SessionLog.create_at(empty, "greenroom test").close()
    other = write_log(tmp_path / "other.jsonl", Routing(3, 4, 1), [(2, 2)])
    for command, words in (
        (WhatIf("a", (str(empty),), ("lru",), ("50%",)), "no forward passes"),
        (WhatIf("b", (*logs, str(other)), ("lru",), ("50%",)), "two models"),
        (WhatIf("c", (str(tmp_path / "none.jsonl"),), ("lru",), ("50%",)), "none.jsonl"),
        (WhatIf("d", logs, ("mru",), ("50%",)), "no policy 'mru'"),
        (WhatIf("e", logs, ("lru",), ("auto",)), "no memory to look at"),
        (WhatIf("f", logs, ("lru",), ("50%",), ("crystal ball",)), "no predictor"),
        (WhatIf("g", (), ("lru",), ("50%",)), "nothing to replay"),
    ):
        engine.send(command)
        failed = engine.wait_for(Failed, fail=False)
        assert (failed.request_id, failed.details) == (command.request_id, "")
        assert words in failed.text
    with pytest.raises(SessionError):
        what_if(WhatIf("h", (str(empty),), (), ("50%",)))
