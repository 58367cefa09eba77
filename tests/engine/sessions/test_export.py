"""Exports appear whole or not at all, and never over the conversation itself."""

from html.parser import HTMLParser

import pytest

from engine.errors import SessionError
from engine.sessions.export import export_html, export_jsonl, export_markdown
from engine.sessions.log import SessionLog
from engine.sessions.reader import read_conversation


@pytest.fixture
def source(tmp_path):
    with SessionLog.create(tmp_path / "own", "test") as log:
        log.append_message("u1", None, "user", "What is `std::vector<int>`?\nBriefly.")
        log.append_message("a1", "u1", "assistant", "A growable array.", reason="end")
        log.append_message("a2", "u1", "assistant", "Half an emoji \ud83d", reason="length")
    return log.path


def test_the_exported_log_opens_as_the_same_conversation(source, tmp_path):
    with source.open("ab") as file:
        file.write(b'{"torn')
    target = tmp_path / "copy of it.jsonl"
    export_jsonl(source, target)
    copy, original = read_conversation(target), read_conversation(source)
    assert copy.messages == original.messages
    assert (copy.id, copy.torn, original.torn) == (original.id, False, True)


def test_a_last_line_that_lacks_only_its_end_is_exported_too(source, tmp_path):
    source.write_bytes(source.read_bytes().rstrip(b"\n"))
    target = tmp_path / "copy.jsonl"
    export_jsonl(source, target)
    assert list(read_conversation(target).messages) == ["u1", "a1", "a2"]
    assert target.read_bytes().endswith(b"\n")


def test_an_open_conversation_exports_with_what_is_still_in_memory(source, tmp_path):
    with SessionLog.open(source) as log:
        log.append_delta("a3", "so")
        log.append_delta("a3", " far")
        export_jsonl(source, tmp_path / "copy.jsonl")
    assert read_conversation(tmp_path / "copy.jsonl").messages["a3"].text == "so far"


def test_markdown_shows_one_branch_as_valid_utf8(source, tmp_path):
    target = tmp_path / "talk.md"
    export_markdown(source, target)
    text = target.read_text(encoding="utf-8")
    assert text.startswith("# What is `std::vector<int>`?\n")
    assert "## You\n\nWhat is `std::vector<int>`?\nBriefly.\n" in text
    assert "Half an emoji \ufffd\n\n*(ended at the token limit)*\n" in text
    assert "growable" not in text
    export_markdown(source, target, leaf="a1")
    assert "A growable array." in target.read_text(encoding="utf-8")


@pytest.mark.parametrize("export", [export_jsonl, export_markdown, export_html])
def test_a_bad_target_is_told_and_nothing_is_left_behind(source, tmp_path, export):
    before = source.read_bytes()
    with pytest.raises(SessionError, match="own file"):
        export(source, source)
    (tmp_path / "link").symlink_to(source)
    with pytest.raises(SessionError, match="own file"):
        export(source, tmp_path / "link")
    with pytest.raises(SessionError, match="is a folder"):
        export(source, tmp_path)
    with pytest.raises(SessionError, match="no folder"):
        export(source, tmp_path / "no" / "such.md")
    with pytest.raises(SessionError, match=r"name too long|could not be read or written"):
        export(source, tmp_path / ("n" * 300))
    assert source.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "own"]


@pytest.mark.parametrize("export", [export_jsonl, export_markdown, export_html])
def test_a_source_that_is_no_log_leaves_the_target_alone(tmp_path, export):
    bad, target = tmp_path / "bad.jsonl", tmp_path / "target"
    bad.write_text("hello\n")
    target.write_text("precious")
    with pytest.raises(SessionError, match="not a Greenroom"):
        export(bad, target)
    assert target.read_text() == "precious"


def test_a_continued_answer_is_one_answer_in_the_export(source, tmp_path):
    with SessionLog.open(source) as log:
        log.append_message("a3", "a1", "assistant", " Briefly: a list.", reason="end")
    export_markdown(source, tmp_path / "talk.md")
    assert "## Answer\n\nA growable array. Briefly: a list.\n" in (tmp_path / "talk.md").read_text("utf-8")


