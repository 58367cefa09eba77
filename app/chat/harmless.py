"""Characters that would make text look other than it is, or not at all, are made visible.

What a model writes is shown as text whatever it is; these few characters could still reorder a line (bidirectional
overrides: a file name or a link that reads backwards), hide parts of it (zero-width and tag characters), or paint over
the lines around it (a hundred accents on one letter). Copying gives the text as it was.
"""

from __future__ import annotations

import re
import unicodedata

MARKS_KEPT = 6  # combining marks on one letter; no script needs more

_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
# embeddings, overrides and isolates; invisible operators; the byte order mark; tags; halves of a UTF-16 pair, which are
# no characters and cannot be written anywhere; controls that no text needs
_INVISIBLE = re.compile(
    "[\u202a-\u202e\u2066-\u2069\u2060-\u2064\u206a-\u206f\ufeff\U000e0000-\U000e0fff"
    "\ud800-\udfff\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
_ROWS = re.compile("[\u200b-\u200f\u00ad]{3,}")  # emoji and Indic scripts need single ones; a row hides something
_ACCENTS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0e31-\u0e3a\u0e47-\u0e4e"
    "\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0\ufe20-\ufe2f"
)
_COMBINING = re.compile(f"[{_ACCENTS}]{{{MARKS_KEPT + 1},}}")
# a flag of a part of a country is spelt in tags; one variant of a character follows it
_FINE = (
    "\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f"
    "|[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff][\U000e0100-\U000e01ef]"
)
_SUSPECT = re.compile(f"(?P<fine>{_FINE})|{_INVISIBLE.pattern}|{_ROWS.pattern}|{_COMBINING.pattern}")


def harmless(text: str) -> str:
    """The text with such characters replaced by their names: "⟨U+202E⟩"."""
    if text.isascii():
        return _CONTROLS.sub(_named, text)
    return _SUSPECT.sub(_named, text)


def _named(found: re.Match[str]) -> str:
    run = found.group()
    if found.groupdict().get("fine"):
        return run
    if len(run) > MARKS_KEPT and unicodedata.category(run[0]) in ("Mn", "Me"):
        return f"{run[:MARKS_KEPT]}⟨+{len(run) - MARKS_KEPT}⟩"
    name = f"U+{ord(run[0]):04X}"
    return f"⟨{name}⟩" if len(run) == 1 else f"⟨{name} x {len(run)}⟩"
