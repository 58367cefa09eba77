"""Settings come back after a restart; whatever stands in the file, the program starts."""

from __future__ import annotations

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
