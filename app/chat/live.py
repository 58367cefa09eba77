"""The answer under way, and what came out when it was given in several parts."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from shiboken6 import isValid

from app.chat.answer import AnswerView
from app.chat.session import ChatSession
from app.theme import Theme
from engine.messages import Finished
from engine.sessions.conversation import Turn, joined_counters, joined_timings


@dataclass(slots=True)
class LiveAnswer:
    """The answer under way."""

    session: ChatSession
    id: str  # of the request, and of the answer in the log
    parent: str
    view: AnswerView | None
    before: Turn | None = None  # the cut answer that goes on
    text: list[str] = field(default_factory=list)
    status: str = ""
    prompt_tokens: int = 0
    notes: tuple[str, ...] = ()
    began: float | None = None  # its first word came, time.monotonic()

    @property
    def seen(self) -> AnswerView | None:
        """Its view, while there is one on the screen."""
        return self.view if self.view is not None and isValid(self.view) else None

    def make_view(self, theme: Theme) -> AnswerView:
        """Another view of it, as it stands now, which is told what follows."""
        self.view = AnswerView(theme)
        for note in self.notes:
            self.view.add_note(note)
        seconds = time.monotonic() - self.began if self.began is not None else 0.0
        if self.before is not None:
            seconds += self.before.timings.decode_seconds if self.before.timings is not None else 0.0
        self.view.resume(self.shown, seconds)
        self.view.show_status(self.status)
        return self.view

    @property
    def shown(self) -> str:
        """All that is to be read of it by now."""
        return (self.before.text if self.before else "") + "".join(self.text)


def whole(event: Finished, before: Turn | None) -> Finished:
    """The end of an answer that was given in several parts, as if it had been one."""
    if before is None:
        return event
    timings = joined_timings([before.timings, event.timings]) if before.timings else event.timings
    cache = joined_counters([before.cache, event.cache]) if before.cache else event.cache
    return replace(event, text=before.text + event.text, timings=timings, cache=cache)
