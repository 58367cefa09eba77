"""Between the user, the conversation on disk and the transcript: one chat at a time, one answer at a time.

An answer goes on when the reader turns to another chat: the engine writes it into its log whatever is on the screen,
and coming back finds it as it stands.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtWidgets import QWidget

from app.background import Background
from app.chat.answer import AnswerView
from app.chat.answering import LONG_TAIL, Answering
from app.chat.cards import UserBubble
from app.chat.editing import Editing
from app.chat.opening import Opening
from app.chat.release import when_released
from app.chat.session import ChatSession
from app.chat.transcript import Transcript
from app.chat.views import TurnViews
from app.engine_client import EngineClient
from engine.errors import SessionError
from engine.messages import ChatMessage, Sampling
from engine.sessions.conversation import Turn


class ChatController(QObject):
    """Sends what the user says, shows what comes back."""

    busy_changed = Signal(bool)
    session_changed = Signal()  # another conversation, or this one got its file
    said = Signal(Path, str)  # the conversation that was added to, and its title
    context_used = Signal(int)  # tokens
    finished = Signal(object)  # Finished, after it was shown
    token_clicked = Signal(str, int)  # id of an answer in the log, and the character of its text

    def __init__(
        self,
        client: EngineClient,
        transcript: Transcript,
        folder: Path,
        program: str,
        background: Background,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._opening = Opening(background, program)
        self._transcript = transcript
        self._folder = folder
        self._program = program
        self.system = ""  # said to the model before everything else
        self.thinking: bool | None = None  # for a model that can be told; None: as it does unasked
        self.languages = ("", "")  # of a text and of its translation, for a model that translates
        self.sampling: Callable[[], Sampling | None] = lambda: None  # for the next answer; None: no model is ready
        self.session = ChatSession(folder, program)
        self.views = TurnViews(transcript, self.session, self)
        self.editing = Editing(transcript, self.views, self)
        self.views.edit_wanted.connect(self.edit)
        self.views.again_wanted.connect(self.regenerate)
        self.views.more_wanted.connect(self.go_on)
        self.views.answer_wanted.connect(self.ask_again)
        self.views.stepped.connect(self.step)
        self.views.pointed.connect(self._pointed)
        self._answering = Answering(client, transcript, self.views, lambda: self.session, self)
        self._answering.busy_changed.connect(self.busy_changed)
        self._answering.context_used.connect(self.context_used)
        self._answering.finished.connect(self.finished)
        self._answering.put_back.connect(self._show_anew)

    @property
    def busy(self) -> bool:
        """An answer is under way, in this chat or another."""
        return self._answering.live is not None

    @property
    def busy_elsewhere(self) -> bool:
        return self.busy and not self._writing_here

    def session_of(self, path: Path) -> ChatSession | None:
        """The conversation in this file, if it is shown or answered in; else the file is all there is of it."""
        live = self._answering.in_file(path)
        return live.session if live is not None else self.session if self.session.path == path else None

    @property
    def writing_in(self) -> Path | None:
        """The conversation that the answer under way belongs to."""
        live = self._answering.live
        return live.session.path if live is not None else None

    # --------------------------------------------------------------------------------------- conversations

    def new_chat(self) -> None:
        self._change_session(ChatSession(self._folder, self._program))
        self._transcript.clear()
        self.context_used.emit(0)
        self.session_changed.emit()

    def open(self, path: Path, message: str = "") -> None:
        """Show a saved conversation, at ``message`` if there is such a one; a card says so when it cannot be read.

        A long one is read in the background, and shown unless another chat is wanted meanwhile.
        """
        if live := self._answering.in_file(path):
            self._show_session(live.session, message)
        else:
            self._opening.read(path, partial(self._opened, message=message), self._not_opened)

    def _opened(self, session: ChatSession, message: str) -> None:
        live = self._answering.live
        if live is not None and live.session.path == session.path:  # it was added to while it was read
            session = live.session
        elif message in session.conversation.messages:
            session.conversation.choose(message)
            session.follow()
        self._show_session(session, message)

    def _not_opened(self, problem: str) -> None:
        self.new_chat()
        self._transcript.add_card("error", self.tr("This conversation cannot be opened"), problem)

    def _show_session(self, session: ChatSession, message: str) -> None:
        self._change_session(session)
        self._show_all(message)
        if session.damaged:
            words = self.tr("%1 lines of its file cannot be read and are left out. The rest is complete.")
            if session.damaged == 1:
                words = self.tr("A line of its file cannot be read and is left out. The rest is complete.")
            title = self.tr("A part of this conversation is damaged")
            self._transcript.add_card("note", title, words.replace("%1", str(session.damaged)))
        if problem := self._answering.untold(session.path):
            self._answering.tell(problem)
        self._show_context_used()
        self.session_changed.emit()

    def let_go(self, path: Path, then: Callable[[], None]) -> None:
        """Have no more to do with a conversation: stop its answer, leave it, close its file; then call ``then``."""
        self._opening.give_up()
        live = self._answering.in_file(path)
        if live is not None:
            self._answering.when_ended(partial(when_released, self, path, then))
            self.stop()
        if self.session.path == path:
            self.new_chat()
        if live is None:
            when_released(self, path, then)

    def _change_session(self, session: ChatSession) -> None:
        self._opening.give_up()
        live = self._answering.live
        if self.session is not session and not self._writing_here:
            self.session.close()
        if live is not None:
            live.view = None
        self.editing.leave()
        self.session = session
        self.views.begin(session)

    def _show_all(self, message: str = "") -> None:
        """Fill the transcript with the path, and the answer under way below it; ``message`` is to be seen."""
        live = self._answering.in_session(self.session)
        turns = self.session.turns
        if live is not None and live.before is not None:
            turns = turns[:-1]
        makers: list[Callable[[], QWidget]] = [self.views.maker(turn) for turn in turns]
        characters = [len(turn.text) for turn in turns]
        if live is not None:
            makers.append(partial(live.make_view, self._transcript.theme))
        at = next((at for at, turn in enumerate(turns) if message in (m.id for m in turn.messages)), None)
        self._transcript.show_messages(makers, characters, at)

    @Slot(str)
    def _show_anew(self, message: str) -> None:
        self.views.begin(self.session)
        self._show_all(message)

    def _show_context_used(self) -> None:
        last = next((m for m in reversed(self.session.messages) if m.timings is not None), None)
        self.context_used.emit(last.timings.prompt_tokens + last.timings.answer_tokens if last and last.timings else 0)

    @Slot(str, int)
    def _pointed(self, id: str, character: int) -> None:
        turn = self.session.turn(id)
        for message in turn.messages if turn is not None else ():
            if character < len(message.text):
                self.token_clicked.emit(message.id, character)
                return
            character -= len(message.text)

    # -------------------------------------------------------------------------------------------- branches

    @Slot(str, int)
    def step(self, id: str, number: int) -> None:
        """Turn to another version of a turn, and to what follows that one."""
        session = self.session
        versions, view = session.versions(id), self.views.get(id)
        if view is None or self._writing_here or not 0 <= number < len(versions):
            return
        forward = number > versions.index(id)
        session.choose(versions[number])
        self.editing.end()
        at = next(at for at, turn in enumerate(session.turns) if versions[number] in (m.id for m in turn.messages))
        if len(session.turns) - at > LONG_TAIL:
            self._show_anew(versions[number])
        else:
            others = self.views.replace_from(view, session.turns[at:], hold=True)
            if others[0].turn_actions.versions is not None:
                others[0].turn_actions.versions.take_focus(forward)
        self._show_context_used()
        self.session_changed.emit()

    @Slot(str)
    def edit(self, id: str) -> None:
        """Let the user say a message otherwise."""
        turn, view = self.session.turn(id), self.views.get(id)
        if turn is None or view is None or self._writing_here:
            return
        path = self.session.path
        assert path is not None  # what was said is in a file
        editor = self.editing.begin(view, path, id, turn.text, partial(self._say_otherwise, id))
        self.refresh_actions()
        editor.setFocus()

    def _say_otherwise(self, id: str, text: str) -> None:
        sampling = self.sampling()
        if sampling is not None and not self.busy:
            self._say(text, sampling, instead_of=id)

    @Slot(str)
    def regenerate(self, id: str) -> None:
        """Ask for another answer beside this one."""
        sampling, view, turn = self.sampling(), self.views.get(id), self.session.turn(id)
        if sampling is None or self.busy or view is None or turn is None:
            return
        self.editing.end()
        self.session.rewind(id)
        if self.session.leaf is None:  # an answer to nothing, in a log from elsewhere
            self.session.follow()
            return
        answer = AnswerView(self._transcript.theme)
        self._transcript.replace_from(view, answer)
        self._ask(sampling, answer)

    @Slot(str)
    def ask_again(self, id: str) -> None:
        """Ask for the answer that the last message never got."""
        sampling, view, turn = self.sampling(), self.views.get(id), self.session.turn(id)
        if sampling is None or self.busy or view is None or turn is None or turn is not self.session.turns[-1]:
            return
        self.editing.end()
        answer = AnswerView(self._transcript.theme)
        self._transcript.put_below(view, answer)
        self._ask(sampling, answer)

    @Slot(str)
    def go_on(self, id: str) -> None:
        """Let the model continue the last answer, which was cut."""
        sampling, view, turn = self.sampling(), self.views.get(id), self.session.turn(id)
        if sampling is None or self.busy or view is None or turn is None:
            return
        self.editing.end()
        answer = AnswerView(self._transcript.theme)
        answer.resume(turn.text, turn.timings.decode_seconds if turn.timings is not None else None)
        self._transcript.replace_from(view, answer)
        self._ask(sampling, answer, before=turn)

    def refresh_actions(self) -> None:
        """Let every message say what can be done with it now."""
        can_ask = self.sampling() is not None and not self.busy
        self.views.allow(can_ask, not self._writing_here)
        self.editing.allow(can_ask)

    @property
    def _writing_here(self) -> bool:
        return self._answering.in_session(self.session) is not None

    # ---------------------------------------------------------------------------------------------- asking

    def send(self, text: str, sampling: Sampling) -> bool:
        """Say ``text`` and ask for an answer. False when it could not be saved: nothing was sent then."""
        if self.busy:
            return False
        self.editing.end()
        return self._say(text, sampling)

    def _say(self, text: str, sampling: Sampling, instead_of: str | None = None) -> bool:
        new = self.session.path is None
        try:
            self.session.say(text, instead_of)
        except SessionError as error:
            self._transcript.add_card(
                "error", self.tr("Your message could not be saved, so it was not sent"), str(error)
            )
            self._transcript.scroll_to_end()
            return False
        if instead_of is None:
            bubble = self._transcript.add_user(text)
        else:
            bubble = UserBubble(self._transcript.theme, text)
            old = self.editing.take() or self.views.get(instead_of)
            assert old is not None
            self._transcript.replace_from(old, bubble)
            self._transcript.scroll_to_end()
        self.views.keep(self.session.turns[-1], bubble)
        self._ask(sampling, self._transcript.add_answer())
        if self.session.path is not None:
            self.said.emit(self.session.path, self.session.title)
        if new or instead_of is not None:
            self.session_changed.emit()
        return True

    def prompt(self, draft: str = "", open_end: bool = False) -> tuple[ChatMessage, ...]:
        """What the model is given for the next answer: with ``draft`` said last, or with the last answer to go on."""
        system = (ChatMessage("system", self.system),) if self.system.strip() else ()
        said = (ChatMessage("user", draft),) if draft else ()
        return (*system, *self.session.history(open_end), *said)

    def _ask(self, sampling: Sampling, view: AnswerView, before: Turn | None = None) -> None:
        """Have the engine answer the end of the path, or go on with ``before``."""
        prompt = self.prompt(open_end=before is not None)
        self._answering.ask(self.session, prompt, sampling, self.thinking, self.languages, view, before)

    def stop(self) -> None:
        """Stop the answer under way; what there is of it stays."""
        self._answering.stop()

    def close(self) -> None:
        """Let go of the files."""
        self.session.close()
        self._answering.close()
