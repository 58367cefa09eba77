"""The picker with the real engine thread: what it says is what `inspect` says, what loads, what a stop leaves."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.dialogs import verdict
from app.dialogs.model_picker import ModelPicker
from app.engine_client import EngineClient
from app.model_state import ModelState
from app.settings import Settings
from app.theme import Theme
from engine.cli import main
from engine.messages import LoadModel
from engine.models import download, hub_files
from tests.engine.standin_hub import StandInHub, serving
from tests.machine import free_ram

LONG_MS = 120_000
MB = 10**6
NAME = "org/tiny-moe"


class Stage:
    """A picker whose loads go through the window's own ``ModelState``."""

    def __init__(self, qtbot: QtBot, theme: Theme, folders: tuple[str, ...]) -> None:
        self._qtbot = qtbot
        self.client = EngineClient()
        self.settings = Settings(None)
        self.settings.model_folders = folders
        self.state = ModelState(self.client, self.settings)
        self.picker = ModelPicker(self.client, theme, self.settings)
        self.picker.load_requested.connect(self.state.load)
        self.picker.stop_requested.connect(self.state.cancel)
        qtbot.addWidget(self.picker)
        self.client.start()
        self.picker.show()
        self.until(lambda: bool(self.picker.models.models))

    def until(self, condition: Callable[[], bool]) -> None:
        self._qtbot.waitUntil(condition, timeout=LONG_MS)

    def choose(self, source: str) -> None:
        self.picker._select(source)
        self.until(lambda: self.picker.details.plan is not None)

    def close(self) -> None:
        with self._qtbot.waitSignal(self.client.stopped, timeout=LONG_MS):
            self.client.shut_down(LONG_MS / 1000)
        assert self.client.join(20)


@pytest.fixture
def make(qtbot: QtBot, theme: Theme) -> Iterator[Callable[..., Stage]]:
    stages: list[Stage] = []

    def stage(*folders: Path) -> Stage:
        stages.append(Stage(qtbot, theme, tuple(map(str, folders))))
        return stages[-1]

    yield stage
    for made in stages:
        made.close()


