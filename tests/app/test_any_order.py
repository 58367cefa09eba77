"""Whatever is done in whatever order: what is shown, what the model is given and what is on the disk agree."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPushButton, QWidget

from app.chat.answer import AnswerView
from app.chat.cards import UserBubble
from app.chat.editor import MessageEditor
from app.main_window import MainWindow
from engine.messages import CacheCounters, Command, Event, Failed, Finished, Generate, Started, Timings, Token
from engine.sessions.log import SessionLog
from engine.sessions.reader import read_conversation
from tests.app.conftest import Bench, ObedientEngine

STEPS = 90
PIECES = ("word ", "**b** ", "\n\n- x\n", "<think>", "</think>\n", "`c` ", "字")
View = TypeVar("View", bound=QWidget)


class WritingEngine(ObedientEngine):
    """Answers a piece at a time, when the test lets it, and writes what it says into the log."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        super().__init__(emit)
        self.live: Generate | None = None
        self.log: SessionLog | None = None
        self.text, self.stopping = "", False

    def send(self, command: Command) -> None:
        super().send(command)
        if isinstance(command, Generate):
            assert self.live is None, "an answer is asked for while another is under way"
            self.live, self.text, self.stopping = command, "", False

    def stop(self) -> None:
        super().stop()
        self.stopping = True

    def go_on(self, chance: random.Random) -> None:
        """Do the next thing: refuse, begin, say a piece, or end for some reason."""
        live = self.live
        if live is None:
            return
        if self.log is None and chance.random() < 0.15:
            self.live = None
            self.emit(Failed("generate", "There is no room.", live.request_id))
        elif self.log is None:
            self.log = SessionLog.open(Path(live.log))
            self.log.append_start(
                answer=live.answer_id, parent=live.parent_id, prompt_tokens=5, reused_tokens=0, sampling=live.sampling
            )
            self.emit(Started(live.request_id, 5, 0))
        elif self.stopping or chance.random() < 0.2:
            reason = "stopped" if self.stopping else chance.choice(("end", "length", "error"))
            self.log.append_message(live.answer_id, live.parent_id, "assistant", self.text, reason=reason)
            self.log.close()
            self.live = self.log = None
            error = "It broke." if reason == "error" else ""
            timings = Timings(5, 0, 3, 0.5, 0.4, 1.0)
            self.emit(Finished(live.request_id, reason, self.text, timings, CacheCounters(), 1, error))  # type: ignore[arg-type]
        else:
            piece = f"{chance.choice(PIECES)}{chance.randint(0, 999)}"
            self.text += piece
            self.log.append_delta(live.answer_id, piece)
            self.emit(Token(live.request_id, piece, len(self.text)))


