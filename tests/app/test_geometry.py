"""Windows come back where they were; whatever stands in the settings, they open."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PySide6.QtWidgets import QWidget

from app import geometry
from app.panels_column import NAMES
from tests.app.conftest import Bench


def test_size_comes_back(qtbot) -> None:
    first, second = QWidget(), QWidget()
    for window in (first, second):
        qtbot.addWidget(window)
    first.resize(612, 433)
    assert geometry.restore(second, geometry.packed(first))
    assert (second.width(), second.height()) == (612, 433)


@pytest.mark.parametrize("text", ["", "abc", "Zm9v", "=", "ü", "A" * 5])
def test_nonsense_moves_nothing(qtbot, text: str) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    window.resize(612, 433)
    assert not geometry.restore(window, text)
    assert (window.width(), window.height()) == (612, 433)


def test_the_window_opens_over_damaged_places(tmp_path: Path, qtbot) -> None:
    places = {name: {"window": True, "place": "abc"} for name in NAMES}
    (tmp_path / "settings.json").write_text(json.dumps({"geometry": "abc", "panels": places}), "utf-8")
    bench = Bench(tmp_path, qtbot)
    window = bench.start()
    assert set(window.panels.windows) == set(NAMES)
    bench.close()


def test_a_damaged_settings_file_is_told(tmp_path: Path, qtbot) -> None:
    (tmp_path / "settings.json").write_text('{"presets": {"mi', "utf-8")
    bench = Bench(tmp_path, qtbot)
    bench.window.show()
    bench.window.begin("demo")
    assert str(tmp_path / "settings.json.damaged") in bench.window.toast.label.text()
    assert (tmp_path / "settings.json.damaged").read_text("utf-8") == '{"presets": {"mi'
    bench.close()
