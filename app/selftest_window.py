"""The self-test's steps about the window around the chat: picker, menus, folding, a refusal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMenu, QWidget

from app.chat.cards import Card
from app.selftest_tools import check, until
from engine.messages import LoadModel

if TYPE_CHECKING:
    from app.main_window import MainWindow


class WindowSteps:
    """To be mixed in with ``SelfTest``, which has what is declared here."""

    window: MainWindow
    data: Path

    def shot(self, name: str, widget: QWidget | None = None) -> None: ...

    def step_picker(self) -> str:
        self.window.surfaces.open_picker()
        picker = self.window.surfaces.picker
        assert picker is not None
        until(picker.isVisible, 10, "the picker")
        until(lambda: picker.models.rowCount() > 0, 60, "the list of models")
        details = picker.details
        until(lambda: details.plan is not None or not (details.model and details.model.built), 60, "the model's plan")
        self.shot("08-picker", picker)
        details.advanced.fold.click()
        self.shot("08-picker-advanced", picker)
        details.advanced.fold.click()
        picker.download_button.click()
        until(picker.download_dialog.isVisible, 10, "the download dialog")
        self.shot("08-picker-download", picker.download_dialog)
        QTest.keyClick(picker.download_dialog, Qt.Key.Key_Escape)
        count = picker.models.rowCount()
        QTest.keyClick(picker, Qt.Key.Key_Escape)
        until(lambda: not picker.isVisible(), 10, "the picker to close")
        return f"{count} models"

    def step_menus(self) -> None:
        menus = [action.menu() for action in self.window.top.menus.actions()]
        check(all(isinstance(menu, QMenu) and menu.actions() for menu in menus), "a menu has no entries")
        menu = cast(QMenu, menus[0])
        menu.popup(self.window.mapToGlobal(QPoint(100, 44)))
        until(menu.isVisible, 5, "the menu")
        self.shot("09-menu", menu)
        menu.close()

    def step_fold(self) -> None:
        window = self.window
        window.activateWindow()  # without a window manager nobody else does, once a dialog has closed
        until(window.isActiveWindow, 5, "the window to be active")
        width = window.transcript.width()
        for column in (window.sidebar, window.panels):
            key = Qt.Key.Key_B if column is window.sidebar else Qt.Key.Key_J
            QTest.keyClick(window, key, Qt.KeyboardModifier.ControlModifier)
            until(lambda shown=column: not shown.isVisible(), 5, "a column to fold")  # type: ignore[misc]
        until(lambda: window.transcript.width() > width, 5, "the transcript to take the room")
        self.shot("10-folded")
        for key in (Qt.Key.Key_B, Qt.Key.Key_J):
            QTest.keyClick(window, key, Qt.KeyboardModifier.ControlModifier)
        until(lambda: window.sidebar.isVisible() and window.panels.isVisible(), 5, "the columns to come back")

    def step_refusal(self) -> str:
        """A folder that is no model: a sentence in the window, and the program goes on."""
        nothing = self.data / "no model here"
        nothing.mkdir()
        self.window.load(LoadModel(str(nothing)))
        until(lambda: bool(self.window.state.problem), 60, "the refusal")
        cards = [card for card in self.window.transcript.findChildren(Card) if card.kind == "error"]
        check(len(cards) == 1, "no card says why")
        self.shot("11-refused")
        self.window.new_chat()
        self.shot("12-no-model")
        return self.window.state.problem
