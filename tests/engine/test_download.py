"""Downloads from a stand-in hub through the real engine thread: what is fetched, what a fault leaves, what goes on."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.messages import (
    DownloadDone,
    DownloadModel,
    DownloadProgress,
    EngineReady,
    Failed,
    ListModels,
    LoadModel,
    LookUpModel,
    MemoryPlanned,
    ModelList,
    ModelLoaded,
    ModelOnHub,
    PlanMemory,
    StopDownload,
)
from engine.models import download, hub_files
from tests.engine.listening import Engine
from tests.engine.standin_hub import COMMIT, StandInHub, serving

NAME = "org/tiny-moe"


@pytest.fixture
def hub(tiny_chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInHub]:
    folder = tmp_path / "on the hub"
    shutil.copytree(tiny_chat_model, folder)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Tiny\n")
    (folder / "pytorch_model.bin").write_bytes(b"for other programs")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub cache ü"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub_files, "WAIT_S", 0.01)
    with serving(StandInHub(NAME, folder)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        yield hub


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as engine:
        yield engine


def repo(tmp_path: Path) -> Path:
    return tmp_path / "hub cache ü" / "models--org--tiny-moe"


def weights_asked(hub: StandInHub) -> list[str]:
    return [line.partition("/model.safetensors")[2].strip() for line in hub.asked if "/model.safetensors" in line]


def sentence(engine: Engine) -> str:
    failed = engine.wait_for(Failed, fail=False)
    assert failed.details == "", failed.details
    assert failed.request_id == NAME
    return failed.text


def test_size_and_fit_are_known_before_anything_is_fetched(hub: StandInHub, engine: Engine, tmp_path: Path) -> None:
    engine.send(LookUpModel(NAME))
    found = engine.wait_for(ModelOnHub)
    wanted = {name: content for name, content in hub.files.items() if not name.endswith(".bin")}
    assert found.total_bytes == sum(map(len, wanted.values()))
    assert (found.files, found.present_bytes, found.summary.problem) == (len(wanted), 0, "")
    assert (found.summary.family, found.summary.layers, found.summary.experts) == ("qwen2_moe", 3, 8)
    assert found.summary.license == "apache-2.0"
    assert found.plan is not None
    assert found.plan.verdict == "fits"
    assert not repo(tmp_path).exists()
    assert weights_asked(hub) == []


def test_what_was_foretold_is_what_the_downloaded_model_needs(hub: StandInHub, engine: Engine) -> None:
    engine.send(LookUpModel(NAME))
    foretold = engine.wait_for(ModelOnHub)
    engine.send(DownloadModel(NAME))
    engine.wait_for(DownloadDone)
    engine.send(ListModels())
    listed = {model.source: model for model in engine.wait_for(ModelList).models}
    here = listed[NAME]
    assert (here.problem, here.license, here.expert_bytes) == ("", "apache-2.0", foretold.summary.expert_bytes)
    engine.send(PlanMemory(NAME))
    plan, before = engine.wait_for(MemoryPlanned), foretold.plan
    assert before is not None
    for name in ("verdict", "dtype", "slots", "total_experts", "slot_bytes", "dense_bytes", "context", "kv_bytes"):
        assert getattr(plan, name) == getattr(before, name), name
    engine.send(LoadModel(NAME))
    assert engine.wait_for(ModelLoaded).has_template


def test_only_what_a_model_needs_is_fetched_and_every_byte_is_right(
    hub: StandInHub, engine: Engine, tmp_path: Path
) -> None:
    engine.send(DownloadModel(NAME))
    engine.wait_for(DownloadDone)
    snapshot = repo(tmp_path) / "snapshots" / COMMIT
    fetched = {path.name: path.read_bytes() for path in snapshot.iterdir()}
    assert fetched == {name: content for name, content in hub.files.items() if not name.endswith(".bin")}
    last = engine.of(DownloadProgress)[-1]
    assert last.done_bytes == last.total_bytes == sum(map(len, fetched.values()))
    hub.asked.clear()
    engine.send(DownloadModel(NAME))
    engine.wait_for(DownloadDone)
    assert not any("/resolve/" in line and "config.json" not in line for line in hub.asked), "nothing is fetched twice"


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_was_shown_by_half_is_shown_whole_by_the_next_download(
    hub: StandInHub, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """Where the system makes no links files are copied, and a program may be ended in the middle of that."""
    if not links:

        def refused(self: Path, target: Path) -> None:
            raise OSError("no links here")

        monkeypatch.setattr(Path, "symlink_to", refused)
    engine.send(DownloadModel(NAME))
    engine.wait_for(DownloadDone)
    snapshot = repo(tmp_path) / "snapshots" / COMMIT
    half = snapshot / "model.safetensors"
    half.unlink()
    half.write_bytes(hub.files["model.safetensors"][:5000])
    engine.send(DownloadModel(NAME))
    engine.wait_for(DownloadDone)
    assert half.read_bytes() == hub.files["model.safetensors"]
    assert not any(path.name.endswith(".incomplete") for path in snapshot.iterdir())


def test_a_cut_connection_goes_on_where_it_ended(hub: StandInHub, engine: Engine) -> None:
    hub.cuts = [5000, 7000]
    engine.send(DownloadModel(NAME))
    engine.wait_for(DownloadDone)
    assert weights_asked(hub) == ["", "bytes=5000-", "bytes=12000-"]


def test_a_server_that_knows_no_ranges_begins_again(hub: StandInHub, engine: Engine) -> None:
    hub.cuts, hub.no_ranges = [5000], True
    engine.send(DownloadModel(NAME))
    engine.wait_for(DownloadDone)
    assert weights_asked(hub) == ["", "bytes=5000-"]


def test_a_connection_that_only_breaks_is_told_and_later_goes_on(
    hub: StandInHub, engine: Engine, tmp_path: Path
) -> None:
    hub.cuts = [4000, *([0] * hub_files.TRIES)]
    engine.send(DownloadModel(NAME))
    assert "what is here stays" in sentence(engine)
    engine.send(ListModels())
    listed = {model.source: model for model in engine.wait_for(ModelList).models}
    assert listed[NAME].partial
    assert "not complete" in listed[NAME].problem
    hub.cuts.clear()
    hub.asked.clear()
    engine.send(DownloadModel(NAME))
    engine.wait_for(DownloadDone)
    assert weights_asked(hub) == ["bytes=4000-"]
    engine.send(ListModels())
    listed = {model.source: model for model in engine.wait_for(ModelList).models}
    assert (listed[NAME].problem, listed[NAME].partial) == ("", False)


def test_a_stop_ends_it_and_the_next_program_goes_on(hub: StandInHub, tmp_path: Path) -> None:
    hub.hold = threading.Event()
    with Engine() as engine:
        engine.send(DownloadModel(NAME))
        assert hub.held.wait(60)
        engine.send(StopDownload())
        hub.hold.set()
        assert "stopped" in sentence(engine)
    hub.hold = None
    half = [path.stat().st_size for path in (repo(tmp_path) / "blobs").glob("*.incomplete")]
    assert len(half) == 1 and half[0] > 0
    hub.asked.clear()
    with Engine() as engine:
        engine.send(DownloadModel(NAME))
        engine.wait_for(DownloadDone)
    assert weights_asked(hub) == [f"bytes={half[0]}-"]


def test_a_stop_does_not_wait_for_a_silent_server(hub: StandInHub, engine: Engine, tmp_path: Path) -> None:
    hub.hold = threading.Event()  # not set before the test is over
    engine.send(DownloadModel(NAME))
    while not (fetched := engine.wait_for(DownloadProgress)).file.endswith(".safetensors") or not fetched.done_bytes:
        pass
    assert hub.held.wait(60)
    began = time.monotonic()
    engine.send(StopDownload())
    assert "stopped" in sentence(engine)
    assert time.monotonic() - began < 1
    half = [path.stat().st_size for path in (repo(tmp_path) / "blobs").glob("*.incomplete")]
    assert len(half) == 1
    hub.hold.set()
    hub.hold = None
    hub.asked.clear()
    engine.send(DownloadModel(NAME))
    engine.wait_for(DownloadDone)
    assert weights_asked(hub) == [f"bytes={half[0]}-"] if half[0] else [""]


def test_while_the_server_is_silent_one_is_told_so(
    hub: StandInHub, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "RATE_S", 1.0)
    hub.hold = threading.Event()
    engine.send(DownloadModel(NAME))
    assert hub.held.wait(60)
    while (told := engine.wait_for(DownloadProgress)).bytes_per_second != 0:
        pass
    assert told.file == "model.safetensors"
    assert len(hub.files[told.file]) // 2 <= told.done_bytes < told.total_bytes, "all that came"
    hub.hold.set()
    engine.wait_for(DownloadDone)


def test_a_stop_ends_looking_a_model_up(hub: StandInHub, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the connection and never says a word
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        engine.send(LookUpModel(NAME))
        connection, _ = silent.accept()
        began = time.monotonic()
        engine.send(StopDownload())
        assert "stopped" in sentence(engine)
        assert time.monotonic() - began < 1
        connection.close()
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    engine.send(LookUpModel(NAME))
    assert engine.wait_for(ModelOnHub).name == NAME


@pytest.mark.parametrize("links", [True, False])
def test_no_file_has_its_name_before_it_is_on_the_disk(
    hub: StandInHub, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """After a power cut a file that has its full size may still hold zeros, unless the disk was asked first."""
    durable: set[int] = set()
    sync, replace = os.fsync, Path.replace
    named: list[str] = []

    def synced(descriptor: int) -> None:
        sync(descriptor)
        durable.add(os.fstat(descriptor).st_ino)

    def placed(self: Path, target: Path) -> Path:
        assert self.stat().st_ino in durable, f"{target.name} was not on the disk"
        named.append(target.name)
        return replace(self, target)

    def refused(self: Path, target: Path) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", placed)
    if not links:
        monkeypatch.setattr(Path, "symlink_to", refused)
    engine.send(DownloadModel(NAME))
    engine.wait_for(DownloadDone)
    assert "main" in named
    blobs = {path.name for path in (repo(tmp_path) / "blobs").iterdir()}
    assert len(blobs) > 3
    assert blobs <= set(named)
    assert ("model.safetensors" in named) is not links


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (401, "GatedRepo", "is gated"),
        (401, "RepoNotFound", "no model org/tiny-moe that you may read"),
        (404, "RepoNotFound", "no model org/tiny-moe that you may read"),
        (403, "", "does not let you read"),
        (429, "", "asks for a pause"),
        (503, "", "error 503"),
    ],
)
def test_a_refusal_is_a_sentence(hub: StandInHub, engine: Engine, status: int, code: str, words: str) -> None:
    hub.refusal = (status, code)
    engine.send(LookUpModel(NAME))
    assert words in sentence(engine)


@pytest.mark.parametrize("name", ["", "tiny", "../../etc/passwd", "a/b/c", "https://x/y", "-a/b"])
def test_a_name_that_is_none_is_refused_without_asking(hub: StandInHub, engine: Engine, name: str) -> None:
    engine.send(LookUpModel(name))
    assert "no name of a model" in engine.wait_for(Failed, fail=False).text
    assert hub.asked == []


def test_no_network_is_a_sentence(hub: StandInHub, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{unused.getsockname()[1]}")
        engine.send(LookUpModel(NAME))
        assert "was not reached" in sentence(engine)


def test_offline_is_respected(hub: StandInHub, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    engine.send(LookUpModel(NAME))
    assert "HF_HUB_OFFLINE" in sentence(engine)
    assert hub.asked == []


def test_more_bytes_than_the_hub_names_are_not_kept(hub: StandInHub, engine: Engine, tmp_path: Path) -> None:
    hub.said_sizes["model.safetensors"] = 1000
    engine.send(DownloadModel(NAME))
    assert "sends more of model.safetensors than the 1,000 bytes" in sentence(engine)
    assert all(path.stat().st_size == 0 for path in (repo(tmp_path) / "blobs").glob("*.incomplete"))


def test_damaged_bytes_are_thrown_away(hub: StandInHub, engine: Engine, tmp_path: Path) -> None:
    hub.damaged.add("model.safetensors")
    engine.send(DownloadModel(NAME))
    assert "arrived damaged" in sentence(engine)
    assert list((repo(tmp_path) / "blobs").glob("*.incomplete")) == []
    hub.damaged.clear()
    engine.send(DownloadModel(NAME))
    engine.wait_for(DownloadDone)


def test_a_full_disk_is_told_before_the_first_byte(
    hub: StandInHub, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_files, "free_on_disk", lambda: 1000)
    engine.send(DownloadModel(NAME))
    assert "Not enough room on the disk" in sentence(engine)
    assert weights_asked(hub) == []


def test_a_model_that_could_not_be_used_is_said_before_its_download(hub: StandInHub, engine: Engine) -> None:
    config = json.loads(hub.files["config.json"])
    hub.files["config.json"] = json.dumps(config | {"quantization_config": {"quant_method": "awq"}}).encode()
    engine.send(LookUpModel(NAME))
    found = engine.wait_for(ModelOnHub)
    assert "quantised (awq)" in found.summary.problem
    assert found.plan is None


def test_only_pickles_on_the_hub(hub: StandInHub, engine: Engine) -> None:
    del hub.files["model.safetensors"]
    engine.send(LookUpModel(NAME))
    assert "no usable safetensors" in sentence(engine)


def test_names_that_lead_out_of_the_cache_are_left_alone(hub: StandInHub, engine: Engine, tmp_path: Path) -> None:
    hub.files |= {"..\\evil.json": b"{}", "sub/config.json": b"{}"}
    engine.send(DownloadModel(NAME))
    engine.wait_for(DownloadDone)
    names = {path.name for path in (repo(tmp_path) / "snapshots" / COMMIT).iterdir()}
    assert "..\\evil.json" not in names


def test_nothing_else_contacts_the_hub(hub: StandInHub, engine: Engine, tiny_chat_model: Path) -> None:
    engine.wait_for(EngineReady)
    before = set(threading.enumerate())
    engine.send(ListModels((str(tiny_chat_model),)))
    engine.wait_for(ModelList)
    engine.send(PlanMemory(str(tiny_chat_model)))
    engine.send(LoadModel(str(tiny_chat_model)))
    engine.wait_for(ModelLoaded)
    assert hub.asked == []
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "greenroom-download"]
