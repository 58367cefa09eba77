"""Replaying an answer: its log is read on the background thread, one moment at a time, the latest wish first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot

from app.background import Background, Job
from app.panels.experts import ExpertsPanel
from app.panels.moments import Recording, read_moment, read_recording
from engine.messages import ExpertSnapshot


@dataclass(frozen=True)
class Answer:
    """An answer in a conversation's log."""

    path: Path
    id: str


class Replay(QObject):
    """Serves the player of one experts panel. ``latest`` says which answer is replayed when nobody says another."""

    opened = Signal()
    refused = Signal(str)  # a sentence

    def __init__(self, panel: ExpertsPanel, background: Background, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._panel = panel
        self._background = background
        self.latest: Callable[[], Answer | None] = lambda: None
        self._recording: Recording | None = None
        self._opening: Job | None = None
        self._reading = False
        self._wanted = 0
        panel.player.asked.connect(self._asked)
        panel.player.moved.connect(self._show)
        panel.player.left.connect(self.leave)
        panel.was_hidden.connect(self.leave)

    @property
    def active(self) -> bool:
        return self._recording is not None

    @property
    def recording(self) -> Recording | None:
        return self._recording

    @Slot(float)
    def _asked(self, share: float) -> None:
        answer = self.latest()
        if answer is not None:
            self._open(answer, lambda recording: 1 + round(share * (recording.moments - 1)), play=share == 0)

    def show_character(self, answer: Answer, character: int) -> None:
        """Show the token that wrote this character of an answer."""
        if not self._panel.isVisible():
            return
        self._panel.player.pause()
        recording = self._recording
        if recording is not None and (recording.path, recording.answer) == (answer.path, answer.id):
            self._panel.player.show_answer(recording.moments, recording.token_at(character) or 1)
            self._show(self._panel.player.moment)
        else:
            self._open(answer, lambda recording: recording.token_at(character) or 1)

    def _open(self, answer: Answer, where: Callable[[Recording], int], play: bool = False) -> None:
        if self._opening is not None:
            self._opening.cancel()
        self._opening = self._background.run(
            partial(read_recording, answer.path, answer.id), partial(self._opened, where, play), self._failed
        )

    def _opened(self, where: Callable[[Recording], int], play: bool, recording: Recording) -> None:
        self._opening = None
        if not self._panel.isVisible():
            return
        self._recording = recording
        self._panel.begin_replay(recording.layers, recording.experts)
        self._panel.player.show_answer(recording.moments, where(recording))
        self._show(self._panel.player.moment)
        if play:
            self._panel.player.start()
        self.opened.emit()

    def _failed(self, problem: str) -> None:
        self._opening, self._reading = None, False
        self.leave()
        self.refused.emit(problem)

    @Slot(int)
    def _show(self, moment: int) -> None:
        """Read a moment; while one is being read, the latest wish waits."""
        recording = self._recording
        self._wanted = moment
        if recording is None or self._reading:
            return
        self._reading = True
        self._background.run(
            partial(read_moment, recording, moment), partial(self._read, recording, moment), self._failed
        )

    def _read(self, recording: Recording, moment: int, snapshot: ExpertSnapshot) -> None:
        self._reading = False
        if recording is not self._recording:
            if self._recording is not None:
                self._show(self._wanted)
            return
        self._panel.show_moment(snapshot, recording.moments)
        otherwise = "" if recording.lengths else self.tr("Saved without its tokens: the words cannot be told apart")
        self._panel.player.show_words(*recording.words(moment), otherwise)
        if self._wanted != moment:
            self._show(self._wanted)

    @Slot()
    def leave(self, *news: object) -> None:
        """Back to what goes on now."""
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        if self._recording is not None:
            self._recording = None
            self._panel.end_replay()
        self.refresh()

    def refresh(self) -> None:
        """Say whether there is an answer that could be replayed."""
        if self._recording is None:
            self._panel.player.show_now(self.latest() is not None)
