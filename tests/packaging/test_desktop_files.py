"""What a Linux desktop reads about the program says the same as the program itself."""

import configparser
import shutil
import subprocess
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from PySide6.QtGui import QGuiApplication

from app.program import application
from engine.version import __version__

ROOT = Path(__file__).parents[2]
ENTRY = ROOT / "packaging" / "linux" / "greenroom.desktop"
METAINFO = ROOT / "packaging" / "linux" / "greenroom.metainfo.xml"


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def entry():
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read(ENTRY, encoding="utf-8")
    return parser["Desktop Entry"]


@pytest.mark.parametrize(
    "command", [("desktop-file-validate", ENTRY), ("appstreamcli", "validate", "--no-net", METAINFO)]
)
def test_the_desktops_own_checkers_accept_them(command):
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_the_windows_app_id_is_the_entrys_name(qapp):
    application()
    assert QGuiApplication.desktopFileName() + ".desktop" == ENTRY.name
    assert entry()["StartupWMClass"] == QGuiApplication.desktopFileName() == entry()["Icon"]


def test_the_entry_starts_without_a_terminal():
    assert entry()["Terminal"] == "false"
    assert entry()["Exec"] in project()["gui-scripts"]


def test_software_centres_read_the_version_licence_and_entry_of_this_program():
    root = ElementTree.parse(METAINFO).getroot()
    assert root.find("releases/release").get("version") == __version__
    assert root.findtext("project_license") == project()["license"]
    assert root.findtext("launchable") == ENTRY.name
    assert root.findtext("name") == entry()["Name"]
