"""Synthetic models: the true shapes under the original's names, written whole or not at all."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from engine.bench import synthetic
from engine.bench.synthetic import SHAPES, Shape, plan_synthetic, write_synthetic
from engine.errors import MemoryPlanError, OptionError
from engine.messages import LoadModel
from engine.models.folder import open_folder
from engine.paths import models_dir
from engine.verify import verify
from tests.families import make_tiny, tiny_config

# what the models' own cards and indexes say: all parameters of the whole model
PARAMETERS = {
    "olmoe": 6_919_161_856,
    "qwen3-30b": 30_532_122_624,
    "deepseek-v2-lite": 15_706_484_224,
    "mixtral": 46_702_792_704,
}


def tiny_shape(name: str) -> Shape:
    """The shape with a tiny config's values: the same names, a fraction of a megabyte."""
    shape = SHAPES[name]
    tiny = tiny_config(shape.model_type)
    values = {key: getattr(tiny, key) for key in shape.values if hasattr(tiny, key)}
    return Shape(
        shape.title, shape.model_type, 3, values, shape.experts, shape.projections, shape.renamed, shape.dense_layers
    )


@pytest.fixture
def tiny(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    monkeypatch.setitem(SHAPES, name, tiny_shape(name))
    return name


every_shape = pytest.mark.parametrize("tiny", sorted(SHAPES), indirect=True)
olmoe = pytest.mark.parametrize("tiny", ["olmoe"], indirect=True)


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_with_all_its_layers_it_has_as_many_parameters_as_the_original(name: str) -> None:
    assert plan_synthetic(name, SHAPES[name].layers).nbytes == 2 * PARAMETERS[name]


def test_experts_are_as_large_as_the_originals() -> None:
    sizes = {}
    for name in SHAPES:
        tensors = [t for t in plan_synthetic(name, 1).tensors if ".experts.3." in t.name]
        sizes[name] = sum(tensor.nbytes for tensor in tensors)
    assert sizes == {
        "olmoe": 12_582_912,
        "qwen3-30b": 9_437_184,
        "deepseek-v2-lite": 17_301_504,
        "mixtral": 352_321_536,
    }


def test_without_a_number_it_has_about_four_gigabytes_of_experts() -> None:
    model = plan_synthetic("olmoe")
    assert model.layers == 5
    assert 4e9 < model.nbytes < 5e9


@every_shape
def test_names_and_shapes_are_those_of_the_hubs_layout(tiny: str, tmp_path: Path) -> None:
    layers = 2 + SHAPES[tiny].dense_layers
    original = make_tiny(SHAPES[tiny].model_type, tmp_path, changes=_changes(tiny) | {"num_hidden_layers": layers})
    theirs = {name: ref.shape for name, ref in open_folder(original).tensors.items()}
    ours = {tensor.name: tensor.shape for tensor in plan_synthetic(tiny, 2).tensors}
    assert ours == theirs


@every_shape
def test_what_was_written_runs_as_the_stock_model_runs_it(tiny: str) -> None:
    folder = write_synthetic(plan_synthetic(tiny, 2))
    verdict = verify(LoadModel(str(folder), experts="50%"), "", 6)
    assert verdict.equal
    assert verdict.total_experts == 16
    assert verdict.max_logit_diff < 1e-4  # not NaN either


@olmoe
def test_it_is_written_once_and_always_the_same(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    first = write_synthetic(plan_synthetic(tiny, 1), said.append)
    assert "GB" in said[0] and str(first) in said[0], "the size is said before anything is written"
    digest = _digest(first)
    again: list[str] = []
    assert write_synthetic(plan_synthetic(tiny, 1), again.append) == first
    assert again == []
    shutil.rmtree(first)
    assert _digest(write_synthetic(plan_synthetic(tiny, 1))) == digest


@olmoe
def test_it_is_spread_over_shards_layer_by_layer(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "SHARD_BYTES", 40_000)
    folder = write_synthetic(plan_synthetic(tiny, 3))
    assert len(list(folder.glob("*.safetensors"))) > 2
    assert open_folder(folder).total_bytes == plan_synthetic(tiny, 3).nbytes


@olmoe
@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_write_leaves_nothing(tiny: str, fault: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = synthetic._numbers

    def breaks_off(tensor: synthetic.Tensor) -> Iterator[torch.Tensor]:
        if "experts.5" in tensor.name:
            raise fault
        return whole(tensor)

    monkeypatch.setattr(synthetic, "_numbers", breaks_off)
    expected = KeyboardInterrupt if isinstance(fault, KeyboardInterrupt) else MemoryPlanError
    with pytest.raises(expected):
        write_synthetic(plan_synthetic(tiny, 1))
    assert list(models_dir().iterdir()) == []
    assert not plan_synthetic(tiny, 1).is_written


@olmoe
def test_what_a_killed_process_left_is_removed_and_not_taken_for_a_model(tiny: str) -> None:
    model = plan_synthetic(tiny, 1)
    left = model.folder.with_name(f"{model.folder.name}.partial-999999999")
    left.mkdir()
    (left / "config.json").write_text("{}")
    assert not model.is_written
    write_synthetic(model)
    assert [path.name for path in models_dir().iterdir()] == [model.folder.name]


@olmoe
def test_a_disk_without_room_is_refused_before_a_byte_is_written(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage(NamedTuple):
        free: int

    monkeypatch.setattr(synthetic.shutil, "disk_usage", lambda folder: Usage(1_000_000))
    with pytest.raises(MemoryPlanError, match=r"Not enough disk: .* takes 0.0 GB and 0.0 GB are free .* --layers"):
        write_synthetic(plan_synthetic(tiny, 1))
    assert list(models_dir().iterdir()) == []


def test_an_unknown_shape_or_too_many_layers_is_refused_with_what_there_is() -> None:
    with pytest.raises(OptionError, match="choose olmoe, qwen3-30b"):
        plan_synthetic("gpt-5", 1)
    for layers in (0, 17):
        with pytest.raises(OptionError, match="1 to 16"):
            plan_synthetic("olmoe", layers)


def _changes(name: str) -> dict[str, Any]:
    return SHAPES[name].values | {"tie_word_embeddings": False}


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()
