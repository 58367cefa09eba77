"""The message tree, and the list of conversations."""

import os

import pytest

from engine.errors import SessionError
from engine.sessions.conversation import Conversation, Message, list_conversations
from engine.sessions.log import SessionLog


@pytest.fixture
def talk():
    conversation = Conversation("c")
    for id, parent, role in [
        ("s", None, "system"),
        ("u", "s", "user"),
        ("a", "u", "assistant"),
        ("b", "u", "assistant"),
    ]:
        conversation.add(Message(id, parent, role, f"text of {id}"))
    return conversation


def ids(messages):
    return [message.id for message in messages]


def test_a_regenerated_answer_is_a_sibling(talk):
    assert ids(talk.siblings("a")) == ["a", "b"]
    assert ids(talk.children("u")) == ["a", "b"]
    assert ids(talk.path_to("b")) == ["s", "u", "b"]


def test_the_latest_leaf_is_where_the_conversation_goes_on(talk):
    assert talk.latest_leaf().id == "b"
    reply = talk.branch("a", "user", "and then?")
    assert talk.latest_leaf().id == reply.id
    assert talk.latest_leaf(under="b").id == "b"
    assert ids(talk.path_to(reply.id)) == ["s", "u", "a", reply.id]


def test_an_edited_question_branches_at_the_root_too(talk):
    edited = talk.branch(None, "system", "Be brief.")
    assert ids(talk.siblings("s")) == ["s", edited.id]


def test_an_empty_conversation_has_no_leaf_and_a_title_all_the_same():
    empty = Conversation("c")
    assert empty.latest_leaf() is None
    assert empty.path_to(None) == []
    assert empty.title == "New chat"


def test_a_lost_parent_and_a_circle_do_no_harm():
    conversation = Conversation("c")
    conversation.add(Message("x", "gone", "user", "orphan"))
    conversation.add(Message("p", "q", "user", "circle"))
    conversation.add(Message("q", "p", "assistant", "circle"))
    conversation.add(Message("me", "me", "user", "my own parent"))
    assert ids(conversation.children(None)) == ["x"]
    assert len(conversation.path_to("q")) == 2
    assert conversation.latest_leaf().id == "x"


def test_a_replaced_message_keeps_its_place_and_a_removed_one_is_gone(talk):
    talk.add(Message("a", "u", "assistant", "final"))
    assert ids(talk.children("u")) == ["a", "b"]
    talk.remove("b")
    assert ids(talk.children("u")) == ["a"]
    assert talk.latest_leaf().id == "a"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("\n\n  Hello there \nmore", "Hello there"),
        ("   \n", "New chat"),
        ("word " * 40, "word " * 11 + "word…"),
    ],
)
def test_the_title_is_the_first_line_the_user_said(text, title):
    conversation = Conversation("c")
    conversation.branch(None, "system", "You are kind.")
    conversation.branch(None, "user", text)
    assert conversation.title == title


def test_the_list_shows_newest_first_and_damaged_ones_with_their_problem(tmp_path):
    for age, title in [(300, "oldest"), (200, "older"), (100, "newest")]:
        with SessionLog.create(tmp_path, "test") as log:
            log.append_message("s", None, "system", "Be kind.")
            log.append_message("u", "s", "user", title)
        os.utime(log.path, (1e9 - age, 1e9 - age))
    (tmp_path / "future.jsonl").write_text('{"type":"header","version":2}\n')
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "broken.jsonl").write_bytes(b"\xff\xfe\x00garbage")
    (tmp_path / "notes.txt").write_text("not listed")
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "dangling.jsonl").symlink_to(tmp_path / "nowhere")
    entries = list_conversations(tmp_path)
    assert [entry.title for entry in entries if not entry.problem] == ["newest", "older", "oldest"]
    problems = {entry.id: entry.problem for entry in entries if entry.problem}
    assert "newer Greenroom" in problems["future"]
    assert "is empty" in problems["empty"]
    assert "not a Greenroom" in problems["broken"]
    assert "cannot be read" in problems["dangling"]
    assert len(entries) == 7


def test_a_list_of_nothing_is_empty_and_an_unreadable_folder_is_told(tmp_path):
    assert list_conversations(tmp_path / "not yet") == []
    (tmp_path / "file").write_text("")
    with pytest.raises(SessionError, match="cannot be read"):
        list_conversations(tmp_path / "file")


def test_the_title_of_a_rescued_conversation_is_listed(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"ty\n{"type":"message","id":"u","parent":null,"role":"user","text":"Hi"}\n')
    [entry] = list_conversations(tmp_path)
    assert (entry.title, entry.problem) == ("Hi", "")
