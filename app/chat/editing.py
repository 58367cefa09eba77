"""A message of the user's being said otherwise: the editor in its place in the transcript."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Slot
from PySide6.QtWidgets import QWidget
from shiboken6 import isValid

from app.chat.editor import MessageEditor
from app.chat.transcript import Transcript
from app.chat.views import TurnViews


class Editing(QObject):
    """One editor at a time. The message it stands for waits, hidden, below it."""

    def __init__(self, transcript: Transcript, views: TurnViews, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._transcript, self._views = transcript, views
        self._editor: MessageEditor | None = None

    def begin(self, view: QWidget, text: str, sent: Callable[[str], None]) -> MessageEditor:
        """Put an editor with this text in the place of ``view``; ``sent`` gets what the user makes of it."""
        self.end()
        editor = self._editor = MessageEditor(self._transcript.theme, text)
        editor.sent.connect(sent)
        editor.cancelled.connect(self.end)
        editor.height_changed.connect(lambda: self._transcript.column.refit(editor))
        self._transcript.swap(view, editor)
        return editor

    @Slot()
    def end(self) -> None:
        """The message stands there again as it was."""
        editor = self.take()
        if editor is not None and isValid(editor):
            widgets = self._transcript.column.widgets()
            original = widgets[widgets.index(editor) + 1]
            self._transcript.remove(editor)
            original.show()
            self._transcript.column.refit(original)
            self._views.settle(original)

    def take(self) -> MessageEditor | None:
        """The editor, if there is one, to be replaced or forgotten by the caller."""
        editor, self._editor = self._editor, None
        return editor

    def allow(self, can_ask: bool) -> None:
        """can_ask: an answer could be given now."""
        if self._editor is not None:
            self._editor.allow(can_ask)
