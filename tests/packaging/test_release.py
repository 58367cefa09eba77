"""A release has one version, and everybody who names it agrees."""

import re
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from engine.cli import main
from engine.version import __version__

ROOT = Path(__file__).parents[2]
HEADING = re.compile(r"^## (\S+) - (\d{4}-\d\d-\d\d)$", re.MULTILINE)


def test_the_version_stands_in_one_file():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "engine.version.__version__"}
    programs = [file for top in ("app", "engine", "packaging") for file in (ROOT / top).rglob("*.py")]
    named = [file.relative_to(ROOT).as_posix() for file in programs if f'"{__version__}"' in file.read_text("utf-8")]
    assert named == ["engine/version.py"]


def test_the_changelog_begins_with_this_version_and_the_software_centres_know_its_day():
    releases = HEADING.findall((ROOT / "CHANGELOG.md").read_text("utf-8"))
    assert releases[0][0] == __version__
    metainfo = ElementTree.parse(ROOT / "packaging" / "linux" / "greenroom.metainfo.xml").getroot()
    told = [(release.get("version"), release.get("date")) for release in metainfo.findall("releases/release")]
    assert told[0] == releases[0]


def test_the_terminal_says_its_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"greenroom {__version__}\n"
