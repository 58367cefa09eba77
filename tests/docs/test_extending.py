"""docs/extending.md, followed to the letter in a copy of the program: a file, a line, and then its commands.

About 20 seconds of one core, most of it the imports of six processes.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks, commands
from tests.engine.routing import Routing, write_log

PAGE = ROOT / "docs" / "extending.md"
_FILE = re.compile(r"Save this as\s+`([^`]+)`:\s*$")
_LINE = re.compile(r"Add this line to `(\w+)` in `([^`]+)`[^`]*:\s*$")
_NAME = re.compile(r'^\s*"([\w-]+)": "([^"]+)",\s*$')


@dataclass(frozen=True)
class Copy:
    """The program with the examples in it."""

    folder: Path
    log: Path
    added: dict[str, tuple[str, str]]  # POLICIES, PREDICTORS -> name and sentence

    def run(self, *words: str, qt: bool = False) -> str:
        """What it prints; the test fails when it does not end well."""
        environment = {**os.environ, "GREENROOM_DATA": str(self.folder / "data"), "HF_HUB_OFFLINE": "1"}
        environment |= {"QT_QPA_PLATFORM": "offscreen"} if qt else {}
        environment |= {"OMP_NUM_THREADS": "1"}
        ran = subprocess.run(
            [sys.executable, *words], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=280
        )
        assert ran.returncode == 0, f"{words}:\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """Whoever follows the page: saves its files, adds its lines."""
    folder = tmp_path_factory.mktemp("follow") / "greenroom"
    folder.mkdir()
    nothing_made = shutil.ignore_patterns("__pycache__")
    for part in ("engine", "app", "tests", "resources"):
        shutil.copytree(ROOT / part, folder / part, ignore=nothing_made)
    shutil.copy(ROOT / "pyproject.toml", folder)
    added: dict[str, tuple[str, str]] = {}
    for block in blocks(PAGE):
        before = " ".join(block.before.split())
        if named := _FILE.search(before):
            assert not (folder / named[1]).exists(), f"{named[1]} is there already"
            assert len(block.text.splitlines()) < 40, f"{named[1]} has 40 lines or more"
            (folder / named[1]).write_text(block.text, encoding="utf-8")
        elif named := _LINE.search(before):
            told = _NAME.match(block.text)
            assert told, f"{block.text!r} is no line of a registry"
            added[named[1]] = told[1], told[2]
            registry = folder / named[2]
            text = registry.read_text(encoding="utf-8")
            start = text.index(f"{named[1]}: dict[str, str] = {{")
            end = text.index("\n}", start) + 1
            registry.write_text(text[:end] + block.text + text[end:], encoding="utf-8")
    log = write_log(folder / "log.jsonl", Routing(4, 12, 3), [(10, 12), (10, 12)], policy="lru", slots=20)
    return Copy(folder, log, added)


def test_the_page_adds_one_of_each(copy: Copy) -> None:
    assert set(copy.added) == {"POLICIES", "PREDICTORS"}
    changed = [path for path in copy.folder.rglob("*.py") if not (ROOT / path.relative_to(copy.folder)).exists()]
    assert len(changed) == 2  # a file each


def test_the_examples_are_as_clean_as_the_rest(copy: Copy) -> None:
    new = [str(path) for path in copy.folder.rglob("*.py") if not (ROOT / path.relative_to(copy.folder)).exists()]
    for words in (("check",), ("format", "--check")):
        copy.run("-m", "ruff", *words, *new, "engine/messages/choices.py")


@pytest.mark.parametrize("command", list(commands(PAGE)))
def test_a_command_of_the_page_runs_and_shows_what_was_added(command: str, copy: Copy, tiny_chat_model: Path) -> None:
    added = tuple(f"{name} " for name, _ in copy.added.values())
    places = {"LOG": str(copy.log), "MODEL": str(tiny_chat_model)}
    python, *words = [places.get(word, word) for word in shlex.split(command)]
    assert python == ".venv/bin/python"
    printed = copy.run(*words)
    if words[1] == "pytest":
        assert re.search(r"\d+ passed", printed), printed
    elif words[2] == "replay":
        shown = [line for line in printed.splitlines() if line.startswith(added)]
        assert shown, printed
        assert all(re.search(r"\d", line) for line in shown), shown
    else:
        assert words[2] == "chat"
        assert printed.strip()


def test_replay_of_everything_names_them(copy: Copy) -> None:
    report = json.loads(copy.run("-m", "engine", "replay", str(copy.log), "--experts", "25%", "--json"))
    assert copy.added["POLICIES"][0] in {result["policy"] for result in report["results"]}
    found = [one for one in report["predictors"] if one["predictor"] == copy.added["PREDICTORS"][0]]
    assert found[0]["source"] == "replayed"
    assert 0 < found[0]["recall"] <= 1


def test_help_and_window_offer_them_with_their_sentence(copy: Copy) -> None:
    policy, sentence = copy.added["POLICIES"]
    predictor, expects = copy.added["PREDICTORS"]
    told = " ".join(copy.run("-m", "engine", "chat", "--help").split())
    assert f"{policy} {sentence}" in told
    assert f"{predictor} {expects}" in told
    found = json.loads(copy.run("-m", "tests.docs.window_lists", str(copy.log), policy, qt=True).splitlines()[-1])
    for place in ("picker", "preferences", "what if"):
        assert policy in found[place]["policies"], place
        assert predictor in found[place]["predictors"], place
    assert found["picker"]["sentence"] == sentence
    assert found["loaded"] == policy
