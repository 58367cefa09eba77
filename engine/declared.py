"""What a model's makers declare about its answers: generation_config.json, read as transformers' ``generate`` reads it.

A file that says how to choose tokens, or how many, is followed the way transformers follows it: without
``do_sample: true`` that is greedy, and what it leaves out has transformers' defaults (top_k 50, all else off). A file
that names end tokens at most says nothing about it, and our own defaults stay. The length is ours where none is
declared: transformers would stop after 20 tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from transformers import GenerationConfig

from engine.messages import Sampling
from engine.models.folder import ModelFolder

FILE = "generation_config.json"
TOP_K = 50  # transformers' own, where a model samples and names none (GenerationConfig's defaults for generate)

# What holds whatever the user sets: handed to transformers' logits processors and stopping criteria as it is.
RULES = (
    *("min_length", "min_new_tokens", "bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "sequence_bias"),
    *("forced_bos_token_id", "forced_eos_token_id", "exponential_decay_length_penalty", "renormalize_logits"),
    *("remove_invalid_values", "stop_strings", "max_time"),
)


@dataclass(frozen=True)
class Declared:
    """``config``: the usable part of the file. ``fields``: names of those in ``sampling`` that the model declares.

    rules: what else it declares, in words. notes: what could not be used and what is left out on purpose.
    """

    config: GenerationConfig
    sampling: Sampling = field(default_factory=Sampling)
    fields: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_declared(folder: ModelFolder, vocabulary: int) -> Declared | None:
    """What the model's generation_config.json declares; None where it has none.

    vocabulary: how many tokens the model knows; rules about others mean nothing.
    """
    path = folder.path / FILE
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ValueError
    except (OSError, ValueError):
        return Declared(GenerationConfig(), notes=(f"The model's {FILE} cannot be read; nothing in it is used.",))
    return declare(values, vocabulary)


def declare(values: Mapping[str, Any], vocabulary: int) -> Declared:
    """What these values of a GenerationConfig mean here."""
    checks = _checks(vocabulary)
    said = {name: value for name, value in values.items() if value is not None}
    usable = {name: said[name] for name in checks if name in said and checks[name](said[name])}
    notes = [_unusable(name, said[name]) for name in checks if name in said and name not in usable]
    forced = usable.get("forced_eos_token_id", [])
    if forced and set(_listed(forced)) <= set(usable.get("suppress_tokens", ())):
        del usable["forced_eos_token_id"]
        notes.append(f"The model's {FILE} both forces and suppresses its last token; it is not forced.")
    left_out = [words for name, (asks, words) in _LEFT_OUT.items() if name in said and asks(said[name])]
    if left_out:
        notes.append(
            f"The model's {FILE} asks for {', '.join(left_out)}. Greenroom leaves that out on purpose: it writes one "
            "answer, token by token."
        )
    ids = {name: said[name] for name in _TOKENS if _is_id(said.get(name))}
    config = GenerationConfig(**usable, **ids)
    if not any(name in said for name in (*checks, *_LEFT_OUT) if name != "eos_token_id"):
        return Declared(config, notes=tuple(notes))
    sampling, fields, more = _sampling(usable, "do_sample" in said)
    rules = tuple(_WORDS[name](usable[name]) for name in RULES if usable.get(name) and name in _WORDS)
    return Declared(config, sampling, fields, rules, (*notes, *more))


def _sampling(usable: Mapping[str, Any], said_do_sample: bool) -> tuple[Sampling, tuple[str, ...], list[str]]:
    """The sampling, its declared fields, and notes. transformers' defaults for what is not declared."""
    notes: list[str] = []
    own = {name: usable[name] for name in _STYLE if name in usable}
    values = {"temperature": 1.0, "top_p": 1.0, "top_k": TOP_K} | own
    if not usable.get("do_sample", False):
        drawn = [name for name in _DRAWN if name in own]
        if drawn and not said_do_sample:
            notes.append(
                f"The model's {FILE} has {' and '.join(drawn)} but not do_sample, so answers are greedy, as in "
                "transformers; set a temperature to have them drawn."
            )
        values["temperature"] = 0.0
    elif values["temperature"] == 0:  # transformers refuses to divide by it
        notes.append(f"The model's {FILE} samples at temperature 0, which is greedy.")
    fields = {*own, "temperature"}
    longest = usable.get("max_new_tokens", usable.get("max_length"))
    if longest is not None:
        values["max_tokens"] = longest
        values["max_length"] = 0 if "max_new_tokens" in usable else longest
        fields.add("max_tokens")
    return Sampling(**values), tuple(sorted(fields)), notes


def _unusable(name: str, value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False, default=str)
    shown = shown if len(shown) <= 40 else f"{shown[:39]}…"
    return f"The model's {FILE} has {name}: {shown}, which means nothing here; it is not used."


# ------------------------------------------------------------------------------------------------ what is usable

_TOKENS = ("bos_token_id", "pad_token_id", "decoder_start_token_id")  # of no effect on what is chosen
_DRAWN = ("temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff")
_STYLE = (*_DRAWN, "repetition_penalty", "no_repeat_ngram_size")

