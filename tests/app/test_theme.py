"""Text is readable in both themes; the theme follows what it is told; the style sheet has no hole."""

from __future__ import annotations

from dataclasses import fields

import pytest
from PySide6.QtGui import QFontMetricsF, QPalette
from PySide6.QtWidgets import QApplication, QLineEdit, QPlainTextEdit

from app.colors import DARK, LIGHT, Colors, contrast
from app.theme import Mode, Theme, font, space, stylesheet

TEXTS = ("text", "text_muted", "text_faint", "accent", "warm", "warn", "danger")
GROUNDS = ("window", "sidebar", "surface", "surface_raised", "user_bubble", "code_background", "accent_soft")


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
def test_every_text_colour_is_readable_on_every_ground(colors: Colors) -> None:
    for text in TEXTS:
        for ground in GROUNDS:
            assert contrast(getattr(colors, text), getattr(colors, ground)) >= 4.5, (text, ground)
    assert contrast(colors.on_accent, colors.accent) >= 4.5


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_words_in_empty_fields_are_readable(mode: Mode, qapp: QApplication, qtbot) -> None:
    theme = Theme(mode)
    for field in (QLineEdit(), QPlainTextEdit()):
        qtbot.addWidget(field)
        field.ensurePolished()
        color = field.palette().color(QPalette.ColorRole.PlaceholderText)
        assert color.alpha() == 255 and color.name() == theme.colors.text_faint


def test_contrast_matches_the_definition() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
def test_style_sheet_is_complete(colors: Colors) -> None:
    assert "$" not in stylesheet(colors)
    assert len(colors.heat) == 6
    assert all(getattr(colors, field.name) for field in fields(colors))


def test_theme_changes_live(qapp: QApplication, qtbot) -> None:
    theme = Theme("light")
    assert theme.colors is LIGHT
    with qtbot.waitSignal(theme.changed):
        theme.set_mode("dark")
    assert theme.is_dark
    assert DARK.window in qapp.styleSheet()
    with qtbot.assertNotEmitted(theme.changed):
        theme.set_mode("dark")


def test_figures_do_not_dance(qapp: QApplication) -> None:
    digits = QFontMetricsF(font("figure"))
    assert digits.horizontalAdvance("111") == pytest.approx(digits.horizontalAdvance("888"), abs=0.1)
    assert space(2) == 8
