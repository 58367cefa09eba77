"""A policy or predictor is a file and a line; where one of them is missing, the error says which."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from engine import messages
from engine.experts.policies import POLICIES
from engine.kinds import kinds_in
from engine.prediction.prompter import PREDICTORS

Room = Callable[..., ModuleType]
PLAIN = "class {0}:\n    name = {1!r}\n"


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    """Makes a package out of (file, text) pairs."""

    def make(**files: str) -> ModuleType:
        (tmp_path / "playroom").mkdir()
        for name, text in {"__init__": "", **files}.items():
            (tmp_path / "playroom" / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()
        return importlib.import_module("playroom")

    yield make  # type: ignore[misc]
    for name in [name for name in sys.modules if name.split(".")[0] == "playroom"]:
        del sys.modules[name]


def test_every_file_is_found_in_the_registrys_order(room: Room) -> None:
    made = room(
        one=PLAIN.format("One", "one") + "class Nameless(One):\n    pass\n",
        two="from playroom.one import One\n" + PLAIN.format("Two", "two"),
    )
    found = kinds_in(made, object, {"two": "Second.", "one": "First."}, "the list")
    assert [(name, kind.__name__) for name, kind in found.items()] == [("two", "Two"), ("one", "One")]


@pytest.mark.parametrize(
    ("files", "lines", "words"),
    [
        ({"one": PLAIN.format("One", "one")}, (), 'playroom.one calls itself "one": give it a line .* in the list'),
        ({}, ("one",), 'the list has a line for "one", but no file of playroom has that name'),
        (
            {"one": PLAIN.format("One", "one"), "two": PLAIN.format("Two", "one")},
            ("one",),
            'playroom.two and playroom.one are both called "one"',
        ),
    ],
    ids=["no line", "no file", "one name twice"],
)
def test_what_is_missing_is_said(room: Room, files: dict[str, str], lines: tuple[str, ...], words: str) -> None:
    with pytest.raises(LookupError, match=words):
        kinds_in(room(**files), object, dict.fromkeys(lines, "A sentence."), "the list")


@pytest.mark.parametrize(("told", "made"), [(messages.POLICIES, POLICIES), (messages.PREDICTORS, PREDICTORS)])
def test_whoever_the_window_names_is_there_and_has_a_sentence(told: dict[str, str], made: dict[str, type]) -> None:
    assert list(told) == list(made)
    for name, sentence in told.items():
        assert made[name].name == name  # type: ignore[attr-defined]
        assert sentence.endswith(".")
