"""Text as the search compares it, and the few words around what was found."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

BEFORE, LENGTH = 16, 120  # characters of a snippet: in front of what was found, and in all


@dataclass(frozen=True, slots=True)
class Snippet:
    """A piece of text on one line. ``marks`` are (start, length) of the words that were looked for, in order."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()


def fold(text: str) -> str:
    """Text without case and accents: "Café" and "CAFE" are one word."""
    return text.lower() if text.isascii() else text.translate(_FOLDS)


def snippet(text: str, words: Sequence[str], phrase: str) -> Snippet:
    """The surroundings of ``phrase``, else of the first of ``words`` that occurs. Both are folded."""
    folded, places = _folded_with_places(text)
    found = [folded.find(wanted) for wanted in (phrase, *words)]
    start = places[next((place for place in found if place >= 0), 0)] if text else 0
    begin = max(0, start - BEFORE)
    if begin:  # not in the middle of a word
        space = re.search(r"\s", text[begin:start])
        begin += space.end() if space else 0
    piece = text[begin : begin + LENGTH]
    shown = ("…" if begin else "") + " ".join(piece.split()) + ("…" if begin + LENGTH < len(text) else "")
    return Snippet(shown, _marks(shown, words))


def _marks(text: str, words: Sequence[str]) -> tuple[tuple[int, int], ...]:
    folded, places = _folded_with_places(text)
    marks: list[tuple[int, int]] = []
    # longer words first, so that a part of one does not hide the whole
    for found in re.finditer("|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)), folded):
        start, end = places[found.start()], places[found.end() - 1] + 1
        if end > start and found.group():
            marks.append((start, end - start))
    return tuple(marks)


class _Folds(dict[int, str]):
    """Code point -> folded character, found once."""

    def __missing__(self, code: int) -> str:
        parts = unicodedata.normalize("NFKD", chr(code).casefold())
        self[code] = "".join(part for part in parts if not unicodedata.combining(part))
        return self[code]


_FOLDS = _Folds()


def _folded_with_places(text: str) -> tuple[str, Sequence[int]]:
    """The folded text, and for each of its characters the place in ``text`` that it comes from."""
    if text.isascii():
        return text.lower(), range(len(text) + 1)
    pieces: list[str] = []
    places: list[int] = []
    for place, character in enumerate(text):
        piece = _FOLDS[ord(character)]
        pieces.append(piece)
        places += [place] * len(piece)
    places.append(len(text))
    return "".join(pieces), places