class User:
    """Does one thing after another, as chance will have it."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.window: MainWindow = bench.window
        assert isinstance(bench.engine, WritingEngine)
        self.engine = bench.engine
        self.folder = bench.data / "conversations"
        self.chance = random.Random(seed)
        self.done: list[str] = []

    def act(self) -> None:
        deeds = (self.send, self.go_on, self.change, self.press, self.open, self.other, self.scroll)
        deed = self.chance.choices(deeds, (2, 5, 2, 4, 2, 2, 1))[0]
        self.done.append(deed.__name__)
        deed()

    def send(self) -> None:
        self.window.composer.set_text(f"say {self.chance.randint(0, 999)}")
        busy = self.window.chat.busy
        QTest.keyClick(self.window.composer.input, "\r")
        assert bool(self.window.composer.text) == busy  # sent, or all of it still there

    def go_on(self) -> None:
        self.engine.go_on(self.chance)

    def change(self) -> None:
        """Open an editor, or type into the one that is open and send or cancel it."""
        editors = self.views(MessageEditor)
        assert len(editors) <= 1
        if not editors:
            self.click([bubble.turn_actions.edit for bubble in self.views(UserBubble)])
        for editor in editors:
            editor.input.setPlainText(f"edited {self.chance.randint(0, 999)}")
            self.click([editor.send, editor.cancel])

    def press(self) -> None:
        """Something beside a message."""
        buttons: list[QPushButton] = [bubble.turn_actions.again for bubble in self.views(UserBubble)]
        for answer in self.views(AnswerView):
            buttons += [answer.turn_actions.again, answer.turn_actions.more, answer.footer.raw]
        for view in (*self.views(UserBubble), *self.views(AnswerView)):
            if view.turn_actions.versions is not None:
                buttons += [view.turn_actions.versions.previous, view.turn_actions.versions.next]
        self.click(buttons)

    def open(self) -> None:
        if path := self.some_file():
            self.window.open_conversation(path)

    def other(self) -> None:
        window, path = self.window, self.some_file()
        if path is None:
            return
        deeds: tuple[Callable[[], None], ...] = (
            window.new_chat,
            window.stop,
            lambda: window.conversations.delete(path, "title"),
            window.conversations.undo,
            lambda: window.conversations.rename(path, f"title {self.chance.randint(0, 99)}"),
            lambda: window.set_font_size(self.chance.choice((13, 14, 16))),
        )
        self.chance.choice(deeds)()

    def scroll(self) -> None:
        bar = self.window.transcript.verticalScrollBar()
        bar.setValue(self.chance.randint(0, bar.maximum()))

    def views(self, kind: type[View]) -> list[View]:
        return [w for w in self.window.transcript.column.widgets() if isinstance(w, kind) and not w.isHidden()]

    def click(self, buttons: list[QPushButton]) -> None:
        possible = [button for button in buttons if button.isVisible() and button.isEnabled()]
        if possible:
            self.chance.choice(possible).click()

    def some_file(self) -> Path | None:
        deleted = [deletion.path for deletion in self.window.conversations._deleted]
        paths = [path for path in sorted(self.folder.glob("*.jsonl")) if path not in deleted]
        return self.chance.choice(paths) if paths else None


def check(window: MainWindow) -> None:
    session, live = window.chat.session, window.chat._answering.in_session(window.chat.session)
    meant = [turn.text for turn in session.turns]
    if live is not None:
        meant = [*(meant[:-1] if live.before is not None else meant), live.shown]
    entries = [entry.widget for entry in window.transcript.column._entries]
    shown = [w.shown_text if isinstance(w, AnswerView) else w.text if isinstance(w, UserBubble) else w for w in entries]
    messages = [text for text in shown if text is None or isinstance(text, str)]  # None: not made yet
    assert [here if text is not None else None for here, text in zip(meant, messages, strict=True)] == messages
    if live is None and session.path is not None:
        saved = read_conversation(session.path)
        assert [(m.id, m.parent, m.role, m.text) for m in saved.messages.values()] == [
            (m.id, m.parent, m.role, m.text) for m in session.conversation.messages.values()
        ]
        leaf = saved.chosen_leaf()
        assert (leaf.id if leaf is not None else None) == session.leaf


@pytest.mark.parametrize("seed", range(4))
def test_all_agree(tmp_path: Path, qtbot, seed: int) -> None:
    bench = Bench(tmp_path, qtbot, WritingEngine)
    user = User(bench, seed)
    window = bench.start()
    asked = 0
    for _ in range(STEPS):
        user.act()
        bench.client._drain()
        generates = [command for command in user.engine.sent if isinstance(command, Generate)]
        for command in generates[asked:]:
            last = command.messages[-1]
            roles = [message.role for message in command.messages]
            assert roles == [("user", "assistant")[n % 2] for n in range(len(roles))], user.done
            assert last.open == (last.role == "assistant"), user.done
        asked = len(generates)
        try:
            check(window)
        except AssertionError:
            print("after", user.done)
            raise
    assert asked
    while user.engine.live is not None:
        user.engine.stopping = True
        user.engine.go_on(user.chance)
    bench.close()
