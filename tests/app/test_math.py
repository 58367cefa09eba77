"""Mathematics is set right, or shown as its source; it is never shown wrong, and never lost when copied."""

from __future__ import annotations

import random
import time

import pytest
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QApplication

from app.chat.body import MarkdownBody
from app.chat.code import CodeCard
from app.chat.formula import OBJECT, FormulaView
from app.chat.latex import read
from app.chat.latex_tree import Fence, Fraction, Grid, Row, Scripts, Symbol, Unreadable
from app.chat.prose import ProseView
from app.chat.typeset import typeset
from app.theme import Theme

COMMON = [
    r"x_{1,2} = \frac{-b \pm \sqrt{b^2 - 4ac}}{2a}",
    r"\sum_{i=1}^{n} i^2 = \prod_{k} \binom{n}{k}",
    r"\int_0^\infty e^{-x^2}\,dx = \frac{\sqrt{\pi}}{2}",
    r"\begin{pmatrix} a & b \\ c & d \end{pmatrix}^{-1}",
    r"f(x) = \begin{cases} x & \text{if } x > 0 \\ 0 & \text{otherwise} \end{cases}",
    r"\begin{align*} a &= b \\[4pt] &= c \end{align*}",
    r"a &= b \\ &= c",
    r"\lim_{x \to 0} \frac{\sin x}{x} = 1, \quad \forall \epsilon > 0",
    r"\left\| \nabla \times \vec{E} \right\|^2 = \left. f' \right|_{x=0}",
    r"\hat{y}, \bar{x}, \dot{x}, \overline{AB}, \sqrt[3]{2}, \mathbb{R}^n, \mathcal{L}, \mathbf{v}",
    r"\underbrace{1 + \dots + 1}_{n} \overset{!}{=} n",
    r"A \not= B, \{1, 2\}, 50\%, \operatorname{argmax}_\theta p_\theta(x \mid y)",
    r"\boxed{E = mc^2} \tag{1}",
    r"\big( x \big) \Bigl[ y \Bigr] \langle u, v \rangle",
]


@pytest.mark.parametrize("latex", COMMON)
def test_what_models_write_is_set(latex: str, qapp: QApplication) -> None:
    for display in (True, False):
        box = typeset(latex, 16, display)
        assert box.width > 8 and box.height + box.depth > 6


@pytest.mark.parametrize(
    "latex",
    [
        r"\foo",
        r"\frac{1}",
        "{x",
        "x}",
        "a^b^c",
        "a_b_c",
        r"\left( x",
        r"x \right)",
        r"\begin{pmatrix} 1",
        r"\begin{tikzpicture} \end{tikzpicture}",
        r"\begin{pmatrix} 1 \end{bmatrix}",
        r"\def\x{\x}\x",
        r"\newcommand{\x}{y}",
        r"\input{/etc/passwd}",
        r"\href{javascript:x}{y}",
        r"\includegraphics{http://tracker.example/x.png}",
        r"\text{a \command b}",
        r"\mathbb{\frac12}",
        "x" * 5000,
        "{" * 2000,
        r"\frac" * 1000,
        r"\sqrt{" * 200 + "x" + "}" * 200,
        r"\left(" * 500,
        "#1",
        "a & b } c",
    ],
)
def test_what_is_not_understood_is_refused_whole(latex: str) -> None:
    with pytest.raises(Unreadable):
        read(latex)


def test_random_soup_is_read_or_refused_and_quickly(qapp: QApplication) -> None:
    pieces = [r"\frac", "{", "}", "^", "_", "x", "1", "&", r"\\", r"\left(", r"\right)", r"\sqrt", "[", "]", "'", " "]
    pieces += [
        r"\begin{matrix}",
        r"\end{matrix}",
        r"\sum",
        r"\text",
        r"\hat",
        r"\not",
        "\\",
        "$",
        "%",
        "é",
        "∑",
        r"\bigl",
    ]
    began = time.thread_time()
    for seed in range(3000):
        rng = random.Random(seed)
        latex = "".join(rng.choice(pieces) for _ in range(rng.randint(1, 30)))
        try:
            typeset(latex, 14, bool(seed % 2))
        except Unreadable:
            continue
    assert time.thread_time() - began < 20


