"""One checkpoint, however many a folder holds: experts and all else come from the files that transformers reads."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.cli import main
from engine.errors import ModelError
from engine.models.catalog import summarize
from engine.models.folder import open_folder
from tests.engine.chats import Stock, chat_with
from tests.families import copy_model, make_tiny, split_over_files, stock

PROMPT = torch.randint(3, 120, (30,), generator=torch.Generator().manual_seed(5)).tolist()
FAMILIES = ["qwen2_moe", "gpt_oss", "minimax_m2"]  # one tensor an expert; fused ones; names that transformers changes
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


@pytest.fixture(params=FAMILIES)
def two(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """A model in one file, and the same with other weights in three."""
    one = make_tiny(request.param, tmp_path / "one")
    return one, make_tiny(request.param, tmp_path / "other", shards=3, seed=7)


def is_stock(folder: Path, as_folder: Path | None = None) -> tuple[str, ...]:
    """The program answers as transformers does from the same folder, and as from ``as_folder``; its notes."""
    with chat_with(folder) as chat:
        turn = chat.say(PROMPT)
        notes = chat.loaded.info.notes
    Stock(stock(folder)).check(turn)
    if as_folder is not None:
        Stock(stock(as_folder)).check(turn)
    return notes


def add(source: Path, folder: Path, wanted: Callable[[str], bool] = lambda name: True) -> None:
    for file in source.iterdir():
        if "safetensors" in file.name and wanted(file.name):
            shutil.copy(file, folder / file.name)


def test_a_single_file_wins_over_shards_beside_it(two: tuple[Path, Path]) -> None:
    one, other = two
    add(other, one)
    notes = is_stock(one, as_folder=copy_without_shards(one))
    assert any(
        "more than one set of weights. Used: model.safetensors; left aside: model-00001" in note for note in notes
    )


def copy_without_shards(folder: Path) -> Path:
    clean = copy_model(folder, folder.with_name("clean"))
    for file in clean.glob("model-*"):
        file.unlink()
    (clean / INDEX).unlink()
    return clean


def naming(folder: Path, weights: object) -> Path:
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"transformers_weights": weights}), "utf-8")
    return folder


@pytest.mark.parametrize("named", ["special.safetensors", "special.safetensors.index.json"])
def test_the_file_that_the_config_names_wins_over_all(two: tuple[Path, Path], named: str) -> None:
    one, other = two
    if named.endswith(".json"):
        add(other, one, lambda name: name.startswith("model-"))
        shutil.copy(other / INDEX, one / named)
    else:
        whole = {key: value for part in other.glob("model-*") for key, value in load_file(part).items()}
        save_file(whole, one / named, metadata={"format": "pt"})
    notes = is_stock(naming(one, named), as_folder=other)
    assert any("left aside: model.safetensors" in note for note in notes)


@pytest.mark.parametrize("named", ["../other/model.safetensors", "/etc/x.safetensors", "weights.bin", 7])
def test_weights_that_lead_out_of_the_folder_or_are_none_are_refused(named: object, tmp_path: Path) -> None:
    folder = naming(make_tiny("qwen2_moe", tmp_path / "m"), named)
    with pytest.raises(ModelError, match="transformers_weights"):
        open_folder(folder)


def test_named_weights_that_are_not_there_are_refused(tmp_path: Path) -> None:
    folder = naming(make_tiny("qwen2_moe", tmp_path / "m"), "gone.safetensors")
    with pytest.raises(ModelError, match=r"names gone\.safetensors as its weights, and the folder has no such file"):
        open_folder(folder)


def test_an_original_format_beside_shards_is_left_aside(two: tuple[Path, Path]) -> None:
    _, other = two
    save_file({"layers.0.weight": torch.zeros(4)}, other / "consolidated.safetensors")
    notes = is_stock(other)
    assert any("left aside: consolidated.safetensors" in note for note in notes)


def test_a_stale_shard_of_a_longer_checkpoint_is_left_aside(two: tuple[Path, Path]) -> None:
    _, other = two
    shutil.copy(other / "model-00001-of-00003.safetensors", other / "model-00001-of-00007.safetensors")
    assert any("left aside: model-00001-of-00007" in note for note in is_stock(other))


def test_a_tensor_in_two_shards_is_the_last_ones(two: tuple[Path, Path]) -> None:
    """The index says the first, and transformers reads all that the listed files hold, one after the other."""
    _, other = two
    first, last = other / "model-00001-of-00003.safetensors", other / "model-00003-of-00003.safetensors"
    tensors = load_file(last)
    stray = {name: tensor + 0.3 for name, tensor in load_file(first).items() if tensor.dim() > 1}
    save_file(tensors | dict(list(stray.items())[:3]), last, metadata={"format": "pt"})
    is_stock(other)


def test_an_index_that_lists_a_file_for_everything_is_no_ambiguity(two: tuple[Path, Path]) -> None:
    one, _ = two
    split_over_files(one, 1)
    assert not any("left aside" in note for note in is_stock(one))


@pytest.mark.parametrize("family", ["qwen2_moe", "qwen3_5_moe_text"])
def test_experts_that_are_stored_twice_are_refused_with_both_names(family: str, tmp_path: Path) -> None:
    folder = make_tiny(family, tmp_path / "m")
    tensors = load_file(folder / SINGLE)
    per_expert = next((name for name in tensors if ".experts.0." in name and "down" in name), None)
    fused = next((name for name in tensors if name.endswith("experts.down_proj")), None)
    if per_expert is not None:
        stem = per_expert.split(".experts.")[0]
        parts = [tensors[f"{stem}.experts.{number}.down_proj.weight"] for number in range(8)]
        second = f"{stem}.experts.down_proj"
        save_file(tensors | {second: torch.stack(parts)}, folder / SINGLE, metadata={"format": "pt"})
    else:
        assert fused is not None
        stem, second = fused.removesuffix(".down_proj"), fused
        more = {f"{stem}.{number}.down_proj.weight": part.clone() for number, part in enumerate(tensors[fused])}
        save_file(tensors | more, folder / SINGLE, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"has .* twice, as .* and as .*download it again") as error, chat_with(folder):
        pass
    assert second in str(error.value)


def test_an_embedding_and_a_head_that_differ_are_tied_as_transformers_ties_them(tmp_path: Path) -> None:
    folder = make_tiny("qwen2_moe", tmp_path / "m", changes={"tie_word_embeddings": True})
    tensors = load_file(folder / SINGLE)
    head = tensors["model.embed_tokens.weight"].flip(0).contiguous()
    save_file(tensors | {"lm_head.weight": head}, folder / SINGLE, metadata={"format": "pt"})
    is_stock(folder)


def test_an_adapter_is_no_model(tmp_path: Path) -> None:
    folder = make_tiny("qwen2_moe", tmp_path / "m")
    (folder / "adapter_config.json").write_text("{}", "utf-8")
    with pytest.raises(ModelError, match="holds an adapter"):
        open_folder(folder)


def test_it_is_said_where_a_model_is_chosen_and_inspected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = make_tiny("qwen2_moe", tmp_path / "one"), make_tiny("qwen2_moe", tmp_path / "two", shards=2, seed=3)
    add(other, one)
    said = "The folder has more than one set of weights. Used: model.safetensors; left aside: model-00001-of-00002"
    assert any(note.startswith(said) for note in summarize(str(one)).notes)
    assert main(["inspect", str(one)]) == 0
    assert said in capsys.readouterr().out
    assert summarize(str(other)).notes == ()


def test_other_weights_make_another_model(tmp_path: Path) -> None:
    """Profiles and logs know the model by its signature: that follows the files in use."""
    one, other = make_tiny("qwen2_moe", tmp_path / "one"), make_tiny("qwen2_moe", tmp_path / "two", shards=2, seed=3)
    before = open_folder(one).signature
    add(other, one)
    assert open_folder(one).signature == before
    (one / SINGLE).unlink()
    assert open_folder(one).signature == open_folder(other).signature != before
