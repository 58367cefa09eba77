"""Saving profiles beside the engine: a large one takes the disk a second or more, and the next answer shall not wait.

One thread, which begins with the first profile. Of a model's profiles that wait the newest is written, whole or not at
all as ever. Whoever is about to read, replace or delete a profile calls ``settle`` first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.errors import GreenroomError, explain
from engine.prediction.profile import Mark, Profile, mark_of, save_profile

log = logging.getLogger("greenroom.experience")


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    profile: Profile
    unless_replaced: bool
    complain: Callable[[str], None]


class ProfileWriter:
    """``save`` returns at once; any thread may call any of it."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}  # by signature
        self._writing = ""  # the signature
        self._marks: dict[str, Mark] = {}  # of the files as they were last saved here
        self._failing: set[str] = set()  # those whose last save failed, which was told
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._over = False

    def save(self, profile: Profile, complain: Callable[[str], None], unless_replaced: bool = False) -> None:
        """Write it soon.

        complain: called from the thread with a sentence when it cannot be, once until it can again. unless_replaced:
        not when the file is another than was last written here, or none was: somebody cleared or imported meanwhile.
        """
        with self._changed:
            before = self._waiting.get(profile.signature)
            unless_replaced = unless_replaced and (before is None or before.unless_replaced)
            self._waiting[profile.signature] = _Waiting(profile, unless_replaced, complain)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="greenroom-profiles", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def settle(self, signature: str) -> None:
        """Wait until all that was given of this model is on the disk."""
        with self._changed:
            self._changed.wait_for(lambda: signature not in self._waiting and signature != self._writing)

    def close(self) -> None:
        """Write what waits, and end the thread."""
        with self._changed:
            thread, self._thread, self._over = self._thread, None, True
            self._changed.notify_all()
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._over)
                if not self._waiting:
                    return
                self._writing = next(iter(self._waiting))
                job = self._waiting.pop(self._writing)
            try:
                self._write(job)
            finally:
                with self._changed:
                    self._writing = ""
                    self._changed.notify_all()

    def _write(self, job: _Waiting) -> None:
        signature = job.profile.signature
        mine = self._marks.get(signature)
        if job.unless_replaced and (mine is None or mine != mark_of(signature)):
            return
        try:
            self._marks[signature] = save_profile(job.profile).mark
            self._failing.discard(signature)
        except Exception as error:
            log.warning(
                "what this answer taught could not be saved: %s", error, exc_info=not isinstance(error, OSError)
            )
            if signature not in self._failing:
                self._failing.add(signature)
                job.complain(_sentence(error))


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and not isinstance(error, GreenroomError):
        place = f" ({Path(error.filename).parent})" if error.filename else ""
        why = (
            f"{error.strerror or error}{place}. Check the disk's room and the folder's rights; each answer tries again."
        )
    else:
        why = explain(error)
    return f"What the answers teach is not saved for the next time: {why}"
