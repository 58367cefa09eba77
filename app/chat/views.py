"""The widgets of a conversation's turns: made when they are to be seen, and told what can be done with each."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from PySide6.QtCore import QObject, Signal
from shiboken6 import isValid

from app.chat.answer import AnswerView
from app.chat.cards import UserBubble
from app.chat.session import ChatSession
from app.theme import Theme
from engine.sessions.conversation import Turn

TurnView: TypeAlias = UserBubble | AnswerView


class TurnViews(QObject):
    """Emits what the user wants done with a turn; each signal carries the id of the turn's first message."""

    edit_wanted = Signal(str)
    again_wanted = Signal(str)
    more_wanted = Signal(str)
    stepped = Signal(str, int)  # to this version, from 0

    def __init__(self, theme: Theme, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._views: dict[str, TurnView] = {}
        self._can_ask, self._free = False, True

    def clear(self) -> None:
        """Another conversation is to be shown."""
        self._views.clear()

    def get(self, id: str) -> TurnView | None:
        """The widget of a turn, if it was made and is still there."""
        view = self._views.get(id)
        return view if view is not None and isValid(view) else None

    def make(self, turn: Turn, session: ChatSession) -> TurnView:
        """A widget for a turn of the past."""
        view: TurnView
        if turn.role == "assistant":
            view = AnswerView(self._theme)
            view.show_answer(turn.text, turn.last.reason, turn.timings, turn.cache)
            if turn.last.error:
                view.add_note(turn.last.error)
        else:
            view = UserBubble(self._theme, turn.text)
        self.keep(turn, view, session)
        return view

    def keep(self, turn: Turn, view: TurnView, session: ChatSession) -> None:
        """From here on this widget shows this turn."""
        if self._views.get(turn.id) is not view:
            self._views[turn.id] = view
            if isinstance(view, AnswerView):
                view.turn_actions.again_wanted.connect(partial(self.again_wanted.emit, turn.id))
                view.turn_actions.more_wanted.connect(partial(self.more_wanted.emit, turn.id))
            else:
                view.turn_actions.edit_wanted.connect(partial(self.edit_wanted.emit, turn.id))
            view.turn_actions.stepped.connect(partial(self.stepped.emit, turn.id))
        self._dress(turn, view, session)

    def allow(self, can_ask: bool, free: bool, session: ChatSession) -> None:
        """can_ask: an answer could be given now. free: one may turn to other branches of this conversation."""
        self._can_ask, self._free = can_ask, free
        turns = {turn.id: turn for turn in session.turns}
        for id in list(self._views):
            view = self.get(id)
            if view is None:
                del self._views[id]
            elif id in turns:
                self._dress(turns[id], view, session)

    def _dress(self, turn: Turn, view: TurnView, session: ChatSession) -> None:
        versions = session.versions(turn.id)
        view.turn_actions.show_version(versions.index(turn.id), len(versions))
        view.turn_actions.allow(self._can_ask, self._free)
        if isinstance(view, AnswerView):
            cut = turn.last.reason in ("length", "stopped", "error") and bool(turn.text)
            view.turn_actions.offer_more(cut and turn is session.turns[-1])
