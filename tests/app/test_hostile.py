"""Whatever a model writes is shown, and nothing else happens: nothing is fetched, opened or run, and nothing hangs.

Python's own audit events tell of every file, socket and process; Qt's text views tell of every resource they are asked
for. What the interpreter itself opens to import a module does not count.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget

from app.chat.answer import AnswerView
from app.chat.code import CodeCard
from app.chat.prose import ProseView, TextView
from app.chat.table import TableView
from app.chat.transcript import Transcript
from engine.messages import CacheCounters, Finished, Timings

WATCHED = (
    "open",
    "socket.",
    "subprocess.",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.startfile",
    "urllib.",
    "ftplib.",
)
FREEZE = 2.5  # seconds of the window's own time for one text; the longest are 64 KB

_seen: list[str] = []
_watching = False


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if _watching and event.startswith(WATCHED):
        name = str(arguments[0]) if arguments else ""
        if not name.endswith((".py", ".pyc", ".so", ".pyd")):
            _seen.append(f"{event} {name}")


sys.addaudithook(_hook)


@contextmanager
def nothing_happens(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails when a file, a socket, a process, a resource or a browser is touched inside."""
    global _watching
    _seen.clear()

    def asked(self: TextView, kind: int, name: QUrl | str) -> None:
        _seen.append(f"resource {name}")

    monkeypatch.setattr(TextView, "loadResource", asked)
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: _seen.append(f"browser {url}"))
    _watching = True
    try:
        yield
    finally:
        _watching = False
    assert _seen == []


def corpus(secret: Path) -> dict[str, str]:
    deep = 10_000
    return {
        "template code": "std::vector<int> v = {1 < 2, a && b};",
        "thought in code": "`<think>` and\n\n```\n<think>\nnot a thought\n</think>\n```\n",
        "image tags": f"<img src=x onerror=alert(1)> <img src='{secret.as_uri()}'> <svg onload=x>",
        "images": f"![a](http://tracker.example/p.png) ![b]({secret.as_uri()}) ![c](data:image/png;base64,AAAA)",
        "reference images": f"![x][y]\n\n[y]: {secret.as_uri()}",
        "style and script": "<style>@import url(http://tracker.example)</style><script>alert(1)</script>",
        "frames": "<iframe src=http://tracker.example></iframe><object data=x><embed src=y><link href=z>",
        "file links": f"[x]({secret.as_uri()}) [y](\\\\host\\share) [z](//host/share) <file:///etc/passwd>",
        "script links": "[a](javascript:alert(1)) [b](JaVaScRiPt:x) [c](vbscript:x) [d](data:text/html,x) [e](qrc:/x)",
        "entities": "&lt;b&gt; &#60;img src=x&#62; &amp;lt; &#x202e;abc",
        "html table": f"| <img src='{secret.as_uri()}'> |\n|---|\n| ![x]({secret.as_uri()}) |\n",
        "latex": r"$\includegraphics{/etc/passwd}$ $$\input{/etc/passwd}$$ $\href{javascript:x}{y}$",
        "terminal": "\x1b[2J\x1b]0;title\x07 \x00 \x08\x08",
        "backwards": "file\u202egnp.exe \u2066x\u2069 `\u202ecode` [\u202elink](https://a.example)",
        "accents": "Z" + "\u0301\u0327" * 5000,
        "invisible": "a" + "\u200b\u200d\ufeff" * 5000 + "b",
        "one long word": "x" * 65_536,
        "one long line": "word " * 13_000,
        "one long line of code": "```\n" + "x = 1; " * 9_000 + "\n```\n",
        "one long word of code": "```python\n" + "(" * 65_536,
        "no such language": "```no-such-language\nx\n```",
        "long table row": "|" + " a |" * 3_000 + "\n|" + "---|" * 3_000 + "\n|" + " b |" * 3_000,
        "many tables": "| a | b |\n|---|---|\n| c | d |\n\n" * 60,
        "quotes in quotes": "> " * deep + "x",
        "lists in lists": "- " * deep + "x",
        "numbered lists": "1. " * deep + "x",
        "indented lists": "\n".join(" " * (2 * n) + "- x" for n in range(250)),
        "brackets": "[" * deep + "x" + "](y)" * deep,
        "stars": "a" + "*" * 65_536,
        "stars and words": "*a **b " * 9_000,
        "underscores": "_a" * 30_000,
        "backticks": "`" * 30_000 + " " + "`a " * 10_000,
        "dollars": "$" * 30_000 + "$a " * 10_000,
        "open formulas": "\\[ x\n" * 2_000,
        "deep formula": "$$" + "\\frac{" * 1_000 + "x" + "}{y}" * 1_000 + "$$",
    }


