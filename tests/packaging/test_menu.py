"""Greenroom in the user's own menu: what is put there starts the program, and nothing stays when it is taken away."""

import os
import plistlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import menu
import menu_linux
import menu_macos
import pytest

from engine.version import __version__

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(os.name == "nt", reason="shell scripts stand in for other programs")
VERSION = "import sys; sys.exit(sys.version_info < (3, 11))"


@pytest.fixture
def checkout(tmp_path):
    """The launchers and what they need, in a folder whose name is as bad as it gets; start.py only says its words."""
    root = tmp_path / "Größe 你好 $HOME `x` \"y\" 100% \\ & 'co'"
    shutil.copytree(ROOT / "packaging", root / "packaging", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "resources" / "icons", root / "resources" / "icons")
    (root / "engine").mkdir()
    shutil.copy(ROOT / "engine" / "version.py", root / "engine")
    (root / "packaging" / "start.py").write_text("import sys; print(sys.argv)\n")
    return root


def tree(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def what_the_desktop_runs(entry):
    """Exec as the Desktop Entry Specification reads it: escapes of the string, then of the quoted argument."""
    [line] = [line for line in entry.read_text(encoding="utf-8").splitlines() if line.startswith("Exec=")]
    value = line.removeprefix("Exec=").replace("\\\\", "\\")
    program, rest = re.fullmatch(r'"((?:[^"\\]|\\.)*)" (.*)', value).groups()
    return [re.sub(r"\\(.)", r"\1", program).replace("%%", "%"), *rest.split()]


# ------------------------------------------------------------------------------------------ Linux


def test_linux_gets_an_entry_that_desktops_accept_and_that_starts_it(checkout, tmp_path):
    told = menu.install(checkout, Path(sys.executable), {"XDG_DATA_HOME": str(tmp_path / "share")}, "linux")
    entry = tmp_path / "share" / "applications" / "greenroom.desktop"
    assert str(entry) in told
    if shutil.which("desktop-file-validate"):
        assert subprocess.run(["desktop-file-validate", entry], capture_output=True, text=True).stdout == ""
    answer = subprocess.run(what_the_desktop_runs(entry), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert answer.stdout == f"{[str(checkout / 'packaging' / 'start.py'), '--window']}\n", answer.stderr


def test_linux_gets_icons_of_all_sizes_under_the_entrys_name(checkout, tmp_path):
    menu.install(checkout, Path(sys.executable), {"XDG_DATA_HOME": str(tmp_path / "share")}, "linux")
    icons = tree(tmp_path / "share" / "icons" / "hicolor")
    for size in (16, 22, 24, 32, 48, 64, 128, 256, 512):
        assert f"{size}x{size}/apps/greenroom.png" in icons
    assert "scalable/apps/greenroom.svg" in icons
    assert (tmp_path / "share" / "metainfo" / "greenroom.metainfo.xml").is_file()


def test_linux_is_left_as_it_was(checkout, tmp_path):
    share = tmp_path / "share"
    neighbour = share / "icons" / "hicolor" / "48x48" / "apps" / "neighbour.png"
    neighbour.parent.mkdir(parents=True)
    neighbour.touch()
    talks = share / "greenroom" / "conversations" / "1.jsonl"  # where the program keeps them by default
    talks.parent.mkdir(parents=True)
    talks.write_text("precious")
    before = tree(share)
    environ = {"XDG_DATA_HOME": str(share)}
    menu.install(checkout, Path(sys.executable), environ, "linux")
    assert tree(share) != before
    assert "no longer among your programs" in menu.uninstall(checkout, environ, "linux")
    assert tree(share) == before
    assert "was not among your programs" in menu.uninstall(checkout, environ, "linux")


def test_linux_installing_twice_is_installing_once(checkout, tmp_path):
    environ = {"XDG_DATA_HOME": str(tmp_path / "share")}
    menu.install(checkout, Path(sys.executable), environ, "linux")
    once = tree(tmp_path / "share")
    menu.install(checkout, Path(sys.executable), environ, "linux")
    assert tree(tmp_path / "share") == once


def test_a_data_home_that_is_no_absolute_path_does_not_count(monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    for given in ({}, {"XDG_DATA_HOME": ""}, {"XDG_DATA_HOME": "share"}):
        assert menu_linux.data_home(given) == Path("/home/somebody/.local/share")


# ------------------------------------------------------------------------------------------ macOS


def test_macos_gets_an_app_that_starts_it_and_goes_without_a_trace(checkout, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    menu.install(checkout, Path(sys.executable), {}, "darwin")
    contents = home / "Applications" / "Greenroom.app" / "Contents"
    info = plistlib.loads((contents / "Info.plist").read_bytes())
    assert (contents / "Resources" / f"{info['CFBundleIconFile']}.icns").read_bytes()[:4] == b"icns"
    assert info["CFBundlePackageType"] == "APPL"
    assert info["CFBundleShortVersionString"] == __version__
    program = contents / "MacOS" / info["CFBundleExecutable"]
    answer = subprocess.run([program], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert answer.stdout == f"{[str(checkout / 'packaging' / 'start.py'), '--window']}\n", answer.stderr
    menu.uninstall(checkout, {}, "darwin")
    assert tree(home) == []


@pytest.mark.parametrize("file", ["linux/Add to menu.sh", "macos/Add to Applications.command"])
def test_a_double_click_adds_it_to_the_menu(checkout, file):
    answer = subprocess.run(
        [checkout / "packaging" / file], capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd="/"
    )
    assert answer.stdout == f"{[str(checkout / 'packaging' / 'start.py'), '--window', 'install']}\n", answer.stderr


def test_macos_has_the_name_that_linux_has():
    metainfo = (ROOT / "packaging" / "linux" / "greenroom.metainfo.xml").read_text()
    assert f"<id>{menu_macos.IDENTIFIER}</id>" in metainfo


def test_a_double_click_in_the_finder_starts_it(checkout):
    command = checkout / "packaging" / "macos" / "Greenroom.command"
    answer = subprocess.run([command], capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd="/")
    assert answer.stdout == f"{[str(checkout / 'packaging' / 'start.py')]}\n", answer.stderr


# ------------------------------------------------------------------------------------------ Windows


def test_windows_gets_a_shortcut_by_powershell_and_it_goes_without_a_trace(checkout, tmp_path, monkeypatch):
    """What PowerShell is asked; a stand-in makes the file."""
    asked = tmp_path / "bin" / "asked"
    stand_in = tmp_path / "bin" / "powershell"
    stand_in.parent.mkdir()
    stand_in.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{asked}"\n: > "$7"\n')
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stand_in.parent}{os.pathsep}{os.environ['PATH']}")
    before = tree(checkout)
    environ = {"APPDATA": str(tmp_path / "Roaming")}
    menu.install(checkout, Path(sys.executable), environ, "win32")
    words = asked.read_text().splitlines()
    shortcut = tmp_path / "Roaming" / "Microsoft" / "Windows" / "Start Menu" / "Programs" / "Greenroom.lnk"
    assert words[4:7] == [str(checkout / "packaging" / "windows" / "shortcut.ps1"), "-Shortcut", str(shortcut)]
    assert words[7] == "-Python"
    assert (checkout / "packaging" / "windows" / "greenroom.ico").is_file()
    menu.uninstall(checkout, environ, "win32")
    assert not shortcut.exists()
    assert tree(checkout) == before


def test_a_menu_that_cannot_be_made_is_one_sentence(checkout, tmp_path, monkeypatch):
    stand_in = tmp_path / "bin" / "powershell"
    stand_in.parent.mkdir()
    stand_in.write_text("#!/bin/sh\necho 'Save: Access is denied' >&2\nexit 1\n")
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stand_in.parent}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(menu.StartError, match="could not be added to the menu: Save: Access is denied"):
        menu.install(checkout, Path(sys.executable), {"APPDATA": str(tmp_path)}, "win32")


def test_all_launchers_ask_for_the_same_python():
    assert VERSION in (ROOT / "packaging" / "greenroom.sh").read_text()
    assert VERSION in (ROOT / "packaging" / "windows" / "Greenroom.vbs").read_text()
    assert "OLDEST = (3, 11)" in (ROOT / "packaging" / "start.py").read_text()
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text()


# ------------------------------------------------------------------------------------------ greenroom.sh


def launcher(checkout, path, *words):
    environ = {"PATH": str(path), "HOME": str(path)}
    command = ["/bin/sh", str(checkout / "packaging" / "greenroom.sh"), *words]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environ)


@pytest.fixture
def path(tmp_path):
    """A PATH with next to nothing on it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("dirname", "readlink", "sh"):
        (folder / name).symlink_to(shutil.which(name))
    return folder


def stub(path, name, lines):
    (path / name).write_text(f"#!/bin/sh\n{lines}\n")
    (path / name).chmod(0o755)


def test_the_launcher_passes_over_pythons_that_are_old_or_broken(checkout, path):
    stub(path, "python3.13", "exit 127")  # what a version manager leaves behind
    stub(path, "python3.12", "exit 1")
    stub(path, "python3.11", 'echo "this one: $2"')
    answer = launcher(checkout, path, "--window")
    assert answer.stdout == "this one: --window\n", answer.stderr


def test_the_launcher_can_be_linked_to_from_anywhere(checkout, path, tmp_path):
    stub(path, "python3.13", 'echo "$1"')
    (tmp_path / "away").mkdir()
    (tmp_path / "link").symlink_to(checkout / "packaging" / "greenroom.sh")
    (tmp_path / "away" / "greenroom").symlink_to("../link")
    environ = {"PATH": str(path), "HOME": str(path)}
    command = ["/bin/sh", str(tmp_path / "away" / "greenroom")]
    answer = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environ)
    assert Path(answer.stdout.strip()) == checkout / "packaging" / "start.py", answer.stderr


@pytest.mark.skipif(
    any(list(Path(folder).glob("python3*")) for folder in ("/usr/local/bin", "/opt/homebrew/bin"))
    or Path("/Library/Frameworks/Python.framework").exists(),
    reason="the launcher finds a Python here in any case",
)
def test_without_any_python_the_desktop_says_what_to_install(checkout, path):
    stub(path, "zenity", f'printf "%s\\n" "$@" > "{path}/said"')
    answer = launcher(checkout, path)
    assert answer.returncode == 1
    assert "Greenroom needs Python 3.11 or newer" in answer.stderr
    assert "--text=Greenroom needs Python 3.11" in (path / "said").read_text()
