"""Missing experts that the processor computes where they wait: the same tokens, fewer fetches, and it is said."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import loading
from engine.cli import main
from engine.errors import OptionError
from engine.experts import helping
from engine.experts.foresight import Foresight
from engine.experts.on_miss import Calibration
from engine.experts.trial import Trial
from engine.generation.generate import Decoded, TextGenerator
from engine.loading import LoadedModel, load
from engine.messages import CacheCounters, Fetched, LoadModel, ModelLoaded, Sampling
from engine.prediction.prompter import Prompter
from engine.prediction.shape import Shape
from engine.replay.live import replay_live
from engine.replay.trace import read_trace
from engine.sessions.reader import recount
from engine.telemetry import Telemetry
from tests.engine.experts.cards import StandIn, stand_in
from tests.engine.listening import Engine, Talk
from tests.families import make_tiny

PROMPT = [5, 17, 3, 99, 42, 7, 23, 11]
PAYS = Calibration((1, 64), (1e-3, 2e-3), 1e-3, 0.0, 0.0)  # as fast as the link
DEAR = Calibration((1, 64), (1.0, 64.0), 1e-3, 0.0, 0.0)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    device, card = stand_in()
    monkeypatch.setattr(loading, "make_devices", lambda names: [device])
    return card


def measured(monkeypatch: pytest.MonkeyPatch, costs: Calibration) -> None:
    monkeypatch.setattr(helping, "calibrate", lambda *told: costs)


def opened(folder: Path, **options: Any) -> LoadedModel:
    return load(LoadModel(str(folder), **({"experts": "25%", "device": "cuda", "threads": 1} | options)))


def answer(loaded: LoadedModel) -> list[int]:
    generator = TextGenerator(loaded, set())
    for _ in generator.complete(PROMPT, Sampling(temperature=0, max_tokens=24)):
        pass
    return generator.past.tokens[len(PROMPT) :]


def counters(loaded: LoadedModel) -> CacheCounters:
    return loaded.runtime.observer.counters(loaded.runtime.evictions)


@pytest.mark.parametrize("family", ["qwen2_moe", "gpt_oss", "deepseek_v3"])
def test_tokens_are_the_same_and_the_counter_moves(
    card: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    folder = make_tiny(family, tmp_path / family)
    plain = opened(folder)
    expected, fetched = answer(plain), counters(plain)
    plain.close()
    assert fetched.computed_on_host == 0
    measured(monkeypatch, PAYS)
    loaded = opened(folder, compute_on_miss="calibrated")
    assert any("last digits may differ" in note for note in loaded.info.notes)
    before = card.copied
    assert answer(loaded) == expected
    helped = counters(loaded)
    assert 0 < helped.computed_on_host < helped.decode_misses
    assert helped.decode_hits + helped.decode_misses == fetched.decode_hits + fetched.decode_misses
    assert card.copied - before == helped.prefill_misses + helped.decode_misses - helped.computed_on_host
    (tier,) = (transfer.tier for transfer in loaded.runtime._transfers)
    assert tier is not None
    shelves = list(tier._shelves)
    loaded.close()  # the link's thread ends with its last copy
    assert sum(int(shelf.loans.sum()) for shelf in shelves) == 0


@pytest.mark.parametrize(("policy", "predictor"), [("next-use", "none"), ("lru", "gate"), ("eam", "previous-token")])
def test_a_log_says_who_was_computed_where_he_waited_and_replays_to_the_last_miss(
    card: StandIn,
    tiny_chat_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    policy: Any,
    predictor: Any,
) -> None:
    measured(monkeypatch, PAYS)
    with Engine() as engine:
        engine.send(
            LoadModel(
                str(tiny_chat_model), "50%", policy, predictor=predictor, prefetch="on", device="cuda", threads=1,
                compute_on_miss="calibrated",
            )
        )  # fmt: skip
        engine.wait_for(ModelLoaded)
        talk = Talk(engine, tmp_path, "one")
        first = talk.ask("Hello there, how are you today?")
        talk.ask("Tell me about boats.", stop=True)
        talk.ask("And about bridges?")
    live, counted = replay_live(read_trace([talk.path])), recount(talk.path)
    assert live.exact, live.reason
    assert 0 < counted.computed_on_host < counted.decode_misses == live.decode_misses
    assert recount(talk.path, "one-1").computed_on_host == first.cache.computed_on_host > 0
    # a log from before the field: everybody missed counts as fetched, and the replay says that it met others
    old = tmp_path / "old.jsonl"
    old.write_text(re.sub(',"on_host":"[^"]*"', "", talk.path.read_text(encoding="utf-8")), encoding="utf-8")
    before = replay_live(read_trace([old]))
    assert (before.passes, before.unknown, before.exact) == (live.passes, 0, False)
    assert before.decode_misses == live.decode_misses


def test_who_was_computed_there_was_not_fetched(card: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured(monkeypatch, PAYS)
    loaded = opened(make_tiny("qwen2_moe", tmp_path / "m"), compute_on_miss="calibrated")
    prompter = Prompter("none", Shape(loaded.info.layers, loaded.info.experts, loaded.info.top_k))
    telemetry = Telemetry(loaded, Foresight(prompter, Trial("off")))
    generator, waited = TextGenerator(loaded, set()), 0
    for step in generator.complete(PROMPT, Sampling(temperature=0, max_tokens=24)):
        if isinstance(step, Decoded) and step.record is not None:
            telemetry._fetched[:] = 0
            telemetry.note(step.record)
            fetched = telemetry.experts("decode", step.count).fetched
            assert np.array_equal(fetched == Fetched.DEMAND, step.record.missed & ~step.record.on_host)
            waited += np.count_nonzero(step.record.on_host)
    assert waited == counters(loaded).computed_on_host > 0
    loaded.close()


def test_policies_hear_of_those_too(card: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, states = make_tiny("qwen2_moe", tmp_path / "m"), []
    measured(monkeypatch, PAYS)
    for way in ("off", "calibrated"):
        loaded = opened(folder, compute_on_miss=way, policy="next-use")
        answer(loaded)
        states.append(loaded.runtime.policy_state())
        loaded.close()
    assert np.array_equal(*states)  # it depends on who was used alone


def test_when_it_does_not_pay_nothing_is_computed_there_and_that_is_said(
    card: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(monkeypatch, DEAR)
    loaded = opened(make_tiny("qwen2_moe", tmp_path / "m"), compute_on_miss="calibrated")
    assert any("the processor would be slower" in note for note in loaded.info.notes)
    answer(loaded)
    assert counters(loaded).computed_on_host == 0
    loaded.close()


def test_it_is_measured_on_the_models_own_experts(card: StandIn, tmp_path: Path) -> None:
    folder = make_tiny("gpt_oss", tmp_path / "m")
    loaded = opened(folder, compute_on_miss="calibrated")
    said = [note for note in loaded.info.notes if "ms an expert against" in note]
    assert len(said) == 1
    expected = answer(loaded)  # the slots that were measured with hold nobody
    loaded.close()
    plain = opened(folder)
    assert answer(plain) == expected
    plain.close()


def test_without_a_card_it_is_left_out_and_that_is_said(tmp_path: Path) -> None:
    loaded = opened(make_tiny("qwen2_moe", tmp_path / "m"), device="cpu", compute_on_miss="calibrated")
    assert any("must wait in RAM beside a card" in note for note in loaded.info.notes)
    answer(loaded)
    assert counters(loaded).computed_on_host == 0
    loaded.close()


def test_experts_that_need_the_card_are_left_to_it(
    card: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*told: Any) -> Any:
        raise RuntimeError("Expected all tensors to be on the same device")

    monkeypatch.setattr(loading, "compute_on_host", refuse)
    loaded = opened(make_tiny("qwen2_moe", tmp_path / "m"), compute_on_miss="calibrated")
    assert any("cannot compute those of this model" in note for note in loaded.info.notes)
    assert len(answer(loaded)) == 23
    loaded.close()


def test_all_of_the_cards_are_helped_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "make_devices", lambda names: [stand_in()[0] for _ in names.split(",")])
    tried: list[int] = []

    def second_fails(*told: Any) -> Calibration:
        tried.append(1)
        if len(tried) == 2:
            raise RuntimeError("too little RAM")
        return PAYS

    monkeypatch.setattr(helping, "calibrate", second_fails)
    folder = make_tiny("qwen2_moe", tmp_path / "m")
    loaded = opened(folder, device="cuda:0,cuda:1", compute_on_miss="calibrated")
    assert any("cannot compute those of this model" in note for note in loaded.info.notes)
    answer(loaded)
    assert (len(tried), [room.helper for room in loaded.runtime._rooms]) == (2, [None, None])
    loaded.close()


def test_the_terminal_asks_for_it_by_name(
    card: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(make_tiny("qwen2_moe", tmp_path / "m"))
    with pytest.raises(OptionError, match="off, calibrated"):
        load(LoadModel(folder, compute_on_miss="always"))
    measured(monkeypatch, PAYS)
    asked: list[LoadModel] = []
    honest = loading.load
    monkeypatch.setattr("engine.verify.load", lambda command, *rest: asked.append(command) or honest(command, *rest))
    main(
        [
            "verify",
            folder,
            "--experts",
            "25%",
            "--device",
            "cuda",
            "--compute-on-miss",
            "calibrated",
            "--max-tokens",
            "4",
        ]
    )
    assert asked[0].compute_on_miss == "calibrated"
