"""generation_config.json of every temper: what is advised, what is said of the rest, and nothing that stops a load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import GenerationConfig

from engine.declared import declare
from engine.generation.sampling import Sampler
from engine.loading import load
from engine.messages import LoadModel, ModelLoaded, Sampling
from tests.families import copy_model

VOCABULARY = 384


@pytest.fixture
def folder(tiny_chat_model: Path, tmp_path: Path) -> Path:
    return copy_model(tiny_chat_model, tmp_path / "model")


def loaded_with(folder: Path, text: str) -> ModelLoaded:
    (folder / "generation_config.json").write_text(text)
    loaded = load(LoadModel(str(folder)))
    loaded.close()
    return loaded.info


def test_a_file_that_says_nothing_of_sampling_leaves_our_own_defaults(folder: Path) -> None:
    info = loaded_with(folder, json.dumps({"eos_token_id": 2, "bos_token_id": 1, "transformers_version": "4.1"}))
    assert (info.sampling, info.declared, info.rules) == (Sampling(), (), ())
    (folder / "generation_config.json").unlink()
    without = load(LoadModel(str(folder)))
    without.close()
    assert (without.info.sampling, without.info.declared) == (Sampling(), ())


def test_what_is_declared_is_told_field_by_field() -> None:
    usual = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.05, "max_new_tokens": 99}
    declared = declare(usual, VOCABULARY)
    assert declared.sampling == Sampling(0.6, 0.9, top_k=50, repetition_penalty=1.05, max_tokens=99)
    assert declared.fields == ("max_tokens", "repetition_penalty", "temperature", "top_p")
    assert declared.notes == ()
    more = declare({"do_sample": True, "bad_words_ids": [[3], [4, 5]], "stop_strings": "END"}, VOCABULARY)
    assert more.rules == ("2 banned words", "an end at 'END'")


def test_values_without_do_sample_are_greedy_and_a_note_says_why() -> None:
    declared = declare({"temperature": 0.6, "top_k": 20}, VOCABULARY)
    assert (declared.sampling.temperature, declared.sampling.top_k) == (0, 20)
    assert "has temperature and top_k but not do_sample" in declared.notes[0]
    assert declare({"temperature": 0.6, "do_sample": False}, VOCABULARY).notes == ()


UNUSABLE: list[tuple[str, Any]] = [
    *[("temperature", value) for value in ("hot", -1, float("nan"), float("inf"), [0.5], True, 1e300)],
    *[("top_p", value) for value in (-0.1, 1.5, "0.9", float("nan"))],
    *[("top_k", value) for value in (-1, 2.5, "50", 10**30)],
    *[("min_p", 2), ("typical_p", 0), ("top_h", 0), ("epsilon_cutoff", 1), ("eta_cutoff", -1)],
    *[("repetition_penalty", value) for value in (0, -1, "none")],
    *[("no_repeat_ngram_size", -2), ("max_new_tokens", 0), ("max_new_tokens", -5), ("max_length", 0)],
    *[("min_new_tokens", 1.5), ("min_length", "long"), ("do_sample", "yes"), ("max_time", -1)],
    *[("bad_words_ids", value) for value in ([], [[]], [3], [[-1]], [["a"]], [[VOCABULARY]], "words")],
    *[("suppress_tokens", 5), ("suppress_tokens", [VOCABULARY]), ("begin_suppress_tokens", {"a": 1})],
    *[("sequence_bias", value) for value in ({"3": 1.0}, [[[3], "x"]], [[3, 1.0]], [[[], 1.0]])],
    *[("forced_bos_token_id", VOCABULARY), ("forced_eos_token_id", [[2]]), ("eos_token_id", ["end"])],
    *[("exponential_decay_length_penalty", value) for value in (3, [1], ["a", 2], [3, float("nan")])],
    *[("renormalize_logits", "yes"), ("remove_invalid_values", 1), ("stop_strings", [1]), ("stop_strings", "")],
]


@pytest.mark.parametrize(("key", "value"), UNUSABLE, ids=lambda value: str(value)[:24])
def test_a_value_that_means_nothing_is_left_out_with_a_note(key: str, value: object) -> None:
    declared = declare({"do_sample": True, key: value}, VOCABULARY)
    assert [note for note in declared.notes if f"has {key}: " in note and "not used" in note] == list(declared.notes)
    assert len(declared.notes) == 1
    assert getattr(declared.config, key) is None
    Sampler(declared.sampling, declared.config, {2}, prompt=5)


def test_nonsense_in_every_key_does_not_keep_a_model_from_loading(folder: Path) -> None:
    worst = {key: value for key, value in UNUSABLE if not isinstance(value, dict)}
    info = loaded_with(folder, json.dumps(worst))
    assert len([note for note in info.notes if "not used" in note]) == len(worst)
    assert info.sampling.temperature == 0


@pytest.mark.parametrize("text", ["[1]", "{", "null", "\x00\xff"])
def test_a_file_that_is_no_table_is_said_to_be_unreadable(folder: Path, text: str) -> None:
    info = loaded_with(folder, text)
    assert info.sampling == Sampling()
    assert any("generation_config.json cannot be read" in note for note in info.notes)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"num_beams": 4}, "beam search"),
        ({"num_return_sequences": 3}, "several answers"),
        ({"penalty_alpha": 0.6}, "contrastive search"),
        ({"dola_layers": "high"}, "dola_layers"),
        ({"guidance_scale": 1.5}, "guidance_scale"),
        ({"watermarking_config": {"bias": 2.5}}, "watermark"),
        ({"prompt_lookup_num_tokens": 3}, "assisted decoding"),
        ({"token_healing": True}, "token_healing"),
    ],
)
def test_what_is_left_out_on_purpose_is_said(asked: dict[str, Any], words: str) -> None:
    (note,) = declare({"do_sample": True, **asked}, VOCABULARY).notes
    assert words in note and "on purpose" in note
    assert declare({"do_sample": True, "num_beams": 1, "guidance_scale": 1.0}, VOCABULARY).notes == ()


def test_a_last_token_that_is_forced_and_suppressed_is_not_forced() -> None:
    declared = declare({"forced_eos_token_id": 2, "suppress_tokens": [2, 3]}, VOCABULARY)
    assert declared.config.forced_eos_token_id is None
    assert "both forces and suppresses" in declared.notes[0]


def test_what_config_json_declares_counts_where_there_is_no_file_of_its_own(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"do_sample": True, "temperature": 0.3, "top_k": 9}))
    loaded = load(LoadModel(str(folder)))
    loaded.close()
    stock = GenerationConfig.from_pretrained(folder, config_file_name="config.json", _from_model_config=True)
    assert (loaded.info.sampling.temperature, loaded.info.sampling.top_k) == (stock.temperature, stock.top_k)
