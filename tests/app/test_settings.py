"""Settings come back after a restart; whatever stands in the file, the program starts."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from app.settings import Option, Settings


def test_settings_come_back(tmp_path: Path) -> None:
    path = tmp_path / "data" / "settings.json"
    first = Settings(path)
    first.theme = "dark"
    first.max_tokens = 77
    first.model_folders = ("/models/Räume", "D:\\模型")
    second = Settings(path)
    assert (second.theme, second.max_tokens, second.model_folders) == ("dark", 77, ("/models/Räume", "D:\\模型"))
    assert [item.name for item in path.parent.iterdir()] == ["settings.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', "\x00\xff", "[" * 100_000, '{"theme": "pink"}'])
def test_damaged_file_means_defaults(tmp_path: Path, text: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(text, encoding="latin-1")
    settings = Settings(path)
    for name, option in vars(Settings).items():
        if isinstance(option, Option):
            assert getattr(settings, name) == option.default, name


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("theme", 5),
        ("theme", "Dark"),
        ("sidebar_open", "yes"),
        ("sidebar_open", 1),
        ("max_tokens", 0),
        ("max_tokens", "many"),
        ("max_tokens", True),
        ("max_tokens", 1e99),
        ("panels_width", -3),
        ("model_folders", "folder"),
        ("model_folders", [1, 2]),
        ("last_source", None),
        ("last_policy", "one that was taken out again"),
    ],
)
def test_bad_value_falls_back_and_leaves_the_others(tmp_path: Path, name: str, bad: object) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({name: bad, "preset": "precise"}), encoding="utf-8")
    settings = Settings(path)
    assert getattr(settings, name) == vars(Settings)[name].default
    assert settings.preset == "precise"


def test_a_folder_that_cannot_be_written_costs_only_the_setting(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    settings = Settings(blocker / "settings.json")
    settings.theme = "dark"
    assert settings.theme == "dark"


def test_what_only_a_newer_version_knows_stays_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    newer = {"theme": "sepia", "voice": {"name": "Ada"}, "max_tokens": 77}
    path.write_text(json.dumps(newer), encoding="utf-8")
    settings = Settings(path)
    assert settings.theme == "system"
    settings.sidebar_open = False
    assert json.loads(path.read_text("utf-8")) == {**newer, "sidebar_open": False}


@pytest.mark.parametrize("text", ['{"presets": {"mine": {"system": "Be br', "[1, 2]", "\x00\xff"])
def test_a_damaged_file_is_kept_aside_and_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(text, encoding="latin-1")
    settings = Settings(path)
    assert settings.damaged and settings.put_aside is not None
    settings.theme = "dark"
    assert settings.put_aside.read_text(encoding="latin-1") == text
    again = Settings(path)
    assert (again.theme, again.damaged) == ("dark", False)


def test_two_windows_keep_what_the_other_one_set(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    Settings(path).presets = {"old": {"system": "1"}, "gone": {"system": "2"}}
    first, second = Settings(path), Settings(path)
    first.theme = "dark"
    first.presets = {**first.presets, "first's": {"system": "3"}}
    second.sidebar_open = False
    second.presets = {"old": {"system": "changed"}, "second's": {"system": "4"}}
    first.presets = {**first.presets, "first's again": {"system": "5"}}
    last = Settings(path)
    assert (last.theme, last.sidebar_open) == ("dark", False)
    assert last.presets == {
        "old": {"system": "changed"},
        "first's": {"system": "3"},
        "second's": {"system": "4"},
        "first's again": {"system": "5"},
    }


def test_the_order_of_entries_is_kept_while_nobody_else_writes(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    settings = Settings(path)
    settings.panels = {"experts": {}, "cache": {}, "speed": {}}
    settings.panels = {"speed": {}, "experts": {}, "cache": {}}
    assert list(Settings(path).panels) == ["speed", "experts", "cache"]


def test_a_name_that_is_no_text_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    folder = b"/models/R\xe4ume".decode("utf-8", "surrogateescape")
    Settings(path).model_folders = (folder, "模型")
    assert Settings(path).model_folders == (folder, "模型")


def test_a_save_that_fails_leaves_no_draft_and_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings.json"
    settings = Settings(path)
    with monkeypatch.context() as full:

        def no_room(*arguments: object, **more: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        full.setattr(json, "dump", no_room)
        settings.theme = "dark"
    assert list(tmp_path.iterdir()) == []
    settings.sidebar_open = False
    again = Settings(path)
    assert (again.theme, again.sidebar_open) == ("dark", False)
