"""The side sheet in the window: what is set there is what the engine is asked for, at once and next time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QSpinBox, QStyle, QStyleOptionSpinBox, QWidget

from app.chat.cards import UserBubble
from app.main_window import MainWindow
from app.number_field import Field
from app.side_sheet import SideSheet
from engine.messages import ChatMessage, CountTokens, LoadModel, TokenCount
from tests.app.conftest import LOADED, Bench


def ask(window: MainWindow, text: str) -> None:
    QTest.keyClicks(window.composer.input, text)
    QTest.keyClick(window.composer.input, Qt.Key.Key_Return)


def field(sheet: SideSheet, name: str) -> Field:
    return next(field for field in sheet.fields if field.field == name)


def opened(bench: Bench) -> MainWindow:
    window = bench.start()
    QTest.mouseClick(window.composer.options, Qt.MouseButton.LeftButton)
    assert window.sheet.isVisible()
    return window


def choose(sheet: SideSheet, name: str) -> None:
    index = sheet.preset.findData(name)
    sheet.preset.setCurrentIndex(index)
    sheet.preset.activated.emit(index)


def test_what_is_set_is_what_is_asked_for(bench: Bench, qtbot) -> None:
    window = opened(bench)
    sheet = window.sheet
    choose(sheet, "balanced")
    field(sheet, "max_tokens").spin.setValue(256)
    field(sheet, "seed").spin.setValue(7)
    assert field(sheet, "max_tokens").label.text().endswith("•")
    QTest.keyClicks(sheet.system, "Be brief.")
    qtbot.waitUntil(lambda: window.style_of_answers.style.system == "Be brief.")
    assert window.composer.options.text() == "balanced, changed ▾"
    ask(window, "Hello")
    asked = bench.engine.asked
    assert asked.messages == (ChatMessage("system", "Be brief."), ChatMessage("user", "Hello"))
    assert (asked.sampling.temperature, asked.sampling.max_tokens, asked.sampling.seed) == (0.7, 256, 7)


def test_a_system_prompt_is_taken_over_when_one_leaves_it(bench: Bench) -> None:
    window = opened(bench)
    window.activateWindow()
    window.sheet.system.setFocus()
    QTest.keyClicks(window.sheet.system, "Quick")
    QTest.keyClick(window.sheet, Qt.Key.Key_Escape)
    assert not window.sheet.isVisible()
    assert window.style_of_answers.style.system == "Quick"


def test_slider_and_figure_are_one(bench: Bench) -> None:
    sheet = opened(bench).sheet
    temperature = field(sheet, "temperature")
    assert temperature.slider is not None
    temperature.spin.setValue(1.5)
    assert temperature.slider.value() == 150
    temperature.slider.setValue(20)
    assert temperature.spin.value() == 0.2
    temperature.spin.setValue(0.0)
    assert not field(sheet, "top_p").spin.isEnabled()  # greedy needs no more
    assert field(sheet, "repetition_penalty").spin.isEnabled()


def test_a_number_has_two_arrows_that_step(bench: Bench) -> None:
    spin = field(opened(bench).sheet, "max_tokens").spin
    assert isinstance(spin, QSpinBox)
    before = spin.value()
    option = QStyleOptionSpinBox()
    option.initFrom(spin)
    option.subControls = QStyle.SubControl.SC_All
    for part, after in (
        (QStyle.SubControl.SC_SpinBoxUp, before + spin.singleStep()),
        (QStyle.SubControl.SC_SpinBoxDown, before),
    ):
        place = spin.style().subControlRect(QStyle.ComplexControl.CC_SpinBox, option, part, spin)
        assert place.width() >= 20 and place.height() >= 12
        picture = spin.grab(place).toImage()
        assert len({picture.pixel(x, y) for x in range(picture.width()) for y in range(picture.height())}) > 3
        QTest.mouseClick(spin, Qt.MouseButton.LeftButton, pos=place.center())
        assert spin.value() == after


@pytest.mark.parametrize("size", [14, 18, 22])
def test_nothing_in_the_sheet_is_cut_off_however_large_the_letters(bench: Bench, size: int, qtbot) -> None:
    window = opened(bench)
    window.resize(1440, 900)
    sheet = window.sheet
    sheet._style.save_as("A name of one's own that is rather long for a list")
    field(sheet, "seed").spin.setValue(2**31 - 1)
    window.set_font_size(size)
    qtbot.waitUntil(lambda: sheet.width() >= sheet.wanted_width and sheet.geometry().right() < window.width())
    inside = sheet._inside
    qtbot.waitUntil(lambda: inside.width() >= inside.minimumSizeHint().width())
    for widget in inside.findChildren(QWidget):
        if widget.isVisible() and widget.parentWidget() is inside:
            assert widget.geometry().right() <= inside.width(), widget
            assert widget.width() >= widget.minimumSizeHint().width(), widget
    seed = field(sheet, "seed").spin
    digits = seed.fontMetrics().horizontalAdvance(seed.text())
    assert seed.lineEdit().width() > digits
    window.set_font_size(14)


@pytest.mark.parametrize(("width", "size"), [(520, 14), (520, 22), (700, 22), (1440, 22)])
def test_what_stands_below_the_message_fits(bench: Bench, width: int, size: int, qtbot) -> None:
    window = bench.start()
    window.style_of_answers.save_as("A name of one's own that is rather long for a list")
    window.style_of_answers.set("seed", 5)
    window.set_font_size(size)
    window.resize(width, 700)
    composer = window.composer
    row = (composer.meter, composer.options, composer.files, composer.action)
    qtbot.waitUntil(
        lambda: all(w.width() >= w.sizeHint().width() for w in row if w.isVisible()) and composer.options.width() > 40
    )
    assert composer.options.text().endswith("▾")
    window.set_font_size(14)


@pytest.mark.parametrize("size", [14, 18, 22])
def test_the_message_stays_in_line_with_the_text_above_it(bench: Bench, size: int, qtbot) -> None:
    window = bench.start()
    window.resize(1440, 900)
    ask(window, "One")
    bench.engine.answer("Two")
    qtbot.waitUntil(lambda: not window.chat.busy)
    window.set_font_size(size)

    def left(widget: QWidget) -> int:
        return widget.mapTo(window, QPoint()).x()

    said = partial(window.transcript.findChildren, UserBubble)
    qtbot.waitUntil(lambda: [left(view) for view in said()] == [left(window.composer)])
    window.set_font_size(14)


def test_a_preset_is_saved_renamed_deleted_and_brought_back_with_the_keyboard(bench: Bench) -> None:
    sheet = opened(bench).sheet
    style = sheet._style
    field(sheet, "temperature").spin.setValue(1.2)
    sheet.save.click()
    QTest.keyClicks(sheet.name, "precise")
    QTest.keyClick(sheet.name, Qt.Key.Key_Return)
    assert sheet.message.isVisible() and style.preset == "advised"  # that name is taken
    sheet.name.clear()
    QTest.keyClicks(sheet.name, "Mine")
    QTest.keyClick(sheet.name, Qt.Key.Key_Return)
    assert style.preset == "Mine" and sheet.preset.currentText() == "Mine" and not sheet.name.isVisible()
    sheet.rename.click()
    QTest.keyClicks(sheet.name, "Ours")
    QTest.keyClick(sheet.name, Qt.Key.Key_Return)
    assert style.preset == "Ours"
    sheet.delete.click()
    assert "Ours" not in style.presets and style.style.sampling.temperature == 1.2
    assert sheet.undo.isVisible()
    sheet.undo.click()
    assert style.preset == "Ours" and not sheet.undo.isVisible()


def test_escape_gives_up_a_name_before_it_closes_the_sheet(bench: Bench) -> None:
    sheet = opened(bench).sheet
    sheet.save.click()
    QTest.keyClick(sheet.name, Qt.Key.Key_Escape)
    assert sheet.isVisible() and not sheet.name.isVisible()


def test_reset_goes_back(bench: Bench) -> None:
    sheet = opened(bench).sheet
    assert not sheet.reset.isEnabled()
    choose(sheet, "creative")
    sheet.reset.click()
    assert sheet.preset.currentData() == "advised"
    assert not sheet.reset.isEnabled()


def test_every_model_has_its_own(bench: Bench, qtbot) -> None:
    window = opened(bench)
    field(window.sheet, "temperature").spin.setValue(1.9)
    bench.settings.model_styles = {**bench.settings.model_styles, "other": {"temperature": 0.3}}
    bench.engine.refuse = replace(LOADED, source="other", name="Other")
    window.load(LoadModel("other"))
    qtbot.waitUntil(lambda: window.state.model is not None and window.state.model.source == "other")
    assert field(window.sheet, "temperature").spin.value() == 0.3
    assert "Other" in window.sheet.model.text()


@pytest.mark.parametrize("width", [1280, 700, 540])
def test_the_sheet_stays_inside_the_window(bench: Bench, width: int, qtbot) -> None:
    window = opened(bench)
    window.resize(width, 600)
    qtbot.waitUntil(lambda: window.sheet.height() == window.columns.height())
    assert window.columns.geometry().contains(window.sheet.geometry())
    for number in window.sheet.fields:
        right = number.spin.mapTo(window.sheet, number.spin.rect().topRight()).x()
        assert right < window.sheet.width()


# --------------------------------------------------------------------------------------- before sending


def counts(bench: Bench) -> list[CountTokens]:
    return [command for command in bench.engine.sent if isinstance(command, CountTokens)]


def test_the_draft_is_counted_when_one_pauses_and_the_meter_shows_it(bench: Bench, qtbot) -> None:
    window = bench.start()
    QTest.keyClicks(window.composer.input, "How long am I?")
    assert counts(bench) == []
    qtbot.waitUntil(lambda: len(counts(bench)) == 1)
    (question,) = counts(bench)
    assert question.messages == (ChatMessage("user", "How long am I?"),)
    bench.engine.emit(TokenCount("an older question", 999, 0, 8192))
    bench.engine.emit(TokenCount(question.request_id, 123, 0, 8192))
    qtbot.waitUntil(lambda: window.composer.meter.shown == 123)
    assert not window.composer.note.isVisible()
    window.composer.clear()
    assert window.composer.meter.shown == 0


def test_what_will_be_left_out_is_said_before_sending(bench: Bench, qtbot) -> None:
    window = bench.start()
    QTest.keyClicks(window.composer.input, "More")
    qtbot.waitUntil(lambda: len(counts(bench)) == 1)
    bench.engine.emit(TokenCount(counts(bench)[0].request_id, 5000, 6, 8192))
    qtbot.waitUntil(window.composer.note.isVisible)
    assert "oldest 6 messages" in window.composer.note.text()
    assert window.composer.action.isEnabled()


def test_a_message_longer_than_the_context_cannot_be_sent(bench: Bench, qtbot) -> None:
    window = bench.start()
    QTest.keyClicks(window.composer.input, "Endless")
    qtbot.waitUntil(lambda: len(counts(bench)) == 1)
    bench.engine.emit(TokenCount(counts(bench)[0].request_id, 9000, 0, 8192))
    qtbot.waitUntil(window.composer.note.isVisible)
    assert "9,000" in window.composer.note.text()
    QTest.keyClick(window.composer.input, Qt.Key.Key_Return)
    assert not window.chat.busy
    QTest.keyClicks(window.composer.input, "!")
    window.composer.clear()
    QTest.keyClicks(window.composer.input, "Short")
    QTest.keyClick(window.composer.input, Qt.Key.Key_Return)
    assert window.chat.busy


def test_a_changed_system_prompt_is_counted_again(bench: Bench, qtbot) -> None:
    window = bench.start()
    QTest.keyClicks(window.composer.input, "Hi")
    qtbot.waitUntil(lambda: len(counts(bench)) == 1)
    window.style_of_answers.set("system", "Be brief.")
    qtbot.waitUntil(lambda: len(counts(bench)) == 2)
    assert counts(bench)[1].messages[0] == ChatMessage("system", "Be brief.")


def test_a_system_prompt_under_the_keys_stays_with_its_model(bench: Bench, qtbot) -> None:
    window = opened(bench)
    QTest.keyClicks(window.sheet.system, "Be brief.")
    bench.engine.refuse = replace(LOADED, source="other", name="Other")
    window.load(LoadModel("other"))
    qtbot.waitUntil(lambda: window.state.model is not None and window.state.model.source == "other")
    qtbot.wait(500)
    assert window.sheet.system.toPlainText() == ""
    assert bench.settings.model_styles["demo"]["system"] == "Be brief."
    assert "other" not in bench.settings.model_styles


def test_a_system_prompt_under_the_keys_is_kept_when_the_window_closes(bench: Bench) -> None:
    window = opened(bench)
    QTest.keyClicks(window.sheet.system, "Be brief.")
    bench.close()
    assert bench.settings.model_styles["demo"]["system"] == "Be brief."


def test_thinking_is_switched_beside_the_message_and_in_the_sheet(bench: Bench, qtbot) -> None:
    bench.engine.refuse = replace(LOADED, thinking="on")
    window = opened(bench)
    composer, sheet = window.composer, window.sheet
    assert (composer.thinking.text(), sheet.thinking.isChecked()) == ("Thinking: on", True)
    QTest.mouseClick(composer.thinking, Qt.MouseButton.LeftButton)
    assert (composer.thinking.text(), sheet.thinking.isChecked()) == ("Thinking: off", False)
    ask(window, "Hello")
    assert bench.engine.asked.thinking is False
    bench.engine.answer("Hi.")
    qtbot.waitUntil(lambda: not window.chat.busy)
    QTest.mouseClick(sheet.thinking, Qt.MouseButton.LeftButton)
    assert composer.thinking.isChecked()
    ask(window, "Hello")
    assert bench.engine.asked.thinking is None  # as the model does unasked


def test_a_model_without_a_switch_for_thinking_shows_none(bench: Bench) -> None:
    window = opened(bench)
    assert not window.composer.thinking.isVisible() and not window.sheet.thinking.isVisible()
    assert not window.sheet.declared.isVisible()


def test_the_length_of_a_prompt_is_counted_with_thinking_as_chosen(bench: Bench, qtbot) -> None:
    bench.engine.refuse = replace(LOADED, thinking="off")
    window = bench.start()
    QTest.keyClicks(window.composer.input, "Hello")
    QTest.mouseClick(window.composer.thinking, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: any(isinstance(command, CountTokens) for command in bench.engine.sent))
    counted = [command for command in bench.engine.sent if isinstance(command, CountTokens)]
    assert counted[-1].thinking is True


def test_where_the_row_is_narrow_the_switch_is_in_the_sheet_alone(bench: Bench, qtbot) -> None:
    bench.engine.refuse = replace(LOADED, thinking="effort", declared=("temperature",))
    window = opened(bench)
    assert window.composer.thinking.text() == "Thinking: long"
    assert "temperature" in window.sheet.declared.text()
    window.composer.setFixedWidth(280)
    qtbot.waitUntil(lambda: not window.composer.thinking.isVisible())
    assert window.sheet.thinking.isVisible()
