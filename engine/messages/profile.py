"""What was learnt about a model's experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ProfileDeed = Literal["show", "export", "import", "clear"]


@dataclass(frozen=True, slots=True)
class UseProfile:
    """Look at what was learnt about a model, move it, or forget it. ``ProfileFacts`` answers, also while generating.

    A loaded model goes on with what it knows and saves it after its next answer: load it again after import and clear.
    file: to export to, or to import from.
    """

    signature: str  # as in ModelLoaded
    deed: ProfileDeed = "show"
    file: str = ""


@dataclass(frozen=True, slots=True)
class ProfileFacts:
    """What a model's profile holds after ``deed``; all else says nothing when it is not ``there``."""

    signature: str
    deed: ProfileDeed
    there: bool
    requests: int = 0  # past requests kept
    tokens: tuple[tuple[str, int], ...] = ()  # fitted predictor, tokens it was fitted to
    accuracy: tuple[
        tuple[str, tuple[float | None, ...]], ...
    ] = ()  # predictor, share of slots right by distance from 1
    saved: str = ""  # UTC, ISO 8601
    file: str = ""
    bytes: int = 0  # of the file
