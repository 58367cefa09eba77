"""Stars beside characters of languages without spaces, line breaks in cells, bare addresses."""

from __future__ import annotations

import pytest

from app.chat.markdown import Paragraph, Span, Table, leaves_of


def spans(text: str) -> tuple[Span, ...]:
    (leaf,) = leaves_of(text)
    assert isinstance(leaf, Paragraph)
    return leaf.spans


@pytest.mark.parametrize(
    ("text", "bold", "rest"),
    [
        ("**重要:**请注意", "重要:", "请注意"),
        ("**重要\uff1a**请注意", "重要\uff1a", "请注意"),
        ("这是**“重点”**的", "“重点”", "这是的"),
        ("**Hello!**你好", "Hello!", "你好"),
        ("**강조(强调)**는", "강조(强调)", "는"),
        ("これは**「強調」**です。", "「強調」", "これはです。"),
        ("中文**加粗**中文", "加粗", "中文中文"),
        ("一、**步骤一\uff08准备\uff09**\uff1a打开", "步骤一\uff08准备\uff09", "一、\uff1a打开"),
    ],
)
def test_stars_mean_what_they_mean_where_words_have_no_spaces(text: str, bold: str, rest: str) -> None:
    found = spans(text)
    assert "".join(span.text for span in found if span.bold) == bold
    assert "".join(span.text for span in found if not span.bold) == rest


@pytest.mark.parametrize(
    "text", ["2 * 3 * 4", "宽 * 高 * 长", "snake_case_name", "变量_名称_一", "** 空 **", 'a**"b"**c']
)
def test_marks_that_mean_nothing_stay(text: str) -> None:
    assert spans(text) == (Span(text),)


def test_a_break_in_a_cell_and_in_a_line_breaks_it() -> None:
    (table,) = leaves_of("| a | b |\n|---|---|\n| one<br>two <br/> three | `<br>` and \\<br> |\n")
    assert isinstance(table, Table)
    assert table.rows[1] == ((Span("one\ntwo\nthree"),), (Span("<br>", code=True), Span(" and <br>")))
    assert spans("one<BR />\ntwo<br><br>three") == (Span("one\ntwo\n\nthree"),)
    assert spans("<break> <br x> <b> <brr>") == (Span("<break> <br x> <b> <brr>"),)


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("see https://en.wikipedia.org/wiki/Foo_(bar).", ["https://en.wikipedia.org/wiki/Foo_(bar)"]),
        ("(https://a.example/b) [https://a.example/c]", ["https://a.example/b", "https://a.example/c"]),
        ("参见https://a.example。谢谢", ["https://a.example"]),
        ("见\uff08https://a.example\uff09和【https://a.example/x】", ["https://a.example", "https://a.example/x"]),
        ("“https://a.example/x”", ["https://a.example/x"]),
        ("https://zh.wikipedia.org/wiki/中文", ["https://zh.wikipedia.org/wiki/中文"]),
        ("https:// and http://. and https://...", []),
        ("https://a.example/?q=1&r=2, ok?", ["https://a.example/?q=1&r=2"]),
    ],
)
def test_a_bare_address_ends_where_a_reader_would_end_it(text: str, addresses: list[str]) -> None:
    found = spans(text)
    assert [span.href for span in found if span.href] == addresses
    assert "".join(span.text for span in found) == text
