"""The column of conversations by itself: headings, marks, long titles, a thousand of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from PySide6.QtCore import QObject, QPoint, Qt
from PySide6.QtGui import QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLineEdit

from app.background import Background
from app.sidebar import Sidebar
from app.sidebar.groups import heading
from app.sidebar.rows import PATH, WRITING, dots_rect
from app.theme import Theme
from engine.sessions.log import SessionLog


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "conversations"


@pytest.fixture
def sidebar(folder: Path, qtbot) -> Iterator[Sidebar]:
    background = Background()
    sidebar = Sidebar(Theme("light"), folder, background)
    qtbot.addWidget(sidebar)
    sidebar.resize(248, 700)
    sidebar.show()
    yield sidebar
    background.close()


def talk(folder: Path, title: str, days: float = 0) -> Path:
    when = (datetime.now(UTC) - timedelta(days=days)).isoformat()
    with SessionLog.create(folder, "test") as log:
        log.append_message("m", None, "user", title, time=when)
    return log.path


def lines(sidebar: Sidebar) -> list[str]:
    return [sidebar.list.item(row).text() for row in range(sidebar.list.count())]


def item_of(sidebar: Sidebar, path: Path):
    items = [sidebar.list.item(row) for row in range(sidebar.list.count())]
    return next(item for item in items if item.data(PATH) == str(path))


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        (date(2026, 3, 31), "Today"),
        (date(2026, 4, 2), "Today"),  # a clock that was set back
        (date(2026, 3, 30), "Yesterday"),
        (date(2026, 3, 29), "Previous 7 days"),
        (date(2026, 3, 24), "Previous 7 days"),
        (date(2026, 3, 23), "March"),
        (date(2026, 1, 1), "January"),
        (date(2025, 3, 31), "March 2025"),
    ],
)
def test_headings(day: date, expected: str) -> None:
    noon = datetime(day.year, day.month, day.day, 12).timestamp()
    assert heading(noon, date(2026, 3, 31), QObject()) == expected


def test_conversations_stand_under_their_day_latest_first(sidebar: Sidebar, folder: Path, qtbot) -> None:
    for title, days in (("old", 400), ("last week", 3), ("now", 0)):
        talk(folder, title, days)
    sidebar.refresh()
    qtbot.waitUntil(lambda: lines(sidebar)[:4] == ["Today", "now", "Previous 7 days", "last week"])
    assert lines(sidebar)[5:] == ["old"]


def test_enter_with_every_hit_deleted_opens_nothing(sidebar: Sidebar, folder: Path, qtbot) -> None:
    path = talk(folder, "the only one")
    sidebar.refresh()
    sidebar.search.setText("only")
    qtbot.waitUntil(lambda: lines(sidebar) == ["1 conversation", "the only one"])
    sidebar.hide_entries(frozenset({path}))
    opened: list[Path] = []
    sidebar.opened.connect(lambda found, message: opened.append(found))
    QTest.keyClick(sidebar.search, Qt.Key.Key_Return)
    assert opened == []


@pytest.mark.parametrize(
    "text", ['"', '"a b', "a*", "*", "%", "_", "-a", "NEAR(", "a OR", "\\", "'", "(", ":", "^", "ß", "😀"]
)
def test_any_character_can_be_searched_for(sidebar: Sidebar, folder: Path, text: str, qtbot) -> None:
    talk(folder, f"before {text} after")
    talk(folder, "nothing of it")
    sidebar.refresh()
    sidebar.search.setText(text)
    qtbot.waitUntil(lambda: lines(sidebar) == ["1 conversation", f"before {text} after"], timeout=5000)


def test_a_title_being_typed_is_not_lost_to_news(sidebar: Sidebar, folder: Path, qtbot) -> None:
    path = talk(folder, "one")
    sidebar.refresh()
    qtbot.waitUntil(lambda: len(lines(sidebar)) == 2)
    sidebar.list.setFocus()
    sidebar.list.setCurrentItem(item_of(sidebar, path))
    QTest.keyClick(sidebar.list, Qt.Key.Key_F2)
    field = sidebar.list.viewport().findChild(QLineEdit)
    assert isinstance(field, QLineEdit)
    qtbot.waitUntil(lambda: field.selectedText() == "one")
    QTest.keyClicks(field, "A better tit")
    sidebar.put_first(folder / "another.jsonl", "another")  # an answer began elsewhere
    QTest.keyClicks(field, "le")
    renamed: list[str] = []
    sidebar.renamed.connect(lambda path, title: renamed.append(title))
    QTest.keyClick(field, Qt.Key.Key_Return)
    assert renamed == ["A better title"]
    qtbot.waitUntil(lambda: lines(sidebar)[1:] == ["another", "one"])


@pytest.mark.parametrize("seconds", [1e12, 1e18, -1e12])
def test_a_clock_gone_wild_hides_no_conversation(seconds: float) -> None:
    assert heading(seconds, date(2026, 3, 31), QObject())


def test_an_empty_list_says_what_to_do(sidebar: Sidebar, qtbot) -> None:
    qtbot.waitUntil(sidebar.empty.isVisible)
    assert "will be listed here" in sidebar.empty.text()


def test_a_folder_that_cannot_be_read_is_told(tmp_path: Path, qtbot) -> None:
    (tmp_path / "conversations").write_text("a file where the folder should be")
    background = Background()
    sidebar = Sidebar(Theme("dark"), tmp_path / "conversations", background)
    qtbot.addWidget(sidebar)
    qtbot.waitUntil(lambda: "cannot be read" in sidebar.empty.text())
    background.close()


def test_titles_that_look_like_markup_are_text_and_long_ones_are_told_in_full(sidebar: Sidebar, folder, qtbot) -> None:
    path = talk(folder, "<b>bold</b> <img src='https://example.com/x.png'> and a rather long title")
    sidebar.refresh()
    qtbot.waitUntil(lambda: sidebar.list.count() == 2)
    tip = item_of(sidebar, path).toolTip()
    assert "&lt;b&gt;bold&lt;/b&gt;" in tip and "<img" not in tip


def test_the_conversation_being_written_is_marked(sidebar: Sidebar, folder: Path, qtbot) -> None:
    path, other = talk(folder, "one"), talk(folder, "two")
    sidebar.refresh()
    qtbot.waitUntil(lambda: sidebar.list.count() == 3)

    def right_end() -> QImage:
        row = sidebar.list.visualItemRect(item_of(sidebar, path))
        return sidebar.list.viewport().grab(dots_rect(row)).toImage()

    QTest.mouseMove(sidebar.list.viewport(), QPoint(5, 600))
    before = right_end()
    sidebar.set_writing(path)
    assert item_of(sidebar, path).data(WRITING) and not item_of(sidebar, other).data(WRITING)
    assert right_end() != before
    sidebar.set_writing(None)
    assert right_end() == before


def test_the_three_dots_open_the_menu_and_not_the_conversation(sidebar: Sidebar, folder: Path, qtbot) -> None:
    path = talk(folder, "one")
    sidebar.refresh()
    qtbot.waitUntil(lambda: sidebar.list.count() == 2)
    opened: list[Path] = []
    menus: list[str] = []
    sidebar.opened.connect(lambda path, message: opened.append(path))
    sidebar.list.menu_wanted.disconnect()
    sidebar.list.menu_wanted.connect(lambda item, place: menus.append(item.data(PATH)))
    row = sidebar.list.visualItemRect(item_of(sidebar, path))
    QTest.mouseClick(sidebar.list.viewport(), Qt.MouseButton.LeftButton, pos=dots_rect(row).center())
    assert (menus, opened) == ([str(path)], [])
    QTest.mouseClick(sidebar.list.viewport(), Qt.MouseButton.LeftButton, pos=row.center())
    assert opened == [path]


def test_a_damaged_conversation_can_only_be_deleted(sidebar: Sidebar, folder: Path, qtbot) -> None:
    folder.mkdir()
    (folder / "bad.jsonl").write_bytes(b"\x00\xff")
    sidebar.refresh()
    qtbot.waitUntil(lambda: sidebar.list.count() == 2)
    item = item_of(sidebar, folder / "bad.jsonl")
    assert [action.text() for action in sidebar.menu_for(item).actions()] == ["&Delete"]
    assert not item.flags() & Qt.ItemFlag.ItemIsEditable
    assert "not a Greenroom" in item.toolTip()


def test_a_thousand_conversations_keep_the_window_alive(sidebar: Sidebar, folder: Path, qtbot) -> None:
    folder.mkdir()
    for number in range(1000):
        when = (datetime.now(UTC) - timedelta(hours=number)).isoformat()
        lines_of = ['{"type":"header","version":1,"program":"t","conversation":"c","created":""}']
        words = f"talk {number} " + "and some more words that say little " * 100
        lines_of.append(f'{{"type":"message","id":"m","parent":null,"role":"user","text":"{words}","time":"{when}"}}')
        (folder / f"{number}.jsonl").write_text("\n".join(lines_of) + "\n")
    sidebar.refresh()
    qtbot.waitUntil(lambda: not sidebar._finder._background.busy, timeout=60_000)
    began = time.thread_time()
    sidebar._fill()
    assert time.thread_time() - began < 0.1  # making the rows anew is what the GUI thread does
    sidebar.search.setText("talk 998")
    qtbot.waitUntil(lambda: sum(bool(sidebar.list.item(row).data(PATH)) for row in range(sidebar.list.count())) == 1)
