"""LaTeX mathematics as a tree: what models write in chats, and nothing else.

A formula is read whole or not at all: a command that is not known, or a brace that does not close, is ``Unreadable``,
and the reader sees the source. Half of a formula would be a wrong one. Macros are not expanded and nothing is ever
defined, so there is nothing that could run away.
"""

# ruff: noqa: RUF001  signs that look like others are what this is about
from __future__ import annotations

import re

from app.chat.latex_symbols import ACCENTS, ALPHABETS, BIG, DELIMITERS, NAMES, SPACES, SYMBOLS
from app.chat.latex_tree import (
    Boxed,
    Fence,
    Fraction,
    Grid,
    Kind,
    Look,
    Node,
    Over,
    Root,
    Row,
    Scripts,
    Space,
    Symbol,
    Unreadable,
)

MAX_LENGTH = 4000  # characters
MAX_DEPTH = 24  # of braces, fractions, roots, scripts

_TOKEN = re.compile(r"\\(?:[a-zA-Z]+\*?|.)|[ \t\r\n]+|.", re.DOTALL)
_ENVIRONMENTS: dict[str, tuple[str, str, str]] = {  # left, right, alignment
    "matrix": ("", "", "c"),
    "smallmatrix": ("", "", "c"),
    "pmatrix": ("(", ")", "c"),
    "bmatrix": ("[", "]", "c"),
    "Bmatrix": ("{", "}", "c"),
    "vmatrix": ("|", "|", "c"),
    "Vmatrix": ("‖", "‖", "c"),
    "cases": ("{", "", "l"),
    "aligned": ("", "", "rl"),
    "align": ("", "", "rl"),
    "alignat": ("", "", "rl"),
    "split": ("", "", "rl"),
    "gathered": ("", "", "c"),
    "gather": ("", "", "c"),
    "multline": ("", "", "l"),
    "equation": ("", "", "c"),
    "array": ("", "", "c"),
}
_BIG_SIZES = ("big", "Big", "bigg", "Bigg")
_IGNORED = {"displaystyle", "textstyle", "nonumber", "notag", "allowbreak", "nolimits", "limits", "hline"}


def read(source: str) -> Node:
    """The tree of a formula without its dollars. Raises Unreadable."""
    if len(source) > MAX_LENGTH:
        raise Unreadable("too long")
    reader = _Reader(_TOKEN.findall(source))
    rows = reader.rows(frozenset())
    if reader.peek():
        raise Unreadable(f"unexpected {reader.peek()}")
    if len(rows) == 1 and len(rows[0]) == 1:
        return rows[0][0]
    aligned = any(len(row) > 1 for row in rows)
    return Grid(tuple(rows), "rl" if aligned else "c", small=False)


