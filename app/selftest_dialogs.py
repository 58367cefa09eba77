"""The self-test's steps about the dialogs that the menus open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QScrollArea, QWidget

from app.messages import SmallDialog
from app.selftest_tools import check, until
from engine.messages import POLICIES

if TYPE_CHECKING:
    from app.main_window import MainWindow


class DialogSteps:
    """To be mixed in with ``SelfTest``, which has what is declared here."""

    window: MainWindow

    def shot(self, name: str, widget: QWidget | None = None) -> None: ...

    def _close(self, dialog: QWidget) -> None:
        QTest.keyClick(dialog, Qt.Key.Key_Escape)
        until(lambda: not dialog.isVisible(), 10, "the dialog to close")

    def _sheet(self) -> SmallDialog:
        return next(dialog for dialog in self.window.findChildren(SmallDialog) if dialog.isVisible())

    def step_what_if(self) -> str:
        """The chat that was just had, under other choices."""
        surfaces = self.window.surfaces
        surfaces.open_what_if()
        dialog = surfaces.what_if
        assert dialog is not None
        until(lambda: bool(dialog.chart.lines) or dialog.result_shown is not None, 300, "the first line of the replay")
        self.shot("13-what-if-running", dialog)
        dialog.with_predictors.setChecked(True)
        dialog.look()
        until(lambda: dialog.result_shown is not None, 600, "the replay")
        result = dialog.result_shown
        assert result is not None
        check([line.policy for line in result.lines] == [*POLICIES, "belady"], "a policy has no line")
        check(bool(dialog.words[0].text()), "it says nothing about more memory")
        dialog.chart.setFocus()
        for _ in range(3):
            QTest.keyClick(dialog.chart, Qt.Key.Key_Right)
        check(len(dialog.chart.readout()) == len(result.lines), "the figures are not shown")
        self.shot("14-what-if", dialog)
        self._close(dialog)
        return f"{result.decode_tokens} tokens, {len(result.lines[0].points)} sizes: {dialog.words[0].text()!r}"

    def step_preferences(self) -> None:
        surfaces = self.window.surfaces
        surfaces.open_preferences()
        dialog = surfaces.preferences
        assert dialog is not None
        self.shot("15-preferences", dialog)
        bar = dialog.findChildren(QScrollArea)[0].verticalScrollBar()
        bar.setValue(bar.maximum())
        self.shot("16-preferences-end", dialog)
        bar.setValue(0)
        before = self.window.theme.font_size
        dialog.font_size.setValue(18)
        check(self.window.composer.input.font().pixelSize() == 18, "the letters did not grow")
        self.shot("17-preferences-large", dialog)
        self._close(dialog)
        self.shot("18-large")
        dialog.font_size.setValue(before)
        check(self.window.composer.input.font().pixelSize() == before, "the letters did not shrink again")

    def step_answer_settings(self) -> None:
        """The sheet beside the chat, opened with the button below the message and left with Esc."""
        window, sheet = self.window, self.window.sheet
        QTest.mouseClick(window.composer.options, Qt.MouseButton.LeftButton)
        until(sheet.isVisible, 5, "the answer settings")
        self.shot("24-answer-settings")
        style = window.style_of_answers
        before = style.style
        QTest.mouseClick(sheet.save, Qt.MouseButton.LeftButton)
        check(sheet.name.isVisible(), "nobody asks for the preset's name")
        self.shot("25-preset-name")
        QTest.keyClick(sheet.name, Qt.Key.Key_Escape)
        QTest.keyClick(sheet.preset, Qt.Key.Key_Escape)
        until(lambda: not sheet.isVisible(), 5, "the answer settings to close")
        check(style.style == before, "looking at the answer settings changed them")

    def step_sheets(self) -> None:
        surfaces = self.window.surfaces
        for name, show in (
            ("19-keys", surfaces.show_keys),
            ("20-about", surfaces.show_about),
            ("21-welcome", surfaces.show_welcome),
        ):
            show()
            sheet = self._sheet()
            self.shot(name, sheet)
            self._close(sheet)
        surfaces.open_profile()
        profile = surfaces.profile
        assert profile is not None
        until(lambda: profile.facts is not None, 30, "what was learnt")
        self.shot("22-learnt", profile)
        self._close(profile)


DIALOGS = ["what_if", "preferences", "answer_settings", "sheets"]
