"""The widgets of a conversation's turns: made when they are to be seen, and told what can be done with each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget
from shiboken6 import isValid

from app.chat.answer import AnswerView
from app.chat.cards import UserBubble
from app.chat.session import ChatSession
from app.chat.transcript import Transcript
from engine.sessions.conversation import Turn

TurnView: TypeAlias = UserBubble | AnswerView


class TurnViews(QObject):
    """Emits what the user wants done with a turn; each signal carries the id of the turn's first message."""

    edit_wanted = Signal(str)
    again_wanted = Signal(str)
    more_wanted = Signal(str)
    answer_wanted = Signal(str)
    stepped = Signal(str, int)  # to this version, from 0
    pointed = Signal(str, int)  # a plain click on this character of an answer

    def __init__(self, transcript: Transcript, session: ChatSession, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._transcript = transcript
        self._session = session
        self._views: dict[str, TurnView] = {}
        self._can_ask, self._free = False, True
        self._notes: dict[str, tuple[str, ...]] = {}  # on answers of this session, for who comes back to them

    def begin(self, session: ChatSession) -> None:
        """Turns of this conversation are to be shown from here on, none of them yet."""
        self._session = session
        self._views.clear()

    def get(self, id: str) -> TurnView | None:
        """The widget of a turn, if it was made and is still there."""
        view = self._views.get(id)
        return view if view is not None and isValid(view) else None

    def maker(self, turn: Turn) -> Callable[[], TurnView]:
        """Makes the widget of a turn of the past, whenever the reader comes near."""
        return partial(self._make, turn)

    def keep(self, turn: Turn, view: TurnView) -> None:
        """This widget, which is in the transcript, shows this turn from here on; another may take its place."""
        self._wire(turn, view)
        if isinstance(view, AnswerView):
            self._notes[turn.last.id] = tuple(view.notes)
        self._transcript.settle(view, self.maker(turn))

    def replace_from(self, view: QWidget, turns: Sequence[Turn], hold: bool = False) -> list[TurnView]:
        """Show these turns in the place of a widget and all below it; with ``hold`` the first stays where that was."""
        others = [self._make(turn) for turn in turns]
        self._transcript.replace_from(view, *others, hold=hold)
        for other, turn in zip(others, turns, strict=True):
            self._transcript.settle(other, self.maker(turn))
        return others

    def settle(self, view: QWidget) -> None:
        """The widget of a turn that had to stay need not any more."""
        turn = next((turn for turn in self._session.turns if self.get(turn.id) is view), None)
        if turn is not None:
            self._transcript.settle(view, self.maker(turn))

    def allow(self, can_ask: bool, free: bool) -> None:
        """can_ask: an answer could be given now. free: one may turn to other branches of this conversation."""
        self._can_ask, self._free = can_ask, free
        turns = {turn.id: turn for turn in self._session.turns}
        for id in list(self._views):
            view = self.get(id)
            if view is None:
                del self._views[id]
            elif id in turns:
                self._dress(turns[id], view)

    def _make(self, turn: Turn) -> TurnView:
        view: TurnView
        if turn.role == "assistant":
            view = AnswerView(self._transcript.theme)
            view.show_answer(turn.text, turn.last.reason, turn.timings, turn.cache)
            for note in self._notes.get(turn.last.id, ()):
                view.add_note(note)
            if turn.last.error:
                view.add_note(turn.last.error)
        else:
            view = UserBubble(self._transcript.theme, turn.text)
        self._wire(turn, view)
        return view

    def _wire(self, turn: Turn, view: TurnView) -> None:
        self._views[turn.id] = view
        actions = view.turn_actions
        if isinstance(view, AnswerView):
            view.turn_actions.again_wanted.connect(partial(self.again_wanted.emit, turn.id))
            view.turn_actions.more_wanted.connect(partial(self.more_wanted.emit, turn.id))
            view.pointed.connect(partial(self.pointed.emit, turn.id))
        else:
            view.turn_actions.edit_wanted.connect(partial(self.edit_wanted.emit, turn.id))
            view.turn_actions.answer_wanted.connect(partial(self.answer_wanted.emit, turn.id))
        actions.stepped.connect(partial(self.stepped.emit, turn.id))
        self._dress(turn, view)
        if isinstance(view, UserBubble):  # what stands beside it may have to go below it now
            actions.changed.connect(partial(self._transcript.column.refit, view))
            self._transcript.column.refit(view)

    def _dress(self, turn: Turn, view: TurnView) -> None:
        versions = self._session.versions(turn.id)
        view.turn_actions.show_version(versions.index(turn.id), len(versions))
        view.turn_actions.allow(self._can_ask, self._free)
        if isinstance(view, AnswerView):
            cut = turn.last.reason in ("length", "stopped", "error") and bool(turn.text)
            view.turn_actions.offer_more(cut and turn.id == self._session.turns[-1].id)
        else:
            view.turn_actions.offer_answer(self._free and turn.id == self._session.turns[-1].id)
