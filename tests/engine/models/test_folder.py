"""Sound folders in odd places, found by path or by hub name, and what a folder says about itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from engine.errors import ModelError
from engine.loading import inspect, load
from engine.messages import LoadModel
from engine.models.folder import hub_cache_dir, hub_models, open_folder, resolve
from tests.families import copy_model, make_tiny, split_over_files

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny("qwen2_moe", tmp_path_factory.mktemp("whole") / "model", tokenizer=True)


def check_answers(source: str) -> None:
    """Load and run one token."""
    loaded = load(LoadModel(source, experts="25%", dtype="float32", device="cpu"))
    with torch.inference_mode():
        assert loaded.model(torch.tensor([[5]])).logits.isfinite().all()
    loaded.close()


def hub_snapshot(cache: Path, name: str, source: Path) -> Path:
    """``source`` as huggingface_hub lays it out: blobs by hash, a snapshot of relative links, a ref to its commit."""
    repo = cache / ("models--" + name.replace("/", "--"))
    blobs, snapshot = repo / "blobs", repo / "snapshots" / COMMIT
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, file in enumerate(sorted(source.iterdir())):
        shutil.copy(file, blobs / f"{number:064x}")
        (snapshot / file.name).symlink_to(Path("../../blobs") / f"{number:064x}")
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(COMMIT, "utf-8")
    return snapshot


@pytest.mark.parametrize(
    "name",
    ["my model", "modèle d'été", "模型 文件夹", "🙂🎭", "a'b\"c", "trailing.", "100%", "[x]*?", "-rf", "#1 & co"],
)
def test_paths_with_anything_in_them(name: str, whole: Path, tmp_path: Path) -> None:
    folder = copy_model(whole, tmp_path / name / name)
    split_over_files(folder, 2)
    check_answers(str(folder))


def test_a_relative_path(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(whole.parent)
    check_answers("model")
    monkeypatch.chdir(whole)
    assert resolve(".") == whole


def test_a_read_only_folder(whole: Path, tmp_path: Path) -> None:
    """Nothing is written beside the weights, whoever may write there."""
    folder = copy_model(whole, tmp_path / "model")
    before = {file.name: (file.stat().st_mtime_ns, file.stat().st_size) for file in folder.iterdir()}
    for path in (*folder.iterdir(), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        check_answers(str(folder))
        assert {file.name: (file.stat().st_mtime_ns, file.stat().st_size) for file in folder.iterdir()} == before
    finally:
        folder.chmod(0o755)


@pytest.fixture
def cache(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache with one model, owner/tiny-moe."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    hub_snapshot(tmp_path / "hub", "owner/tiny-moe", whole)
    return tmp_path / "hub"


def test_a_hub_snapshot_by_its_name(cache: Path) -> None:
    snapshot = resolve("owner/tiny-moe")
    assert snapshot == cache / "models--owner--tiny-moe" / "snapshots" / COMMIT
    assert open_folder(snapshot).name == "owner/tiny-moe"
    check_answers("owner/tiny-moe")


def test_a_hub_snapshot_by_its_path_keeps_its_name(cache: Path) -> None:
    assert open_folder(resolve(str(resolve("owner/tiny-moe")))).name == "owner/tiny-moe"


def test_a_hub_snapshot_without_a_ref(cache: Path) -> None:
    """As a download of one commit leaves it."""
    shutil.rmtree(cache / "models--owner--tiny-moe" / "refs")
    assert resolve("owner/tiny-moe").name == COMMIT


def test_a_ref_that_a_crash_left_empty(cache: Path) -> None:
    (cache / "models--owner--tiny-moe" / "refs" / "main").write_text("", "utf-8")
    assert resolve("owner/tiny-moe").name == COMMIT


def test_an_interrupted_hub_download_names_what_is_missing(cache: Path) -> None:
    """The link is there and the blob is not."""
    snapshot = resolve("owner/tiny-moe")
    (snapshot / "model.safetensors").resolve().unlink()
    with pytest.raises(ModelError, match=r"1 of 1 weight files are missing: model\.safetensors"):
        open_folder(snapshot)


def test_the_hub_cache_is_listed(cache: Path) -> None:
    (cache / "models--owner--only-refs").mkdir()
    (cache / "datasets--owner--data" / "snapshots").mkdir(parents=True)
    assert hub_models() == ["owner/tiny-moe"]


def test_where_the_hub_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    assert hub_cache_dir() == tmp_path / "home" / "hub"
    assert hub_models() == []
    monkeypatch.delenv("HF_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert hub_cache_dir() == tmp_path / "xdg" / "huggingface" / "hub"


def test_what_inspection_says_without_reading_a_weight(whole: Path) -> None:
    found = inspect(str(whole))
    assert (found.folder.family, found.layers, found.experts, found.skeleton.top_k) == ("qwen2_moe", 3, 8, 2)
    assert found.index.stored_dtypes() == {torch.float32}
    assert found.index.stored_bytes() == 3 * 8 * 3 * 32 * 16 * 4
    dense = found.folder.total_bytes - found.index.stored_bytes()
    assert found.dense_parameters * 4 == dense
    assert all(parameter.device.type == "meta" for parameter in found.model.parameters())


def test_the_signature_tells_models_apart(whole: Path, tmp_path: Path) -> None:
    signature = open_folder(whole).signature
    assert len(signature) == 16
    assert open_folder(copy_model(whole, tmp_path / "copy")).signature == signature
    assert (
        open_folder(make_tiny("qwen2_moe", tmp_path / "other", changes={"rms_norm_eps": 1e-5})).signature != signature
    )
