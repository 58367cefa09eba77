"""F1: every key, on one page. Those of the menus are read off the menus themselves, so that the page is always true."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QCoreApplication
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QMenu, QMenuBar, QWidget

from app.messages import SmallDialog
from app.panels.parts import label
from app.theme import font, space

Row = tuple[str, str]  # keys, what they do


def tr(text: str) -> str:
    return QCoreApplication.translate("Help", text)


def keys_of(menu: QMenu) -> list[Row]:
    """Every entry of a menu that has a key, sub-menus too."""
    rows: list[Row] = []
    for action in menu.actions():
        inner = action.menu()
        if isinstance(inner, QMenu):
            rows += keys_of(inner)
        elif not action.shortcut().isEmpty():
            rows.append((action.shortcut().toString(QKeySequence.SequenceFormat.NativeText), plain(action)))
    return rows


def plain(action: QAction) -> str:
    """An entry's words without the mark for its letter and without the dots."""
    return action.text().replace("&&", "\0").replace("&", "").replace("\0", "&").removesuffix("…")


def beside_menus() -> list[Row]:
    """Keys that belong to one field or list and so are in no menu."""
    return [
        ("Enter", tr("Send the message")),
        ("Shift+Enter", tr("Begin a new line")),
        ("Esc", tr("Stop the answer, or the loading")),
        ("F2", tr("Rename the conversation, in the list")),
        ("Page Up, Page Down", tr("Scroll the conversation")),
        ("Tab", tr("To the next control")),
    ]


def show_help(parent: QWidget, menus: QMenuBar) -> SmallDialog:
    """The page, in two columns: the menus left, the rest right."""
    dialog = SmallDialog(parent, parent.tr("Keyboard"))
    sections = [
        (plain(action), keys_of(menu)) for action in menus.actions() if isinstance(menu := action.menu(), QMenu)
    ]
    sections = [(name, rows) for name, rows in sections if rows]
    halves: Sequence[list[tuple[str, list[Row]]]] = (sections[:2], [*sections[2:], (tr("Elsewhere"), beside_menus())])
    both = QHBoxLayout()
    both.setSpacing(space(10))
    for half in halves:
        grid = QGridLayout()
        grid.setHorizontalSpacing(space(4))
        grid.setVerticalSpacing(space(1.5))
        for name, rows in half:
            title = label(name, "title")
            title.setContentsMargins(0, space(2) if grid.count() else 0, 0, 0)
            grid.addWidget(title, grid.rowCount(), 0, 1, 2)
            for keys, does in rows:
                line = grid.rowCount()
                key = label(keys)
                key.setFont(font("mono", size=12))
                grid.addWidget(key, line, 0)
                grid.addWidget(label(does, "muted"), line, 1)
        grid.setRowStretch(grid.rowCount(), 1)
        both.addLayout(grid)
    dialog.column.addLayout(both)
    dialog.add_button(dialog.tr("Close")).setDefault(True)
    dialog.present()
    return dialog