def inspected(source: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict:
    capsys.readouterr()
    assert main(["inspect", str(source), "--json", *options]) == 0
    facts: dict = json.loads(capsys.readouterr().out)
    return facts


def test_reasons_stand_in_the_list_and_beside_it(make: Callable[..., Stage], tmp_path: Path) -> None:
    pickles = tmp_path / "模型 🎭 <b>"
    pickles.mkdir()
    (pickles / "config.json").write_text('{"model_type": "qwen2_moe"}')
    (pickles / "pytorch_model.bin").write_bytes(b"x")
    stage = make(pickles)
    stage.picker._select(str(pickles))
    assert "loading a pickle can run any code" in stage.picker.details.note.text.text()
    assert not stage.picker.load_button.isEnabled()


@pytest.mark.parametrize("free", [4000 * MB, 150 * MB])
def test_the_verdict_is_that_of_inspect(
    make: Callable[..., Stage],
    tiny_chat_model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    free: int,
) -> None:
    free_ram(monkeypatch, free)
    stage = make(tiny_chat_model)
    details = stage.picker.details
    stage.choose(str(tiny_chat_model))
    facts = inspected(tiny_chat_model, capsys)
    assert details.plan is not None
    assert (details.plan.verdict, details.plan.shortfall) == (facts["verdict"], facts["shortfall_bytes"])
    assert stage.picker.load_button.isEnabled() == (facts["verdict"] != "too big")
    if facts["plan"] is None:
        assert facts["reason"] in details.note.text.text()
        return
    details.experts.auto.setChecked(False)
    for slots in (24, 11, 5):
        details.experts.slider.setValue(slots)
        stage.until(lambda: details.plan is not None)
        facts = inspected(tiny_chat_model, capsys, "--experts", f"{slots} slots")
        assert details.plan.verdict == facts["verdict"]
        assert details.plan.slots == facts["plan"]["slots"] == slots
        assert verdict.short(details.plan) == facts["verdict"]


def test_the_loaded_model_is_what_the_picker_said(make: Callable[..., Stage], tiny_chat_model: Path) -> None:
    stage = make(tiny_chat_model)
    picker, details = stage.picker, stage.picker.details
    stage.choose(str(tiny_chat_model))
    details.experts.auto.setChecked(False)
    details.experts.slider.setValue(7)
    details.advanced.policy.box.setCurrentText("lfu")
    details.advanced.predictor.box.setCurrentText("popularity")
    details.advanced.prefetch.box.setCurrentText("off")
    details.advanced.reads.box.setCurrentText("buffered")
    stage.until(lambda: details.plan is not None)
    plan = details.plan
    assert plan is not None
    picker.load_button.click()
    stage.until(lambda: stage.state.model is not None or bool(stage.state.problem))
    model = stage.state.model
    assert model is not None, stage.state.problem
    assert (model.slots, model.slot_bytes, model.context) == (plan.slots, plan.slot_bytes, plan.context)
    assert (model.policy, model.predictor, model.prefetch) == ("lfu", "popularity", "off")
    assert "buffered" in model.reads
    assert not picker.isVisible()
    stage.settings.loading_source = ""  # as when the window closes
    again = LoadModel(str(tiny_chat_model), "7 slots", "lfu", predictor="popularity", prefetch="off", reads="buffered")
    assert stage.state.first_model(None) == again, "the next start takes the same"


def test_cancel_ends_a_load_under_way(
    qtbot: QtBot, make: Callable[..., Stage], tiny_chat_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine import loading

    reached, go, dense = threading.Event(), threading.Event(), loading.load_dense

    def slow(*arguments):
        reached.set()
        go.wait(60)
        return dense(*arguments)

    monkeypatch.setattr(loading, "load_dense", slow)
    stage = make(tiny_chat_model)
    stage.choose(str(tiny_chat_model))
    qtbot.keyClick(stage.picker.filter, Qt.Key.Key_Return)
    stage.until(reached.is_set)
    stage.until(lambda: "reading dense weights" in stage.picker.loading.text.text())
    qtbot.mouseClick(stage.picker.cancel_button, Qt.MouseButton.LeftButton)
    go.set()
    stage.until(lambda: not stage.picker.loading.busy)
    assert stage.picker.loading.text.text() == "Loading was stopped."
    assert stage.state.model is None
    assert stage.picker.isVisible()
    assert stage.settings.loading_source == "", "a stop is no crash"
    stage.picker.load_button.click()
    stage.until(lambda: stage.state.model is not None)


# ---------------------------------------------------------------------------------------------- downloads


@pytest.fixture
def hub(tiny_chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInHub]:
    folder = tmp_path / "on the hub"
    shutil.copytree(tiny_chat_model, folder)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub_files, "WAIT_S", 0.01)
    with serving(StandInHub(NAME, folder)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        yield hub


def test_a_model_is_looked_up_fetched_and_then_chosen(
    qtbot: QtBot, make: Callable[..., Stage], hub: StandInHub
) -> None:
    stage = make()
    picker, dialog = stage.picker, stage.picker.download_dialog
    picker.download_button.click()
    qtbot.keyClicks(dialog.name, NAME)
    assert hub.asked == [], "typing contacts nobody"
    assert not dialog.download_button.isEnabled()
    dialog.look_up_button.click()
    stage.until(dialog.download_button.isEnabled)
    assert dialog.note.text.text().startswith("Fits")
    assert "3 layers" in dialog.facts.text()
    assert not any("model.safetensors" in line for line in hub.asked), "nothing is fetched before it is wanted"
    dialog.download_button.click()
    stage.until(lambda: picker.chosen() is not None and picker.chosen().source == NAME)
    assert dialog.note.text.text() == f"{NAME} is here and complete."
    stage.until(lambda: picker.details.plan is not None)
    picker.load_button.click()
    stage.until(lambda: stage.state.model is not None or bool(stage.state.problem))
    assert stage.state.problem == ""


def test_a_stopped_download_is_offered_again(
    qtbot: QtBot, make: Callable[..., Stage], hub: StandInHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "RATE_S", 0.5)
    hub.hold = threading.Event()
    stage = make()
    picker, dialog = stage.picker, stage.picker.download_dialog
    picker.download_button.click()
    qtbot.keyClicks(dialog.name, NAME)
    qtbot.keyClick(dialog.name, Qt.Key.Key_Return)
    stage.until(dialog.download_button.isEnabled)
    dialog.download_button.click()
    stage.until(hub.held.is_set)
    stage.until(lambda: NAME in picker.downloading.text())
    stage.until(lambda: dialog.figures.text().endswith("waiting for the server"))
    qtbot.mouseClick(dialog.stop_button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(dialog.download_button.isVisible, timeout=1000)  # the hub says nothing meanwhile
    hub.hold.set()
    assert "stopped" in dialog.note.text.text()
    hub.hold = None
    dialog.close_button.click()
    stage.until(lambda: picker.chosen() is not None and picker.chosen().source == NAME)
    assert picker.details.rest.isVisible()
    assert "not complete" in picker.details.note.text.text()
    picker.details.rest.click()
    assert dialog.name.text() == NAME
    dialog.look_up_button.click()
    stage.until(dialog.download_button.isEnabled)
    assert dialog.download_button.text().startswith("Download the rest")
    dialog.download_button.click()
    stage.until(lambda: picker.details.plan is not None and picker.details.plan.question.source == NAME)


def test_a_refusal_is_shown_and_another_name_can_be_tried(
    qtbot: QtBot, make: Callable[..., Stage], hub: StandInHub
) -> None:
    hub.refusal = (401, "GatedRepo")
    stage = make()
    dialog = stage.picker.download_dialog
    stage.picker.download_button.click()
    qtbot.keyClicks(dialog.name, NAME)
    dialog.look_up_button.click()
    stage.until(lambda: "is gated" in dialog.note.text.text())
    assert not dialog.download_button.isEnabled()
    assert dialog.look_up_button.isEnabled()
    hub.refusal = None
    dialog.look_up_button.click()
    stage.until(dialog.download_button.isEnabled)


def test_closing_does_not_wait_for_a_hub_that_says_nothing(
    qtbot: QtBot, make: Callable[..., Stage], hub: StandInHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make()
    dialog = stage.picker.download_dialog
    stage.picker.download_button.click()
    qtbot.keyClicks(dialog.name, NAME)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        dialog.look_up_button.click()
        connection, _ = silent.accept()
        dialog.close_button.click()
        connection.close()
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    stage.picker.download_button.click()
    qtbot.waitUntil(dialog.look_up_button.isEnabled, timeout=1000)
    assert dialog.note.text.text() == ""
    dialog.look_up_button.click()
    stage.until(dialog.download_button.isEnabled)


def test_choosing_and_loading_contact_nobody(
    make: Callable[..., Stage], hub: StandInHub, tiny_chat_model: Path
) -> None:
    stage = make(tiny_chat_model)
    stage.choose(str(tiny_chat_model))
    stage.picker.download_button.click()
    stage.picker.download_dialog.ask_about(NAME)
    stage.picker.download_dialog.close_button.click()
    stage.picker.load_button.click()
    stage.until(lambda: stage.state.model is not None)
    assert hub.asked == []
