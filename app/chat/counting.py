"""How long the next prompt would be, asked of the engine while the user types, and not for every key."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Slot

from app.answer_style import AnswerStyle
from app.chat.composer import Composer
from app.chat.controller import ChatController
from app.engine_client import EngineClient
from app.model_state import ModelState
from engine.messages import CountTokens, TokenCount
from engine.sessions.conversation import new_id

PAUSE_MS = 250  # without a key, before the engine is asked


class PromptCounter(QObject):
    """Watches the draft, the conversation and the style; tells the composer what they come to."""

    def __init__(
        self,
        client: EngineClient,
        state: ModelState,
        chat: ChatController,
        composer: Composer,
        style: AnswerStyle,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._client, self._state, self._chat, self._composer, self._style = client, state, chat, composer, style
        self._asked = ""
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.setInterval(PAUSE_MS)
        self._pause.timeout.connect(self._ask)
        composer.changed.connect(self.recount)
        style.changed.connect(self.recount)
        chat.session_changed.connect(self.recount)
        chat.busy_changed.connect(self.recount)
        state.changed.connect(self.recount)
        client.token_count.connect(self._counted)

    @Slot()
    def recount(self) -> None:
        """Something that is counted has changed."""
        self._asked = ""  # an answer under way is about something else now
        if self._state.model is None or not self._composer.has_message:
            self._pause.stop()
            self._composer.show_count(None)
        else:
            self._pause.start()

    @Slot()
    def _ask(self) -> None:
        draft = self._composer.message
        if self._state.model is not None and draft.strip():
            self._asked = new_id()
            most = self._style.style.sampling.max_tokens
            self._client.send(CountTokens(self._asked, self._chat.prompt(draft), most, self._chat.thinking))

    @Slot(object)
    def _counted(self, count: TokenCount) -> None:
        if count.request_id == self._asked:
            self._composer.show_count(count)
