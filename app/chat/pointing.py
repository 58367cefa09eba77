"""Which character of an answer lies under the pointer: from what is shown back to what the model wrote.

Showing takes marks away and leaves words as they are, so the words seen before the pointer are found again one after
the other in the text. A word that is not there as it looks (half of it bold, a formula) is passed over.
"""

from __future__ import annotations

import re

from PySide6.QtCore import Qt
from PySide6.QtGui import QMouseEvent, QTextCursor
from PySide6.QtWidgets import QPlainTextEdit, QTextEdit

_WORD = re.compile(r"\w+")
AHEAD = 60  # words of the text looked through for the next one seen: an address that is not shown has some ten


def character_under(source: str, seen: str, position: int) -> int | None:
    """Index in ``source`` of what is shown at ``position`` of ``seen``; None where nothing seen so far is in it."""
    words = [(found.group(), found.start()) for found in _WORD.finditer(source)]
    at = 0  # number of the word of the text that comes next
    result: int | None = None
    for found in _WORD.finditer(seen):
        if found.start() > position:
            break
        word = found.group()
        match = next((i for i in range(at, min(at + AHEAD, len(words))) if words[i][0] == word), None)
        if match is None:
            continue
        start = words[match][1]
        result = start + min(position - found.start(), len(word))
        at = match + 1
    return result if result is None or result < len(source) else len(source) - 1


def position_clicked(view: QTextEdit | QPlainTextEdit, event: QMouseEvent) -> int:
    """Position in the view's document of the character that a plain click hit; -1 for anything else."""
    if event.button() != Qt.MouseButton.LeftButton or view.textCursor().hasSelection():
        return -1
    point = event.position().toPoint()
    cursor = view.cursorForPosition(point)
    if isinstance(view, QTextEdit) and view.anchorAt(point):
        return -1
    # the cursor goes to the nearest gap between characters, also from the empty space after a line
    for position in (cursor.position(), cursor.position() - 1):
        if position < 0:
            continue
        left, right = QTextCursor(view.document()), QTextCursor(view.document())
        left.setPosition(position)
        right.setPosition(min(position + 1, max(0, view.document().characterCount() - 1)))
        first, last = view.cursorRect(left), view.cursorRect(right)
        if first.top() <= point.y() <= first.bottom() and first.left() <= point.x() <= last.left():
            return position
    return -1
