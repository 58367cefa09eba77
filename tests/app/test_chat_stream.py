"""Markdown read as it streams is the markdown read at once, however it is cut; finished stays finished."""

from __future__ import annotations

import random
import time

import pytest

from app.chat.markdown import Code, Leaf, Math, Paragraph, Rule, Span, Table, leaves_of
from app.chat.stream import MarkdownStream

SAMPLES = [
    "# Title\n\nSome *text* with `code` and **bold**.\nSecond line.\n\nSetext\n======\n\nlast",
    "1. one\n2. two\n\n   more of two\n3. three\n   - a\n   - b\n     1. deep\n\nafter\n\n7. seven\n8. eight",
    "1. all\n1. are\n1. one\n\n\n1. still\n\n- a\n* b\n+ c\n- d\n",
    "- a\n--\n- b\n---\n- c\n\n    code\n\ntext\n\n    indented\n\n    code\n",
    "```python\ndef f():\n    return '```'\n```\ntext\n~~~\n```\n~~~\n````md\n```\n````\n```unclosed\nx\n",
    "Intro:\n```\na\n\n\nb\n```\n1. step\n   ```sh\n   ls\n   ```\n2. next\n",
    "| a | b |\n|:--|--:|\n| 1 | 2 |\n| `x` | **y** |\n\nafter | not\n",
    "> quote\n> - in quote\n>   more\nlazy\n\n> > deeper\n\n***\n\nend",
    "text\n2. not a list\n\n- item\nlazy line\n\n  second paragraph\n\n\n  third\n- item\n",
    "[ref]: http://x.y/z\n\nSee [ref] and [x](http://ok.example) <http://auto.example>.\r\n\r\nNext\rline",
    "* a\n\n  ```\n  x\n* b\n",
    "a\n-\n\n-\n- x\n",
    "  ```js\n  indented\n    more\n  ```\n",
    "Thus:\n$$\nx_1 *y* z\n$$\nand\n\\[ a\n\n= b \\]\n\n$$x$$\n$$ y\n- z\n\n$$",
    "- $$\n  x\n  $$\n- \\(y\\) $z$\n\n> $$\n> q\n> $$\n$$\nlast",
]  # fmt: skip


def stream(text: str, cuts: list[int]) -> list[Leaf]:
    reader = MarkdownStream()
    shown: list[Leaf] = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        shown.extend(reader.feed(text[start:end]).finished)
    shown.extend(reader.finish().finished)
    return shown


@pytest.mark.parametrize("text", SAMPLES)
def test_streaming_equals_reading_at_once(text: str) -> None:
    whole = stream(text, [])
    assert whole == leaves_of(text.replace("\r\n", "\n").replace("\r", "\n"))
    assert stream(text, list(range(1, len(text)))) == whole
    for seed in range(30):
        rng = random.Random(seed)
        assert stream(text, sorted(rng.sample(range(len(text)), rng.randint(1, min(8, len(text)))))) == whole


def test_streaming_equals_reading_at_once_for_random_mixtures() -> None:
    pieces = ["- ", "1. ", "2) ", "> ", "```\n", "~~~", "\n", "\n\n", "    ", "  ", "a", "|", "-|-", "---", "#", "*b* "]
    pieces += ["$$", "$", "\\[", "\\]", "\\(", "\\)", "$$\n", "\n$$\n", "x"]
    for seed in range(1200):
        rng = random.Random(seed)
        text = "".join(rng.choice(pieces) for _ in range(rng.randint(1, 40)))
        whole = leaves_of(text)
        assert stream(text, list(range(1, len(text)))) == whole, repr(text)


@pytest.mark.parametrize(
    "end", ["", "\n", "\n\nafter", "\n\n| x |\n|---|\n| y |\n", "\n# Head", "\n```\ncode", "\nlazy | line", "\n> q"]
)
def test_a_long_table_streams_as_it_is_read_at_once(end: str) -> None:
    rows = "\n".join(f"| {n} | *x* | `a\\|b` |" for n in range(200))
    text = f"before\n\n| a | b | c |\n|:--|---|--:|\n{rows}{end}"
    assert stream(text, list(range(1, len(text), 3))) == leaves_of(text)
    for seed in range(10):
        rng = random.Random(seed)
        assert stream(text, sorted(rng.sample(range(len(text)), 30))) == leaves_of(text)


def test_tail_is_what_a_reader_sees_of_the_unfinished_end() -> None:
    reader = MarkdownStream()
    assert reader.feed("Hello *wor").tail == (Paragraph((Span("Hello *wor"),)),)
    update = reader.feed("ld*\n\nNext")
    assert update.finished == () and len(update.tail) == 2
    update = reader.feed(" line\n")
    assert update.finished == (Paragraph((Span("Hello "), Span("world", italic=True))),)
    assert update.tail == (Paragraph((Span("Next line"),)),)
    assert reader.feed("```py\nx = 1\ny").tail == (Code("x = 1\ny", "py"),)


def test_lists_are_flattened_with_depth_and_numbers() -> None:
    leaves = leaves_of("3. three\n   - inner\n\n     ```sh\n     ls\n     ```\n4. four\n")
    assert leaves == [
        Paragraph((Span("three"),), depth=1, marker="3."),
        Paragraph((Span("inner"),), depth=2, marker="•"),
        Code("ls", "sh", depth=2),
        Paragraph((Span("four"),), depth=1, marker="4."),
    ]


