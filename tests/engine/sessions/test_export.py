"""Exports appear whole or not at all, and never over the conversation itself."""

import pytest

from engine.errors import SessionError
from engine.sessions.export import export_jsonl, export_markdown
from engine.sessions.log import SessionLog
from engine.sessions.reader import read_conversation


@pytest.fixture
def source(tmp_path):
    with SessionLog.create(tmp_path / "own", "test") as log:
        log.append_message("u1", None, "user", "What is `std::vector<int>`?\nBriefly.")
        log.append_message("a1", "u1", "assistant", "A growable array.", reason="end")
        log.append_message("a2", "u1", "assistant", "Half an emoji \ud83d", reason="length")
    return log.path


def test_the_exported_log_opens_as_the_same_conversation(source, tmp_path):
    with source.open("ab") as file:
        file.write(b'{"torn')
    target = tmp_path / "copy of it.jsonl"
    export_jsonl(source, target)
    copy, original = read_conversation(target), read_conversation(source)
    assert copy.messages == original.messages
    assert (copy.id, copy.torn, original.torn) == (original.id, False, True)


def test_an_open_conversation_exports_with_what_is_still_in_memory(source, tmp_path):
    with SessionLog.open(source) as log:
        log.append_delta("a3", "so")
        log.append_delta("a3", " far")
        export_jsonl(source, tmp_path / "copy.jsonl")
    assert read_conversation(tmp_path / "copy.jsonl").messages["a3"].text == "so far"


def test_markdown_shows_one_branch_as_valid_utf8(source, tmp_path):
    target = tmp_path / "talk.md"
    export_markdown(source, target)
    text = target.read_text(encoding="utf-8")
    assert text.startswith("# What is `std::vector<int>`?\n")
    assert "## You\n\nWhat is `std::vector<int>`?\nBriefly.\n" in text
    assert "Half an emoji \ufffd\n\n*(ended at the token limit)*\n" in text
    assert "growable" not in text
    export_markdown(source, target, leaf="a1")
    assert "A growable array." in target.read_text(encoding="utf-8")


@pytest.mark.parametrize("export", [export_jsonl, export_markdown])
def test_a_bad_target_is_told_and_nothing_is_left_behind(source, tmp_path, export):
    before = source.read_bytes()
    with pytest.raises(SessionError, match="own file"):
        export(source, source)
    (tmp_path / "link").symlink_to(source)
    with pytest.raises(SessionError, match="own file"):
        export(source, tmp_path / "link")
    with pytest.raises(SessionError, match="is a folder"):
        export(source, tmp_path)
    with pytest.raises(SessionError, match="no folder"):
        export(source, tmp_path / "no" / "such.md")
    with pytest.raises(SessionError, match=r"name too long|could not be read or written"):
        export(source, tmp_path / ("n" * 300))
    assert source.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "own"]


@pytest.mark.parametrize("export", [export_jsonl, export_markdown])
def test_a_source_that_is_no_log_leaves_the_target_alone(tmp_path, export):
    bad, target = tmp_path / "bad.jsonl", tmp_path / "target"
    bad.write_text("hello\n")
    target.write_text("precious")
    with pytest.raises(SessionError, match="not a Greenroom"):
        export(bad, target)
    assert target.read_text() == "precious"
