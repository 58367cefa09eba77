"""The message tree: branches, the one that is chosen, and answers given in several parts."""

import time

import pytest

from engine.messages import CacheCounters, Timings
from engine.sessions.conversation import Conversation, Message, turns
from engine.sessions.log import SessionLog
from engine.sessions.reader import read_conversation


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


def test_the_chosen_leaf_is_where_the_conversation_goes_on(talk):
    assert talk.chosen_leaf().id == "b"
    reply = talk.branch("a", "user", "and then?")
    assert talk.chosen_leaf().id == reply.id
    assert talk.chosen_leaf(under="b").id == "b"
    assert ids(talk.path_to(reply.id)) == ["s", "u", "a", reply.id]


def test_an_edited_question_branches_at_the_root_too(talk):
    edited = talk.branch(None, "system", "Be brief.")
    assert ids(talk.siblings("s")) == ["s", edited.id]


def test_an_empty_conversation_has_no_leaf_and_a_title_all_the_same():
    empty = Conversation("c")
    assert empty.chosen_leaf() is None
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
    assert conversation.chosen_leaf().id == "x"


def test_a_replaced_message_keeps_its_place_and_a_removed_one_is_gone(talk):
    talk.add(Message("a", "u", "assistant", "final"))
    assert ids(talk.children("u")) == ["a", "b"]
    talk.remove("b")
    assert ids(talk.children("u")) == ["a"]
    assert talk.chosen_leaf().id == "a"


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


def test_the_branch_shown_is_the_one_used_last_or_turned_to_since(talk):
    assert talk.chosen_leaf().id == "b"
    talk.choose("a")
    assert talk.chosen_leaf().id == "a"
    other = talk.branch(None, "user", "another beginning")
    assert talk.chosen_leaf().id == other.id
    below = talk.branch("b", "user", "and then?")
    assert talk.chosen_leaf().id == below.id
    talk.choose("a")
    assert talk.chosen_leaf().id == "a"
    talk.choose("b")
    assert talk.chosen_leaf().id == below.id


def test_every_branching_remembers_its_own_choice(talk):
    first = talk.branch("a", "user", "one way")
    talk.branch("a", "user", "another way")
    talk.choose(first.id)
    talk.choose("b")
    assert talk.chosen_leaf(under="a").id == first.id


def test_an_answer_under_an_answer_is_one_turn_with_one_bill(talk):
    def part(id, parent, reason, count, hits):
        timings = Timings(10, 4, count, 0.5, 0.4, count / 10)
        talk.add(Message(id, parent, "assistant", id, reason=reason, timings=timings, cache=CacheCounters(0, 0, hits)))

    part("Once upon", "u", "length", 6, 30)
    part(" a time", "Once upon", "end", 3, 20)
    [system, user, answer] = turns(talk.path_to(" a time"))
    assert (system.text, user.id) == ("text of s", "u")
    assert (answer.id, answer.text, answer.last.reason) == ("Once upon", "Once upon a time", "end")
    assert answer.timings == Timings(10, 4, 9, 0.5, 0.4, pytest.approx(0.9))
    assert answer.cache.decode_hits == 50
    assert turns(talk.path_to("a"))[-1].timings is None


def test_a_choice_and_a_title_are_remembered_in_the_log(tmp_path):
    with SessionLog.create(tmp_path, "test") as log:
        log.append_message("u", None, "user", "Hello")
        log.append_message("a", "u", "assistant", "Hi", reason="end")
        log.append_message("b", "u", "assistant", "Good day", reason="end")
        assert read_conversation(log.path).chosen_leaf().id == "b"
        log.append_choice("a")
        log.append_title("  Greetings\nof all kinds")
    conversation = read_conversation(log.path)
    assert (conversation.chosen_leaf().id, conversation.title) == ("a", "Greetings")
    with SessionLog.open(log.path) as log:
        log.append_title("")
        log.append_choice("no such message")
    conversation = read_conversation(log.path)
    assert (conversation.chosen_leaf().id, conversation.title) == ("a", "Hello")


def test_a_long_talk_is_followed_to_its_end_quickly():
    conversation = Conversation("c")
    for number in range(5000):
        parent = str(number - 1) if number else None
        conversation.add(Message(str(number), parent, "user" if number % 2 == 0 else "assistant", "text"))
    began = time.perf_counter()
    assert conversation.chosen_leaf().id == "4999"
    assert time.perf_counter() - began < 0.5
