"""A message of the user's being said otherwise: the editor in its place in the transcript."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtWidgets import QWidget
from shiboken6 import isValid

from app.chat.editor import MessageEditor
from app.chat.transcript import Transcript
from app.chat.views import TurnViews


class Editing(QObject):
    """One editor at a time. The message it stands for waits, hidden, below it.

    What was typed is kept until it is sent or cancelled: an editor that closed because something else was done has it
    again when it is next opened.
    """

    changed = Signal()  # what is typed and not sent
    files_pasted = Signal(list)  # paths: an edit takes no files, the next message does

    def __init__(self, transcript: Transcript, views: TurnViews, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._transcript, self._views = transcript, views
        self._editor: MessageEditor | None = None
        self._conversation = Path()  # of the message that is edited: a copy of one has the same ids
        self._edited, self._said = "", ""  # the message that is edited, and its text
        self._typed: dict[Path, dict[str, str]] = {}  # by conversation and message, in editors that were closed

    def typed(self, conversation: Path) -> dict[str, str]:
        """What was made of messages of a conversation and not sent, by their ids."""
        typed = dict(self._typed.get(conversation, {}))
        if conversation == self._conversation and (text := self._unsent):
            typed[self._edited] = text
        return typed

    def put(self, conversation: Path, typed: Mapping[str, str]) -> None:
        """What had been typed before the program was quit."""
        self._typed[conversation] = dict(typed)

    def begin(
        self, view: QWidget, conversation: Path, message: str, text: str, sent: Callable[[str], None]
    ) -> MessageEditor:
        """Put an editor with this text in the place of ``view``; ``sent`` gets what the user makes of it."""
        self.end()
        typed = self._typed.get(conversation, {}).pop(message, text)
        editor = self._editor = MessageEditor(self._transcript.theme, typed)
        self._conversation, self._edited, self._said = conversation, message, text
        editor.sent.connect(sent)
        editor.cancelled.connect(self._cancel)
        editor.input.textChanged.connect(self.changed)
        editor.input.files_pasted.connect(self.files_pasted)
        editor.height_changed.connect(lambda: self._transcript.column.refit(editor))
        self._transcript.swap(view, editor)
        return editor

    def end(self) -> None:
        """The message stands there again as it was."""
        self._keep()
        self._cancel()

    def leave(self) -> None:
        """Another conversation is shown from here on, and what is in the transcript goes."""
        self._keep()
        self.take()

    def take(self) -> MessageEditor | None:
        """The editor, if there is one, to be replaced by the caller: its text was sent."""
        editor, self._editor = self._editor, None
        if editor is not None:
            self.changed.emit()
        return editor

    def _keep(self) -> None:
        if text := self._unsent:
            self._typed.setdefault(self._conversation, {})[self._edited] = text

    @property
    def _unsent(self) -> str:
        """What is in the editor, if there is one and it is not what was said anyway."""
        editor = self._editor
        return editor.text if editor is not None and isValid(editor) and editor.text != self._said else ""

    @Slot()
    def _cancel(self) -> None:
        editor = self.take()
        if editor is not None and isValid(editor):
            widgets = self._transcript.column.widgets()
            original = widgets[widgets.index(editor) + 1]
            self._transcript.remove(editor)
            original.show()
            self._transcript.column.refit(original)
            self._views.settle(original)

    def allow(self, can_ask: bool) -> None:
        """can_ask: an answer could be given now."""
        if self._editor is not None:
            self._editor.allow(can_ask)
