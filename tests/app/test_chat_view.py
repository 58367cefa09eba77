"""What stands on the screen: rendered markdown, hostile text, copying, following the end, themes."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import shiboken6
from PySide6.QtCore import QPoint, Qt, QUrl
from PySide6.QtGui import QColor, QGuiApplication, QTextBlockFormat, QTextCursor, QTextDocument
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget

from app.chat.body import MarkdownBody
from app.chat.code import CodeCard
from app.chat.indents import QUOTE_INDENT
from app.chat.markdown import Code, Leaf
from app.chat.prose import ProseView, TextView
from app.chat.raw import RawText
from app.chat.table import TableView
from app.chat.transcript import Transcript
from app.gaps import GapMeter
from app.garbage import GarbageCollector
from app.selftest import SAMPLE
from app.theme import BODY, Theme
from engine.messages import CacheCounters, Finished, Timings


def shown(body: MarkdownBody) -> list[tuple[str, str, list[str]]]:
    """What each view of a text shows: its kind, its words, and the look of its lines."""
    result = []
    for widget in body.widgets():
        if isinstance(widget, CodeCard):
            result.append(("code", widget.leaf.language, widget.text.toPlainText().split("\n")))
        else:
            assert isinstance(widget, ProseView | TableView)
            looks = []
            block = widget.document().begin()
            while block.isValid():
                items = block.textList()
                marker = items.itemText(block) if items else ""
                layout = block.blockFormat()
                looks.append(f"{marker}|{layout.indent()}|{layout.topMargin()}|{layout.leftMargin()}|{block.text()}")
                block = block.next()
            result.append((type(widget).__name__, widget.toPlainText(), looks))
    return result


def whole(body: MarkdownBody, text: str) -> list[tuple[str, str, list[str]]]:
    body.set_text(text)
    return shown(body)


def stream_into(body: MarkdownBody, text: str, pieces: list[str], qtbot) -> None:
    for piece in pieces:
        body.feed(piece)
        body._next = 0.0  # show every state in between, not only what there is time for
        body._show()
    body.finish()
    qtbot.waitUntil(lambda: body.settled)


def finished(text: str, reason: str = "end") -> Finished:
    timings = Timings(20, 0, 168, first_token_seconds=1.9, prefill_seconds=1.7, decode_seconds=11.8)
    return Finished("r", reason, text, timings, CacheCounters(decode_hits=83, decode_misses=17), 1)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------ rendering


@pytest.mark.parametrize("seed", range(4))
def test_streamed_answer_looks_like_one_shown_at_once(theme: Theme, qtbot, seed: int) -> None:
    rng = random.Random(seed)
    text = SAMPLE + "\n---\n\n- \n- x\n\n" + SAMPLE + "\n# End\n\n---\n- a\n\n  ```\n  b\n  ```\n"
    cuts = sorted(rng.sample(range(1, len(text)), 300 if seed else len(text) - 1))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    one, other = MarkdownBody(theme), MarkdownBody(theme)
    for body in (one, other):
        qtbot.addWidget(body)
        body.fit(700)
    stream_into(one, text, pieces, qtbot)
    expected = whole(other, text)
    assert shown(one) == expected
    assert one.fit(700) == other.fit(700)


def test_theme_change_shows_the_same_in_other_colours(theme: Theme, qtbot) -> None:
    body = MarkdownBody(theme)
    qtbot.addWidget(body)
    body.fit(700)
    body.set_text(SAMPLE)
    before, height = shown(body), body.fit(700)
    theme.set_mode("light")
    assert shown(body) == before
    assert body.fit(700) == height
    prose = body.widgets()[0]
    assert isinstance(prose, ProseView)
    assert prose.palette().text().color().lightness() < 100


@pytest.mark.parametrize(
    "text",
    [
        "std::vector<int> v = {1 < 2};",
        "a <think> b </think> c",
        "x <img src=x onerror=alert(1)> y",
        "<script>alert(1)</script>",
        "[x](file:///etc/passwd)",
        "[x](javascript:alert(1))",
        "![pic](http://tracker.example/pixel.png)",
    ],
)
def test_hostile_text_is_shown_as_it_was_written(theme: Theme, qtbot, text: str) -> None:
    body = MarkdownBody(theme)
    qtbot.addWidget(body)
    body.fit(700)
    body.set_text(f"{text}\n\n- {text}\n\n> {text}\n\n| h |\n|---|\n| {text} |\n")
    words = "\n".join(view.toPlainText() for view in body.widgets() if isinstance(view, ProseView | TableView))
    assert words.count(text) == 4


def test_nothing_is_ever_loaded(theme: Theme, qtbot, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_text("secret")
    body = MarkdownBody(theme)
    qtbot.addWidget(body)
    body.set_text(f"![x]({secret.as_uri()}) [a](https://example.com)")
    view = body.widgets()[0]
    assert isinstance(view, ProseView)
    for kind in QTextDocument.ResourceType:
        assert view.loadResource(kind.value, QUrl.fromLocalFile(str(secret))) is None
    assert "img" not in view.document().toHtml().lower()


def test_a_link_only_says_where_it_leads(theme: Theme, qtbot) -> None:
    body = MarkdownBody(theme)
    qtbot.addWidget(body)
    body.resize(600, 200)
    body.show()
    body.set_text("[click here](https://example.com/path)")
    view = body.widgets()[0]
    assert isinstance(view, ProseView)
    view.setGeometry(0, 0, 600, body.fit(600))
    with qtbot.waitSignal(body.link_clicked) as caught:
        QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(20, 8))
    assert caught.args == ["https://example.com/path"]


def test_copied_text_has_markers_and_nothing_else(theme: Theme, qtbot) -> None:
    body = MarkdownBody(theme)
    qtbot.addWidget(body)
    body.set_text("Some **bold** text\nsecond line\n\n3. three\n4. four\n   - inner\n\n---\n\nend")
    view = body.widgets()[0]
    assert isinstance(view, ProseView)
    cursor = view.textCursor()
    cursor.select(QTextCursor.SelectionType.Document)
    view.setTextCursor(cursor)
    data = view.createMimeDataFromSelection()
    assert data.text() == "Some bold text\nsecond line\n3. three\n4. four\n  - inner\n\nend"
    assert data.formats() == ["text/plain"]


def test_code_is_copied_whole_and_unchanged(theme: Theme, qtbot) -> None:
    card = CodeCard(theme)
    qtbot.addWidget(card)
    text = "if a != b:\n\treturn '<b>'  # \u00e4\n\n"
    card.show_code(Code(text, "python"), live=False)
    card.copy()
    assert QGuiApplication.clipboard().text() == text
    assert card.text.toPlainText() == text


def test_code_and_tables_in_a_quote_stand_in_it(theme: Theme, qtbot) -> None:
    body = MarkdownBody(theme)
    qtbot.addWidget(body)
    body.set_text("```\nx\n```\n\n> said\n>\n> ```\n> x\n> ```\n>\n> | a |\n> |---|\n> | b |\n")
    body.fit(700)
    outside, inside = body.findChildren(CodeCard)
    assert inside.text.x() - outside.text.x() == QUOTE_INDENT
    assert inside.text.width() == outside.text.width() - QUOTE_INDENT
    (table,) = body.findChildren(TableView)
    (frame,) = table.document().rootFrame().childFrames()
    assert frame.frameFormat().leftMargin() == QUOTE_INDENT


@pytest.mark.parametrize("text", ["a\n\n---\n\nb", "a\n\n---", "```\nx\n```\n\n---\n\n```\ny\n```"])
def test_a_rule_is_seen_wherever_it_stands(theme: Theme, qtbot, text: str) -> None:
    body = MarkdownBody(theme)
    qtbot.addWidget(body)
    body.set_text(text)
    body.resize(300, body.fit(300))
    (view,) = body.findChildren(ProseView)
    image = view.grab().toImage()
    line = QColor(theme.colors.border)
    assert sum(image.pixelColor(image.width() - 1, y) == line for y in range(image.height())) == 1


def test_code_that_streams_gets_the_colours_of_code_shown_at_once(theme: Theme, qtbot) -> None:
    text = 'def f():\n    """doc\n    more"""\n    return 1\n' * 60
    one, other = CodeCard(theme), CodeCard(theme)
    for card in (one, other):
        qtbot.addWidget(card)
    for end in range(0, len(text), 97):
        one.show_code(Code(text[:end], "python"), live=True)
    for card in (one, other):
        card.show_code(Code(text, "python"), live=False)
        qtbot.waitUntil(lambda card=card: not card._highlighter.reading)

    assert colours(one) == colours(other)
    assert any(colours(one))


def test_a_theme_that_comes_while_code_is_still_coloured_has_the_last_word(
    theme: Theme, qtbot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.chat.highlight.SLICE_SECONDS", 0)  # a line at a time
    text = "def merge(a, b):\n    i = 0\n    while i < 1:\n        i += 1\n    return a\n"
    theme.set_mode("dark")
    old, new = CodeCard(theme), CodeCard(theme)
    for card in (old, new):
        qtbot.addWidget(card)
    old.show_code(Code(text, "python"), live=False)
    before = old._highlighter
    assert before.reading
    monkeypatch.setattr("app.chat.highlight.SLICE_SECONDS", 1)  # the new colours are there before the rest of the old
    theme.set_mode("light")
    old.restyle()
    assert not before.reading
    new.show_code(Code(text, "python"), live=False)
    for card in (old, new):
        qtbot.waitUntil(lambda card=card: not card._highlighter.reading)
    qtbot.waitUntil(lambda: not shiboken6.isValid(before))
    assert colours(old) == colours(new)
    assert any(colours(new))


def colours(card: CodeCard) -> list[list[tuple[int, int, str]]]:
    result = []
    block = card.text.document().begin()
    while block.isValid():
        spans = block.layout().formats()
        result.append([(s.start, s.length, s.format.foreground().color().name()) for s in spans])
        block = block.next()
    return result


def test_unknown_language_and_huge_table_are_plain(theme: Theme, qtbot) -> None:
    body = MarkdownBody(theme)
    qtbot.addWidget(body)
    body.fit(700)
    rows = "".join(f"| {i} | x |\n" for i in range(500))
    wide = "|" + " a |" * 65 + "\n|" + "---|" * 65 + "\n|" + " b |" * 65
    body.set_text(f"```klingon\nqapla\n```\n\n| a | b |\n|---|---|\n{rows}\n\n{wide}\n")
    qtbot.waitUntil(lambda: body.settled)
    assert [kind for kind, *_ in shown(body)] == ["code", "code", "code"]


# ------------------------------------------------------------------------------------------------- answers


def test_thought_folds_and_opens(transcript: Transcript) -> None:
    answer = transcript.add_answer()
    for piece in ["<th", "ink>\nLet me ", "see.", "</thi", "nk>\n\nIt is ", "4."]:
        answer.feed(piece)
    answer.finish(finished("<think>\nLet me see.</think>\n\nIt is 4."))
    assert answer.fold is not None
    assert not answer.fold.body.isVisible()
    assert [words for _, words, _ in shown(answer.body)] == ["It is 4."]
    QTest.mouseClick(answer.fold.button, Qt.MouseButton.LeftButton)
    assert answer.fold.body.isVisible()
    assert [words for _, words, _ in shown(answer.fold.body)] == ["Let me see."]


def test_thought_whose_beginning_is_in_the_prompt(transcript: Transcript) -> None:
    text = "First I think\nabout it.\n</think>\n\nThe answer."
    answer = transcript.add_answer()
    for character in text:
        answer.feed(character)
    answer.finish(finished(text))
    assert answer.fold is not None
    assert [words for _, words, _ in shown(answer.body)] == ["The answer."]


def test_marks_elsewhere_are_text(transcript: Transcript) -> None:
    text = "Models write `<think>` and </think> around thoughts."
    answer = transcript.add_answer()
    for character in text:
        answer.feed(character)
    answer.finish(finished(text))
    assert answer.fold is None
    assert [words for _, words, _ in shown(answer.body)] == ["Models write <think> and </think> around thoughts."]


def test_figures_stand_below_the_answer(transcript: Transcript) -> None:
    answer = transcript.add_answer()
    answer.feed("Hello")
    answer.finish(finished("Hello", "stopped"))
    words = answer.footer.label.text().replace("\u00a0", " ")
    for part in ("168 tokens", "14.2 tok/s", "prefill 11.8 tok/s", "first token 1.9 s", "hits 83%", "stopped"):
        assert part in words


def test_the_tooltip_tells_all(transcript: Transcript) -> None:
    answer = transcript.add_answer()
    answer.feed("Hello")
    cache = CacheCounters(80, 20, 83, 17, 12, 3_400_000_000, 1.25, 0, 30, 4, 6, 900_000_000, 100_000_000)
    timings = Timings(120, 100, 168, first_token_seconds=0.9, prefill_seconds=0.5, decode_seconds=11.8)
    answer.finish(Finished("r", "length", "Hello", timings, cache, 1))
    table = QTextDocument()
    table.setHtml(answer.footer.label.toolTip())
    words = table.toPlainText()
    for part in (
        "168 tokens in 11.8 s, 14.2 tokens a second",
        "120 tokens, 100 of them were still in the KV cache",
        "20 tokens in 500 ms, 40.0 tokens a second",
        "after 900 ms",
        "83 hits, 17 misses: 83.0%",
        "80 hits, 20 misses: 80.0%",
        "3.40 GB, 12 evictions; waited 1.2 s for experts",
        "30 used in time, 4 late, 6 wasted; 900.0 MB, of it 100.0 MB wasted",
        "the length limit was reached",
    ):
        assert part in words, part


def test_raw_shows_the_text_as_the_model_wrote_it_and_back(transcript: Transcript, qtbot) -> None:
    text = "<think>hm *x*</think>\n\n**bold** and a [link](javascript:x)"
    answer = transcript.add_answer()
    answer.feed(text)
    answer.finish(finished(text))
    QTest.mouseClick(answer.footer.raw, Qt.MouseButton.LeftButton)
    (raw,) = answer.findChildren(RawText)
    assert raw.isVisible() and raw.text == text
    assert not answer.body.isVisible() and answer.fold is not None and not answer.fold.isVisible()
    check_stack([w for w in answer.widgets() if not w.isHidden()], answer)
    QTest.mouseClick(answer.footer.raw, Qt.MouseButton.LeftButton)
    assert not raw.isVisible() and answer.body.isVisible() and answer.fold.isVisible()


def test_raw_breaks_lines_between_words_unless_one_is_endless(theme: Theme, qtbot) -> None:
    for text, broken in (("mysterious " * 40, 0), ("x" * 60_000, 1)):
        raw = RawText(theme, text)
        qtbot.addWidget(raw)
        raw.resize(400, raw.fit(400))
        layout = raw.findChild(TextView).document().firstBlock().layout()
        ends = [line.textStart() + line.textLength() for line in map(layout.lineAt, range(layout.lineCount() - 1))]
        assert len(ends) > 5
        assert any(text[end - 1] != " " for end in ends) == broken


def test_copy_takes_what_is_read_and_all_of_it_where_it_is_shown_raw(transcript: Transcript) -> None:
    channels = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>It is *4*."
    for text, read in (
        ("<think>hm</think>\n\nIt is *4*.", "It is *4*."),
        (channels, "It is *4*."),
        ("<think>never got further", "never got further"),
        ("plain", "plain"),
    ):
        answer = transcript.add_answer()
        answer.feed(text)
        answer.finish(finished(text))
        answer.footer.copy.click()
        assert QGuiApplication.clipboard().text() == read
        answer.footer.raw.click()
        answer.footer.copy.click()
        assert QGuiApplication.clipboard().text() == text


def test_a_thought_tells_how_long_it_takes_and_took(transcript: Transcript, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("app.chat.answer.time.monotonic", lambda: now[0])
    answer = transcript.add_answer()
    now[0] += 7  # the prompt is read: that is no thinking
    answer.feed("<think>hm")
    now[0] += 3
    answer.feed(" so")
    assert answer.fold is not None and "Thinking for 3 s" in answer.fold.button.text()
    now[0] += 2
    answer.feed("</think>Yes")
    now[0] += 9
    answer.finish(finished("<think>hm so</think>Yes"))
    assert answer.fold.button.text().endswith("Thought for 5 s")
    saved = transcript.add_answer()
    saved.show_answer("<think>" + "x" * 80 + "</think>yes!!", "end", Timings(decode_seconds=10.0), None)
    assert saved.fold is not None and "about 8 s" in saved.fold.button.text()


# ---------------------------------------------------------------------------------------------- transcript


def test_transcript_follows_the_end_until_the_reader_scrolls_up(transcript: Transcript, qtbot) -> None:
    transcript.add_user("Tell me a lot")
    answer = transcript.add_answer()
    bar = transcript.verticalScrollBar()
    answer.feed("word " * 2000)
    qtbot.waitUntil(lambda: answer.body.settled and bar.maximum() > 300)
    qtbot.waitUntil(lambda: bar.value() == bar.maximum())
    assert not transcript.jump.isVisible()
    bar.setValue(100)
    answer.feed("more " * 1000)
    qtbot.waitUntil(lambda: answer.body.settled)
    assert bar.value() == 100
    assert transcript.jump.isVisible()
    QTest.mouseClick(transcript.jump, Qt.MouseButton.LeftButton)
    assert bar.value() == bar.maximum()
    answer.feed("end " * 500)
    qtbot.waitUntil(lambda: answer.body.settled and bar.value() == bar.maximum())


def test_nothing_overlaps_and_nothing_is_cut(transcript: Transcript, qtbot) -> None:
    transcript.add_user("A question\n\nwith lines, and " + "averylongword" * 60)
    answer = transcript.add_answer()
    answer.feed(SAMPLE)
    answer.finish(finished(SAMPLE))
    transcript.add_card("error", "It broke", "Because of " + "reasons " * 60, ["Do this", "Do that"])
    for width in (820, 560, 1400):
        transcript.resize(width, 700)
        qtbot.waitUntil(lambda: transcript.column.width() == transcript.viewport().width())
        for column in (transcript.column, answer, answer.body):
            check_stack([w for w in column.widgets() if not w.isHidden()], column)


def check_stack(widgets: list[QWidget], column: QWidget) -> None:
    bottom = 0
    for widget in widgets:
        assert widget.y() >= bottom
        bottom = widget.y() + widget.height()
        assert widget.x() + widget.width() <= column.width()
        if isinstance(widget, ProseView | TableView):
            assert widget.document().size().height() <= widget.height()
    assert bottom <= column.height()


@pytest.fixture
def collector(qapp) -> Iterator[GarbageCollector]:
    """As the program has it. Python's own walks through all that the libraries made, which takes 100 ms and more."""
    collector = GarbageCollector(busy=lambda: True)
    yield collector
    collector.close()


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("kind", ["mixed", "code", "list", "one paragraph"])
def test_64_kb_stream_without_holding_the_window_up(transcript: Transcript, qtbot, kind: str) -> None:
    text = {
        "mixed": SAMPLE * 70,
        "code": "```python\n" + "    x = compute('a', 1)  # comment\n" * 1900 + "```\n",
        "list": "- an item with **bold** words\n" * 2200,
        "one paragraph": "word another longer " * 3300,
    }[kind][: 64 * 1024] + "\n\nthe very end"
    answer = transcript.add_answer()
    meter = GapMeter("decoding", clock=time.thread_time)  # not the time that other tests take meanwhile
    chunk, sent = 400, 0
    while sent < len(text):
        answer.feed(text[sent : sent + chunk])
        sent += chunk
        qtbot.wait(5)
    answer.finish(finished(text))
    qtbot.waitUntil(lambda: answer.body.settled, timeout=60_000)
    meter.stop()
    assert meter.longest_ms["decoding"] <= 150, meter.longest_ms
    assert widget_text(answer.body.widgets()[-1]).endswith("the very end")


