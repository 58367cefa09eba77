"""The progress window: it shows what it is told, by either toolkit; what the user wants gets back to start.py."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import window
import window_qt
import window_state
from progress import STEPS, Progress, Stopped
from PySide6.QtCore import QCoreApplication, Qt
from PySide6.QtGui import QGuiApplication
from window import Window
from window_state import AGAIN, State

from app.colors import DARK, LIGHT

ROOT = Path(__file__).parents[2]
FAILURE = {
    "do": "failed",
    "heading": "Greenroom cannot start",
    "text": "the disk is full",
    "log": "/somewhere/install.log",
}


def told(*messages):
    state = State()
    for number, message in enumerate(messages):
        state.apply(message, float(number * 100))
    return state


def statuses(state):
    return [row.status for row in state.rows.values()]


def test_a_step_runs_and_those_before_it_are_done():
    state = told({"do": "step", "name": "torch", "text": "Installing the CPU build of torch: no card found."})
    assert statuses(state) == ["done", "running", "waiting", "waiting"]
    assert state.why == "Installing the CPU build of torch: no card found."
    assert state.rows["torch"].passed(83.0) == "1:23"


def test_times_stay_once_a_step_is_done():
    state = told({"do": "step", "name": "torch", "text": ""}, {"do": "step", "name": "libraries", "text": ""})
    assert state.rows["torch"].passed(500.0) == "1:40"
    assert state.rows["environment"].passed(500.0) == ""  # it was done before all this
    state.apply({"do": "opening"}, 160.0)
    assert statuses(state) == ["done"] * 4
    assert state.rows["libraries"].passed(500.0) == "1:00"


def test_a_failure_is_shown_with_what_was_said_before_it_to_copy():
    state = told(
        {"do": "say", "text": "Another start.py is at work"}, {"do": "step", "name": "demo", "text": "x"}, FAILURE
    )
    assert statuses(state)[-1] == "failed"
    assert state.last_word == "The disk is full"
    copied = state.to_copy()
    for part in ("Another start.py is at work", "the disk is full", "/somewhere/install.log", "Python 3."):
        assert part in copied


def test_its_colours_are_the_programs():
    for ours, theirs in ((window_state.DARK, DARK), (window_state.LIGHT, LIGHT)):
        assert ours == {name: getattr(theirs, name) for name in ours}


# ------------------------------------------------------------------------------------------ as Qt draws it


class Told:
    """Stands for what start.py sends."""

    def __init__(self):
        self.messages, self.ended = [], False

    def take(self):
        taken, self.messages = self.messages, []
        return taken, self.ended


@pytest.fixture
def qt_window(qtbot, monkeypatch):
    monkeypatch.setattr(window_qt, "Feed", Told)
    shown = window_qt.ProgressWindow()
    qtbot.addWidget(shown)
    shown.show()
    return shown


def button(shown, text):
    return next(each for each in shown.buttons if each.text() == text)


def test_qt_shows_the_failure_and_gives_it_to_the_clipboard(qt_window, qtbot):
    qt_window.feed.messages = [{"do": "step", "name": "torch", "text": "Installing"}, FAILURE]
    qtbot.waitUntil(qt_window.text.isVisible)
    assert qt_window.text.toPlainText() == "The disk is full"
    qtbot.mouseClick(button(qt_window, "Copy"), Qt.MouseButton.LeftButton)
    assert "the disk is full" in QGuiApplication.clipboard().text()


def test_qt_says_when_the_user_wants_to_try_again(qt_window, qtbot):
    qt_window.feed.messages = [FAILURE]
    qtbot.waitUntil(qt_window.text.isVisible)
    qtbot.keyClick(button(qt_window, "Try again"), Qt.Key.Key_Return)
    assert not qt_window.isVisible()
    assert qt_window.code == AGAIN


def test_what_was_done_is_there_to_be_read_and_nothing_is_to_be_tried_again(qt_window, qtbot):
    text = "It opens what is in this folder."
    qt_window.feed.messages = [{"do": "done", "heading": "Greenroom is in your menu", "text": text}]
    qt_window.feed.ended = True
    qtbot.waitUntil(qt_window.text.isVisible)
    assert qt_window.text.toPlainText() == text
    assert [each.text() for each in qt_window.buttons] == ["Copy", "Close"]
    assert statuses(qt_window.state) == ["done"] * 4
    qtbot.keyClick(button(qt_window, "Close"), Qt.Key.Key_Return)
    assert (qt_window.isVisible(), qt_window.code) == (False, 0)


def test_qt_goes_when_start_py_is_gone(qt_window, qtbot):
    qt_window.feed.ended = True
    qtbot.waitUntil(lambda: not qt_window.isVisible())


def test_qt_stays_while_there_is_a_failure_to_read(qt_window, qtbot):
    qt_window.feed.messages, qt_window.feed.ended = [FAILURE], True
    qtbot.waitUntil(qt_window.text.isVisible)
    QCoreApplication.processEvents()
    assert qt_window.isVisible()


def test_a_stray_key_does_not_stop_the_work(qt_window, qtbot):
    for key in (Qt.Key.Key_Return, Qt.Key.Key_Space, Qt.Key.Key_Escape):
        qtbot.keyClick(qt_window, key)
        assert qt_window.isVisible()
    qtbot.mouseClick(button(qt_window, "Stop"), Qt.MouseButton.LeftButton)
    assert not qt_window.isVisible()


# ------------------------------------------------------------------------------------------ as a process


@pytest.fixture(scope="module")
def screen():
    """A screen that nobody sees, for tkinter; its name."""
    if shutil.which("Xvfb") is None:
        pytest.skip("Xvfb is not installed")
    reading, writing = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(writing), "-screen", "0", "1024x768x24", "-nolisten", "tcp"],
        pass_fds=[writing],
        stderr=subprocess.DEVNULL,
    )
    os.close(writing)
    with os.fdopen(reading) as answer:
        number = answer.readline().strip()
    yield f":{number}"
    server.terminate()
    server.wait()


def has_tkinter():
    try:
        import _tkinter  # noqa: F401
    except ImportError:
        return False
    return True


TOOLKITS = [
    pytest.param("window_tk.py", marks=pytest.mark.skipif(not has_tkinter(), reason="no tkinter here")),
    "window_qt.py",
]


@pytest.fixture(params=TOOLKITS)
def windowed(request, screen, monkeypatch, tmp_path):
    """Progress in a real window of each toolkit."""
    monkeypatch.setenv("DISPLAY", screen)
    monkeypatch.setenv("QT_QPA_PLATFORM", "xcb")
    command = [sys.executable, str(ROOT / "packaging" / request.param)]
    monkeypatch.setattr(window, "_commands", lambda environment: [command])
    progress = Window(tmp_path, ["start.py"])
    yield progress
    progress.close()


def test_it_opens_with_the_first_word_and_closes_with_the_last(windowed, capsys):
    assert windowed._process is None
    windowed.step("torch", "Installing the CPU build of torch")
    process = windowed._process
    windowed.doing("Downloading torch (189 MB)", 0.4)
    assert process.poll() is None
    windowed.opening()
    assert process.wait(20) == 0
    assert "Installing the CPU build of torch" in capsys.readouterr().out  # for whoever looks into the journal


def test_closing_the_window_stops_the_work(windowed):
    windowed.step("torch", "Installing")
    windowed._process.terminate()
    windowed._process.wait()
    with pytest.raises(Stopped):
        windowed.doing("Downloading torch")


@pytest.mark.parametrize(("code", "again"), [(AGAIN, True), (0, False), (-9, False)])
def test_what_the_user_answers_to_a_failure_comes_back(tmp_path, monkeypatch, code, again):
    """A window that reads to the end and then leaves in this way."""
    leave = f"sys.exit({code})" if code >= 0 else "os.kill(os.getpid(), 9)"
    script = f"import os, sys; print('shown', flush=True); sys.stdin.read(); {leave}"
    monkeypatch.setattr(window, "_commands", lambda environment: [[sys.executable, "-c", script]])
    progress = Window(tmp_path, ["start.py"])
    progress.step("torch", "Installing")
    assert progress.failed("Greenroom cannot start", "the disk is full") is again


def test_what_was_done_waits_until_it_was_read(tmp_path, monkeypatch, capsys):
    script = "import sys; print('shown', flush=True); sys.exit(0 if 'in your menu' in sys.stdin.read() else 1)"
    monkeypatch.setattr(window, "_commands", lambda environment: [[sys.executable, "-c", script]])
    progress = Window(tmp_path, ["start.py"])
    progress.step("torch", "Installing")
    process = progress._process
    progress.done("Greenroom is in your menu", "It opens what is in this folder.")
    assert process.returncode == 0
    assert "It opens what is in this folder.\n" in capsys.readouterr().out


def test_a_toolkit_that_cannot_draw_here_is_passed_over(tmp_path, monkeypatch):
    draws = "import sys; print('shown', flush=True); sys.stdin.read()"  # open until it is told all, as a window is
    commands = [[sys.executable, "-c", "raise SystemExit(1)"], [sys.executable, "-c", draws]]
    monkeypatch.setattr(window, "_commands", lambda environment: commands)
    progress = Window(tmp_path, ["start.py"])
    progress.step("torch", "Installing")
    assert progress._process.args == commands[1]
    progress.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems always have a toolkit or a dialogue")
def test_without_a_toolkit_a_terminal_takes_over(tmp_path, monkeypatch):
    terminal = tmp_path / "xterm"
    terminal.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > "{tmp_path}/asked.part"\nmv "{tmp_path}/asked.part" "{tmp_path}/asked"\n'
    )
    terminal.chmod(0o755)
    (tmp_path / "sh").symlink_to("/bin/sh")
    (tmp_path / "mv").symlink_to("/bin/mv")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "_tkinter", None)
    with pytest.raises(SystemExit):
        Window(tmp_path, ["python3", "/a folder/start.py"]).step("environment", "Making an environment")
    until = time.monotonic() + 20
    while not (tmp_path / "asked").exists() and time.monotonic() < until:
        os.sched_yield()
    words = (tmp_path / "asked").read_text().splitlines()
    assert words[:3] == ["-e", "sh", "-c"]
    assert words[3].startswith("python3 '/a folder/start.py' || {")
    assert "Press Enter" in words[3]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems always have a toolkit or a dialogue")
def test_without_anything_at_all_the_failure_is_a_message_of_the_desktop(tmp_path, monkeypatch, capsys):
    tool = tmp_path / "zenity"
    tool.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{tmp_path}/said"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "_tkinter", None)
    progress = Window(tmp_path, ["start.py"])
    progress.step("environment", "Making an environment")
    assert progress.failed("Greenroom cannot start", "the disk is full") is False
    assert "--text=the disk is full" in (tmp_path / "said").read_text().splitlines()
    assert "the disk is full" in capsys.readouterr().err


def test_a_terminal_is_told_all_steps_by_a_line_each(capsys):
    progress = Progress()
    for name in STEPS:
        progress.step(name, f"now {name}")
        progress.doing("something quick", 0.5)
    assert capsys.readouterr().out.splitlines() == [f"now {name}" for name in STEPS]
