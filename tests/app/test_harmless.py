"""Characters that deceive are named; everything that languages need is left alone."""

from __future__ import annotations

import pytest

from app.chat.harmless import harmless


@pytest.mark.parametrize(
    "text",
    [
        "plain\n\ttext\r\n",
        "Grüße, 世界! 🎭🎟️ done",
        "👩‍👩‍👧‍👦 family",
        "Ελληνικά, עברית עם נִקּוּד, العَرَبِيَّة, हिन्दी, ภาษาไทยที่, Tiếng Việt",
        "Việt",
        "x̂ + ȳ\u20d7 = ∑",
        "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f Scotland's flag",
        "葛\U000e0100城市, a variant of a character",
        "soft\u00adhyphen and zero\u200bwidth, ltr\u200e mark",
    ],
)
def test_ordinary_text_of_every_language_is_left_alone(text: str) -> None:
    assert harmless(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("photo\u202egpj.exe", "photo⟨U+202E⟩gpj.exe"),
        ("half a pair \ud83d here", "half a pair ⟨U+D83D⟩ here"),
        ("a\u2066b\u2069", "a⟨U+2066⟩b⟨U+2069⟩"),
        ("bell\x07 esc\x1b[31m nul\x00", "bell⟨U+0007⟩ esc⟨U+001B⟩[31m nul⟨U+0000⟩"),
        ("hid" + "\u200b" * 500 + "den", "hid⟨U+200B x 500⟩den"),
        ("tag\U000e0041", "tag⟨U+E0041⟩"),
        ("a\U000e0100b", "a⟨U+E0100⟩b"),
        ("葛\U000e0100\U000e0101", "葛\U000e0100⟨U+E0101⟩"),
        ("\U0001f3f4" + "\U000e0061" * 40 + "\U000e007f", "\U0001f3f4" + "⟨U+E0061⟩" * 40 + "⟨U+E007F⟩"),
        ("Z" + "\u0335" * 300 + "algo", "Z" + "\u0335" * 6 + "⟨+294⟩algo"),
    ],
)
def test_what_deceives_is_named(text: str, shown: str) -> None:
    assert harmless(text) == shown