def test_a_thought_is_folded_in_markdown_and_its_marks_are_gone(source, tmp_path):
    with SessionLog.open(source) as log:
        log.append_message("u2", "a1", "user", "<think>is what I say</think>")
        log.append_message("a2", "u2", "assistant", "<think>hm</think>It is 4.", reason="end")
    target = tmp_path / "talk.md"
    export_markdown(source, target, split=lambda text: ("hm", "It is 4.") if "hm" in text else ("", text))
    text = target.read_text("utf-8")
    assert "## Answer\n\n<details>\n<summary>Thought</summary>\n\nhm\n\n</details>\n\nIt is 4.\n" in text
    assert "<think>is what I say</think>" in text and "<think>hm" not in text


def test_the_whole_tree_has_every_message_once_and_says_what_stands_for_what(source, tmp_path):
    with SessionLog.open(source) as log:
        log.append_message("u2", "a1", "user", "Thanks!")
        log.append_message("u3", "a1", "user", "And a list?")
        log.append_message("u4", None, "user", "Another beginning")
        log.append_choice("u2")
    for export, name in ((export_markdown, "tree.md"), (export_html, "tree.html")):
        export(source, tmp_path / name, whole=True)
        text = (tmp_path / name).read_text(encoding="utf-8")
        for words in ("Thanks!", "And a list?", "Another beginning", "Half an emoji"):
            assert text.count(words) == 1 if words != "Thanks!" else text.count(words) == 2, (name, words)
        assert text.index("Thanks!") < text.index("In place of") < text.index("Another beginning")
        assert "In place of “A growable array.”" in text
        export(source, tmp_path / name)
        assert "Another beginning" not in (tmp_path / name).read_text(encoding="utf-8")


HOSTILE = """<script>alert(1)</script> std::vector<int> <img src=x onerror=alert(2)>

![spy](https://example.com/pixel.png) ![local](file:///etc/passwd) [bad](javascript:alert(3)) [file](file:///etc)

```html
<b onclick="x">code</b></code></pre><script>alert(4)</script>
```

| a | b |
|---|---|
| `x` | **y** |
"""


def test_the_web_page_shows_hostile_text_and_runs_and_fetches_nothing(tmp_path):
    with SessionLog.create(tmp_path / "own", "test") as log:
        log.append_message("u1", None, "user", "</div><script>alert(0)</script> &amp;")
        log.append_message("a1", "u1", "assistant", f"<think>let me\nsee</think>\n\n{HOSTILE}", reason="length")
    target = tmp_path / "talk.html"
    export_html(log.path, target, split=lambda text: ("let me\nsee", text.partition("</think>")[2]))

    class Page(HTMLParser):
        def __init__(self):
            super().__init__()
            self.tags: list[tuple[str, dict[str, str | None]]] = []
            self.text: list[str] = []

        def handle_starttag(self, tag, attrs):
            self.tags.append((tag, dict(attrs)))

        def handle_data(self, data):
            self.text.append(data)

    page = Page()
    page.feed(target.read_text(encoding="utf-8"))
    tags, text = {tag for tag, _ in page.tags}, "".join(page.text)
    assert not tags & {"script", "img", "link", "iframe", "object", "b"}
    assert {"table", "strong", "details"} <= tags
    assert not [attrs for _, attrs in page.tags if any(name.startswith("on") or name == "src" for name in attrs)]
    assert [attrs["href"] for _, attrs in page.tags if "href" in attrs] == ["https://example.com/pixel.png"]
    for words in ("alert(0)", "&amp;", "alert(1)", "std::vector<int>", "alert(4)", "javascript:alert(3)", "let me"):
        assert words in text
    assert "ended at the token limit" in text
    policy = next(attrs["content"] for _, attrs in page.tags if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'")
