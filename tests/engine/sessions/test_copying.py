"""Logs that come in from elsewhere, and second copies of our own."""

import os
import tracemalloc
from pathlib import Path

import pytest

from engine.errors import SessionError
from engine.sessions.copying import duplicate, import_log
from engine.sessions.log import SessionLog
from engine.sessions.reader import read_conversation


@pytest.fixture
def source(tmp_path):
    with SessionLog.create(tmp_path / "elsewhere", "test") as log:
        log.append_message("u", None, "user", "Hello")
        log.append_message("a", "u", "assistant", "Hi", reason="end")
        log.append_message("b", "u", "assistant", "Good day", reason="end")
        log.append_choice("a")
    return log.path


def test_an_imported_log_is_the_same_conversation_in_a_file_of_its_own(source, tmp_path):
    before = source.read_bytes()
    path = import_log(source, tmp_path / "data" / "conversations")
    assert path.parent == tmp_path / "data" / "conversations" and path.name != source.name
    assert path.read_bytes() == before == source.read_bytes()
    with SessionLog.open(path) as log:
        log.append_message("c", "a", "user", "More")
    assert source.read_bytes() == before


def test_a_torn_end_stays_behind_and_a_damaged_line_comes_along(source, tmp_path):
    with source.open("ab") as file:
        file.write(b"{damaged}\n" + b'{"type":"message","id":"t')
    path = import_log(source, tmp_path / "in")
    conversation = read_conversation(path)
    assert (len(conversation.messages), conversation.damaged, conversation.torn) == (3, 1, False)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not a Greenroom conversation"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "not a Greenroom conversation"),
        (b'{"messages": [{"role": "user", "content": "Hi"}]}\n', "not a Greenroom conversation"),
        (b'{"type":"header","version":9}\n', "newer Greenroom"),
        (b'{"type":"header","version":1}\n{"type":"delta"}\n', "holds no message"),
    ],
    ids=["empty", "picture", "another program's", "newer", "no message"],
)
def test_what_is_no_conversation_is_refused_in_a_sentence_and_leaves_nothing(tmp_path, content, why):
    foreign, folder = tmp_path / "foreign.jsonl", tmp_path / "in"
    foreign.write_bytes(content)
    with pytest.raises(SessionError, match=why):
        import_log(foreign, folder)
    assert not folder.exists()
    with pytest.raises(SessionError, match="is a folder"):
        import_log(tmp_path, folder)
    with pytest.raises(SessionError, match=r"There is no file “.*” in .*: it was moved or deleted"):
        import_log(tmp_path / "gone.jsonl", folder)


def test_a_log_that_the_disk_has_no_room_for_is_refused_with_both_figures(source, tmp_path, monkeypatch):
    monkeypatch.setattr("engine.sessions.copying.shutil.disk_usage", lambda folder: type("Usage", (), {"free": 10}))
    with pytest.raises(SessionError, match=r"takes 0.0 MB and the disk has 0.0 MB left"):
        import_log(source, tmp_path / "in")
    assert list((tmp_path / "in").iterdir()) == []


def test_a_duplicate_has_everything_and_a_title_of_its_own(source):
    with SessionLog.open(source) as log:
        log.append_delta("d", "still streaming")
        copy = duplicate(source, "Hello (copy)")
    first, second = read_conversation(source), read_conversation(copy)
    assert copy.parent == source.parent
    assert second.title == "Hello (copy)" and first.title == "Hello"
    assert second.messages == first.messages and "still streaming" in second.messages["d"].text
    assert second.chosen_leaf() == first.chosen_leaf()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with a name")
def test_what_has_no_end_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(SessionError, match="no file"):
        import_log(tmp_path / "pipe.jsonl", tmp_path / "data")
    with pytest.raises(SessionError, match="no file"):
        import_log(Path("/dev/zero"), tmp_path / "data")
    loop = tmp_path / "loop.jsonl"
    loop.symlink_to(loop)
    with pytest.raises(SessionError, match="leads nowhere"):
        import_log(loop, tmp_path / "data")


def test_a_file_without_a_lines_end_takes_no_memory(tmp_path):
    image = tmp_path / "disk image.jsonl"
    with image.open("wb") as file:
        file.truncate(4 << 30)  # a hole: it takes no room either
    tracemalloc.start()
    with pytest.raises(SessionError, match="not a Greenroom conversation"):
        import_log(image, tmp_path / "data")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 256 << 20
