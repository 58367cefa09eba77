"""Work in the background always ends with a result or a sentence, on the GUI thread."""

from __future__ import annotations

import threading

import pytest

from app.background import Background
from engine.errors import SessionError


@pytest.fixture
def background(qapp):
    background = Background()
    yield background
    background.close()


def test_result_and_sentence_arrive_on_the_gui_thread_in_order(background: Background, qtbot) -> None:
    ended: list[tuple[str, object, bool]] = []

    def note(kind: str):
        return lambda what: ended.append((kind, what, threading.current_thread() is threading.main_thread()))

    def refuse(stopped):
        raise SessionError("The disk is full.")

    def break_down(stopped):
        raise ZeroDivisionError("oops")

    worked_on: list[str] = []
    background.run(
        lambda stopped: worked_on.append(threading.current_thread().name) or 42, note("done"), note("failed")
    )
    background.run(refuse, note("done"), note("failed"))
    background.run(break_down, note("done"), note("failed"))
    qtbot.waitUntil(lambda: len(ended) == 3)
    assert worked_on == ["greenroom-background"]
    assert ended[:2] == [("done", 42, True), ("failed", "The disk is full.", True)]
    kind, sentence, _ = ended[2]
    assert kind == "failed" and "unexpected" in str(sentence)
    assert not background.busy


def test_what_was_cancelled_ends_in_silence(background: Background, qtbot) -> None:
    started, ended = threading.Event(), []

    def long(stopped):
        started.set()
        while not stopped():
            pass
        return "too late"

    job = background.run(long, ended.append)
    waiting = background.run(lambda stopped: pytest.fail("nobody wanted it"), ended.append)
    assert started.wait(10)
    waiting.cancel()
    job.cancel()
    background.run(lambda stopped: "next", ended.append)
    qtbot.waitUntil(lambda: ended == ["next"])


def test_closing_does_what_is_to_be_done_last(qapp) -> None:
    background = Background()
    last: list[str] = []
    background.at_end.append(lambda stopped: last.append(threading.current_thread().name))
    background.close()
    assert last == []  # nothing was ever begun
    background.run(lambda stopped: None, lambda result: None)
    background.close()
    assert last == ["greenroom-background"]
