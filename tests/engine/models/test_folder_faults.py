"""Every kind of folder that cannot be used is refused with one ModelError sentence that names the culprit."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import ModelError
from engine.inspection import describe
from engine.loading import inspect, load
from engine.messages import LoadModel
from engine.models import adapters, catalog
from engine.models.catalog import find_models
from engine.models.folder import ModelFolder, open_folder
from tests.families import copy_model, make_tiny, tiny_config

Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound qwen2_moe folder in one file."""
    return make_tiny("qwen2_moe", tmp_path_factory.mktemp("whole") / "model")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return copy_model(whole, tmp_path / "model")


def refusal(source: Path | str) -> str:
    """The sentence with which a load is refused; one paragraph, no traceback in it."""
    with pytest.raises(ModelError) as caught:
        load(LoadModel(str(source), experts="25%", dtype="float32", device="cpu")).close()
    text = str(caught.value)
    assert "\n" not in text
    assert "Traceback" not in text
    assert text[-1] in ".)"
    return text


def rewrite(folder: Path, change: Callable[[Tensors], None]) -> None:
    """Change the tensors of a one-file checkpoint."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def remove(folder: Path, part: str) -> None:
    """Take every tensor with ``part`` in its name out of a one-file checkpoint."""

    def change(tensors: Tensors) -> None:
        for name in [name for name in tensors if part in name]:
            del tensors[name]

    rewrite(folder, change)


def configure(folder: Path, **values: Any) -> None:
    """Set values in config.json; None removes one."""
    file = folder / "config.json"
    config = json.loads(file.read_text("utf-8")) | values
    file.write_text(json.dumps({name: value for name, value in config.items() if value is not None}), "utf-8")


# -------------------------------------------------------------------------------------- not what it should be


def test_a_family_off_the_registry_without_an_adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "_FILES", frozenset())
    assert "The family dbrx routes its experts in a way of its own" in refusal(make_tiny("dbrx", tmp_path))


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_a_dense_model(family: str, tmp_path: Path) -> None:
    assert f"dense model ({family})" in refusal(make_tiny(family, tmp_path))


def test_a_model_that_does_not_answer(tmp_path: Path) -> None:
    tiny_config("vit").save_pretrained(tmp_path)
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    assert "vit is not a text model" in refusal(tmp_path)


def test_nothing_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for source in ("nobody/nothing", str(tmp_path / "absent"), "~no-such-user-here/x", "x" * 5000, "a\0b", " "):
        refusal(source)


def test_no_model_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"\xff\xd8")
    assert "no config.json" in refusal(tmp_path)


def test_a_file_instead_of_a_folder(folder: Path) -> None:
    assert "is a file" in refusal(folder / "model.safetensors")


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[1]", b'{"vocab_size": 3}', b"\xff\xfe\x00", b"null", pytest.param(b'{"a":' * 99_999, id="deep")],
)
def test_a_damaged_config(folder: Path, text: bytes) -> None:
    (folder / "config.json").write_bytes(text)
    assert "config.json" in refusal(folder)


@pytest.mark.parametrize(
    "values",
    [
        {"hidden_size": "big"},
        {"num_attention_heads": 0},
        {"num_hidden_layers": -1},
        {"hidden_act": "no_such_function"},
        {"layer_types": ["full_attention"]},
        {"num_experts": None},
        {"num_experts_per_tok": 0},
        {"num_experts_per_tok": 9},
        {"num_experts_per_tok": -1},
    ],
)
def test_a_config_that_makes_no_model(folder: Path, values: dict[str, Any]) -> None:
    configure(folder, **values)
    refusal(folder)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_position_embeddings", -1),
        ("max_position_embeddings", 0),
        ("max_position_embeddings", 1.5),
        ("max_position_embeddings", "many"),
        ("max_position_embeddings", True),
        ("intermediate_size", -1),
        ("num_key_value_heads", -1),
        ("hidden_size", 0),
        ("num_hidden_layers", -1),
    ],
)
def test_a_size_that_means_nothing(folder: Path, name: str, value: object) -> None:
    """Also where the model could be built with it: the memory plan would count with it."""
    configure(folder, **{name: value})
    assert name in refusal(folder)
    with pytest.raises(ModelError, match=name):
        describe(LoadModel(str(folder)))


def test_an_unknown_architecture(folder: Path) -> None:
    configure(folder, model_type="moe_from_next_year")
    assert "does not know the architecture 'moe_from_next_year'" in refusal(folder)


def test_remote_code_is_never_run(folder: Path) -> None:
    configure(folder, model_type="evil", auto_map={"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"})
    (folder / "evil.py").write_text("raise SystemExit('the code of the folder was run')", "utf-8")
    assert "its own Python code (evil)" in refusal(folder)


def test_remote_code_beside_a_known_architecture_is_left_alone(folder: Path) -> None:
    configure(folder, auto_map={"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"})
    (folder / "evil.py").write_text("raise SystemExit('the code of the folder was run')", "utf-8")
    load(LoadModel(str(folder), experts="25%", device="cpu")).close()


# ------------------------------------------------------------------------------------------ kinds of weights


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.00.pth", "model.pt"])
def test_only_pickle_weights(folder: Path, name: str) -> None:
    (folder / "model.safetensors").rename(folder / name)
    assert f"only pickle weights ({name})" in refusal(folder)


def test_only_gguf_weights(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-Q4_K_M.gguf")
    assert "only GGUF" in refusal(folder)


def test_no_weights_at_all(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "no safetensors weights" in refusal(folder)


@pytest.mark.parametrize("method", ["fp8", "mxfp4", "gptq", "awq", "bitsandbytes", "compressed-tensors"])
def test_quantised_by_config(folder: Path, method: str) -> None:
    configure(folder, quantization_config={"quant_method": method})
    assert f"quantised ({method})" in refusal(folder)


def test_quantised_inside_the_text_config(folder: Path) -> None:
    configure(folder, text_config={"quantization_config": {"quant_method": "fp8"}})
    assert "quantised (fp8)" in refusal(folder)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.uint8, torch.int32])
@pytest.mark.parametrize("name", ["model.layers.0.mlp.experts.3.up_proj.weight", "lm_head.weight"])
def test_packed_by_number_format(folder: Path, dtype: torch.dtype, name: str) -> None:
    """Even where the config says nothing: never cast in silence."""

    def pack(tensors: Tensors) -> None:
        tensors[name] = tensors[name].to(dtype)

    rewrite(folder, pack)
    assert "packed" in refusal(folder)


# ------------------------------------------------------------------------------------- incomplete and damaged


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = make_tiny("qwen2_moe", tmp_path, shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    assert "1 of 3 weight files are missing: model-00002-of-00003.safetensors" in refusal(folder)


def test_shards_without_their_index(tmp_path: Path) -> None:
    folder = make_tiny("qwen2_moe", tmp_path, shards=2)
    (folder / "model.safetensors.index.json").unlink()
    assert "model.safetensors.index.json" in refusal(folder)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"weight_map": []}',
        '{"weight_map": {}}',
        '{"weight_map": {"a": 1}}',
        pytest.param("[" * 99_999, id="deep"),
    ],
)
def test_a_damaged_index(tmp_path: Path, text: str) -> None:
    folder = make_tiny("qwen2_moe", tmp_path, shards=2)
    (folder / "model.safetensors.index.json").write_text(text, "utf-8")
    refusal(folder)


@pytest.mark.parametrize("keep", [0, 5, 8, 200, -1, -5000])
def test_a_file_cut_short(folder: Path, keep: int) -> None:
    file = folder / "model.safetensors"
    os.truncate(file, keep if keep >= 0 else file.stat().st_size + keep)
    assert "model.safetensors is cut short" in refusal(folder)


@pytest.mark.parametrize(
    "header",
    [
        b"not json at all",
        b"[]",
        b'{"a": 3}',
        b'{"a": {"dtype": "F32", "shape": [2]}}',
        b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [8, 4]}}',
        b'{"a": {"dtype": "F32", "shape": "x", "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}',
        b'{"a": {"dtype": "F32", "shape": [1e999], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [0], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0.0, 4.0]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},'
        b' "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}',
        b'{"\\ud800": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}',
        b'{"__metadata__": {"a": 5}}',
        b'{"__metadata__": []}',
        pytest.param(b"[" * 99_999, id="deep"),
        b"\xff\xfe",
    ],
)
def test_a_damaged_header(folder: Path, header: bytes) -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
    assert "The header of model.safetensors is damaged" in refusal(folder)


@pytest.mark.parametrize("name", ["../{}", "{folder}/{}", "..\\{}", "C:\\{}", "sub/../../{}", "weights.bin"])
def test_an_index_that_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    folder = make_tiny("qwen2_moe", tmp_path / "model", shards=2)
    index = folder / "model.safetensors.index.json"
    listed = json.loads(index.read_text("utf-8"))
    first, second = sorted(set(listed["weight_map"].values()))
    (tmp_path / first).write_bytes((folder / first).read_bytes())
    (folder / first).rename(folder / "weights.bin")
    places = {first: name.format(first, folder=tmp_path), second: second}
    listed["weight_map"] = {tensor: places[file] for tensor, file in listed["weight_map"].items()}
    index.write_text(json.dumps(listed), "utf-8")
    assert "no safetensors file inside the folder" in refusal(folder)


def test_bytes_after_the_last_tensor(folder: Path) -> None:
    with (folder / "model.safetensors").open("ab") as file:
        file.write(bytes(64))
    assert "64 bytes that belong to no tensor" in refusal(folder)


def test_an_expert_missing_in_the_middle_is_named(folder: Path) -> None:
    remove(folder, "layers.1.mlp.experts.3.")
    text = refusal(folder)
    assert "model.layers.1.mlp.experts" in text
    assert "expert 3 are missing" in text


def test_one_projection_of_one_expert_missing_is_named(folder: Path) -> None:
    remove(folder, "model.layers.2.mlp.experts.7.up_proj.weight")
    text = refusal(folder)
    assert "model.layers.2.mlp.experts.gate_up_proj" in text
    assert "expert 7 are missing" in text


def test_a_layer_without_experts_is_named(folder: Path) -> None:
    remove(folder, "layers.1.mlp.experts.")
    text = refusal(folder)
    assert "no weights for model.layers.1.mlp.experts" in text
    assert "incomplete" in text


@pytest.mark.parametrize("new", ["layers.1.mlp.experts.0.w_up.weight", "layers.1.mlp.bank.0.up.weight"])
def test_experts_under_names_nobody_expects_are_named(folder: Path, new: str) -> None:
    def rename(tensors: Tensors) -> None:
        for expert in range(8):
            old = f"model.layers.1.mlp.experts.{expert}.up_proj.weight"
            tensors["model." + new.replace(".0.", f".{expert}.")] = tensors.pop(old)

    rewrite(folder, rename)
    assert f"model.{new}" in refusal(folder)


def test_an_expert_weight_that_fits_nowhere_is_not_ignored(folder: Path) -> None:
    """Leaving out a bias that the file has would give other answers without a word."""
    rewrite(folder, lambda tensors: tensors.update({"model.layers.0.mlp.experts.2.down_proj.bias": torch.zeros(32)}))
    assert "model.layers.0.mlp.experts.2.down_proj.bias" in refusal(folder)


def test_a_dense_weight_missing_is_named(folder: Path) -> None:
    remove(folder, "model.layers.1.self_attn.q_proj.weight")
    assert "model.layers.1.self_attn.q_proj.weight" in refusal(folder)


@pytest.mark.parametrize(
    "values",
    [{"hidden_size": 64}, {"moe_intermediate_size": 20}, {"num_experts": 4}, {"num_experts": 16}, {"vocab_size": 99}],
)
def test_a_config_of_another_size(folder: Path, values: dict[str, int]) -> None:
    configure(folder, **values)
    refusal(folder)


def test_fused_experts_of_another_number(tmp_path: Path) -> None:
    folder = make_tiny("gpt_oss", tmp_path)
    configure(folder, num_local_experts=4)
    assert "the config asks for" in refusal(folder)


def test_the_same_faults_show_without_loading(folder: Path) -> None:
    """The picker asks `inspect`, which reads headers only."""
    remove(folder, "model.layers.2.mlp.experts.7.up_proj.weight")
    with pytest.raises(ModelError, match="expert 7"):
        inspect(str(folder))


@pytest.fixture
def as_nobody() -> Iterator[None]:
    """Root may read everything: become somebody who may not."""
    if not hasattr(os, "seteuid") or os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    yield
    os.seteuid(0)


def test_an_unreadable_folder(folder: Path, as_nobody: None) -> None:
    if os.geteuid() != 65534:
        folder.chmod(0)
    try:
        assert "annot be" in refusal(folder)
    finally:
        if os.geteuid() != 65534:
            folder.chmod(0o755)


def test_a_folder_that_nobody_may_look_into_hides_no_other(folder: Path, as_nobody: None) -> None:
    if os.geteuid() != 65534:
        folder.chmod(0)
    try:
        listed = {model.source: model.problem for model in find_models([str(folder), "~nobody-of-that-name/models"])}
    finally:
        if os.geteuid() != 65534:
            folder.chmod(0o755)
    assert "demo" in listed
    assert "annot be" in listed[str(folder)]
    assert "cannot be opened" in listed["~nobody-of-that-name/models"]


def test_one_model_that_trips_the_program_hides_no_other(
    whole: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trips(path: Path) -> ModelFolder:
        if path == folder.resolve():
            raise ZeroDivisionError("nobody thought of this")
        return open_folder(path)

    monkeypatch.setattr(catalog, "open_folder", trips)
    listed = {model.source: model for model in find_models([str(folder), str(whole)])}
    assert "nobody thought of this" in listed[str(folder)].problem
    assert listed[str(whole)].experts == 8