def widget_text(widget: QWidget) -> str:
    return widget.text.toPlainText() if isinstance(widget, CodeCard) else getattr(widget, "toPlainText", str)()


def test_leaves_are_shown_once_each(theme: Theme, qtbot) -> None:
    body = MarkdownBody(theme)
    qtbot.addWidget(body)
    body.fit(600)
    began = time.perf_counter()
    body.feed("a\n\nb")
    body._next = 0.0
    body.feed("\n\nc")
    body.finish()
    leaves: list[Leaf] = [leaf for view in body.widgets() if isinstance(view, ProseView) for leaf in view.leaves]
    assert [leaf.spans[0].text for leaf in leaves if hasattr(leaf, "spans")] == ["a", "b", "c"]
    assert time.perf_counter() - began < 5


# ------------------------------------------------------------------------------------------- tasks and tables


def test_a_task_list_has_boxes_and_is_copied_as_it_was_written(theme: Theme, qtbot) -> None:
    body = MarkdownBody(theme)
    qtbot.addWidget(body)
    body.fit(700)
    text = "- [ ] buy *bread*\n- [x] write code\n- no [ ] task\n  - [X] inner"
    body.set_text(text)
    (prose,) = body.widgets()
    assert isinstance(prose, ProseView)
    unchecked, checked, none = (getattr(QTextBlockFormat.MarkerType, n) for n in ("Unchecked", "Checked", "NoMarker"))
    blocks = [prose.document().findBlockByNumber(n) for n in range(4)]
    assert [block.blockFormat().marker() for block in blocks] == [unchecked, checked, none, checked]
    assert [block.text() for block in blocks] == ["buy bread", "write code", "no [ ] task", "inner"]
    prose.selectAll()
    copied = prose.createMimeDataFromSelection().text()
    assert copied == "- [ ] buy bread\n- [x] write code\n- no [ ] task\n  - [x] inner"