NAMES = list(corpus(Path("/secret.png")))


@pytest.mark.parametrize("name", NAMES)
def test_it_is_shown_and_nothing_else_happens(
    name: str, transcript: Transcript, qtbot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret.png"
    secret.write_text("secret")
    text = corpus(secret)[name]
    with nothing_happens(monkeypatch):
        work = time.thread_time()
        answer = transcript.add_answer()
        for start in range(0, len(text), 1500):
            answer.feed(text[start : start + 1500])
            qtbot.wait(1)
        answer.finish(Finished("r", "end", text, Timings(), CacheCounters(), 1))
        if answer.fold is not None:
            answer.fold.open()
        qtbot.waitUntil(lambda: settled(answer), timeout=60_000)
        transcript.grab()
        answer.footer.raw.setChecked(True)
        transcript.grab()
        answer.footer.raw.setChecked(False)
        saved = AnswerView(transcript.theme)
        saved.show_answer(text, "end", None, None)
        transcript.column.add(saved)
        qtbot.waitUntil(lambda: settled(saved), timeout=60_000)
        transcript.grab()
        work = time.thread_time() - work
    assert work < 8 * FREEZE, f"{work:.1f} s of the window's time"
    assert words(answer).strip()


def settled(answer: AnswerView) -> bool:
    return answer.settled and (answer.fold is None or answer.fold.body.settled)


def words(answer: AnswerView) -> str:
    texts = [w.toPlainText() for w in answer.findChildren(QWidget) if isinstance(w, ProseView | TableView)]
    texts += [card.text.toPlainText() for card in answer.findChildren(CodeCard)]
    return "\n".join(texts)


@pytest.mark.parametrize("name", ["brackets", "stars and words", "dollars", "open formulas", "one long word of code"])
def test_no_piece_of_it_holds_the_window_up_for_long(name: str, transcript: Transcript, qtbot) -> None:
    text = corpus(Path("/secret.png"))[name]
    answer = transcript.add_answer()
    longest = 0.0
    for start in range(0, len(text), 1500):
        began = time.thread_time()
        answer.feed(text[start : start + 1500])
        qtbot.wait(1)
        longest = max(longest, time.thread_time() - began)
    assert longest < 0.5


@pytest.mark.qt_log_ignore("not accepted by receiving widget")  # a click on words that lead nowhere
def test_only_web_and_mail_links_can_be_clicked_and_they_only_say_where_they_lead(
    transcript: Transcript, qtbot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = [
        "https://ok.example/x",
        "mailto:m@x.example",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "data:text/html,x",
    ]
    text = "\n\n".join(f"[click here](<{link}>)" for link in links)
    with nothing_happens(monkeypatch):
        answer = transcript.add_answer()
        answer.feed(text)
        answer.finish(Finished("r", "end", text, Timings(), CacheCounters(), 1))
        clicked: list[str] = []
        transcript.link_clicked.connect(clicked.append)
        (view,) = (w for w in answer.body.widgets() if isinstance(w, ProseView))
        qtbot.wait(1)
        for y in range(6, view.height(), 10):
            QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(20, y))
    assert set(clicked) == set(links[:2])


def test_the_watch_sees_what_it_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match=r"note\.txt"), nothing_happens(monkeypatch):
        (tmp_path / "note.txt").write_text("x")
    with pytest.raises(AssertionError, match=r"socket"), nothing_happens(monkeypatch):
        import socket

        socket.socket().close()
