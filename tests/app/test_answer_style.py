"""How answers are to be: presets, what is remembered for each model, and settings files that say nonsense."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.answer_style import AnswerStyle, declared_in_words, in_words
from app.settings import Settings
from engine.messages import Sampling
from tests.app.conftest import LOADED

ADVISED = Sampling(temperature=0.6, top_p=0.95, top_k=20)
FIRST = replace(LOADED, source="first", sampling=ADVISED)
OTHER = replace(LOADED, source="other", sampling=Sampling(temperature=0.2))


@pytest.fixture
def style(tmp_path: Path, qapp) -> AnswerStyle:
    style = AnswerStyle(Settings(tmp_path / "settings.json"))
    style.set_model(FIRST)
    return style


def test_a_new_model_answers_as_its_makers_advise(style: AnswerStyle) -> None:
    assert style.style.sampling == replace(ADVISED, max_tokens=1024)
    assert (style.preset, style.changed_fields) == ("advised", ())


def test_what_is_changed_is_kept_for_this_model_alone_and_after_a_restart(style: AnswerStyle, tmp_path: Path) -> None:
    style.set("temperature", 1.3)
    style.set("system", "Be brief.")
    assert style.style.sampling == replace(ADVISED, temperature=1.3, max_tokens=1024)
    assert style.changed_fields == ("system", "temperature")
    style.set_model(OTHER)
    assert (style.style.system, style.style.sampling.temperature) == ("", 0.2)
    again = AnswerStyle(Settings(tmp_path / "settings.json"))
    again.set_model(FIRST)
    assert (again.style.system, again.style.sampling.temperature) == ("Be brief.", 1.3)


def test_back_to_the_presets_value_is_no_change(style: AnswerStyle) -> None:
    style.set("temperature", 1.3)
    style.set("temperature", 0.6)
    assert style.changed_fields == ()


def test_reset_goes_back_to_what_is_advised(style: AnswerStyle) -> None:
    style.choose("creative")
    style.set("top_k", 7)
    style.set("system", "x")
    style.reset()
    assert (style.preset, style.style.system, style.style.sampling) == (
        "advised",
        "",
        replace(ADVISED, max_tokens=1024),
    )


def test_a_preset_is_saved_followed_updated_renamed_deleted_and_brought_back(style: AnswerStyle) -> None:
    style.set("temperature", 1.1)
    style.set("system", "Rhyme.")
    style.save_as("  Poet ")
    assert (style.preset, style.changed_fields) == ("Poet", ())
    style.set_model(OTHER)
    style.choose("Poet")
    assert (style.style.system, style.style.sampling.temperature, style.style.sampling.top_k) == ("Rhyme.", 1.1, 20)
    style.set("temperature", 1.2)
    style.update()
    style.set_model(FIRST)
    assert style.style.sampling.temperature == 1.2
    style.rename("Poet", "Bard")
    assert style.preset == "Bard" and "Poet" not in style.presets
    before = style.style
    deleted = style.delete("Bard")
    assert style.preset == "advised" and style.style == before  # nothing that is in use changes under one's hands
    style.restore(deleted)
    assert (style.preset, style.style, style.changed_fields) == ("Bard", before, ())


def test_names_that_cannot_be_are_refused_in_a_sentence(style: AnswerStyle) -> None:
    style.save_as("Mine")
    assert style.problem_with("mine") and style.problem_with("Precise") and style.problem_with("   ")
    assert style.problem_with("x" * 61)
    assert style.problem_with("mine", instead_of="Mine") == "" == style.problem_with("Other")


@pytest.mark.parametrize(
    "stored",
    [
        {"model_styles": {"first": {"temperature": "hot", "top_p": -1, "top_k": 2.5, "seed": True, "system": 5}}},
        {"model_styles": {"first": {"temperature": float("inf"), "preset": "gone", "max_tokens": 0}}},
        {"model_styles": {"first": {"preset": ["x"]}}},
        {"model_styles": {"first": 3}, "presets": {"x": 1}},
        {"model_styles": [], "presets": "x"},
        {"presets": {"precise": {"temperature": 1.9}}},
    ],
)
def test_nonsense_in_the_file_means_what_is_advised(tmp_path: Path, qapp, stored: object) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(stored), encoding="utf-8")
    style = AnswerStyle(Settings(path))
    style.set_model(FIRST)
    assert style.style.sampling == replace(ADVISED, max_tokens=1024)
    assert style.style.system == ""
    style.choose("precise")
    assert style.style.sampling.temperature == 0


def test_the_style_in_words(style: AnswerStyle) -> None:
    assert in_words(style)[0] == "as advised"
    style.choose("precise")
    style.set("max_tokens", 2048)
    assert in_words(style) == ("precise, changed", "temperature 0, at most 2,048 tokens")


def test_what_was_set_before_there_was_a_model_holds_for_new_ones(tmp_path: Path, qapp) -> None:
    style = AnswerStyle(Settings(tmp_path / "settings.json"))
    style.set("system", "Be brief.")
    style.choose("creative")
    style.set("system", "Be kind.")
    style.set_model(FIRST)
    assert (style.preset, style.style.system) == ("creative", "Be kind.")
    style.set("system", "")
    style.set_model(OTHER)
    assert style.style.system == "Be kind."
    style.reset()
    assert (style.preset, style.style.system) == ("advised", "")
    style.set_model(FIRST)
    assert (style.preset, style.style.system) == ("creative", "")


def test_the_length_that_a_model_declares_is_its_own_until_one_says_otherwise(style: AnswerStyle) -> None:
    both = Sampling(temperature=0.0, max_tokens=300, max_length=300)
    style.set_model(replace(FIRST, sampling=both, declared=("max_tokens", "temperature")))
    assert style.style.sampling == both
    style.set("max_tokens", 400)
    assert style.style.sampling == replace(both, max_tokens=400, max_length=0)  # as in transformers
    style.choose("balanced")
    assert style.style.sampling.max_tokens == 1024


def test_what_is_declared_is_said_whatever_one_sets(style: AnswerStyle) -> None:
    assert declared_in_words(style) == ""
    declared = replace(FIRST, declared=("temperature", "top_k"), rules=("3 banned words",))
    style.set_model(declared)
    style.set("temperature", 1.3)
    assert declared_in_words(style).replace("\u00a0", " ") == (
        "Declared by the model: temperature 0.6, top-k 20, 3 banned words."
    )


def test_rare_settings_of_a_model_end_with_its_preset_and_stay_in_one_made_of_them(style: AnswerStyle) -> None:
    style.set_model(replace(FIRST, sampling=replace(ADVISED, typical_p=0.9), declared=("typical_p",)))
    style.save_as("Mine")
    assert style.style.sampling.typical_p == 0.9
    style.set_model(OTHER)
    style.choose("Mine")
    assert style.style.sampling.typical_p == 0.9
    style.choose("balanced")
    assert style.style.sampling.typical_p == 1.0


def test_thinking_is_switched_for_one_model_and_outlives_a_change_of_preset(style: AnswerStyle, tmp_path: Path) -> None:
    assert (style.thinking, style.switch) == (None, "fixed")
    style.switch_thinking(False)
    assert style.thinking is None  # there is no switch
    style.set_model(replace(OTHER, thinking="on"))
    assert (style.thinks, style.thinking) == (True, None)
    style.switch_thinking(False)
    style.choose("creative")
    style.set("temperature", 0.3)
    style.reset()
    assert (style.thinks, style.thinking, style.changed_fields) == (False, False, ())
    again = AnswerStyle(Settings(tmp_path / "settings.json"))
    again.set_model(replace(OTHER, thinking="on"))
    assert again.thinking is False
    again.switch_thinking(True)
    assert again.thinking is None  # as it does unasked
    again.set_model(replace(LOADED, source="third", thinking="off"))
    assert not again.thinks
    again.switch_thinking(True)
    assert again.thinking is True
