"""The replay asks the predictors again: who would have been foreseen, by what a log says was routed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.cli import main
from engine.errors import OptionError
from engine.messages import PREDICTORS
from engine.prediction.prompter import NEED_HIDDEN, Prompter
from engine.prediction.shape import Shape
from engine.replay.foreseen import Foreseen, foresee, parse_predictors
from engine.replay.live import replay_live
from engine.replay.trace import read_trace
from engine.sessions.log import SessionLog
from tests.engine.routing import Routing, write_log

LAYERS, EXPERTS, TOP_K = 5, 12, 3


def write_tokens(path: Path, tokens: list[np.ndarray], **model: Any) -> Path:
    """A log of one answer that decoded ``tokens``, each int ``[layers, top_k]``."""
    layers, top_k = tokens[0].shape
    nothing = np.zeros((layers, EXPERTS), bool)
    with SessionLog.create_at(path, "greenroom test") as log:
        log.append_model(
            name="made up", source="", family="", signature="made-up", layers=layers, experts=EXPERTS, top_k=top_k,
            slots=10, slot_bytes=1000, policy="lru", device="CPU", dtype="float32", program="", hardware="",
            resident=[], **model,
        )  # fmt: skip
        log.append_start(answer="a", parent=None, prompt_tokens=1, reused_tokens=0, sampling={})
        for routed in tokens:
            log.append_pass(
                answer="a", phase="decode", tokens=1, missed=nothing, fetched_bytes=0, stall=0, seconds=0, routed=routed
            )
    return path


def by_distance(found: list[Foreseen]) -> dict[tuple[str, int], Foreseen]:
    return {(one.predictor, one.distance): one for one in found}


def test_who_repeats_himself_is_foreseen_by_the_previous_token(tmp_path: Path) -> None:
    same = np.tile([[7, 2, 9]], (LAYERS, 1))
    found = by_distance(foresee(read_trace([write_tokens(tmp_path / "log.jsonl", [same] * 5)]), ["previous-token"]))
    assert found["previous-token", 1].precision == 1
    assert found["previous-token", 1].recall == 0.8  # of the first token nobody knew anything
    assert found["previous-token", 3].recall == pytest.approx(0.8 * 3 / 5)  # nobody looks 3 ahead at layers 0 and 1


def test_the_sequential_baseline_names_the_lowest_numbers(tmp_path: Path) -> None:
    low, high = np.tile([[0, 1, 2]], (LAYERS, 1)), np.tile([[9, 10, 11]], (LAYERS, 1))
    trace = read_trace([write_tokens(tmp_path / "log.jsonl", [low, high, low, low])])
    found = by_distance(foresee(trace, ["next-index", "none"]))
    assert (found["next-index", 1].precision, found["next-index", 1].recall) == (0.75, 0.75)
    assert (found["none", 1].precision, found["none", 1].recall) == (None, 0)


def test_replayed_scores_are_those_of_the_same_prompter_told_the_same(tmp_path: Path) -> None:
    """Prompts included: they teach, and are not scored."""
    trace = read_trace([write_log(tmp_path / "log.jsonl", Routing(LAYERS, EXPERTS, TOP_K), [(30, 20), (40, 20)])])
    for name in ("popularity", "eam", "blend"):
        prompter = Prompter(name, Shape(LAYERS, EXPERTS, TOP_K))
        for number, step in enumerate(trace.steps):
            if number in (0, 21):
                prompter.begin_request()
            prompter.begin_pass(step.phase, step.tokens)
            one = step.phase == "decode"
            if one:
                prompter.ahead(-1)
            for layer, experts, counts in step.wanted:
                prompter.routed(layer, experts.tolist(), None if one else counts)
                if one:
                    prompter.ahead(layer)
            prompter.end_pass()
        expected = [(accuracy.precision, accuracy.recall) for accuracy in prompter.accuracy()]
        assert [(one.precision, one.recall) for one in foresee(trace, [name])] == expected
        assert all(recall is not None and recall > TOP_K / EXPERTS for _, recall in expected[:1])


def test_what_needs_hidden_states_is_quoted_from_the_log(tmp_path: Path) -> None:
    """The mean of its answers, each weighed by its tokens; other predictors' answers do not count."""
    tokens = [np.tile([[0, 1, 2]], (LAYERS, 1))] * 2
    log = write_tokens(tmp_path / "log.jsonl", tokens, predictor="gate-fitted", prefetch="auto")
    with SessionLog.open(log) as more:
        common: dict[str, Any] = {"parent": None, "role": "assistant", "text": "."}
        more.append_message("a", **common, accuracy=[0.9, 0.8, None])
        more.append_start(answer="b", parent=None, prompt_tokens=1, reused_tokens=0, sampling={})
        for _ in range(6):
            more.append_pass(
                answer="b", phase="decode", tokens=1, missed=np.zeros((LAYERS, EXPERTS), bool), fetched_bytes=0,
                stall=0, seconds=0, routed=tokens[0],
            )  # fmt: skip
        more.append_message("b", **common, accuracy=[0.5, 0.4, 0.3])
        more.append_message("c", **common, accuracy=[0.1, 0.1, 0.1], predictor="gate")
        more.append_message("d", **common)
    trace = read_trace([log])
    found = by_distance(foresee(trace, ["gate-fitted", "call-sheet", "gate"]))
    assert (found["gate-fitted", 1].source, found["gate-fitted", 1].precision) == ("as it ran", None)
    assert found["gate-fitted", 1].recall == pytest.approx((0.9 * 2 + 0.5 * 6) / 8)
    assert found["gate-fitted", 3].recall == pytest.approx(0.3)
    assert found["gate", 2].recall == pytest.approx(0.1)
    assert found["call-sheet", 1] == Foreseen("call-sheet", 1, "not in the log", None, None)
    assert replay_live(trace).passes == 8


def test_the_verb_prints_precision_and_recall_by_distance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log(tmp_path / "log.jsonl", Routing(LAYERS, EXPERTS, TOP_K), [(20, 30)])
    assert main(["replay", str(log), "--experts", "50%"]) == 0
    printed = capsys.readouterr().out
    lines = {line.split()[0]: line for line in printed.splitlines() if line}
    assert "1 ahead" in lines["precision"]
    assert "3 ahead" in lines["precision"]
    for name in PREDICTORS:
        assert name in (printed.splitlines()[-1] if name in NEED_HIDDEN else lines)


def test_only_the_predictors_asked_for_are_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log(tmp_path / "log.jsonl", Routing(LAYERS, EXPERTS, TOP_K), [(20, 30)])
    arguments = ["replay", str(log), "--policy", "lru", "--experts", "50%", "--json"]
    assert main([*arguments, "--predictor", "eam,gate"]) == 0
    rows = json.loads(capsys.readouterr().out)["predictors"]
    assert [(row["predictor"], row["distance"]) for row in rows] == [(n, d) for n in ("eam", "gate") for d in (1, 2, 3)]
    assert rows[0]["source"] == "replayed"
    assert 0 < rows[0]["precision"] <= 1
    assert main([*arguments, "--predictor", "oracle"]) == 1
    assert "no predictor 'oracle'" in capsys.readouterr().err


def test_predictors_in_words() -> None:
    assert parse_predictors("all") == list(PREDICTORS)
    assert parse_predictors("eam, none,eam") == ["eam", "none"]
    for wrong in ("", " , "):
        with pytest.raises(OptionError):
            parse_predictors(wrong)
