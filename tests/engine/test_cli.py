"""The terminal verbs, as a newcomer types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.cli import READER_GONE, main
from engine.messages import POLICIES, PREDICTORS
from engine.sessions.reader import read_conversation, recount
from tests.families import copy_model, make_tiny


def _json(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    return json.loads(capsys.readouterr().out)


def test_every_verb_explains_itself() -> None:
    shown = subprocess.run([sys.executable, "-m", "engine", "--help"], capture_output=True, text=True, check=True)
    for verb in ("demo", "inspect", "chat", "verify"):
        assert verb in shown.stdout
        with pytest.raises(SystemExit) as end:
            main([verb, "--help"])
        assert end.value.code == 0


@pytest.mark.parametrize("verb", ["chat", "inspect", "verify", "replay"])
def test_help_says_what_every_policy_and_predictor_does(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    shown = [line.strip() for line in capsys.readouterr().out.splitlines()]
    for name, sentence in (POLICIES | PREDICTORS).items():
        assert any(line.startswith(f"{name} ") and line.endswith(sentence) for line in shown), name


def test_inspect_prints_what_the_model_is_and_whether_it_fits(
    tiny_chat_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(tiny_chat_model), "--experts", "25%"]) == 0
    text = capsys.readouterr().out
    assert "3 layers x 8, 2 per token" in text
    assert "6 slots (25%)" in text
    assert main(["inspect", str(tiny_chat_model), "--experts", "25%", "--context", "100", "--json"]) == 0
    facts = _json(capsys)
    assert facts["total_experts"] == 24
    plan = facts["plan"]
    assert isinstance(plan, dict)
    assert (plan["slots"], plan["context"]) == (6, 100)
    assert facts["total_bytes"] == facts["expert_bytes_stored"] + facts["dense_bytes"]  # type: ignore[operator]


def test_chat_answers_a_prompt_and_writes_a_log_that_can_be_continued(
    tiny_chat_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "talk.jsonl"
    ask = ["chat", str(tiny_chat_model), "--experts", "50%", "--policy", "lfu", "--max-tokens", "8", "--seed", "5"]
    assert main([*ask, "--prompt", "Hello there", "--log", str(log), "--json"]) == 0
    first = _json(capsys)
    counted = recount(log)
    assert first["cache"]["decode_hits"] == counted.decode_hits  # type: ignore[index]
    assert main([*ask, "--prompt", "And then?", "--log", str(log)]) == 0
    conversation = read_conversation(log)
    leaf = conversation.chosen_leaf()
    assert leaf is not None
    roles = [message.role for message in conversation.path_to(leaf.id)]
    assert roles == ["user", "assistant", "user", "assistant"]
    assert first["text"] == list(conversation.messages.values())[1].text


def test_same_seed_gives_the_same_answer(tiny_chat_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = []
    for experts in ("1 slots", "100%"):
        command = ["chat", str(tiny_chat_model), "--prompt", "Hi", "--seed", "9", "--max-tokens", "12", "--json"]
        assert main([*command, "--experts", experts]) == 0
        answers.append(_json(capsys)["text"])
    assert answers[0] == answers[1]


def test_thinking_is_switched_off_where_the_template_knows_how(
    tiny_chat_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy_model(tiny_chat_model, tmp_path / "thinks")
    switch = "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text() + switch)
    ask = ["--prompt", "Hi", "--max-tokens", "1", "--temperature", "0", "--json"]
    lengths = []
    for options in ([], ["--thinking"], ["--no-thinking"]):
        assert main(["chat", str(folder), *ask, *options]) == 0
        lengths.append(_json(capsys)["timings"]["prompt_tokens"])  # type: ignore[index]
    assert lengths[0] == lengths[1] < lengths[2]
    assert main(["chat", str(tiny_chat_model), *ask, "--no-thinking"]) == 0
    assert "has no switch for thinking" in capsys.readouterr().err


def test_what_a_model_declares_is_told_and_holds_unless_an_option_says_otherwise(
    tiny_chat_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy_model(tiny_chat_model, tmp_path / "declares")
    everything = list(range(384))
    declared = {"max_new_tokens": 3, "suppress_tokens": everything[:-1], "eos_token_id": 0, "num_beams": 4}
    (folder / "generation_config.json").write_text(json.dumps(declared))
    for options, tokens in (([], 3), (["--max-tokens", "5", "--temperature", "1"], 5)):
        assert main(["chat", str(folder), "--prompt", "Hi", "--json", *options]) == 0
        shown = capsys.readouterr()
        assert json.loads(shown.out)["timings"]["answer_tokens"] == tokens
        assert "Declared by the model: max_tokens 3, temperature 0.0, 383 banned tokens." in shown.err
        assert "beam search" in shown.err


@pytest.mark.parametrize(
    ("experts", "policy"),
    [("1 slots", "lru"), ("1 slots", "next-use"), ("100%", "lfu"), *(("25%", policy) for policy in POLICIES)],
)
def test_verify_finds_equal_tokens(
    tiny_chat_model: Path, capsys: pytest.CaptureFixture[str], policy: str, experts: str
) -> None:
    assert main(["verify", str(tiny_chat_model), "--experts", experts, "--policy", policy, "--json"]) == 0
    verdict = _json(capsys)
    assert verdict["equal"] is True
    assert verdict["tokens"] == 48 or verdict["tokens"] > 0  # type: ignore[operator]
    assert verdict["max_logit_diff"] < 1e-4  # type: ignore[operator]


def test_verify_works_without_a_tokenizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_tiny("mixtral", tmp_path / "mixtral")
    assert main(["verify", str(folder), "--experts", "25%", "--max-tokens", "6", "--json"]) == 0
    assert _json(capsys)["equal"] is True


def test_verify_says_when_it_is_not_equal(
    tiny_chat_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.experts import forward

    honest = forward._experts_on_one_row
    monkeypatch.setattr(forward, "_experts_on_one_row", lambda *arguments: -3 * honest(*arguments))
    assert main(["verify", str(tiny_chat_model), "--json"]) == 1
    assert _json(capsys)["equal"] is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["inspect", "no/such/model"], "no folder no/such/model"),
        (["chat", "{empty}", "--prompt", "x"], "no config.json"),
        (["chat", "{tiny}", "--prompt", "x", "--experts", "lots"], "no amount of memory"),
        (["chat", "{tiny}", "--prompt", "x", "--policy", "mru"], "no policy 'mru'"),
        (["chat", "{tiny}", "--prompt", "x", "--temperature", "-1"], "temperature"),
        (["verify", "{dense}"], "dense model"),
        (["verify", "{tiny}", "--max-tokens", "0"], "nothing to compare"),
        (["inspect", "{tiny}", "--reads", "aloud"], "'aloud'; choose one of"),
        (["inspect", "{tiny}", "--policy", "mru"], "no policy 'mru'"),
        (["inspect", "{tiny}", "--predictor", "oracle"], "no predictor 'oracle'"),
        (["inspect", "{tiny}", "--threads", "-3"], "no number of threads"),
        (["chat", "{tiny}", "--prompt", "x", "--threads", "-3"], "no number of threads"),
        (["chat", "{tiny}", "--prompt", "x", "--temperature", "nan"], "temperature is nan"),
        (["chat", "{tiny}", "--prompt", "x", "--seed", "9" * 30], "seed is 999"),
        (["bench", "{tiny}", "--experts", ","], "amounts of memory"),
        (["bench", "{tiny}", "--experts", "50%,lots"], "'lots' is no amount"),
        (["bench", "{tiny}", "--threads", "-3"], "no number of threads"),
        (["bench", "{tiny}", "--gguf", "{tiny}/model.gguf"], "--peer llama.cpp"),
    ],
)
def test_mistakes_are_one_sentence_and_no_traceback(
    arguments: list[str], words: str, tiny_chat_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    places = {"tiny": str(tiny_chat_model), "empty": str(tmp_path / "empty"), "dense": str(_dense(tmp_path / "dense"))}
    assert main([argument.format(**places) for argument in arguments]) == 1
    shown = capsys.readouterr().err
    assert words in shown
    assert "Traceback" not in shown
    assert shown.strip().splitlines()[-1].startswith("greenroom: ")


def _dense(folder: Path) -> Path:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def test_a_reader_that_has_seen_enough_is_no_fault(tiny_chat_model: Path) -> None:
    """As in ``inspect MODEL | head -1``, and in a chat whose reader goes away."""
    for arguments in (["inspect", str(tiny_chat_model)], ["chat", str(tiny_chat_model), "--prompt", "x"]):
        read_end, write_end = os.pipe()
        os.close(read_end)
        with os.fdopen(write_end, "wb") as gone:
            ended = subprocess.run(
                [sys.executable, "-m", "engine", *arguments],
                stdout=gone,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert ended.returncode == READER_GONE
        assert "Traceback" not in ended.stderr
        assert "BrokenPipe" not in ended.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_an_output_that_takes_nothing_is_a_sentence(tiny_chat_model: Path) -> None:
    command = [sys.executable, "-m", "engine", "inspect", str(tiny_chat_model)]
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "greenroom: No space left on device.\n")


def test_a_question_that_cannot_be_put_is_not_in_the_way_of_the_next(tiny_chat_model: Path, tmp_path: Path) -> None:
    log = tmp_path / "talk.jsonl"
    typed = f"Hello\n{'too long ' * 500}\nAnd now?\n"
    command = [sys.executable, "-m", "engine", "chat", str(tiny_chat_model), "--max-tokens", "4", "--context", "200"]
    command += ["--seed", "1"]  # else what it says may have a ">" in it
    ended = subprocess.run(
        [*command, "--log", str(log)], input=typed, capture_output=True, text=True, check=False, encoding="utf-8"
    )
    assert ended.returncode == 0
    assert "the context holds 200" in ended.stderr
    assert ">" not in ended.stdout, "what is piped in needs no prompt"
    conversation = read_conversation(log)
    leaf = conversation.chosen_leaf()
    assert leaf is not None
    shown = [message.text[:8] for message in conversation.path_to(leaf.id) if message.role == "user"]
    assert shown == ["Hello", "And now?"]


@pytest.mark.skipif(os.name != "posix", reason="SIGINT is sent to a process of its own")
def test_ctrl_c_while_libraries_are_imported_is_one_word() -> None:
    """Whenever it comes: no traceback of a half imported library."""
    code = "import os, signal, sys, types\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"  # some ignore it
    code += "class Cli(types.ModuleType):\n"
    code += "    def __getattr__(self, name): os.kill(os.getpid(), signal.SIGINT); return lambda: 0\n"
    code += "sys.modules['engine.cli'] = Cli('engine.cli')\nimport runpy; runpy.run_module('engine.__main__')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "greenroom: stopped.\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("replay", "{}/nope.jsonl"),
            "There is no file “nope.jsonl” in {}: it was moved or deleted, or has another name.",
        ),
        (("replay", "{}/no/x.jsonl"), "There is no folder {}/no for “x.jsonl”. Make it, or name another place."),
        (("replay", "{}"), "{} is a folder, not a conversation. Name the file of one, which ends in .jsonl."),
        (
            ("chat", "{}", "--log", "{}/no/x.jsonl"),
            "There is no folder {}/no for “x.jsonl”. Make it, or name another place.",
        ),
        (("inspect", "{}/no"), "There is no folder {}/no, and no model of that name in the hub cache. Check how"),
        (("demo", "--from", "{}"), "{} is a folder; name the file"),
    ],
)
def test_a_wrong_path_is_said_with_what_to_do(tmp_path: Path, capsys, words: tuple[str, ...], says: str) -> None:
    assert main([word.format(tmp_path) for word in words]) == 1
    assert capsys.readouterr().err.startswith("greenroom: " + says.format(*[tmp_path] * 2))


def test_a_setting_that_means_nothing_is_refused_before_anything_is_loaded_or_written(
    tiny_chat_model: Path, tmp_path: Path, capsys
) -> None:
    log = tmp_path / "talk.jsonl"
    words = ["chat", str(tiny_chat_model), "--prompt", "Hi", "--log", str(log), "--max-tokens", "0"]
    assert main(words) == 1
    assert capsys.readouterr().err == "greenroom: max_tokens is 0; it must be 1 or above.\n"
    assert not log.exists()