class _Reader:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    # -------------------------------------------------------------------------------------------- tokens

    def peek(self) -> str:
        """The next token that is no space; "" at the end."""
        while self._at < len(self._tokens) and self._tokens[self._at].isspace():
            self._at += 1
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def take(self, wanted: str = "") -> str:
        token = self.peek()
        if not token or (wanted and token != wanted):
            raise Unreadable(f"{token or 'the end'} where {wanted or 'more'} should be")
        self._at += 1
        return token

    def raw_group(self) -> str:
        """The characters of a braced group, as they are."""
        self.take("{")
        depth, parts = 1, list[str]()
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            self._at += 1
            depth += (token == "{") - (token == "}")
            if depth == 0:
                return "".join(parts)
            parts.append(token)
        raise Unreadable("a brace that does not close")

    # ------------------------------------------------------------------------------------------- structure

    def rows(self, ends: frozenset[str]) -> list[tuple[Node, ...]]:
        """Cells between "&", rows between two backslashes, up to one of ``ends``, which is not taken."""
        rows: list[tuple[Node, ...]] = []
        cells: list[Node] = []
        while True:
            cells.append(self.row(ends | {"&", "\\\\"}))
            token = self.peek()
            if token == "&":
                self.take()
                continue
            rows.append(tuple(cells))
            cells = []
            if token != "\\\\":
                break
            self.take()
            if self.peek() == "[":  # extra room below the row
                while self.take() != "]":
                    pass
            if not self.peek() or self.peek() in ends:
                break
        return rows

    def row(self, ends: frozenset[str]) -> Node:
        """Everything up to one of ``ends``, which is not taken."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unreadable("too deep")
        items: list[Node] = []
        while (token := self.peek()) and token not in ends:
            if token in ("}", "&", "\\\\", "\\right", "\\end"):
                raise Unreadable(f"unexpected {token}")
            node = self.with_scripts()
            if node is not None:
                items.append(node)
        self._depth -= 1
        return items[0] if len(items) == 1 else Row(tuple(items))

    def with_scripts(self) -> Node | None:
        """The next thing, with what stands above and below it on its right; None: it is not seen."""
        token = self.peek()
        base: Node | None = Row(()) if token in ("^", "_", "'") else self.one()
        if base is None:
            return None
        above: list[Node] = []
        below: Node | None = None
        limits: bool | None = None
        while (token := self.peek()) in ("^", "_", "'", "\\limits", "\\nolimits"):
            self.take()
            if token == "'":
                above.append(Symbol("′"))
            elif token == "^":
                if above and not all(node == Symbol("′") for node in above):
                    raise Unreadable("two superscripts")
                above.append(self.argument())
            elif token == "_":
                if below is not None:
                    raise Unreadable("two subscripts")
                below = self.argument()
            else:
                limits = token == "\\limits"
        if limits is not None and isinstance(base, Symbol):
            base = Symbol(base.text, base.kind, base.look, limits)
        if not above and below is None:
            return base
        return Scripts(base, above[0] if len(above) == 1 else Row(tuple(above)) if above else None, below)

    def argument(self) -> Node:
        """A braced group, or the next single thing."""
        if self.peek() == "{":
            self.take()
            body = self.row(frozenset({"}"}))
            self.take("}")
            return body
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unreadable("too deep")
        node = self.one()
        self._depth -= 1
        if node is None:
            raise Unreadable("nothing where something should be")
        return node

    def one(self) -> Node | None:
        token = self.peek()
        if token == "{":
            return self.argument()
        self.take()
        if token.startswith("\\"):
            return self.command(token[1:])
        return _character(token)

    # -------------------------------------------------------------------------------------------- commands

    def command(self, name: str) -> Node | None:
        name = name.removesuffix("*") if name not in SYMBOLS else name
        if name in SYMBOLS:
            text, kind = SYMBOLS[name]
            return Symbol(text, kind, "italic" if kind == "ord" and text.isalpha() and text.islower() else "roman")
        if name in BIG:
            return Symbol(BIG[name], "big", limits="int" not in name)
        if name in NAMES:
            return Symbol(NAMES[name], "name", limits=name in _WITH_LIMITS)
        if name in SPACES:
            return Space(SPACES[name])
        if name in ACCENTS:
            mark, below = ACCENTS[name]
            return Over(self.argument(), mark, below)
        if name in ALPHABETS:
            return self.alphabet(name)
        if name in _IGNORED:
            return None
        return self.construction(name)

    def construction(self, name: str) -> Node | None:
        match name:
            case "frac" | "dfrac" | "cfrac":
                return Fraction(self.argument(), self.argument())
            case "tfrac":
                return Fraction(self.argument(), self.argument(), small=True)
            case "binom" | "dbinom" | "tbinom":
                return Fence("(", Fraction(self.argument(), self.argument(), line=False), ")")
            case "sqrt":
                return self.root()
            case "text" | "textrm" | "textit" | "textbf" | "textnormal" | "mbox" | "operatorname":
                words = self.raw_group()
                if "\\" in words or "$" in words:
                    raise Unreadable("markup in text")
                look: Look = "bold" if name == "textbf" else "roman"
                return Symbol(words, "name" if name == "operatorname" else "ord", look)
            case "left":
                return self.fence()
            case "begin":
                return self.environment()
            case "boxed" | "fbox":
                return Boxed(self.argument())
            case "overset" | "stackrel":
                above = self.argument()
                return Scripts(_limited(self.argument()), above, None)
            case "underset":
                below = self.argument()
                return Scripts(_limited(self.argument()), None, below)
            case "substack":
                self.take("{")
                rows = self.rows(frozenset({"}"}))
                self.take("}")
                return Grid(tuple(rows), "c")
            case "pmod":
                inside = (Symbol("mod", "name"), Space(0.3), self.argument())
                return Row((Space(0.6), Symbol("(", "open"), *inside, Symbol(")", "close")))
            case "tag":
                return Row((Space(2), Symbol(f"({self.raw_group()})")))
            case "label":
                self.raw_group()
                return None
            case "not":
                return self.negated()
        sized = next((size for size in _BIG_SIZES if name in (size, f"{size}l", f"{size}r", f"{size}m")), None)
        if sized:
            sign, side = self.delimiter(), name.removeprefix(sized)
            kind: Kind = "open" if side == "l" else "close" if side == "r" else "ord"
            return Symbol(sign, kind)
        raise Unreadable(f"\\{name}")

    def root(self) -> Root:
        index: Node | None = None
        if self.peek() == "[":
            self.take()
            index = self.row(frozenset({"]"}))
            self.take("]")
        return Root(self.argument(), index)

    def delimiter(self) -> str:
        token = self.take()
        sign = DELIMITERS.get(token)
        if sign is None:
            raise Unreadable(f"{token} as a delimiter")
        return sign

    def fence(self) -> Node:
        left = self.delimiter()
        body = self.row(frozenset({"\\right"}))
        self.take("\\right")
        return Fence(left, body, self.delimiter())

    def environment(self) -> Node:
        name = self.raw_group().removesuffix("*")
        if name not in _ENVIRONMENTS:
            raise Unreadable(f"environment {name}")
        left, right, align = _ENVIRONMENTS[name]
        if name in ("array", "alignat"):
            columns = "".join(sign for sign in self.raw_group() if sign in "lcr")
            align = columns or align
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unreadable("too deep")
        rows = self.rows(frozenset({"\\end"}))
        self.take("\\end")
        if self.raw_group().removesuffix("*") != name:
            raise Unreadable("environments that cross")
        self._depth -= 1
        grid = Grid(tuple(rows), align, small=name in ("smallmatrix", "cases") or "matrix" in name)
        return Fence(left, grid, right) if left or right else grid

    def alphabet(self, name: str) -> Node:
        table = ALPHABETS[name]
        body = self.argument()
        return _restyled(body, table)

    def negated(self) -> Node:
        node = self.one()
        if not isinstance(node, Symbol) or len(node.text) != 1:
            raise Unreadable("\\not before more than one sign")
        return Symbol(node.text + "\u0338", node.kind, node.look)


_WITH_LIMITS = {"lim", "limsup", "liminf", "max", "min", "sup", "inf", "det", "gcd", "Pr", "argmax", "argmin"}
_CHARACTERS: dict[str, tuple[str, Kind]] = {
    "-": ("−", "bin"),
    "+": ("+", "bin"),
    "*": ("∗", "bin"),
    "/": ("/", "ord"),
    "=": ("=", "rel"),
    "<": ("<", "rel"),
    ">": (">", "rel"),
    ":": (":", "rel"),
    "|": ("|", "ord"),
    ",": (",", "punct"),
    ";": (";", "punct"),
    "(": ("(", "open"),
    "[": ("[", "open"),
    ")": (")", "close"),
    "]": ("]", "close"),
    "!": ("!", "close"),
    "?": ("?", "close"),
    "~": ("\u00a0", "ord"),
}


def _character(token: str) -> Symbol:
    if token in _CHARACTERS:
        text, kind = _CHARACTERS[token]
        return Symbol(text, kind)
    if token in "#$%&\\^_{}":
        raise Unreadable(f"unexpected {token}")
    kind_of = "rel" if token in "≤≥≠≈≡∈∉⊂⊆→←⇒⇔∼" else "bin" if token in "±×÷·∪∩∧∨" else "ord"
    return Symbol(token, kind_of, "italic" if token.isalpha() and token.isascii() else "roman")  # type: ignore[arg-type]


def _limited(node: Node) -> Node:
    """A base whose scripts stand straight above and below it."""
    if isinstance(node, Symbol):
        return Symbol(node.text, node.kind, node.look, limits=True)
    return Over(node, "")


def _restyled(node: Node, table: Look | dict[str, str]) -> Node:
    """The letters of a node in another alphabet."""
    if isinstance(node, Symbol):
        if isinstance(table, dict):
            if not all(letter in table for letter in node.text):
                raise Unreadable(f"no such letter: {node.text}")
            return Symbol("".join(table[letter] for letter in node.text), node.kind, "roman", node.limits)
        return Symbol(node.text, node.kind, table, node.limits)
    if isinstance(node, Row):
        items = tuple(_restyled(item, table) for item in node.items)
        return Row(items)
    if isinstance(node, Scripts):
        return Scripts(_restyled(node.base, table), node.above, node.below)
    if isinstance(node, Space):
        return node
    raise Unreadable("an alphabet around more than letters")
