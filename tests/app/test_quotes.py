"""The bars of a quote stand where its text begins: at the left, or at the right of what is written from there."""

from __future__ import annotations

import pytest
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QWidget

from app.chat.body import MarkdownBody
from app.chat.code import CodeCard
from app.chat.formula import FormulaView
from app.chat.indents import BAR, QUOTE_INDENT
from app.chat.markdown import Rule
from app.chat.prose import ProseView
from app.chat.table import TableView
from app.chat.transcript import Transcript
from app.theme import Theme
from tests.app.test_chat_view import finished

ARABIC = "هذا اقتباس باللغة العربية"
HEBREW = "שלום עולם"


def answered(transcript: Transcript, text: str, qtbot) -> MarkdownBody:
    """The text as an answer in the transcript, ready to be looked at."""
    answer = transcript.add_answer()
    answer.feed(text)
    answer.finish(finished(text))
    qtbot.waitUntil(lambda: answer.body.settled)
    return answer.body


def bars(view: QWidget, color: str, y: int) -> list[int]:
    """Left edges of the bars on a line of pixels; those of the right side counted from there, below zero."""
    image = view.grab().toImage()
    inked = [x for x in range(image.width()) if image.pixelColor(x, y) == QColor(color)]
    edges = [x for x in inked if x - 1 not in inked]
    assert all(set(range(x, x + BAR)) <= set(inked) for x in edges)
    return [x if x < image.width() // 2 else x - image.width() for x in edges]


def lines(view: ProseView) -> list[tuple[str, int, tuple[int, int]]]:
    """Each block: its words, the middle of its first line, and how far its ink stays from the left and the right."""
    found = []
    block = view.document().begin()
    while block.isValid():
        line = block.layout().lineAt(0)
        box = line.naturalTextRect().translated(block.layout().position())
        sides = (round(box.left()), round(view.viewport().width() - box.right()))
        found.append((block.text(), round(box.center().y()), sides))
        block = block.next()
    return found


def first(levels: int) -> list[int]:
    return [level * QUOTE_INDENT for level in range(levels)]


def last(levels: int) -> list[int]:
    return [-BAR - level * QUOTE_INDENT for level in reversed(range(levels))]


@pytest.mark.parametrize("words", [ARABIC, HEBREW, "«" + ARABIC, "**" + HEBREW + "** and more", "1. " + ARABIC])
def test_a_quote_from_right_to_left_has_its_bar_at_the_right(transcript: Transcript, qtbot, words: str) -> None:
    body = answered(transcript, f"> {words}", qtbot)
    (view,) = body.findChildren(ProseView)
    ((_, y, (left, right)),) = lines(view)
    assert bars(view, transcript.theme.colors.border, y) == [-BAR]
    assert right >= QUOTE_INDENT and left > right, "the text begins beside the bar"


@pytest.mark.parametrize("words", ["An English quote", "“An English quote”", "123", f"English, then {ARABIC}"])
def test_a_quote_from_left_to_right_has_it_at_the_left(transcript: Transcript, qtbot, words: str) -> None:
    body = answered(transcript, f"> {words}", qtbot)
    (view,) = body.findChildren(ProseView)
    ((_, y, (left, _)),) = lines(view)
    assert bars(view, transcript.theme.colors.border, y) == [0]
    assert left == QUOTE_INDENT


def test_quotes_in_quotes_and_in_lists_stand_on_the_side_of_the_outermost(transcript: Transcript, qtbot) -> None:
    quote = f"> {ARABIC}\n>\n> > {HEBREW}\n> >\n> > English\n>\n> - {ARABIC}"
    text = f"{quote}\n\n- {HEBREW}\n\n  > {ARABIC}\n  >\n  > > {HEBREW}"
    (view,) = answered(transcript, text, qtbot).findChildren(ProseView)
    found = lines(view)
    color = transcript.theme.colors.border
    expected = [last(1), last(2), last(2), last(1), [], last(1), last(2)]
    assert [bars(view, color, y) for _, y, _ in found] == expected
    for (_, _, (_, right)), edges in zip(found, expected, strict=True):
        assert right >= len(edges) * QUOTE_INDENT, "no text under a bar"


def test_a_quote_after_one_of_the_other_direction_does_not_reach_up_to_it(transcript: Transcript, qtbot) -> None:
    (view,) = answered(transcript, f"> English\n\n> {ARABIC}\n\n> English", qtbot).findChildren(ProseView)
    (_, one, _), (_, other, _), (_, third, _) = lines(view)
    color = transcript.theme.colors.border
    assert [bars(view, color, y) for y in (one, other, third)] == [first(1), last(1), first(1)]
    assert [bars(view, color, (a + b) // 2) for a, b in ((one, other), (other, third))] == [[], []]


def test_what_is_no_prose_keeps_clear_of_the_bar_too(transcript: Transcript, qtbot) -> None:
    text = f"> {ARABIC}\n>\n> ```\n> x\n> ```\n>\n> | {HEBREW} |\n> |---|\n> | {HEBREW} |\n>\n> $$x^2$$\n>\n> ---"
    body = answered(transcript, text, qtbot)
    (card,) = body.findChildren(CodeCard)
    color = transcript.theme.colors.border
    # between the rounded corners only the card's own frame and the bar have this colour
    image = body.grab(card.geometry()).toImage()
    y = card.height() // 2
    assert image.pixelColor(card.width() - 1, y) == QColor(color)
    assert image.pixelColor(card.width() - QUOTE_INDENT // 2, y) != QColor(color)
    assert card.text.x() + card.text.width() <= card.width() - QUOTE_INDENT and card.text.x() < QUOTE_INDENT
    (table,) = body.findChildren(TableView)
    image = table.grab().toImage()
    inked = [x for x in range(image.width()) if image.pixelColor(x, image.height() // 2) != image.pixelColor(0, 0)]
    assert inked[0] > image.width() / 2 and abs(inked[-1] - (image.width() - QUOTE_INDENT)) <= 3
    (formula,) = body.findChildren(FormulaView)
    canvas = formula.widget()
    right = canvas.mapTo(formula, canvas.rect().topRight()).x()
    assert formula.width() - QUOTE_INDENT - 2 <= right < formula.width() - QUOTE_INDENT + 1
    (rule,) = (view for view in body.findChildren(ProseView) if Rule(0, 1, True) in view.leaves)
    image = rule.grab().toImage()
    (row,) = [y for y in range(image.height()) if image.pixelColor(image.width() // 2, y) == QColor(color)]
    assert bars(rule, color, row)[-1] == -BAR and image.pixelColor(0, row) == QColor(color)
    assert image.pixelColor(image.width() - QUOTE_INDENT // 2, row) != QColor(color)


@pytest.mark.parametrize(("words", "edge"), [("English", 0), (ARABIC, -BAR)])
def test_the_bar_of_a_quote_has_no_gaps_whatever_stands_in_it(
    transcript: Transcript, qtbot, words: str, edge: int
) -> None:
    inside = (
        f"{words}\n\n| {words} |\n|---|\n| x |\n\n$$x^2$$\n\n```\nx\n```\n\n- {words}\n\n$$y$$\n\n| {words} |\n|---|"
    )
    body = answered(transcript, "\n".join(f"> {line}" for line in inside.split("\n")) + f"\n\n{words}", qtbot)
    views = body.widgets()
    assert {type(view) for view in views} == {ProseView, CodeCard, TableView, FormulaView}
    image, color = body.grab().toImage(), QColor(transcript.theme.colors.border)
    column = edge % image.width()
    inked = [y for y in range(image.height()) if image.pixelColor(column, y) == color]
    assert inked == list(range(inked[0], inked[-1] + 1))
    assert inked[0] <= 4, "from its first line"
    assert views[-2].geometry().bottom() - 2 <= inked[-1] < views[-1].geometry().top(), "to its last, and not beyond"


def test_a_table_in_a_quote_in_a_quote_has_two_bars(transcript: Transcript, qtbot) -> None:
    body = answered(transcript, "> one\n>\n> > | a |\n> > |---|\n>\n> one", qtbot)
    (table,) = body.findChildren(TableView)
    color = transcript.theme.colors.border
    box = table.geometry()
    assert bars(body, color, box.top() + 1)[:2] == first(2)
    assert bars(body, color, box.top() - 3) == bars(body, color, box.bottom() + 4) == first(1)


def test_a_quote_that_streams_turns_with_its_first_letter(theme: Theme, qtbot) -> None:
    text = f"> ```\n> x\n> ```\n>\n> «{ARABIC}»\n>\n> {ARABIC}"
    streamed, whole = MarkdownBody(theme), MarkdownBody(theme)
    for body in (streamed, whole):
        qtbot.addWidget(body)
        body.resize(600, 300)
        body.fit(600)
    for letter in text:
        streamed.feed(letter)
        streamed._next = 0.0
    streamed.finish()
    whole.set_text(text)
    assert streamed.grab().toImage() == whole.grab().toImage()
    (card,) = streamed.findChildren(CodeCard)
    assert card.leaf.mirrored
