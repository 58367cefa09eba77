"""What a formula is made of, as a tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind = Literal["ord", "bin", "rel", "open", "close", "punct", "name", "big"]
Look = Literal["italic", "roman", "bold", "bolditalic", "mono", "sans"]


class Unreadable(Exception):
    """This is not mathematics that can be shown right."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """One sign or word. "name" and "big" may have limits above and below them: ``limits``."""

    text: str
    kind: Kind = "ord"
    look: Look = "roman"
    limits: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Fraction:
    above: Node
    below: Node
    line: bool = True
    small: bool = False  # never larger than text, whatever is around it


@dataclass(frozen=True, slots=True)
class Root:
    body: Node
    index: Node | None


@dataclass(frozen=True, slots=True)
class Scripts:
    base: Node
    above: Node | None
    below: Node | None


@dataclass(frozen=True, slots=True)
class Over:
    """Something over or under a body: "^", "→", "‾", "_", "{" (a brace) or a mark of its own."""

    body: Node
    mark: str
    below: bool = False


@dataclass(frozen=True, slots=True)
class Fence:
    """Delimiters as high as what is between them; "" for none."""

    left: str
    body: Node
    right: str


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of cells. align: "l", "c" or "r" by column, repeated."""

    rows: tuple[tuple[Node, ...], ...]
    align: str
    small: bool = True  # cells are as in text, not as in a display


@dataclass(frozen=True, slots=True)
class Space:
    em: float


@dataclass(frozen=True, slots=True)
class Boxed:
    body: Node


Node: TypeAlias = Symbol | Row | Fraction | Root | Scripts | Over | Fence | Grid | Space | Boxed
