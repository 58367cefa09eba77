"""Help, About, the welcome and what was learnt: small sheets that must say the truth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel, QMenu, QPlainTextEdit, QPushButton

from app.dialogs.about import bundled
from app.dialogs.help import beside_menus, keys_of
from app.dialogs.profile import ProfileDialog, lines
from app.licences import LIST, TEXTS, libraries
from app.main_window import MainWindow
from app.messages import SmallDialog
from engine.messages import LoadModel, ProfileFacts
from engine.prediction.profile import Profile, profile_path, save_profile
from engine.prediction.shape import Shape
from tests.app.conftest import Bench


def sheet(window: MainWindow) -> SmallDialog:
    return next(dialog for dialog in window.findChildren(SmallDialog) if dialog.isVisible())


def words(dialog) -> list[str]:
    return [text.text() for text in dialog.findChildren(QLabel) if text.isVisibleTo(dialog)]


def button(dialog, text: str) -> QPushButton:
    return next(one for one in dialog.findChildren(QPushButton) if one.text() == text)


# ------------------------------------------------------------------------------------------------------ help


def test_the_help_sheet_lists_every_key_of_every_menu(bench: Bench) -> None:
    window = bench.start()
    QTest.keyClick(window, Qt.Key.Key_F1)
    shown = words(sheet(window))
    with_keys = [action for action in window.findChildren(QAction) if not action.shortcut().isEmpty()]
    listed = {action.shortcut().toString(QKeySequence.SequenceFormat.NativeText) for action in with_keys}
    assert {"Ctrl+N", "Ctrl+K", "Ctrl+B", "Ctrl+L", "Ctrl+E", "Ctrl+,", "F1"} <= listed
    assert listed <= set(shown)
    assert {keys for keys, _ in beside_menus()} <= set(shown)


def test_no_two_entries_share_a_key_and_a_new_entry_is_listed(bench: Bench) -> None:
    window = bench.start()
    menus = [menu for action in window.top.menus.actions() if isinstance(menu := action.menu(), QMenu)]
    keys = [key for menu in menus for key, _ in keys_of(menu)]
    assert len(keys) == len(set(keys))
    new = menus[0].addMenu("Deeper").addAction("Do && be &new…")
    new.setShortcut("Ctrl+F12")
    assert ("Ctrl+F12", "Do & be new") in keys_of(menus[0])


# ----------------------------------------------------------------------------------------------------- about


def test_about_names_versions_and_licences(bench: Bench) -> None:
    window = bench.start()
    window.surfaces.show_about()
    shown = words(sheet(window))
    names = {name for name, _, _ in libraries()}
    assert {"torch", "transformers", "numpy"} <= names
    assert any("PySide6" in name for name in names)
    assert len(bundled()) == 4  # each with its licence beside it in resources
    for name, version, licence in (*libraries(), *bundled()):
        assert licence
        assert {name, version, licence} <= {*shown, ""}


def test_a_frozen_build_lists_all_that_is_in_it_and_shows_the_licences_in_full(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = tmp_path / "resources"
    shipped.mkdir()
    (shipped / LIST).write_text('[{"name": "libfoo", "version": "7.1", "licence": "Zlib"}]', encoding="utf-8")
    (shipped / TEXTS).write_text("libfoo 7.1\n\nThis software is provided 'as-is'.\n", encoding="utf-8")
    monkeypatch.setattr("app.licences.resources_dir", lambda: shipped)
    window = bench.start()
    window.surfaces.show_about()
    about = sheet(window)
    assert {"libfoo", "7.1", "Zlib"} <= set(words(about))
    assert "torch" not in words(about)
    button(about, "Licences in full").click()
    shown = about.findChild(QPlainTextEdit)
    assert shown is not None
    assert "as-is" in shown.toPlainText()
    assert shown.isReadOnly()


# --------------------------------------------------------------------------------------------------- welcome


def test_the_first_start_asks_before_it_loads_anything_and_asks_once(bench: Bench, qtbot) -> None:
    window = bench.window
    window.show()
    window.begin()
    qtbot.waitUntil(lambda: window.state.engine is not None)
    welcome = window.surfaces.welcome
    assert welcome is not None
    assert welcome.isVisible()
    assert not any(isinstance(command, LoadModel) for command in bench.engine.sent)
    assert "panels" in " ".join(words(welcome))
    QTest.keyClick(welcome, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: window.surfaces.welcome is None)
    assert window.empty.demo.isVisible()
    assert bench.settings.welcomed
    window.surfaces.greet()
    assert window.surfaces.welcome is None


def test_the_welcome_loads_the_demo(bench: Bench, qtbot) -> None:
    window = bench.window
    window.show()
    window.begin()
    assert window.surfaces.welcome is not None
    QTest.keyClick(window.surfaces.welcome, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: window.state.model is not None)
    assert [command.source for command in bench.engine.sent if isinstance(command, LoadModel)] == ["demo"]


def test_who_names_a_model_or_had_one_is_not_welcomed(bench: Bench, qtbot) -> None:
    bench.window.show()
    bench.window.begin("some/model")
    qtbot.waitUntil(lambda: bench.window.state.model is not None)
    assert bench.window.surfaces.welcome is None


def test_a_note_is_told_at_the_next_start_once(bench: Bench, qtbot) -> None:
    bench.settings.note = "The data stay where they are."
    bench.window.show()
    bench.window.begin("some/model")
    qtbot.waitUntil(lambda: bench.window.state.model is not None)
    assert bench.window.toast.label.text() == "The data stay where they are."
    assert bench.settings.note == ""


# --------------------------------------------------------------------------------------------------- profile


def open_profile(window: MainWindow) -> ProfileDialog:
    window.surfaces.open_profile()
    assert window.surfaces.profile is not None
    return window.surfaces.profile


def test_without_a_model_it_says_what_to_do(bench: Bench) -> None:
    bench.settings.startup = "none"
    dialog = open_profile(bench.start())
    assert "Load a model" in dialog.about.text()
    assert not dialog.import_button.isEnabled()


def test_what_was_learnt_is_shown_exported_cleared_and_imported(
    window: MainWindow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qtbot
) -> None:
    model = window.state.model
    assert model is not None
    dialog = open_profile(window)
    qtbot.waitUntil(lambda: dialog.facts is not None)
    assert "Nothing was learnt" in dialog.message.text()
    assert not dialog.export_button.isEnabled()
    dialog.accept()
    window.send("Hello there")
    qtbot.waitUntil(lambda: not window.chat.busy, timeout=60_000)
    path = profile_path(model.signature)
    qtbot.waitUntil(path.exists)
    open_profile(window)
    qtbot.waitUntil(lambda: dialog.facts is not None and dialog.facts.requests == 1)
    qtbot.waitUntil(lambda: any("Past answers kept" in text for text in words(dialog)))

    kept = tmp_path / "kept.npz"
    monkeypatch.setattr("app.dialogs.profile.QFileDialog.getSaveFileName", lambda *_: (str(kept), ""))
    QTest.mouseClick(dialog.export_button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: dialog.message.text() == "Exported.")
    assert kept.exists()

    with qtbot.waitSignal(window.state.loaded, timeout=60_000):
        QTest.mouseClick(dialog.clear_button, Qt.MouseButton.LeftButton)
        QTest.mouseClick(button(dialog.findChildren(SmallDialog)[0], "Forget"), Qt.MouseButton.LeftButton)
    assert not path.exists()
    assert dialog.facts is not None
    assert not dialog.facts.there

    monkeypatch.setattr("app.dialogs.profile.QFileDialog.getOpenFileName", lambda *_: (str(kept), ""))
    with qtbot.waitSignal(window.state.loaded, timeout=60_000):
        QTest.mouseClick(dialog.import_button, Qt.MouseButton.LeftButton)
    assert dialog.facts.requests == 1
    assert path.exists()


def test_a_profile_of_another_model_is_refused_in_a_sentence(
    window: MainWindow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qtbot
) -> None:
    foreign = tmp_path / "foreign.npz"
    save_profile(Profile("another", Shape(1, 2, 1, 4), {"eam/decode": np.zeros((1, 1, 2))}), foreign)
    dialog = open_profile(window)
    monkeypatch.setattr("app.dialogs.profile.QFileDialog.getOpenFileName", lambda *_: (str(foreign), ""))
    QTest.mouseClick(dialog.import_button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: "learnt on another model" in dialog.message.text())
    assert window.state.loading is None


def test_a_change_waits_for_the_answer_that_would_save_over_it(bench: Bench, qtbot) -> None:
    window = bench.start()
    window.send("Hello")
    dialog = open_profile(window)
    dialog.change("clear")
    assert "Do this when it is done" in dialog.message.text()
    assert not [command for command in bench.engine.sent if getattr(command, "deed", "show") == "clear"]
    bench.engine.answer("Yes.")
    qtbot.waitUntil(lambda: not window.chat.busy)


def test_figures_in_words() -> None:
    facts = ProfileFacts(
        "s", "show", True, 41, (("gate-fitted", 20123),), (("gate-fitted", (0.904, None, 0.865, 0.8)),),
        "2026-11-29T21:00:00Z", "/x", 3_400_000,
    )  # fmt: skip
    told = dict(lines(facts))
    assert told["gate-fitted, fitted to"] == "20,123 tokens"
    assert told["gate-fitted, foreseen"].startswith("90%, –, 86%")  # noqa: RUF001
    assert told["Saved"] == "2026-11-29, 21:00:00 UTC, 3.4 MB"