def test_a_wide_table_scrolls_sideways_instead_of_breaking_its_words(transcript: Transcript, qtbot) -> None:
    answer = transcript.add_answer()
    head = "| " + " | ".join(f"Column {n}" for n in range(14)) + " |\n" + "|---" * 14 + "|\n"
    answer.feed(
        head + "| " + " | ".join(f"some-value-{n}" for n in range(14)) + " |\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    )
    answer.finish(finished(answer.shown_text))
    wide, small = (w for w in answer.body.widgets() if isinstance(w, TableView))
    qtbot.waitUntil(lambda: wide.horizontalScrollBar().isVisible())
    assert wide.horizontalScrollBar().maximum() > 0
    assert not small.horizontalScrollBar().isVisible()
    block = wide.document().begin()
    while block.isValid():  # no cell is broken over lines
        assert block.layout().lineCount() <= 1, block.text()
        block = block.next()
    check_stack([w for w in answer.body.widgets() if not w.isHidden()], answer.body)


def test_code_has_the_size_of_larger_letters(theme: Theme, qtbot) -> None:
    body = MarkdownBody(theme)
    qtbot.addWidget(body)
    body.fit(700)
    body.set_text("```\n" + "wide " * 12 + "\nx\n```")
    (card,) = body.widgets()
    assert isinstance(card, CodeCard)
    before = body.fit(700)
    try:
        theme.set_font_size(22)
        assert card.text.font().pixelSize() > 13
        assert body.fit(700) > before
        bottom = card.text.blockBoundingGeometry(card.text.document().lastBlock()).bottom()
        assert bottom <= card.text.height() + 1
    finally:
        theme.set_font_size(BODY)
    assert body.fit(700) == before
