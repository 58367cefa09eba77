"""What nobody caught is written down and told in words; the program goes on."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from PySide6.QtCore import qInstallMessageHandler
from PySide6.QtWidgets import QLabel

from app.crash import CrashKeeper
from app.messages import SmallDialog
from tests.app.conftest import Bench


@pytest.fixture
def keeper(tmp_path: Path, qapp, monkeypatch, pytestconfig) -> Iterator[CrashKeeper]:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    handlers = list(logging.getLogger().handlers)
    keeper = CrashKeeper(tmp_path / "logs")
    keeper.install()
    qInstallMessageHandler(None)
    yield keeper
    faulthandler.enable(pytestconfig.stash[fault_handler_stderr_fd_key])  # a crash of a later test is told, too
    for handler in set(logging.getLogger().handlers) - set(handlers):
        logging.getLogger().removeHandler(handler)
        handler.close()


def test_fault_on_another_thread_is_told_once_on_the_gui_thread(keeper: CrashKeeper, bench: Bench, qtbot) -> None:
    window = bench.start()
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow)

    def work() -> None:
        raise RuntimeError("the bottom fell out")

    for _ in range(3):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    qtbot.waitUntil(lambda: bool(window.findChildren(SmallDialog)))
    dialogs = window.findChildren(SmallDialog)
    assert len(dialogs) == 1
    words = " ".join(label.text() for label in dialogs[0].findChildren(QLabel))
    assert "the bottom fell out" in words and "Traceback" not in words
    assert (keeper.folder / "greenroom.log").read_text("utf-8").count("RuntimeError: the bottom fell out") == 3
    dialogs[0].reject()


def test_a_folder_that_cannot_be_written_does_not_stop_the_start(tmp_path: Path, qapp, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    (tmp_path / "file").write_text("")
    CrashKeeper(tmp_path / "file" / "logs").install()
    qInstallMessageHandler(None)
    assert "No logs can be kept" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_signal_closes_the_window_in_order(tmp_path: Path, qtbot) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "app", "--data", str(tmp_path), "--model", "/nowhere"],
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        log = tmp_path / "logs" / "crash.log"
        qtbot.waitUntil(lambda: log.exists() or child.poll() is not None, timeout=60_000)
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=120) in (0, -signal.SIGTERM)
    finally:
        child.kill()
