"""The list of conversations and the search through all of them."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import SessionError
from engine.sessions.library import Library
from engine.sessions.log import SessionLog
from engine.sessions.snippet import fold, snippet


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    library = Library(tmp_path, tmp_path / "search.sqlite")
    yield library
    library.close()


def talk(folder: Path, *texts: str, when: str = "2026-01-01T00:00:00+00:00") -> Path:
    with SessionLog.create(folder, "test") as log:
        parent = None
        for number, text in enumerate(texts):
            log.append_message(f"m{number}", parent, ("user", "assistant")[number % 2], text, time=when)
            parent = f"m{number}"
    return log.path


def found(library: Library, text: str) -> list[str]:
    return [hit.entry.title for hit in library.search(text)]


def test_the_list_is_in_the_order_of_the_last_word_even_where_files_were_touched_since(tmp_path, library):
    old = talk(tmp_path, "old", when="2026-01-01T00:00:00+00:00")
    talk(tmp_path, "new", when="2026-02-01T00:00:00+00:00")
    library.refresh()
    with SessionLog.open(old) as log:
        log.append_title("renamed")
    library.refresh()
    assert [entry.title for entry in library.entries()] == ["new", "renamed"]


def test_before_anything_is_read_the_list_shows_titles_from_the_heads_and_problems(tmp_path, library):
    talk(tmp_path, "Hello there\nsecond line")
    (tmp_path / "future.jsonl").write_text('{"type":"header","version":2}\n')
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "broken.jsonl").write_bytes(b"\xff\xfe\x00garbage")
    (tmp_path / "rescued.jsonl").write_text('{"ty\n{"type":"message","id":"u","role":"user","text":"Hi"}\n')
    (tmp_path / "notes.txt").write_text("not listed")
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "dangling.jsonl").symlink_to(tmp_path / "nowhere")
    for state in ("heads only", "all read"):
        entries = library.entries()
        assert {entry.title for entry in entries if not entry.problem} == {"Hello there", "Hi"}, state
        problems = {entry.id: entry.problem for entry in entries if entry.problem}
        assert "newer Greenroom" in problems["future"]
        assert "is empty" in problems["empty"]
        assert "not a Greenroom" in problems["broken"]
        assert "There is no file" in problems["dangling"]
        assert library.refresh()


def test_a_list_of_nothing_is_empty_and_an_unreadable_folder_is_told(tmp_path):
    assert Library(tmp_path / "not yet").entries() == []
    (tmp_path / "file").write_text("")
    with pytest.raises(SessionError, match="cannot be read"):
        Library(tmp_path / "file").entries()


def test_all_words_must_occur_anywhere_in_the_conversation_whatever_their_case_and_accents(tmp_path, library):
    talk(tmp_path, "Where is the café?", "Behind the STATION, in Łódź.")
    talk(tmp_path, "Where is the station?", "Beside the church.")
    assert found(library, "cafe station") == ["Where is the café?"]
    assert sorted(found(library, "STATION")) == ["Where is the café?", "Where is the station?"]
    assert found(library, "stat café behi") == ["Where is the café?"]
    assert found(library, "no such thing") == []
    assert found(library, "  ") == []


def test_special_characters_are_looked_for_as_they_are(tmp_path, library):
    talk(tmp_path, "What is `std::vector<int>` 100%?", "A_B and [x]")
    for text in ("std::vector<int>", "100%", "a_b", "[x]", "<int>`"):
        assert len(library.search(text)) == 1, text
    assert library.search("a%b") == [] == library.search("100_")


def test_every_branch_the_title_and_what_was_added_since_are_found(tmp_path, library):
    path = talk(tmp_path, "question", "first answer")
    with SessionLog.open(path) as log:
        log.append_message("m2", "m0", "assistant", "second answer")
        assert [hit.message for hit in library.search("first")] == ["m1"]
        log.append_delta("m3", "streaming words")
        log.append_title("Harbour")
        assert found(library, "second") == ["Harbour"]
        assert found(library, "streaming") == ["Harbour"]
        assert [hit.message for hit in library.search("harbour")] == [""]


def test_one_file_with_a_name_that_is_no_text_hides_no_other(tmp_path, library):
    named = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.jsonl"))
    try:
        talk(tmp_path, "apples").rename(named)
    except OSError:
        pytest.skip("this file system takes only text as names")
    talk(tmp_path, "apples and pears")
    assert found(library, "apples") == found(library, "apple") != []
    assert len(library.entries()) == len(library.search("apples")) == 2
    named.unlink()
    assert [hit.entry.title for hit in library.search("apples")] == ["apples and pears"]


def test_one_file_with_damaged_records_hides_no_other(tmp_path, library):
    damaged = talk(tmp_path, "plums")
    with damaged.open("a") as file:
        file.write('{"type":"start","answer":"a","parent":[1]}\n{"type":"message","id":7}\n')
    talk(tmp_path, "plums and pears")
    assert sorted(found(library, "plums")) == ["plums", "plums and pears"]


def test_a_long_pasted_text_is_looked_for_word_by_word(tmp_path, library):
    words = [f"word{number}" for number in range(3000)]
    talk(tmp_path, " ".join(words))
    talk(tmp_path, " ".join(words[:-1]))
    assert len(found(library, " ".join(words[:-1]))) == 2
    assert len(found(library, " ".join(words))) == 1


def test_half_an_emoji_is_found_as_it_was_kept(tmp_path, library):
    talk(tmp_path, "half \ud83d of it")
    assert found(library, "half \ud83d") != []


def test_deleted_conversations_are_gone_from_the_index_byte_for_byte(tmp_path, library):
    path = talk(tmp_path, "a secret word: xylophone")
    assert len(library.search("xylophone")) == 1
    path.unlink()
    assert library.search("xylophone") == []
    library.close()
    assert b"xylophone" not in (tmp_path / "search.sqlite").read_bytes()


def test_the_index_is_used_again_and_a_damaged_one_is_made_anew(tmp_path, monkeypatch):
    talk(tmp_path, "needle in a haystack")
    database = tmp_path / "search.sqlite"
    first = Library(tmp_path, database)
    first.refresh()
    first.close()
    second = Library(tmp_path, database)
    monkeypatch.setattr("engine.sessions.library.read_conversation", lambda path: pytest.fail("read again"))
    assert found(second, "needle") == ["needle in a haystack"]
    second.close()
    monkeypatch.undo()
    for damage in (b"not a database at all, but long enough" * 200, b""):
        database.write_bytes(damage)
        third = Library(tmp_path, database)
        assert found(third, "needle") == ["needle in a haystack"]
        third.close()
    sqlite3.connect(database).execute("PRAGMA user_version = 99").connection.close()
    fourth = Library(tmp_path, database)
    assert found(fourth, "needle") == ["needle in a haystack"]
    fourth.close()
    fifth = Library(tmp_path, tmp_path)  # a folder is no place for a database: memory is
    assert found(fifth, "needle") == ["needle in a haystack"]
    fifth.close()


def test_a_database_that_fails_later_is_done_without(tmp_path, library):
    talk(tmp_path, "needle in a haystack")
    assert found(library, "needle") == ["needle in a haystack"]
    library._db.execute("DROP TABLE messages")  # as by a disk that failed
    assert found(library, "needle") == ["needle in a haystack"]
    assert [entry.title for entry in library.entries()] == ["needle in a haystack"]


def test_two_windows_share_the_index(tmp_path, library):
    talk(tmp_path, "needle in a haystack")
    other = Library(tmp_path, tmp_path / "search.sqlite")
    assert found(library, "needle") == found(other, "needle") == ["needle in a haystack"]
    talk(tmp_path, "another needle")
    assert len(found(other, "needle")) == len(found(library, "needle")) == 2
    other.close()


def test_a_search_that_is_no_longer_wanted_ends_at_once(tmp_path, library):
    for number in range(5):
        talk(tmp_path, f"word {number}")
    asked = []
    assert library.search("word", lambda: bool(asked.append(1)) or len(asked) > 2) == []
    assert len(asked) == 3
    assert len(library.search("word")) == 5


@pytest.mark.parametrize(
    ("text", "words", "shown", "marked"),
    [
        ("Plain words here", ["words"], "Plain words here", ["words"]),
        ("x" * 10 + " a sentence before it, and then the needle\n\n  in the haystack", ["needle", "hay"],
         "…and then the needle in the haystack", ["needle", "hay"]),
        ("Straße nach Łódź, ÉTÉ", ["strasse", "ete"], "Straße nach Łódź, ÉTÉ", ["Straße", "ÉTÉ"]),
        ("", ["x"], "", []),
    ],
)  # fmt: skip
def test_snippet_is_one_line_around_the_words_and_marks_them(text, words, shown, marked):
    piece = snippet(text, words, " ".join(words))
    assert piece.text == shown
    assert [piece.text[start : start + length] for start, length in piece.marks] == marked


def test_snippet_of_a_long_text_is_short_and_shows_the_phrase_as_it_was_typed():
    text = "the end of summer. " * 50 + "At last the long day ends. " + "more of it " * 50
    piece = snippet(text, ["long", "day"], "long day")
    assert "long day" in piece.text and len(piece.text) < 130
    assert fold("ACCENT Ü ﬁ") == "accent u fi"


def test_a_thousand_conversations_are_listed_and_searched_in_an_eyes_blink(tmp_path, library):
    for number in range(1000):
        path = tmp_path / f"{number}.jsonl"
        lines = ['{"type":"header","version":1,"program":"t","conversation":"c","created":""}']
        for turn in range(10):
            words = f"message {turn} of talk {number} " + "and some more words that say little " * 20
            lines.append(f'{{"type":"message","id":"{turn}","parent":null,"role":"user","text":"{words}"}}')
        path.write_text("\n".join(lines) + "\n")
        os.utime(path, (1e9 + number, 1e9 + number))
    library.refresh()
    times = []
    for _ in range(3):
        began = time.perf_counter()
        assert len(library.entries()) == 1000
        assert [hit.entry.id for hit in library.search("words 7 talk 998")] == ["998"]
        times.append(time.perf_counter() - began)
    assert min(times) < 0.5, times
