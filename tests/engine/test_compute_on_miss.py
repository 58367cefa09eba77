"""Missing experts that the processor computes where they wait: the same tokens, fewer fetches, and it is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import loading
from engine.cli import main
from engine.errors import OptionError
from engine.experts import helping
from engine.experts.on_miss import Calibration
from engine.generation.generate import TextGenerator
from engine.loading import LoadedModel, load
from engine.messages import CacheCounters, LoadModel, Sampling
from tests.engine.experts.cards import StandIn, stand_in
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
    return generator.kv.tokens[len(PROMPT) :]


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
    assert sum(int(shelf.loans.sum()) for shelf in tier._shelves) == 0
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
