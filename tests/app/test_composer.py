"""The box one writes in."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QEvent, QObject
from PySide6.QtGui import QPaintEvent
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.chat.composer import Composer
from app.theme import Theme


class _Paints(QObject):
    """Counts how often a widget is painted, more of it than a cursor's width."""

    count = 0

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        self.count += isinstance(event, QPaintEvent) and event.rect().width() > 50
        return False


@pytest.mark.parametrize("busy", [True, False])
def test_new_words_in_the_empty_box_are_painted_at_once(qtbot: QtBot, busy: bool) -> None:
    composer = Composer(Theme())
    qtbot.addWidget(composer)
    composer.resize(600, 120)
    composer.set_state(True, busy, "Before")
    composer.show()
    qtbot.waitExposed(composer)
    QTest.qWait(0)
    paints = _Paints()
    viewport = composer.input.viewport()
    viewport.installEventFilter(paints)
    composer.set_state(True, busy, "After")
    qtbot.waitUntil(lambda: paints.count > 0, timeout=1000)
