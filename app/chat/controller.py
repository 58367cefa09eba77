"""Between the engine, the conversation on disk and the transcript: one chat at a time, one answer at a time.

An answer goes on when the reader turns to another chat: the engine writes it into its log whatever is on the screen,
and coming back finds it as it stands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtWidgets import QWidget
from shiboken6 import isValid

from app.chat.answer import AnswerView
from app.chat.cards import UserBubble
from app.chat.session import ChatSession
from app.chat.transcript import Transcript
from app.engine_client import EngineClient
from engine.errors import SessionError
from engine.messages import ChatMessage, Failed, Finished, Generate, PrefillProgress, Sampling, Started
from engine.sessions.conversation import Message, new_id

log = logging.getLogger("greenroom.chat")


@dataclass(slots=True)
class LiveAnswer:
    """The answer under way."""

    session: ChatSession
    id: str  # of the request, and of the answer in the log
    parent: str
    view: AnswerView | None
    text: list[str] = field(default_factory=list)
    status: str = ""
    prompt_tokens: int = 0


class ChatController(QObject):
    """Sends what the user says, shows what comes back."""

    busy_changed = Signal(bool)
    session_changed = Signal()  # another conversation, or this one got its file
    said = Signal(Path, str)  # the conversation that was added to, and its title
    context_used = Signal(int)  # tokens
    finished = Signal(object)  # Finished, after it was shown

    def __init__(
        self, client: EngineClient, transcript: Transcript, folder: Path, program: str, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._client = client
        self._transcript = transcript
        self._folder = folder
        self._program = program
        self._live: LiveAnswer | None = None
        self.system = ""  # said to the model before everything else
        self.session = ChatSession(folder, program)
        client.started.connect(self._started)
        client.prefill_progress.connect(self._prefilling)
        client.tokens.connect(self._tokens)
        client.finished.connect(self._finished)
        client.failed.connect(self._failed)

    @property
    def busy(self) -> bool:
        """An answer is under way, in this chat or another."""
        return self._live is not None

    @property
    def busy_elsewhere(self) -> bool:
        return self._live is not None and self._live.session is not self.session

    # --------------------------------------------------------------------------------------- conversations

    def new_chat(self) -> None:
        self._change_session(ChatSession(self._folder, self._program))
        self._transcript.clear()
        self.context_used.emit(0)
        self.session_changed.emit()

    def open(self, path: Path) -> None:
        """Show a saved conversation; a card says so when it cannot be read."""
        live = self._live
        if live is not None and live.session.path == path:
            session = live.session
        else:
            try:
                session = ChatSession.open(path, self._program)
            except SessionError as error:
                self.new_chat()
                self._transcript.add_card("error", self.tr("This conversation cannot be opened"), str(error))
                return
        self._change_session(session)
        makers: list[Callable[[], QWidget]] = [partial(self._message_view, message) for message in session.messages]
        characters = [len(message.text) for message in session.messages]
        if live is not None and live.session is session:
            makers.append(self._live_view)
        self._transcript.show_messages(makers, characters)
        if session.damaged:
            words = self.tr("%1 lines of its file cannot be read and are left out. The rest is complete.")
            if session.damaged == 1:
                words = self.tr("A line of its file cannot be read and is left out. The rest is complete.")
            title = self.tr("A part of this conversation is damaged")
            self._transcript.add_card("note", title, words.replace("%1", str(session.damaged)))
        last = next((m for m in reversed(session.messages) if m.timings is not None), None)
        used = last.timings.prompt_tokens + last.timings.answer_tokens if last and last.timings else 0
        self.context_used.emit(used)
        self.session_changed.emit()

    def _change_session(self, session: ChatSession) -> None:
        if self.session is not session and not (self._live is not None and self._live.session is self.session):
            self.session.close()
        if self._live is not None:
            self._live.view = None
        self.session = session

    def _message_view(self, message: Message) -> QWidget:
        if message.role != "assistant":
            return UserBubble(self._transcript.theme, message.text)
        view = AnswerView(self._transcript.theme)
        view.show_answer(message.text, message.reason, message.timings, message.cache)
        if message.error:
            view.add_note(message.error)
        return view

    def _live_view(self) -> QWidget:
        view = AnswerView(self._transcript.theme)
        live = self._live
        if live is not None:
            live.view = view
            view.show_status(live.status)
            view.feed("".join(live.text))
        return view

    # ---------------------------------------------------------------------------------------------- asking

    def send(self, text: str, sampling: Sampling) -> bool:
        """Say ``text`` and ask for an answer. False when it could not be saved: nothing was sent then."""
        if self._live is not None:
            return False
        new = self.session.path is None
        try:
            message = self.session.say(text)
        except SessionError as error:
            self._transcript.add_card(
                "error", self.tr("Your message could not be saved, so it was not sent"), str(error)
            )
            self._transcript.scroll_to_end()
            return False
        self._transcript.add_user(text)
        live = LiveAnswer(self.session, new_id(), message.id, self._transcript.add_answer())
        self._live = live
        self._set_status(self.tr("Reading the prompt…"))
        self._client.send(Generate(live.id, self.prompt(), sampling, str(self.session.path), live.id, message.id))
        self.busy_changed.emit(True)
        if self.session.path is not None:
            self.said.emit(self.session.path, self.session.title)
        if new:
            self.session_changed.emit()
        return True

    def prompt(self, draft: str = "") -> tuple[ChatMessage, ...]:
        """What the model is given for the next answer, with ``draft`` said last."""
        system = (ChatMessage("system", self.system),) if self.system.strip() else ()
        said = (ChatMessage("user", draft),) if draft else ()
        return (*system, *self.session.history(), *said)

    def stop(self) -> None:
        if self._live is not None:
            if not self._live.text:
                self._set_status(self.tr("Stopping…"))
            self._client.stop()

    def close(self) -> None:
        """Let go of the files."""
        self.session.close()
        if self._live is not None:
            self._live.session.close()

    def _set_status(self, text: str) -> None:
        live = self._live
        if live is not None:
            live.status = text
            if (view := self._view(live)) is not None:
                view.show_status(text)

    def _view(self, live: LiveAnswer) -> AnswerView | None:
        return live.view if live.view is not None and isValid(live.view) else None

    # --------------------------------------------------------------------------------------------- answers

    @Slot(object)
    def _started(self, event: Started) -> None:
        live = self._live
        if live is None or live.id != event.request_id:
            return
        live.prompt_tokens = event.prompt_tokens
        if live.session is self.session:
            self.context_used.emit(event.prompt_tokens)
        if (view := self._view(live)) is not None:
            for note in event.notes:
                view.add_note(note)

    @Slot(object)
    def _prefilling(self, event: PrefillProgress) -> None:
        live = self._live
        if live is not None and live.id == event.request_id and not live.text and event.total_tokens:
            words = self.tr("Reading the prompt: %1 of %2 tokens")
            self._set_status(words.replace("%1", f"{event.done_tokens:,}").replace("%2", f"{event.total_tokens:,}"))

    @Slot(str, str, int)
    def _tokens(self, request_id: str, text: str, count: int) -> None:
        live = self._live
        if live is None or live.id != request_id:
            return
        if text:
            live.text.append(text)
            if (view := self._view(live)) is not None:
                view.feed(text)
        if live.session is self.session:
            self.context_used.emit(live.prompt_tokens + count)

    @Slot(object)
    def _finished(self, event: Finished) -> None:
        live = self._live
        if live is None or live.id != event.request_id:
            return
        self._live = None
        live.session.answered(live.id, live.parent, event.text, event.reason)
        if (view := self._view(live)) is not None:
            view.finish(event)
            if event.error:
                self._transcript.add_card("error", self.tr("The answer broke off"), event.error)
        if live.session is self.session:
            self.context_used.emit(event.timings.prompt_tokens + event.timings.answer_tokens)
        else:
            live.session.close()
        self.busy_changed.emit(False)
        self.finished.emit(event)

    @Slot(object)
    def _failed(self, event: Failed) -> None:
        live = self._live
        if live is None or event.request_id != live.id:
            return
        if event.details:
            log.error("The engine failed to %s: %s\n%s", event.doing, event.text, event.details)
        self._live = None
        if (view := self._view(live)) is not None:
            self._transcript.remove(view)
            self._transcript.add_card("error", self.tr("There is no answer to this"), event.text)
        if live.session is not self.session:
            live.session.close()
        self.busy_changed.emit(False)
