"""Files that go with a message: text is quoted under its name, everything else is refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from PySide6.QtCore import QMimeData, Qt, QUrl
from PySide6.QtTest import QTest

from app.chat.attachments import MAX_BYTES, MAX_FILES, Attachment, NotText, quoted, read_attachment, size_in_words
from app.chat.composer import Chip, Composer
from app.main_window import MainWindow
from app.theme import Theme
from tests.app.conftest import Bench
from tests.app.test_drop_zone import drop


@pytest.fixture
def composer(qtbot) -> Composer:
    composer = Composer(Theme("dark"))
    qtbot.addWidget(composer)
    composer.resize(700, 140)
    composer.set_state(True, False, "Ask")
    composer.show()
    return composer


@pytest.fixture
def window(bench: Bench) -> MainWindow:
    return bench.start()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("Grüße\n".encode(), "Grüße\n"),
        ("\ufeffx".encode(), "x"),
        ("世界".encode("utf-16"), "世界"),
        (b"a\r\nb\rc", "a\nb\nc"),
    ],
)
def test_text_in_its_encodings_is_read(tmp_path: Path, data: bytes, text: str) -> None:
    path = tmp_path / "notes 世.txt"
    path.write_bytes(data)
    assert read_attachment(path) == Attachment("notes 世.txt", text)


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 bytes"), (1, "1 byte"), (2, "2 bytes"), (12 << 10, "12 KB"), (7 << 19, "3.5 MB")]
)
def test_a_size_is_said_as_one_would(size: int, words: str) -> None:
    assert size_in_words(size) == words


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00", "not a text file"),
        (b"plain\x00binary", "binary"),
        (b"caf\xe9", "not a text file"),
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"x" * (MAX_BYTES + 1), "too long"),
    ],
)
def test_what_is_no_text_is_refused_in_a_sentence(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "thing.bin"
    path.write_bytes(data)
    with pytest.raises(NotText, match=why) as refused:
        read_attachment(path)
    assert "thing.bin" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("cat.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is a picture. Greenroom gives models text only"),
        ("cat.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF\0" + bytes(MAX_BYTES), "is a picture"),  # though too long as well
        ("cat.mp4", b"\0\0\0\x18ftypmp42", "is a video"),
        ("purr.wav", b"RIFF\x24\0\0\0WAVEfmt ", "is sound"),
    ],
)
def test_pictures_and_sound_are_refused_as_what_they_are(tmp_path: Path, name: str, data: bytes, why: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(NotText, match=f"“{name}” {why}"):
        read_attachment(tmp_path / name)


@pytest.mark.parametrize(("name", "text"), [("logo.svg", "<svg/>"), ("main.ts", "let cat = 1;")])
def test_text_under_a_pictures_or_a_videos_name_goes_along(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    assert read_attachment(tmp_path / name).text == text


def test_a_file_with_an_odd_name_is_named_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "100%2 of %3.txt"
    path.write_bytes(b"x" * (MAX_BYTES + 1))
    with pytest.raises(NotText, match=r"“100%2 of %3\.txt” is too long"):
        read_attachment(path)


def test_folders_and_what_is_gone_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotText, match="folder"):
        read_attachment(tmp_path)
    with pytest.raises(NotText, match="not a file"):
        read_attachment(tmp_path / "gone.txt")


@pytest.mark.parametrize("text", ["a\n```\nb\n```\n", "````\n", "~~~\nx", "plain", "   ```\n    `````"])
def test_nothing_in_a_file_ends_its_quote(text: str) -> None:
    message = quoted([Attachment("a.py", text)], "What is this?")
    tokens = MarkdownIt().parse(message)
    fences = [token for token in tokens if token.type == "fence"]
    assert [token.content.rstrip("\n") for token in fences] == [text.rstrip("\n")]
    assert message.startswith("a.py:\n") and message.endswith("\n\nWhat is this?")


def test_dropped_files_go_along_and_can_be_taken_out(window: MainWindow, tmp_path: Path, qtbot) -> None:
    composer = window.composer
    one, two = tmp_path / "one.py", tmp_path / "two.md"
    one.write_text("x = 1\n")
    two.write_text("# Two\n")
    with qtbot.waitSignal(composer.changed):
        drop(composer.input.viewport(), one)
    drop(composer, two, two)
    assert composer.input.hasFocus()
    assert [a.name for a in composer.attachments] == ["one.py", "two.md"]
    assert composer.input.toPlainText() == ""
    assert composer.action.isEnabled()
    chips = composer.chips.findChildren(Chip)
    assert all(chip.isVisible() for chip in chips) and "one.py" in chips[0].text()
    QTest.mouseClick(chips[0], Qt.MouseButton.LeftButton)
    assert [a.name for a in composer.attachments] == ["two.md"]
    QTest.keyClicks(composer.input, "Read this")
    with qtbot.waitSignal(composer.sent) as sent:
        QTest.keyClick(composer.input, Qt.Key.Key_Return)
    assert sent.args == ["two.md:\n```md\n# Two\n```\n\nRead this"]
    composer.clear()
    assert not composer.attachments and composer.chips.isHidden()


def test_a_binary_file_is_refused_beside_the_text_that_goes_along(window: MainWindow, tmp_path: Path) -> None:
    composer = window.composer
    good, bad = tmp_path / "good.txt", tmp_path / "bad.png"
    good.write_text("good")
    bad.write_bytes(b"\x89PNG\0")
    drop(composer, bad, good)
    assert [a.name for a in composer.attachments] == ["good.txt"]
    assert composer.note.isVisible() and "bad.png" in composer.note.text()


def test_not_too_many_files(window: MainWindow, tmp_path: Path) -> None:
    composer = window.composer
    paths = [tmp_path / f"{n} with quite a long name of its own.txt" for n in range(MAX_FILES + 2)]
    for path in paths:
        path.write_text(path.name)
    drop(composer, *paths)
    assert len(composer.attachments) == MAX_FILES
    assert str(MAX_FILES) in composer.note.text()
    for chip in composer.chips.findChildren(Chip):
        assert composer.chips.rect().contains(chip.geometry())


def test_pasted_text_is_plain_and_pasted_files_go_along(composer: Composer, tmp_path: Path) -> None:
    data = QMimeData()
    data.setHtml("<b>bold</b>")
    data.setText("bold")
    composer.input.insertFromMimeData(data)
    assert composer.text == "bold"
    path = tmp_path / "x.txt"
    path.write_text("x")
    files = QMimeData()
    files.setUrls([QUrl.fromLocalFile(str(path))])
    composer.input.insertFromMimeData(files)
    assert len(composer.attachments) == 1 and composer.text == "bold"
