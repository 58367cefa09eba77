"""The answer under way: asked of the engine, shown as it comes, and ended one way or another."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot

from app.chat.answer import AnswerView
from app.chat.live import LiveAnswer, whole
from app.chat.session import ChatSession
from app.chat.transcript import Transcript
from app.chat.views import TurnViews
from app.engine_client import EngineClient
from engine.messages import ChatMessage, Failed, Finished, Generate, PrefillProgress, Sampling, Started
from engine.sessions.conversation import Turn, new_id

log = logging.getLogger("greenroom.chat")

LONG_TAIL = 60  # turns; more are built anew from the end, as time allows


class Answering(QObject):
    """One answer at a time, which goes on while another conversation is shown; ``showing`` says which one is."""

    busy_changed = Signal(bool)
    context_used = Signal(int)  # tokens, in the conversation that is shown
    finished = Signal(object)  # Finished, after it was shown
    put_back = Signal(str)  # there is no answer, and so much stands there again that it is to be shown at this message

    def __init__(
        self,
        client: EngineClient,
        transcript: Transcript,
        views: TurnViews,
        showing: Callable[[], ChatSession],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._client, self._transcript, self._views, self._showing = client, transcript, views, showing
        self._waiting: list[Callable[[], None]] = []  # for the answer under way to end
        self.live: LiveAnswer | None = None
        self._untold: dict[Path, str] = {}  # why there is no answer, in conversations that were not shown then
        client.started.connect(self._started)
        client.prefill_progress.connect(self._prefilling)
        client.tokens.connect(self._tokens)
        client.finished.connect(self._finished)
        client.failed.connect(self._failed)

    def in_session(self, session: ChatSession) -> LiveAnswer | None:
        """The answer under way, if it belongs to this conversation."""
        return self.live if self.live is not None and self.live.session is session else None

    def in_file(self, path: Path) -> LiveAnswer | None:
        """The answer under way, if it is written into this file."""
        return self.live if self.live is not None and self.live.session.path == path else None

    def ask(
        self,
        session: ChatSession,
        prompt: tuple[ChatMessage, ...],
        sampling: Sampling,
        thinking: bool | None,
        languages: tuple[str, str],
        view: AnswerView,
        before: Turn | None = None,
    ) -> None:
        """Have the engine answer the end of the conversation's path, or go on with ``before``; ``view`` shows it."""
        assert session.leaf is not None
        live = self.live = LiveAnswer(session, new_id(), session.leaf, view, before)
        self._set_status(self.tr("Reading the prompt…"))
        self._client.send(
            Generate(live.id, prompt, sampling, str(session.path), live.id, live.parent, thinking, *languages)
        )
        self.busy_changed.emit(True)

    def stop(self) -> None:
        """What there is of the answer stays."""
        if self.live is not None:
            if not self.live.text:
                self._set_status(self.tr("Stopping…"))
            self._client.stop()

    def when_ended(self, then: Callable[[], None]) -> None:
        """Call ``then`` once the answer under way has ended."""
        self._waiting.append(then)

    def close(self) -> None:
        """Let go of the file."""
        if self.live is not None:
            self.live.session.close()

    def _set_status(self, text: str) -> None:
        live = self.live
        if live is not None:
            live.status = text
            if (view := live.seen) is not None:
                view.show_status(text)

    # ------------------------------------------------------------------------------------ what the engine says

    @Slot(object)
    def _started(self, event: Started) -> None:
        live = self.live
        if live is None or live.id != event.request_id:
            return
        live.prompt_tokens = event.prompt_tokens
        if live.session is self._showing():
            self.context_used.emit(event.prompt_tokens)
        live.notes = event.notes
        if (view := live.seen) is not None:
            for note in event.notes:
                view.add_note(note)

    @Slot(object)
    def _prefilling(self, event: PrefillProgress) -> None:
        live = self.live
        if live is not None and live.id == event.request_id and not live.text and event.total_tokens:
            words = self.tr("Reading the prompt: %1 of %2 tokens")
            self._set_status(words.replace("%1", f"{event.done_tokens:,}").replace("%2", f"{event.total_tokens:,}"))

    @Slot(str, str, int)
    def _tokens(self, request_id: str, text: str, count: int) -> None:
        live = self.live
        if live is None or live.id != request_id:
            return
        if text:
            if live.before is not None and not live.text:
                self._set_status("")
            if live.began is None:
                live.began = time.monotonic()
            live.text.append(text)
            live.status = ""
            if (view := live.seen) is not None:
                view.feed(text)
        if live.session is self._showing():
            self.context_used.emit(live.prompt_tokens + count)

    @Slot(object)
    def _finished(self, event: Finished) -> None:
        live = self.live
        if live is None or live.id != event.request_id:
            return
        self.live = None
        live.session.answered(live.id, live.parent, event)
        if (view := live.seen) is not None:
            view.finish(whole(event, live.before))
            self._views.keep(live.session.turns[-1], view)
            if event.error:
                self._transcript.add_card("error", self.tr("The answer broke off"), event.error)
        if live.session is self._showing():
            self.context_used.emit(event.timings.prompt_tokens + event.timings.answer_tokens)
        self._ended(live)
        self.finished.emit(event)

    @Slot(object)
    def _failed(self, event: Failed) -> None:
        live = self.live
        if live is None or event.request_id != live.id:
            return
        if event.details:
            log.error("The engine failed to %s: %s\n%s", event.doing, event.text, event.details)
        self.live = None
        live.session.follow()  # what stood there before stands there again
        if (view := live.seen) is not None:
            at = next((at for at, turn in enumerate(live.session.turns) if turn.last.id == live.parent), None)
            others = live.session.turns[at + 1 :] if at is not None and live.before is None else ()
            again = [live.before] if live.before is not None else others
            if len(again) > LONG_TAIL:
                self.put_back.emit(again[0].id)
            else:
                self._views.replace_from(view, again)
            self.tell(event.text)
        elif live.session.path is not None:
            self._untold[live.session.path] = event.text
        self._ended(live)

    def tell(self, problem: str) -> None:
        """Say below the conversation why it has no answer."""
        self._transcript.add_card("error", self.tr("There is no answer to this"), problem)

    def untold(self, path: Path | None) -> str:
        """Why there was no answer in this conversation while another was shown; "" when told already."""
        return self._untold.pop(path, "") if path is not None else ""

    def _ended(self, live: LiveAnswer) -> None:
        if live.session is not self._showing():
            live.session.close()
        self.busy_changed.emit(False)
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()