Check = Callable[[Any], bool]


def _number(low: float, high: float, above: bool = False, below: bool = False) -> Check:
    def check(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            return False
        return (low < value if above else low <= value) and (value < high if below else value <= high)

    return check


def _whole(low: int) -> Check:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value < 2**31


_is_id = _whole(0)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _checks(vocabulary: int) -> dict[str, Check]:
    """What each key may be so that transformers takes it."""

    def is_token(value: Any) -> bool:
        return _is_id(value) and value < vocabulary

    def tokens(value: Any) -> bool:
        return isinstance(value, list | tuple) and bool(value) and all(map(is_token, value))

    def biases(value: Any) -> bool:
        finite = _number(-1e30, 1e30)
        return isinstance(value, list) and all(
            isinstance(pair, list) and len(pair) == 2 and tokens(pair[0]) and finite(pair[1]) for pair in value
        )

    def decay(value: Any) -> bool:
        return isinstance(value, list | tuple) and len(value) == 2 and _is_id(value[0]) and _number(0, 100)(value[1])

    def strings(value: Any) -> bool:
        return all(isinstance(text, str) and bool(text) for text in _listed(value))

    return {
        "do_sample": _flag,
        "temperature": _number(0, 1e6),
        "top_k": _whole(0),
        "top_p": _number(0, 1),
        "min_p": _number(0, 1),
        "top_h": _number(0, 1, above=True),
        "typical_p": _number(0, 1, above=True),
        "epsilon_cutoff": _number(0, 1, below=True),
        "eta_cutoff": _number(0, 1, below=True),
        "repetition_penalty": _number(0, 1e6, above=True),
        "no_repeat_ngram_size": _whole(0),
        "max_new_tokens": _whole(1),
        "max_length": _whole(1),
        "min_length": _whole(0),
        "min_new_tokens": _whole(0),
        "bad_words_ids": lambda value: isinstance(value, list) and bool(value) and all(map(tokens, value)),
        "suppress_tokens": tokens,
        "begin_suppress_tokens": tokens,
        "sequence_bias": biases,
        "forced_bos_token_id": is_token,
        "forced_eos_token_id": lambda value: is_token(value) or tokens(value),
        "exponential_decay_length_penalty": decay,
        "renormalize_logits": _flag,
        "remove_invalid_values": _flag,
        "stop_strings": strings,
        "max_time": _number(0, 1e9, above=True),
        "eos_token_id": lambda value: bool(_listed(value)) and all(map(_is_id, _listed(value))),
    }


def _several(what: str) -> Callable[[Iterable[Any]], str]:
    return lambda value: f"{len(list(value)):,} {what}"


_WORDS: dict[str, Callable[[Any], str]] = {
    "min_length": lambda value: f"at least {value:,} tokens with the prompt",
    "min_new_tokens": lambda value: f"at least {value:,} tokens",
    "bad_words_ids": _several("banned words"),
    "suppress_tokens": _several("banned tokens"),
    "begin_suppress_tokens": _several("tokens that no answer begins with"),
    "sequence_bias": _several("words made likelier or less likely"),
    "forced_bos_token_id": lambda value: "a fixed first token",
    "forced_eos_token_id": lambda value: "a fixed last token",
    "exponential_decay_length_penalty": lambda value: f"an end that grows likelier after {value[0]:,} tokens",
    "stop_strings": lambda value: f"an end at {', '.join(map(repr, _listed(value)))}",
    "max_time": lambda value: f"at most {value:g} seconds",
}


def _above(bound: float) -> Check:
    return lambda value: isinstance(value, int | float) and value > bound


# Other ways to generate, which we leave out: when a file asks for one, and what it is.
_LEFT_OUT: dict[str, tuple[Check, str]] = {
    "num_beams": (_above(1), "beam search (num_beams)"),
    "num_return_sequences": (_above(1), "several answers at once (num_return_sequences)"),
    "penalty_alpha": (_above(0), "contrastive search (penalty_alpha)"),
    "dola_layers": (bool, "contrast between layers (dola_layers)"),
    "guidance_scale": (lambda value: value != 1, "guidance by a second prompt (guidance_scale)"),
    "watermarking_config": (bool, "a watermark (watermarking_config)"),
    "constraints": (bool, "words that must appear (constraints)"),
    "force_words_ids": (bool, "words that must appear (force_words_ids)"),
    "token_healing": (bool, "a prompt whose last token is chosen anew (token_healing)"),
    "prompt_lookup_num_tokens": (bool, "assisted decoding (prompt_lookup_num_tokens)"),
    "assistant_early_exit": (bool, "assisted decoding (assistant_early_exit)"),
    "use_mtp": (bool, "assisted decoding by the model's own extra layers (use_mtp)"),
    "encoder_repetition_penalty": (lambda value: value != 1, "a penalty of encoders (encoder_repetition_penalty)"),
    "encoder_no_repeat_ngram_size": (bool, "a rule of encoders (encoder_no_repeat_ngram_size)"),
}
