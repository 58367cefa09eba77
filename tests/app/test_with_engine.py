"""The real window with the real engine thread and a tiny model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.chat.answer import AnswerView
from app.main_window import MainWindow
from engine.messages import CacheSnapshot, Finished, LoadModel
from engine.sessions.reader import read_conversation, recount


def ask(window: MainWindow, text: str) -> AnswerView:
    QTest.keyClicks(window.composer.input, text)
    QTest.keyClick(window.composer.input, Qt.Key.Key_Return)
    return [w for w in window.transcript.column.widgets() if isinstance(w, AnswerView)][-1]


def test_answer_log_and_panels_agree(window: MainWindow, qtbot) -> None:
    finished: list[Finished] = []
    snapshots: list[CacheSnapshot] = []
    window.chat.finished.connect(finished.append)
    window.client.cache_snapshot.connect(snapshots.append)
    for _ in range(2):
        view = ask(window, "Hello there")
        qtbot.waitUntil(lambda: not window.chat.busy, timeout=60_000)
        assert finished[-1].reason in ("end", "length")
        assert view.text == finished[-1].text
    path = window.chat.session.path
    assert path is not None
    saved = list(read_conversation(path).messages.values())
    assert [message.role for message in saved] == ["user", "assistant"] * 2
    assert [message.text for message in saved if message.role == "assistant"] == [end.text for end in finished]
    counted = recount(path)
    qtbot.waitUntil(lambda: bool(snapshots) and snapshots[-1].counters.decode_hits == counted.decode_hits)
    assert snapshots[-1].counters.decode_misses == counted.decode_misses
    assert snapshots[-1].counters.prefill_misses == counted.prefill_misses


def test_stop_ends_the_answer_and_the_text_stays(endless: None, window: MainWindow, qtbot) -> None:
    finished: list[Finished] = []
    window.chat.finished.connect(finished.append)
    window.settings.max_tokens = 4096
    view = ask(window, "Go on for ever")
    qtbot.waitUntil(lambda: bool(view.shown_text), timeout=60_000)
    QTest.keyClick(window.composer.input, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: not window.chat.busy, timeout=10_000)
    assert finished[-1].reason == "stopped"
    assert view.text == finished[-1].text != ""


def test_folder_that_is_no_model_is_one_sentence_and_the_program_goes_on(
    window: MainWindow, tmp_path: Path, tiny_chat_model: Path, qtbot
) -> None:
    (tmp_path / "not a model").mkdir()
    window.load(LoadModel(str(tmp_path / "not a model")))
    qtbot.waitUntil(lambda: bool(window.state.problem), timeout=20_000)
    assert "config.json" in window.state.problem and "Traceback" not in window.state.problem
    window.load(LoadModel(str(tiny_chat_model)))
    qtbot.waitUntil(lambda: window.state.model is not None, timeout=30_000)
    ask(window, "Hello")
    qtbot.waitUntil(lambda: not window.chat.busy, timeout=60_000)


def test_closing_while_answering_is_quick_and_the_log_stays_readable(window: MainWindow, qtbot) -> None:
    window.settings.max_tokens = 4096
    view = ask(window, "Go on for ever")
    qtbot.waitUntil(lambda: bool(view.shown_text) or not window.chat.busy, timeout=60_000)
    path = window.chat.session.path
    assert path is not None
    with qtbot.waitSignal(window.closed, timeout=5000):
        window.close()
    messages = list(read_conversation(path).messages.values())
    assert messages[0].text == "Go on for ever"


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_killed_while_answering_nothing_acknowledged_is_lost(tmp_path: Path, tiny_chat_model: Path) -> None:
    script = textwrap.dedent(
        """
        import json, sys
        from pathlib import Path
        from PySide6.QtCore import QTimer
        from app.program import Program
        data = Path(sys.argv[1])
        program = Program(data / "settings.json", data / "conversations", data / "logs")
        program.settings.max_tokens = 4096
        window = program.window
        window.state.loaded.connect(lambda model: QTimer.singleShot(0, lambda: window.send("Precious words")))
        def tell(request, text, count):
            print(json.dumps(str(window.chat.session.path)), flush=True)
        window.client.tokens.connect(tell)
        window.show()
        window.start(sys.argv[2])
        program.run()
        """
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path), str(tiny_chat_model)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
    )
    assert child.stdout is not None
    try:
        path = Path(json.loads(child.stdout.readline()))
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    messages = list(read_conversation(path).messages.values())
    assert messages[0].text == "Precious words"
    assert len(messages) <= 2


def test_a_load_takes_the_place_of_the_one_under_way_and_its_end_is_told_once(
    window: MainWindow, tiny_chat_model: Path, qtbot
) -> None:
    state, source = window.state, str(tiny_chat_model)
    loaded: list[int] = []
    refused: list[str] = []
    state.loaded.connect(lambda model: loaded.append(model.slots))
    state.refused.connect(refused.append)
    window.load(LoadModel(source, experts="8 slots"))
    window.load(LoadModel(source, experts="10 slots"))
    qtbot.waitUntil(lambda: state.model is not None or bool(refused), timeout=30_000)
    assert (loaded, refused, window.settings.last_experts) == ([10], [], "10 slots")
    window.load(LoadModel(source, experts="8 slots"))
    window.load(LoadModel("/nowhere"))
    qtbot.waitUntil(lambda: bool(refused), timeout=30_000)
    assert state.model is None and "/nowhere" in state.problem
    assert (loaded, window.settings.last_experts, window.settings.loading_source) == ([10], "10 slots", "")