def test_the_tree_is_what_was_meant() -> None:
    assert read(r"\frac12") == Fraction(Symbol("1"), Symbol("2"))
    assert read("x^2_i") == Scripts(Symbol("x", look="italic"), Symbol("2"), Symbol("i", look="italic"))
    assert read("f'") == Scripts(Symbol("f", look="italic"), Symbol("′"), None)  # noqa: RUF001
    grid = read(r"\begin{bmatrix}1&2\\3&4\end{bmatrix}")
    assert isinstance(grid, Fence) and (grid.left, grid.right) == ("[", "]")
    assert isinstance(grid.body, Grid) and grid.body.rows[1][0] == Symbol("3")
    assert read("-1") == Row((Symbol("−", "bin"), Symbol("1")))  # noqa: RUF001


def show(text: str, qtbot) -> MarkdownBody:
    body = MarkdownBody(Theme("dark"))
    qtbot.addWidget(body)
    body.fit(600)
    body.set_text(text)
    body.resize(600, body.fit(600))
    body.show()
    return body


def test_a_formula_in_a_line_is_seen_and_copied_as_its_source(qtbot) -> None:
    body = show("so $x^2$ and \\(\\frac12\\).\n\n| a |\n|---|\n| $y_1$ |\n", qtbot)
    view, table = body.widgets()
    assert isinstance(view, ProseView)
    assert view.document().toPlainText().count(OBJECT) == 2 and OBJECT in table.toPlainText()  # type: ignore[attr-defined]
    cursor = view.textCursor()
    cursor.select(QTextCursor.SelectionType.Document)
    view.setTextCursor(cursor)
    assert view.createMimeDataFromSelection().text() == "so $x^2$ and \\(\\frac12\\)."
    cursor = table.textCursor()  # type: ignore[attr-defined]
    cursor.select(QTextCursor.SelectionType.Document)
    table.setTextCursor(cursor)  # type: ignore[attr-defined]
    assert "$y_1$" in table.createMimeDataFromSelection().text()  # type: ignore[attr-defined]


def test_a_formula_that_cannot_be_set_is_shown_as_it_was_written(qtbot) -> None:
    body = show("so $\\foo{x}$.\n\n$$\n\\bar{\\foo}\n$$\n", qtbot)
    view, card = body.widgets()
    assert isinstance(view, ProseView) and view.toPlainText() == "so $\\foo{x}$."
    assert isinstance(card, CodeCard) and card.leaf.text == "\\bar{\\foo}" and card.leaf.language == "latex"


def test_a_block_is_its_source_until_it_ends_and_then_a_formula(qtbot) -> None:
    body = MarkdownBody(Theme("dark"))
    qtbot.addWidget(body)
    body.fit(600)
    body.feed("$$\n\\frac{1}{2")
    body._show()
    assert isinstance(body.widgets()[0], CodeCard)
    body.feed("}\n$$\n\nafter")
    body._show()
    body.finish()
    formula, after = body.widgets()
    assert isinstance(formula, FormulaView) and isinstance(after, ProseView)
    formula.copy()
    assert QApplication.clipboard().text() == "\\frac{1}{2}"


def test_a_wide_formula_scrolls_in_its_own_place(qtbot) -> None:
    body = show("$$" + "+".join("abcdefgh" * 12) + "$$", qtbot)
    (formula,) = body.widgets()
    assert isinstance(formula, FormulaView)
    qtbot.waitUntil(lambda: formula.horizontalScrollBar().maximum() > 0)
    assert formula.width() <= 600
