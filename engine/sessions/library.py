"""All conversations of the data folder at once: their titles for the list, and all their text for the search.

Reading a thousand logs takes seconds, so what was found in each is kept in one small database beside their folder, and
a file is read again only when it changed. The database holds nothing that is not in the logs: a damaged one is made
anew, and where there can be none everything is kept in memory.

Not for several threads: whoever makes a ``Library`` uses and closes it on one.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from engine.errors import SessionError
from engine.sessions import appendfile
from engine.sessions.conversation import UNTITLED, Conversation, title_of
from engine.sessions.reader import read_conversation
from engine.sessions.records import PASS_PREFIX, parse_header, parse_record
from engine.sessions.snippet import Snippet, fold, snippet

log = logging.getLogger("greenroom.sessions")

_T = TypeVar("_T")

VERSION = 1  # of the tables; another one's are dropped
MOST_HITS = 200
WORDS_AT_ONCE = 200  # in one question to the database, which takes no more than a thousand
_HEAD_BYTES = 64 << 10  # of a file, read to find its title before there was time for all of it
_TABLES = """
CREATE TABLE IF NOT EXISTS conversations(
    name TEXT PRIMARY KEY, size INTEGER, changed INTEGER, title TEXT, spoken REAL, problem TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS messages(name TEXT, id TEXT, text TEXT);
CREATE INDEX IF NOT EXISTS messages_of ON messages(name);
CREATE TABLE IF NOT EXISTS folded(message INTEGER PRIMARY KEY, name TEXT, text TEXT);
CREATE INDEX IF NOT EXISTS folded_of ON folded(name);
"""


_DROP = "".join(f"DROP TABLE IF EXISTS {table};" for table in ("conversations", "messages", "folded"))


@dataclass(frozen=True, slots=True)
class ConversationEntry:
    """A line in the list of conversations. ``problem`` says in a sentence why it cannot be opened."""

    id: str
    path: Path
    title: str
    modified: float  # when something was said last, seconds since 1970
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Hit:
    """A conversation that has all the words; ``message`` (id, "" when only its title has them) and where in it."""

    entry: ConversationEntry
    message: str
    snippet: Snippet


class Library:
    """The conversations in ``folder``, which need not exist yet; ``database`` None keeps everything in memory."""

    def __init__(self, folder: Path, database: Path | None = None) -> None:
        self._folder = folder
        self._path = database
        self._db = self._open()

    def close(self) -> None:
        self._db.close()

    def _sure(self, work: Callable[[], _T]) -> _T:
        """Do it; where the database fails (locked for long, its disk full or gone), do it again in memory."""
        try:
            return work()
        except sqlite3.Error as error:
            log.warning("%s is not used any more: %s", self._path, error)
            self._db.close()
            self._db = self._connect(":memory:")
            return work()

    # ---------------------------------------------------------------------------------------------- the list

    def entries(self) -> list[ConversationEntry]:
        """Every log in the folder, latest first, at once: of those that changed only the head is read.

        SessionError when the folder cannot be read; a file that cannot be is listed with a problem.
        """
        return self._sure(self._list)

    def _list(self) -> list[ConversationEntry]:
        known = self._known()
        found = []
        for path, stat in self._files():
            size, changed, title, spoken, problem = known.get(_key(path.name), (0, 0, "", 0.0, ""))
            if title and stat and (size, changed) == (stat.st_size, stat.st_mtime_ns):
                found.append(ConversationEntry(path.stem, path, title, spoken, problem))
            else:
                found.append(self._from_head(path, stat, "" if problem else title))
        return sorted(found, key=lambda entry: entry.modified, reverse=True)

    def refresh(self, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Read what changed, newest first, and forget what is gone. True when everything is known now."""
        return self._sure(lambda: self._refresh(stopped))

    def _refresh(self, stopped: Callable[[], bool]) -> bool:
        files = {_key(path.name): (path, stat) for path, stat in self._files()}
        known = self._known()
        for key in known.keys() - files.keys():
            self._forget(key)
        changed = []
        for key, (path, stat) in files.items():
            if stat and known.get(key, (None, None))[:2] != (stat.st_size, stat.st_mtime_ns):
                changed.append((stat.st_mtime_ns, path, stat))
        for _, path, stat in sorted(changed, key=lambda item: item[0], reverse=True):
            if stopped():
                return False
            self._read(path, stat)
        return True

    def _forget(self, key: str) -> None:
        """Keep nothing of the file with this key."""
        with self._db:
            self._db.execute("DELETE FROM messages WHERE name = ?", (key,))
            self._db.execute("DELETE FROM folded WHERE name = ?", (key,))
            self._db.execute("DELETE FROM conversations WHERE name = ?", (key,))

    # ------------------------------------------------------------------------------------------------ search

    def search(self, text: str, stopped: Callable[[], bool] = lambda: False) -> list[Hit]:
        """Conversations in which every word of ``text`` occurs, latest first, MOST_HITS at most.

        Parts of words count; case and accents do not. What changed is read first. Empty when ``stopped`` said so.
        """
        all_words = fold(_clean(text)).split()
        words = list(dict.fromkeys(all_words))
        phrase = " ".join(all_words)
        return self._sure(lambda: self._search(words, phrase, stopped)) if words else []

    def _search(self, words: list[str], phrase: str, stopped: Callable[[], bool]) -> list[Hit]:
        if not self._refresh(stopped):
            return []
        entries = self._list()
        self._db.set_progress_handler(lambda: int(stopped()), 20_000)
        try:
            having = self._having(words)
            entries = [entry for entry in entries if len(having.get(_key(entry.path.name), ())) == len(words)]
            return [self._hit(entry, words, phrase) for entry in entries[:MOST_HITS]]
        except sqlite3.OperationalError:
            if stopped():
                return []
            raise
        finally:
            self._db.set_progress_handler(None, 0)

    def _having(self, words: list[str]) -> dict[str, set[int]]:
        """For each file that has some of the words: which, by number."""
        found: dict[str, set[int]] = {}
        for first in range(0, len(words), WORDS_AT_ONCE):
            some = words[first : first + WORDS_AT_ONCE]
            tests = [f"instr(text, ?{number})" for number in range(1, len(some) + 1)]
            query = f"SELECT name, {', '.join(tests)} FROM folded WHERE {' OR '.join(tests)}"  # one look at every text
            for name, *places in self._db.execute(query, some):
                found.setdefault(name, set()).update(number for number, place in enumerate(places, first) if place)
        return found

    def _hit(self, entry: ConversationEntry, words: list[str], phrase: str) -> Hit:
        """The message that fits best: with the phrase as it was typed, else with most of the words."""
        best, id, text = 0, "", entry.title
        for rowid, folded in self._db.execute(
            "SELECT message, text FROM folded WHERE name = ?", (_key(entry.path.name),)
        ):
            score = len(words) + 1 if phrase in folded else sum(word in folded for word in words)
            if score > best:
                best, (id, text) = score, self._message(rowid)
        return Hit(entry, id, snippet(text, words, phrase))

    def _message(self, rowid: int) -> tuple[str, str]:
        row: tuple[str, str] = self._db.execute("SELECT id, text FROM messages WHERE rowid = ?", (rowid,)).fetchone()
        return row

    # ------------------------------------------------------------------------------------------------- files

    def _files(self) -> list[tuple[Path, os.stat_result | None]]:
        """Every log with what the system says of it, None where it says nothing."""
        try:
            paths = [path for path in self._folder.iterdir() if path.suffix == ".jsonl" and not path.is_dir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SessionError(
                f"The folder with the conversations, {self._folder}, cannot be read: {error.strerror}."
            ) from error
        return [(path, _stat(path)) for path in paths]

    def _from_head(self, path: Path, stat: os.stat_result | None, title: str) -> ConversationEntry:
        """What can be said at once of a file that changed; ``title`` is what it was called before."""
        modified = stat.st_mtime if stat else 0.0
        try:
            with path.open("rb") as file:
                head = file.read(_HEAD_BYTES)
            _check(path, head)
            title = title or _title_in(head)
            return ConversationEntry(path.stem, path, title, modified)
        except SessionError as error:
            return ConversationEntry(path.stem, path, path.stem, modified, str(error))
        except OSError as error:
            return ConversationEntry(path.stem, path, path.stem, modified, str(appendfile.failure(path, error)))

    def _read(self, path: Path, stat: os.stat_result) -> None:
        """Keep what is in this file now."""
        key = _key(path.name)
        title, spoken, problem = path.stem, stat.st_mtime, ""
        rows: list[tuple[str, str]] = []
        try:
            if stat.st_size == 0:
                _check(path, b"")
            conversation = read_conversation(path)
            title, spoken = conversation.title, _last_spoken(conversation) or spoken
            rows = [(m.id, m.text) for m in conversation.messages.values() if m.text]
            rows.append(("", title))
        except SessionError as error:
            problem = str(error)
        with self._db:
            self._forget(key)
            self._db.execute(
                "INSERT INTO conversations VALUES (?, ?, ?, ?, ?, ?)",
                (key, stat.st_size, stat.st_mtime_ns, _clean(title), spoken, problem),
            )
            for id, text in rows:
                row = self._db.execute("INSERT INTO messages VALUES (?, ?, ?)", (key, _clean(id), _clean(text)))
                self._db.execute("INSERT INTO folded VALUES (?, ?, ?)", (row.lastrowid, key, fold(_clean(text))))

    # ----------------------------------------------------------------------------------------- the database

    def _known(self) -> dict[str, tuple[int, int, str, float, str]]:
        rows = self._db.execute("SELECT name, size, changed, title, spoken, problem FROM conversations")
        return {row[0]: row[1:] for row in rows}

    def _open(self) -> sqlite3.Connection:
        if self._path is not None:
            for attempt in ("as it is", "anew"):
                try:
                    if attempt == "anew":
                        self._path.unlink(missing_ok=True)
                    return self._connect(str(self._path))
                except (sqlite3.Error, OSError) as error:
                    log.warning("%s cannot be used %s: %s", self._path, attempt, error)
        return self._connect(":memory:")

    def _connect(self, name: str) -> sqlite3.Connection:
        if name != ":memory:":
            Path(name).parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(name, timeout=5)
        try:
            db.execute("PRAGMA secure_delete = ON")  # what the user deletes is gone from here too
            db.execute("PRAGMA synchronous = OFF")  # losing it costs a second reading
            if db.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                db.executescript(_DROP)
            db.executescript(_TABLES)
            db.execute(f"PRAGMA user_version = {VERSION}")
        except BaseException:
            db.close()
            raise
        return db


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _check(path: Path, head: bytes) -> None:
    """SessionError when this is the beginning of no log that can be read."""
    if not head:
        raise SessionError(f"“{path.name}” is empty: Greenroom was ended before anything was saved in it.")
    first, *others = head.split(b"\n")
    rescuable = any(record is not None and record["type"] == "message" for record in map(parse_record, others))
    if parse_record(first) is not None or not rescuable:
        parse_header(first, path.name)


def _title_in(head: bytes) -> str:
    for line in head.split(b"\n")[1:]:
        if line.startswith(PASS_PREFIX):
            continue
        record = parse_record(line)
        if record and record["type"] == "message" and record.get("role") == "user":
            return title_of(str(record.get("text", "")))
    return UNTITLED


def _key(name: str) -> str:
    """A file's name for the database, which takes no bytes that are no text, as file systems do."""
    return name.encode("utf-8", "backslashreplace").decode()


def _last_spoken(conversation: Conversation) -> float:
    """When the latest message was added, seconds since 1970; 0 where no message says."""
    times = [0.0]
    for message in conversation.messages.values():
        try:
            times.append(datetime.fromisoformat(message.time).timestamp())
        except ValueError:
            continue
    return max(times)


def _clean(text: str) -> str:
    """Without the half characters that a model may have written and no database takes."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
