"""A long conversation: only what is near the reader exists, and what is read stays where it is."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget

from app.chat.answer import AnswerView
from app.chat.cards import UserBubble
from app.chat.transcript import Transcript
from app.selftest import SAMPLE

MANY = 2000
BOUND = 60  # widgets: five heights of the view, of messages that have a line each


def text_of(number: int) -> str:
    return f"message {number}\n\n" + (SAMPLE * (number % 3))


def show(transcript: Transcript, count: int, made: list[int] | None = None) -> None:
    def maker(number: int) -> Callable[[], QWidget]:
        def make() -> QWidget:
            if made is not None:
                made.append(number)
            if number % 2 == 0:
                return UserBubble(transcript.theme, text_of(number))
            view = AnswerView(transcript.theme)
            view.show_answer(text_of(number), "end", None, None)
            return view

        return make

    transcript.show_messages([maker(n) for n in range(count)], [len(text_of(n)) for n in range(count)])


def seen(transcript: Transcript) -> list[tuple[str, int]]:
    """What is in view: the first line of each message, and where on the screen it is."""
    top, height = transcript.verticalScrollBar().value(), transcript.viewport().height()
    return [
        (w.text.split("\n")[0], w.y() - top)
        for w in transcript.column.widgets()
        if w.y() < top + height and w.y() + w.height() > top and isinstance(w, AnswerView | UserBubble)
    ]


def check_no_hole(transcript: Transcript) -> None:
    """All of the view is covered by messages that exist."""
    top = transcript.verticalScrollBar().value()
    bottom = top + transcript.viewport().height()
    end = transcript.column.wanted_height
    reached = top
    for widget in transcript.column.widgets():
        if widget.y() <= reached + 40:  # the gap between two messages, or the margin
            reached = max(reached, widget.y() + widget.height())
    assert reached >= min(bottom, end - 40)


def test_a_saved_conversation_shows_its_end_and_makes_little_else(transcript: Transcript) -> None:
    made: list[int] = []
    show(transcript, MANY, made)
    bar = transcript.verticalScrollBar()
    assert bar.value() == bar.maximum() > 100_000
    assert seen(transcript)[-1][0] == f"message {MANY - 1}"
    assert len(made) < 12 and max(made) == MANY - 1


def test_the_number_of_widgets_stays_bounded_wherever_one_scrolls(transcript: Transcript, qtbot) -> None:
    show(transcript, MANY)
    bar = transcript.verticalScrollBar()
    for step in range(150):
        bar.setValue(bar.value() - 500 if step % 10 else bar.maximum() * (step * 37 % 100) // 100)
        qtbot.wait(1)
        check_no_hole(transcript)
        assert len(transcript.column.widgets()) <= BOUND
    QTest.keyClick(transcript, Qt.Key.Key_Home)
    assert seen(transcript)[0] == ("message 0", 24)


def test_every_message_comes_in_order_when_one_reads_from_the_end_to_the_start(transcript: Transcript, qtbot) -> None:
    show(transcript, 120)
    bar = transcript.verticalScrollBar()
    met: list[str] = []
    while True:
        met += [line for line, _ in reversed(seen(transcript)) if line not in met]
        if bar.value() == bar.minimum():
            break
        bar.setValue(bar.value() - 300)
        qtbot.wait(1)
    assert met == [f"message {n}" for n in range(119, -1, -1)]


def test_what_is_read_stays_where_it_is_while_messages_above_are_made(transcript: Transcript, qtbot) -> None:
    show(transcript, MANY)
    bar = transcript.verticalScrollBar()
    bar.setValue(bar.maximum() // 2)
    before = dict(seen(transcript))
    qtbot.waitUntil(lambda: not transcript.column._later.isActive() and all_settled(transcript))
    after = dict(seen(transcript))
    last = list(before)[-1]
    assert after[last] == before[last]


def all_settled(transcript: Transcript) -> bool:
    return all(w.settled for w in transcript.column.widgets() if isinstance(w, AnswerView))


def test_scrolling_by_some_pixels_moves_the_text_by_as_many(transcript: Transcript, qtbot) -> None:
    show(transcript, 300)
    bar = transcript.verticalScrollBar()
    bar.setValue(bar.maximum() // 2)
    qtbot.waitUntil(lambda: not transcript.column._later.isActive() and all_settled(transcript))
    for _ in range(60):
        before = dict(seen(transcript))
        bar.setValue(bar.value() - 40)
        after = dict(seen(transcript))
        line = next(line for line in after if line in before)
        assert after[line] == before[line] + 40
        qtbot.wait(1)


def test_another_width_keeps_what_is_read_in_view(transcript: Transcript, qtbot) -> None:
    show(transcript, 300)
    bar = transcript.verticalScrollBar()
    bar.setValue(bar.maximum() // 2)
    qtbot.waitUntil(lambda: not transcript.column._later.isActive() and all_settled(transcript))
    line = seen(transcript)[0][0]
    for width in (560, 1200, 820):
        transcript.resize(width, 700)
        qtbot.wait(1)
        assert line in [shown for shown, _ in seen(transcript)]
        check_no_hole(transcript)


def test_an_opened_thought_is_not_taken_down(transcript: Transcript, qtbot) -> None:
    def thoughtful() -> QWidget:
        view = AnswerView(transcript.theme)
        view.show_answer("<think>deep</think>\n\nhello", "end", None, None)
        return view

    transcript.show_messages([thoughtful] * 200, [20] * 200)
    last = transcript.column.widgets()[-1]
    assert isinstance(last, AnswerView) and last.fold is not None
    last.fold.open()
    transcript.verticalScrollBar().setValue(0)
    assert last in transcript.column.widgets()
    assert last.fold.body.isVisibleTo(last)


def test_a_live_answer_goes_on_below_a_long_history(transcript: Transcript, qtbot) -> None:
    show(transcript, MANY)
    answer = transcript.add_answer()
    answer.feed("word " * 2000)
    qtbot.waitUntil(lambda: answer.settled)
    bar = transcript.verticalScrollBar()
    qtbot.waitUntil(lambda: bar.value() == bar.maximum())
    bar.setValue(bar.maximum() - 900)
    before = seen(transcript)
    answer.feed("more " * 2000)
    qtbot.waitUntil(lambda: answer.settled)
    assert seen(transcript) == before


def test_a_message_far_up_can_be_shown_at_once(transcript: Transcript, qtbot) -> None:
    makers = [lambda n=n: UserBubble(transcript.theme, f"message {n}" * (1 + n % 50)) for n in range(MANY)]
    transcript.show_messages(makers, [9] * MANY, at=700)  # lengths that are far from right
    assert seen(transcript)[0][0].startswith("message 700")
    place = seen(transcript)[0]
    qtbot.waitUntil(lambda: not transcript.column._later.isActive())
    assert seen(transcript)[0] == place
    check_no_hole(transcript)


def test_a_branch_takes_the_place_of_what_followed(transcript: Transcript, qtbot) -> None:
    show(transcript, 100)
    transcript.verticalScrollBar().setValue(transcript.verticalScrollBar().maximum() // 2)
    qtbot.waitUntil(lambda: not transcript.column._later.isActive() and all_settled(transcript))
    top = transcript.verticalScrollBar().value()
    old = next(w for w in transcript.column.widgets() if isinstance(w, UserBubble) and w.y() >= top)
    place = old.y() - top
    index = transcript.column.index(old)
    others = [UserBubble(transcript.theme, f"other {n}\n" * 30) for n in range(3)]
    transcript.replace_from(old, *others, hold=True)
    assert len(transcript.column) == index + 3
    assert others[0].y() - transcript.verticalScrollBar().value() == place
    editor = UserBubble(transcript.theme, "instead")
    transcript.swap(others[1], editor)
    assert not others[1].isVisibleTo(transcript.column) and editor.y() > others[0].y()
    transcript.remove(editor)
    others[1].show()
    transcript.column.refit(others[1])
    assert others[1].height() > 0 and others[2].y() > others[1].y() > others[0].y()