def test_table_cells_keep_their_look_and_alignment() -> None:
    (table,) = leaves_of("| a | b |\n|:--|--:|\n| `x` | **y** |")
    assert isinstance(table, Table)
    assert table.align == ("left", "right")
    assert table.rows[1] == ((Span("x", code=True),), (Span("y", bold=True),))


@pytest.mark.parametrize(
    "text",
    [
        "std::vector<int> v;",
        "<think>not at the start</think>",
        "before <img src=x onerror=alert(1)> after",
        "<script>alert(1)</script>",
        "<div>\n\n<b>x</b>\n\n</div>",
        "[x](file:///etc/passwd)",
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt:alert(1))",
        "[x](data:text/html,hi)",
        "[x](vbscript:x)",
        "[x](ftp://host/file)",
        "[x](//host/share)",
        "[x](\\\\host\\share)",
        "![pic](http://tracker.example/pixel.png)",
        "![pic](file:///etc/passwd)",
        "&lt;b&gt; &amp; &#60;",
    ],
)
def test_hostile_text_is_text(text: str) -> None:
    spans = [span for leaf in leaves_of(text) if isinstance(leaf, Paragraph) for span in leaf.spans]
    shown = "".join(span.text for span in spans)
    assert shown
    for span in spans:
        assert span.href == "" or (span.href == span.text and span.href.startswith("http"))
    if "<" in text:
        assert "<" in shown


def test_links_keep_safe_addresses_only() -> None:
    (leaf,) = leaves_of("[a](https://x.example/p?q=1) and https://y.example/z. <mailto:m@x.example>")
    assert isinstance(leaf, Paragraph)
    assert [span.href for span in leaf.spans if span.href] == [
        "https://x.example/p?q=1",
        "https://y.example/z",
        "mailto:m@x.example",
    ]


def test_deep_nesting_and_odd_input_do_not_break() -> None:
    for text in ("> " * 300 + "x", "- " * 200 + "x", "[" * 5000, "*" * 5000 + "a", "`" * 3000, "\0\0", "|" * 2000):
        leaves_of(text)
    assert leaves_of("---") == [Rule()]


def test_cost_of_a_token_does_not_grow_with_the_answer() -> None:
    part = (
        "Some *words* of an answer that goes on for a while.\n\n- one item\n- another `item`\n\n"
        + "```python\n" + "x = compute(1)\n" * 12 + "```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
    )  # fmt: skip
    text = part * (64 * 1024 // len(part) + 1)
    reader = MarkdownStream()
    costs: list[float] = []
    for start in range(0, len(text), 4):
        began = time.perf_counter()
        reader.feed(text[start : start + 4])
        costs.append(time.perf_counter() - began)
    quarter = len(costs) // 4
    first, last = sorted(costs[:quarter])[quarter // 2], sorted(costs[-quarter:])[quarter // 2]
    assert last < 3 * first + 1e-4


@pytest.mark.parametrize(
    ("text", "formulas"),
    [
        ("the root $x_1$ and \\(y\\), \\[z\\] $$w$$.", ["x_1", "y", "z", "w"]),
        ("$a*b*c$ *it*", ["a*b*c"]),
        ("$\\frac{a}{b}$-th", ["\\frac{a}{b}"]),
        ("it costs $5 and $10", []),
        ("$5-$10, 7 US$", []),
        ("$HOME/$USER and ${x}$y", []),
        ("`$x$` is code", []),
        ("\\$x\\$ is escaped", []),
        ("$ x $", []),
        ("$$ $$", []),
        ("an open $x and \\( y", []),
        ("price $x\n\ny$", []),
    ],
)
def test_formulas_are_told_from_prices(text: str, formulas: list[str]) -> None:
    spans = [span for leaf in leaves_of(text) if isinstance(leaf, Paragraph) for span in leaf.spans]
    assert [span.math for span in spans if span.math] == formulas


def test_formulas_on_their_own_lines_are_blocks() -> None:
    assert leaves_of("a\n$$\nx\n= y\n$$\nb") == [
        Paragraph((Span("a"),)),
        Math("x\n= y"),
        Paragraph((Span("b"),)),
    ]
    assert leaves_of("\\[x\\]") == [Math("x")]
    assert leaves_of("1. so\n   \\[\n   x\n   \\]\n") == [
        Paragraph((Span("so"),), depth=1, marker="1."),
        Math("x", depth=1),
    ]
    assert leaves_of("$$\nx\n\n$$") == [Paragraph((Span("$$\nx"),)), Math("", open=True)]


@pytest.mark.parametrize(
    "mark",
    [
        "\\(",
        "$",
        "$$",
        "$$ x\n",
        "\\[",
        "$x",
        "\\[ x\n",
        "[",
        "![",
        "*a_",
        "`a",
        "<a",
        "&a;",
        "~~",
        "](",
        "|-",
        "> ",
        "- ",
        "1. ",
    ],
)
def test_a_flood_of_marks_costs_little(mark: str) -> None:
    began = time.thread_time()
    leaves_of(mark * (60_000 // len(mark)))
    assert time.thread_time() - began < 2
