"""Deleted conversations wait until nobody can want them back."""

import os
import subprocess
import sys
import time

import pytest

from engine.errors import SessionError
from engine.sessions.log import SessionLog
from engine.sessions.trash import ABANDONED, Trash


@pytest.fixture
def path(tmp_path):
    with SessionLog.create(tmp_path, "test") as log:
        log.append_message("u", None, "user", "Precious")
    return log.path


def test_what_is_put_away_comes_back_as_it_was_or_is_gone_for_good(path, tmp_path):
    trash, before = Trash(tmp_path), path.read_bytes()
    deleted = trash.put(path)
    assert not path.exists() and deleted.read_bytes() == before
    assert trash.restore(deleted) == path
    assert path.read_bytes() == before
    trash.purge(trash.put(path))
    assert list(tmp_path.glob("**/*.jsonl")) == []


def test_it_comes_back_under_another_name_when_its_own_is_taken(path, tmp_path):
    trash = Trash(tmp_path)
    deleted = trash.put(path)
    path.write_text("somebody else's")
    back = trash.restore(deleted)
    assert back != path and "Precious" in back.read_text() and path.read_text() == "somebody else's"


def test_after_a_crash_what_nobody_gave_up_comes_back_and_the_fresh_is_left_to_its_window(path, tmp_path):
    trash = Trash(tmp_path)
    deleted = trash.put(path)
    assert trash.recover() == []  # another window may be offering its undo
    abandoned = deleted.with_name(f"{time.time() - ABANDONED - 10:.0f}~{path.name}")
    deleted.rename(abandoned)
    (deleted.parent / "not ours~x.jsonl").write_text("")
    assert trash.recover() == [path]
    assert path.exists() and (deleted.parent / "not ours~x.jsonl").exists()


def test_a_damaged_conversation_can_be_deleted_and_a_missing_one_is_told(tmp_path):
    (tmp_path / "bad.jsonl").write_bytes(b"\x00\xff")
    assert Trash(tmp_path).put(tmp_path / "bad.jsonl").exists()
    with pytest.raises(SessionError, match=r"There is no file “.*” in .*: it was moved or deleted"):
        Trash(tmp_path).put(tmp_path / "bad.jsonl")


@pytest.mark.skipif(os.name == "nt", reason="the lock is a file of its own there")
def test_a_conversation_that_another_window_adds_to_is_kept(path, tmp_path):
    code = "from pathlib import Path; from engine.sessions.log import SessionLog;"
    code += f"log = SessionLog.open(Path({str(path)!r})); print('open', flush=True); input()"
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None and other.stdout.readline() == "open\n"
    with pytest.raises(SessionError, match="open in another window"):
        Trash(tmp_path).put(path)
    assert path.exists()
    other.communicate("\n")
    assert Trash(tmp_path).put(path).exists()
