"""The pasts of the last chats: in RAM within a budget, and on disk within another, the least recently used give way."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.kv.kept import SUFFIX, DamagedPast, KeptPast, Reach, files_in, read, read_label, write

LEAST = 32  # tokens; what is shorter is read anew sooner than it is looked for
LONGEST_KEPT = 30 * 86400.0  # seconds on disk without being used
AT_THE_END = 3.0  # seconds that writing may take when the program or the model goes

log = logging.getLogger("greenroom.kv")


@dataclass(eq=False)
class Entry:
    """past: None when it is on disk alone. path: None until it is written. on_disk: it is, or will be, written."""

    reach: Reach
    chat: str
    past: KeptPast | None = None
    path: Path | None = None
    on_disk: bool = True
    dropped: bool = False
    replaces: list[Path] = field(default_factory=list)  # files that go when this one is written


class PastStore:
    """Keeps pasts of one model. Called by the engine thread; a thread of its own writes files.

    ram, disk: bytes. folder: where files go, None for nowhere. signature: of the model and of all that changes numbers;
    files of others are left alone, but share ``disk``.
    """

    def __init__(self, folder: Path | None, signature: str, ram: int, disk: int) -> None:
        self._folder = folder if disk > 0 else None
        self._signature, self._ram, self._disk = signature, ram, disk
        self._entries: list[Entry] = []  # least recently used first
        self._lock = threading.RLock()  # both threads change entries
        self._writing: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._writer: threading.Thread | None = None
        self._look()

    # ---------------------------------------------------------------------------------------- engine thread

    def best(self, prompt: Sequence[int]) -> tuple[int, Entry | None]:
        """The kept past that saves most of reading ``prompt``: how many tokens, and which."""
        with self._lock:
            found = [(entry.reach.of(prompt), number) for number, entry in enumerate(self._entries)]
            saved, number = max(found, default=(0, 0))
            return (saved, self._entries[number]) if saved >= LEAST else (0, None)

    def put(self, past: KeptPast, chat: str, instead: Entry | None = None) -> None:
        """Keep ``past``; it takes the place of ``instead``, what it was taken from."""
        entry = Entry(past.reach, chat, past)
        with self._lock:
            for other in list(self._entries):
                if other is instead or tuple(other.reach.tokens) == past.tokens:
                    entry.replaces += [other.path, *other.replaces] if other.path else other.replaces
                    other.path = None
                    self._drop(other)
            self._entries.append(entry)
        if self._folder is not None and past.nbytes <= self._disk:
            self._start_writer()
            self._writing.put(entry)
        else:
            entry.on_disk = False
            _unlink(entry.replaces)
        self._keep_to_budget()

    def get(self, entry: Entry) -> KeptPast | None:
        """The past itself, read where it is on disk alone; None where it turns out to be gone or damaged."""
        with self._lock:
            self._entries.remove(entry)
            self._entries.append(entry)  # the most recently used
            if entry.past is not None:
                return entry.past
        assert entry.path is not None
        try:
            past = read(entry.path, self._signature)
            entry.path.touch()
        except (DamagedPast, OSError) as error:
            log.warning("a kept past is forgotten: %s", error)
            self._drop(entry)
            return None
        return past

    def release(self, entry: Entry) -> None:
        """It is the running chat's now: no copy in RAM is needed. Its file stays until ``put`` replaces it."""
        with self._lock:
            if entry.past is not None and (entry.path is not None or not entry.on_disk):
                entry.past = None
            if entry.past is None and entry.path is None:
                self._drop(entry)

    @property
    def nbytes(self) -> int:
        """Bytes in RAM."""
        with self._lock:
            return sum(entry.past.nbytes for entry in self._entries if entry.past is not None)

    def close(self) -> None:
        """What is still to be written is, as far as AT_THE_END allows."""
        if self._writer is not None:
            self._writing.put(None)
            self._writer.join(AT_THE_END)
            self._over.set()
        self._entries.clear()

    # ----------------------------------------------------------------------------------------------- budgets

    def _keep_to_budget(self) -> None:
        """Let the least recently used go from RAM; what is still to be written goes when it is."""
        with self._lock:
            for entry in list(self._entries):
                if self.nbytes <= self._ram:
                    return
                if entry.past is not None and (entry.path is not None or not entry.on_disk):
                    entry.past = None
                    if entry.path is None:
                        self._drop(entry)

    def _drop(self, entry: Entry) -> None:
        entry.dropped, entry.past = True, None
        if entry in self._entries:
            self._entries.remove(entry)
        if entry.path is not None:
            entry.path.unlink(missing_ok=True)

    def _look(self) -> None:
        """Find what earlier starts kept: labels alone are read. Forget what is damaged, old, or whose chat is gone."""
        if self._folder is None:
            return
        now = time.time()
        for left in self._folder.glob("*.part"):  # of a program that was killed
            if now - left.stat().st_mtime > 3600:
                left.unlink(missing_ok=True)
        for path in reversed(list(files_in(self._folder))):
            try:
                label = read_label(path)
                gone = bool(label.chat) and not Path(label.chat).exists()
                if gone or now - path.stat().st_mtime > LONGEST_KEPT:
                    path.unlink(missing_ok=True)
                elif label.signature == self._signature:
                    self._entries.append(Entry(label.reach, label.chat, path=path))
            except DamagedPast as error:
                log.warning("a kept past is forgotten: %s", error)
                path.unlink(missing_ok=True)
            except OSError as error:
                log.info("a kept past cannot be looked at: %s", error)

    # ------------------------------------------------------------------------------------------ writer thread

    def _start_writer(self) -> None:
        if self._writer is None:
            self._writer = threading.Thread(target=self._write_all, name="greenroom-pasts", daemon=True)
            self._writer.start()

    def _write_all(self) -> None:
        while (entry := self._writing.get()) is not None and not self._over.is_set():
            past = entry.past
            if past is None or entry.dropped or self._folder is None:
                continue
            try:
                make_room(self._folder, self._disk - past.nbytes)
                path = write(past, self._folder, self._signature, entry.chat)
            except OSError as error:
                log.warning("a past could not be kept on disk: %s", error)
                entry.on_disk = False
            else:
                _unlink(entry.replaces)
                with self._lock:
                    entry.path = path
                    if entry.dropped:
                        path.unlink(missing_ok=True)
            self._keep_to_budget()


def _unlink(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def make_room(folder: Path, disk: int) -> None:
    """Delete the least recently used kept pasts in ``folder``, of whatever model, until they take at most ``disk``."""
    held = 0
    for path in files_in(folder):
        try:
            held += path.stat().st_size
            if held > disk:
                path.unlink()
        except OSError:  # another program took it away
            continue


def clear(folder: Path) -> int:
    """Delete all kept pasts; how many bytes that frees."""
    freed = 0
    for path in [*folder.glob(f"*{SUFFIX}"), *folder.glob("*.part")]:
        try:
            size = path.stat().st_size
            path.unlink()
            freed += size
        except OSError:
            continue
    return freed
