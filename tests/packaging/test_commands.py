"""start.py stays beside a program that was started without a terminal, and tells why it died."""

import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import ClassVar

import commands
import pytest
from installed import interpreter
from progress import Progress
from PySide6.QtWidgets import QMessageBox
from stamp import Stamp, read_stamp, write_stamp
from start_error import StartError
from window import Window

from app.__main__ import open_window

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A finished environment beside a program that a test writes."""
    root = tmp_path / "Größe"
    venv.create(root / ".venv", symlinks=os.name != "nt")
    write_stamp(root / ".venv", Stamp("x", PYTHON, "cpu", checked=True))
    (root / "app").mkdir()
    monkeypatch.setattr(commands, "ROOT", root)
    return root


def watch(root, program):
    (root / "app" / "__main__.py").write_text(program)
    return commands._watch(interpreter(root / ".venv"), Window(root / ".venv", []))


def test_a_program_that_ends_well_needs_no_words(checkout):
    assert watch(checkout, "print('window')") == 0
    assert read_stamp(checkout / ".venv").checked
    assert (checkout / ".venv" / "window.log").read_text() == "window\n"


def test_a_program_that_dies_is_told_with_its_last_words_and_its_libraries_are_looked_at_next_time(checkout):
    with pytest.raises(StartError) as died:
        watch(checkout, "import no_such_library")
    assert died.value.heading == "Greenroom has ended"
    assert died.value.log.read_text().endswith("No module named 'no_such_library'\n")
    assert "ended with an error (1)" in str(died.value)
    assert "No module named 'no_such_library'" in str(died.value)
    assert "Your conversations are kept" in str(died.value)
    assert not read_stamp(checkout / ".venv").checked


def test_a_program_that_refuses_to_start_has_told_why_and_nothing_is_added(checkout, monkeypatch, tmp_path):
    """The real refusal of the real program, with its message closed at once."""
    told = []
    monkeypatch.setattr(QMessageBox, "critical", lambda parent, title, text: told.append(text))
    (tmp_path / "taken").write_text("mine")
    monkeypatch.setenv("GREENROOM_DATA", str(tmp_path / "taken"))
    refused = open_window(None)
    assert len(told) == 1
    assert watch(checkout, f"import sys; sys.exit({refused})") == refused != 0
    assert read_stamp(checkout / ".venv").checked


def test_a_program_in_somebody_elses_folder_is_watched_too(checkout, monkeypatch):
    """The folder's refusal is faked, since a superuser is refused nothing."""
    real = Path.open

    def refuse(self, mode="r", *arguments, **options):
        if checkout in self.parents and mode != "r":
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, mode, *arguments, **options)

    (checkout / "app" / "__main__.py").write_text("raise SystemExit('no')")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(StartError) as died:
        commands._watch(interpreter(checkout / ".venv"), Window(checkout / ".venv", []))
    assert died.value.log.read_text() == "no\n"
    died.value.log.unlink()


@pytest.mark.skipif(os.name == "nt", reason="signals are told apart on POSIX")
def test_a_program_that_the_system_killed_may_have_wanted_too_much_memory(checkout):
    with pytest.raises(StartError, match=r"the system ended it \(SIGKILL\).*memory ran out"):
        watch(checkout, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")


class Answering(Window):
    """A window whose user has made up their mind."""

    answers: ClassVar[list[bool]] = []

    def failed(self, heading, text, log=None):
        return self.answers.pop(0)


def test_try_again_begins_anew_until_the_user_has_had_enough(monkeypatch):
    tries = []

    def refuse(*arguments):
        tries.append(arguments)
        raise StartError("no network")

    monkeypatch.setattr(commands, "ready", refuse)
    monkeypatch.setattr(commands, "Window", Answering)
    monkeypatch.setattr(commands, "can_show", lambda: True)
    monkeypatch.setattr(Answering, "answers", [True, True, False])
    assert commands.main(["--window"]) == 1
    assert len(tries) == 3


@pytest.mark.parametrize(
    ("words", "terminal", "screen", "kind"),
    [
        ([], True, True, Progress),  # somebody typed it
        ([], False, True, Window),  # a double click
        ([], False, False, Progress),  # a script on a server
        (["setup"], False, True, Progress),  # a script
        (["--window"], True, True, Window),  # a launcher
        (["--window", "setup"], False, True, Window),
        (["--window"], False, False, Progress),
    ],
)
def test_a_window_is_for_those_without_a_terminal(monkeypatch, words, terminal, screen, kind):
    seen = []
    monkeypatch.setattr(commands, "_work", lambda command, rest: lambda progress: seen.append(type(progress)) or 0)
    monkeypatch.setattr(commands, "_terminal_there", lambda: terminal)
    monkeypatch.setattr(commands, "can_show", lambda: screen)
    assert commands.main(words) == 0
    assert seen == [kind]


@pytest.mark.parametrize("words", [["dance"], ["setup", "quickly"], ["install", "there"], ["--window", "dance"]])
def test_words_that_mean_nothing_change_nothing(words, monkeypatch, capsys):
    monkeypatch.setattr(commands, "ready", lambda *arguments: pytest.fail("something was done"))
    assert commands.main(words) == 2
    assert "start.py knows" in capsys.readouterr().err


def test_a_system_that_refuses_something_unforeseen_is_one_sentence(monkeypatch, capsys):
    def refuse(*arguments):
        raise OSError(28, "No space left on device", str(Path("/somewhere")))

    monkeypatch.setattr(commands, "ready", refuse)
    assert commands.main(["setup"]) == 1
    assert "free some space" in capsys.readouterr().err


def test_windows_without_a_console_starts_anew_with_one_that_is_not_seen(monkeypatch):
    """Recorded, since only Windows has such consoles; with one, nothing starts anew."""
    started = []
    monkeypatch.setattr(commands.sys, "platform", "win32")
    monkeypatch.setattr(commands.sys, "stdout", None)
    monkeypatch.setattr(commands.sys, "executable", "/python/pythonw.exe")
    monkeypatch.setattr(commands.subprocess, "CREATE_NO_WINDOW", 0x08000000, raising=False)
    monkeypatch.setattr(commands.subprocess, "Popen", lambda command, **options: started.append((command, options)))
    assert commands.main(["--window", "setup"]) == 0
    [(command, options)] = started
    assert command == ["/python/python.exe", str(commands.ROOT / "packaging" / "start.py"), "--window", "setup"]
    assert options["creationflags"] == 0x08000000
    assert options["stdout"] == commands.subprocess.DEVNULL


@pytest.mark.parametrize(
    ("test", "first", "lines"),
    [
        ("pass", "201 passed", 1),
        ("assert 2 > 3", "FAILED test_it.py::test_last - assert 2 > 3", 8),
        ("import os; os.abort()", "pytest ended with ", 3),
    ],
)
def test_of_tests_that_ran_out_of_sight_the_first_words_are_who_failed(tmp_path, test, first, lines):
    """Where only the beginning is kept, it must say it."""
    many = "import pytest\n@pytest.mark.parametrize('n', range(200))\ndef test_first(n): pass\n"
    (tmp_path / "test_it.py").write_text(f"{many}def test_last():\n    {test}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    said = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    assert sum(line.startswith("....") for line in said) > 1
    short = commands.in_short(said, done.returncode)
    assert short[0].startswith(first)
    assert len(short) >= lines
    assert len(short) == 1 or lines > 1
    assert not any(line.endswith("%]") for line in short)
