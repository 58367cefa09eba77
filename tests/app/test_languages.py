"""A model that translates: two languages beside the message, kept for it, sent with each text; both halves shown."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.chat.languages import Languages, name_of
from app.main_window import MainWindow
from app.panels.heatmap import Heatmap
from app.theme import Theme
from engine.messages import Cell, ExpertSnapshot, Finished, Language, LoadModel
from tests.families import LANGUAGES, make_pair

KNOWN = tuple(Language(code, code) for code in LANGUAGES)


@pytest.fixture
def boxes(qtbot: QtBot, theme: Theme) -> Languages:
    made = Languages(theme)
    qtbot.addWidget(made)
    made.offer(KNOWN, "eng_Latn", "deu_Latn")
    return made


def test_languages_have_plain_names_in_their_order(boxes: Languages) -> None:
    shown = [boxes.source.itemText(row) for row in range(boxes.source.count())]
    assert shown == ["Chinese (Simplified Han)", "English (Latin)", "French (Latin)", "German (Latin)"]
    assert boxes.chosen == ("eng_Latn", "deu_Latn")
    assert name_of(Language("xyz_Abcd", "xyz_Abcd")) == "xyz_Abcd"


def test_a_box_is_searched_by_typing_and_keeps_only_languages(qtbot: QtBot, boxes: Languages) -> None:
    boxes.show()
    line = boxes.target.lineEdit()
    assert line is not None
    line.setFocus()
    line.selectAll()
    qtbot.keyClicks(line, "french (latin)")
    with qtbot.waitSignal(boxes.changed) as told:
        line.editingFinished.emit()
    assert told.args == ["eng_Latn", "fra_Latn"]
    line.selectAll()
    qtbot.keyClicks(line, "Klingon")
    line.editingFinished.emit()
    assert (line.text(), boxes.chosen[1]) == ("French (Latin)", "fra_Latn")


def test_swapping(qtbot: QtBot, boxes: Languages) -> None:
    with qtbot.waitSignal(boxes.changed) as told:
        qtbot.mouseClick(boxes.swap, Qt.MouseButton.LeftButton)
    assert told.args == ["deu_Latn", "eng_Latn"]


def test_models_that_do_not_translate_show_none(boxes: Languages) -> None:
    boxes.offer((), "eng_Latn", "deu_Latn")
    assert boxes.isHidden()
    assert boxes.chosen == ("", "")


def test_the_heatmap_tells_the_halves_apart(qtbot: QtBot, theme: Theme) -> None:
    heatmap = Heatmap(theme)
    qtbot.addWidget(heatmap)
    heatmap.set_shape(4, 8)
    heatmap.encoder_layers = 2
    assert heatmap.describe(1, 3) == "Layer 1, expert 3 (encoder)"
    assert heatmap.describe(2, 3) == "Layer 2, expert 3 (decoder)"
    heatmap.resize(320, 200)
    none, uses = np.zeros((4, 8), np.uint8), np.zeros((4, 8), np.uint32)
    heatmap.show_snapshot(ExpertSnapshot(none | Cell.RESIDENT, uses, uses, uses, "idle", 0, none))
    plain = heatmap.grab().toImage()
    heatmap.encoder_layers = 0
    assert heatmap.grab().toImage() != plain  # a line between them


def test_a_text_is_translated_in_the_window(window: MainWindow, tmp_path: Path, qtbot: QtBot) -> None:
    window.load(LoadModel(str(make_pair("nllb-moe", tmp_path / "nllb")), experts="25%"))
    qtbot.waitUntil(lambda: window.state.model is not None and window.state.model.one_text, timeout=60_000)
    composer = window.composer
    assert composer.languages.isVisibleTo(window)
    assert composer.input.placeholderText() == "A text to translate"
    assert not window.sheet.system.isEnabled()
    composer.languages.offer(KNOWN, "eng_Latn", "fra_Latn")
    composer.languages._tell()
    finished: list[Finished] = []
    window.chat.finished.connect(finished.append)
    QTest.keyClicks(composer.input, "What is the capital of France?")
    QTest.keyClick(composer.input, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: bool(finished) and not window.chat.busy, timeout=60_000)
    assert finished[-1].reason in ("end", "length")
    path = window.chat.session.path
    assert path is not None
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    starts = [record for record in records if record["type"] == "start"]
    assert starts[-1]["languages"] == ["eng_Latn", "fra_Latn"]
    assert window.settings.model_styles[window.state.model.source]["languages"] == ["eng_Latn", "fra_Latn"]  # type: ignore[union-attr]
