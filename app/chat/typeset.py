"""A formula's tree as boxes that can be painted: TeX's rules in outline, with the window's own fonts.

Sizes are in em of the font the box is set in. A box has a width, and a height above and a depth below its baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QFont, QFontMetricsF, QPainter, QPainterPath, QTransform

from app.chat.boxes import EMPTY, Box, blank, centred, group, line, moved, stroke
from app.chat.latex import read
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
from app.theme import font

AXIS = 0.27  # em above the baseline: the middle of a minus, a fraction's line
SCRIPT, SCRIPT_SCRIPT = 0.72, 0.58  # sizes of scripts, and of scripts of scripts
RULE = 0.055  # em, thickness of lines
GAP = 0.14  # em between a fraction's line and its parts
MAX_SIDE = 20_000  # px; nobody reads a formula wider or higher than that


@dataclass(frozen=True, slots=True)
class _Style:
    size: float  # px
    display: bool
    level: int = 0  # of scripts
    base: float = field(default=0.0)  # px of the text around

    def script(self) -> _Style:
        level = self.level + 1
        shrink = SCRIPT if level == 1 else SCRIPT_SCRIPT
        return replace(self, size=self.base * shrink, display=False, level=min(level, 2))

    def inline(self) -> _Style:
        return replace(self, display=False)


@lru_cache(maxsize=512)
def typeset(source: str, size: float, display: bool) -> Box:
    """A formula, set at ``size`` px. Raises Unreadable."""
    box = _set(read(source), _Style(size, display, base=size))
    if max(box.width, box.height + box.depth) > MAX_SIDE:
        raise Unreadable("too large")
    return box


def _set(node: Node, style: _Style) -> Box:
    match node:
        case Symbol():
            return _symbol(node, style)
        case Row():
            return _row([_set(item, style) for item in node.items], style)
        case Space():
            return blank(node.em * style.size)
        case Fraction():
            return _fraction(node, style)
        case Root():
            return _root(node, style)
        case Scripts():
            return _scripts(node, style)
        case Over():
            return _over(node, style)
        case Fence():
            return _fence(node, style)
        case Grid():
            return _grid(node, style)
        case Boxed():
            return _boxed(_set(node.body, style), style)


# ------------------------------------------------------------------------------------------------ letters


@lru_cache(maxsize=64)
def _font(look: Look, size: float) -> QFont:
    result = font("mono" if look == "mono" else "body")
    result.setPixelSize(max(1, round(size)))
    if look in ("italic", "bolditalic"):
        result.setItalic(True)
    if look in ("bold", "bolditalic"):
        result.setWeight(QFont.Weight.DemiBold)
    return result


def _text(text: str, look: Look, size: float, kind: Kind = "ord") -> Box:
    used = _font(look, size)
    metrics = QFontMetricsF(used)
    ink = metrics.tightBoundingRect(text)

    def paint(painter: QPainter, x: float, y: float) -> None:
        painter.setFont(used)
        painter.drawText(QPointF(x, y), text)

    lean = 0.06 * size if look in ("italic", "bolditalic") else 0.0
    return Box(metrics.horizontalAdvance(text) + lean, max(0.0, -ink.top()), max(0.0, ink.bottom()), paint, kind)


def _symbol(node: Symbol, style: _Style) -> Box:
    if node.kind != "big":
        return _text(node.text, node.look, style.size, node.kind)
    size = style.size * (1.7 if style.display else 1.2)
    glyph = _text(node.text, "roman", size, "big")
    middle = (glyph.height - glyph.depth) / 2  # put on the axis
    return moved(glyph, style.size * AXIS - middle)


# --------------------------------------------------------------------------------------------------- rows

_SPACES: dict[tuple[str, str], float] = {}
for _left in ("ord", "close", "name", "big"):
    _SPACES |= {(_left, "bin"): 0.22, ("bin", "ord"): 0.22, ("bin", "open"): 0.22, ("bin", "name"): 0.22}
    _SPACES |= {("bin", "big"): 0.22, (_left, "rel"): 0.28, (_left, "name"): 0.17, (_left, "big"): 0.17}
for _right in ("ord", "open", "name", "big"):
    _SPACES |= {("rel", _right): 0.28, ("punct", _right): 0.17}
_SPACES |= {("name", "ord"): 0.17, ("big", "ord"): 0.17, ("big", "open"): 0.1}


def _row(boxes: Sequence[Box], style: _Style) -> Box:
    """One after another, with the room between them that their kinds ask for."""
    placed: list[tuple[float, Box]] = []
    x, before = 0.0, ""
    for box in boxes:
        kind: str = box.kind
        if kind == "bin" and before in ("", "bin", "rel", "open", "punct", "name", "big"):
            kind = "ord"  # a sign, as in -1
        if before and (style.level == 0 or "name" in (before, kind)):
            x += _SPACES.get((before, kind), 0.0) * style.size
        placed.append((x, box))
        x += box.width
        before = kind
    kind_of_all = boxes[0].kind if len(boxes) == 1 else "ord"
    return group(placed, x, kind_of_all)


# ------------------------------------------------------------------------------------------ constructions


def _fraction(node: Fraction, style: _Style) -> Box:
    inner = style.inline() if style.display and not node.small else style.script()
    above, below = _set(node.above, inner), _set(node.below, inner)
    rule, axis = RULE * style.size, AXIS * style.size
    gap = GAP * style.size
    width = max(above.width, below.width) + 0.2 * style.size
    up = axis + rule / 2 + gap + above.depth
    down = -(axis - rule / 2 - gap - below.height)
    both = group([centred(moved(above, up), width), centred(moved(below, -down), width)], width)

    def paint(painter: QPainter, x: float, y: float) -> None:
        both.paint(painter, x, y)
        if node.line:
            line(painter, x, y - axis, width, rule)

    side = 0.08 * style.size  # beside the line, so that two fractions do not touch
    return Box(width + 2 * side, both.height, both.depth, lambda p, x, y: paint(p, x + side, y))


def _root(node: Root, style: _Style) -> Box:
    body = _set(node.body, style)
    size, rule = style.size, RULE * style.size
    top = max(body.height, 0.6 * size) + 0.16 * size
    bottom = max(body.depth, 0.1 * size) + 0.04 * size
    sign = 0.55 * size
    index = _set(node.index, style.script().script()) if node.index is not None else EMPTY
    shift = max(0.0, index.width - 0.28 * size)
    up = top - 0.45 * (top + bottom) + index.depth + 0.12 * size

    def paint(painter: QPainter, x: float, y: float) -> None:
        index.paint(painter, x, y - up)
        left = x + shift
        hook = QPainterPath(QPointF(left + 0.06 * size, y - 0.32 * (top + bottom) + bottom))
        hook.lineTo(left + 0.16 * size, y - 0.38 * (top + bottom) + bottom)
        hook.lineTo(left + 0.32 * size, y + bottom)
        hook.lineTo(left + sign, y - top)
        hook.lineTo(left + sign + body.width + 0.06 * size, y - top)
        stroke(painter, hook, max(1.0, rule))
        body.paint(painter, left + sign + 0.03 * size, y)

    height = max(top + rule, up + index.height)
    return Box(shift + sign + body.width + 0.12 * size, height, bottom, paint)


def _scripts(node: Scripts, style: _Style) -> Box:
    base = _set(node.base, style)
    above = _set(node.above, style.script()) if node.above is not None else None
    below = _set(node.below, style.script()) if node.below is not None else None
    stacked = isinstance(node.base, Symbol) and node.base.limits and (style.display or node.base.kind == "ord")
    if stacked or isinstance(node.base, Over):
        return _stacked(base, above, below, style)
    size, tall = style.size, base.kind == "big" or base.height > style.size
    parts: list[tuple[float, Box]] = [(0.0, base)]
    width = base.width
    lean = 0.05 * size
    up = max(0.38 * size, base.height - 0.32 * size if tall else 0.0)
    down = max(0.18 * size, base.depth + 0.02 * size if tall else base.depth + 0.04 * size)
    if above is not None and below is not None:
        overlap = above.depth + below.height + 0.1 * size - (up + down)
        up, down = (up + overlap / 2, down + overlap / 2) if overlap > 0 else (up, down)
    slant = 0.12 * size if base.kind == "big" and "∫" <= _sign(node.base) <= "∯" else 0.0
    if above is not None:
        up = max(up, above.depth + 0.22 * size)
        lean += slant / 2
        parts.append((base.width + lean, moved(above, up)))
        width = max(width, base.width + lean + above.width)
    if below is not None:
        parts.append((base.width - slant, moved(below, -down)))
        width = max(width, base.width - slant + below.width)
    return replace(group(parts, width + 0.04 * size), kind=base.kind)


def _sign(node: Node) -> str:
    return node.text if isinstance(node, Symbol) else ""


def _stacked(base: Box, above: Box | None, below: Box | None, style: _Style) -> Box:
    gap = 0.14 * style.size
    width = max(box.width for box in (base, above, below) if box is not None)
    parts = [centred(base, width)]
    if above is not None:
        parts.append(centred(moved(above, base.height + gap + above.depth), width))
    if below is not None:
        parts.append(centred(moved(below, -(base.depth + gap + below.height)), width))
    return group(parts, width, base.kind)


def _over(node: Over, style: _Style) -> Box:
    body = _set(node.body, style)
    size, rule = style.size, RULE * style.size
    if not node.mark:
        return body
    if node.mark in ("‾", "→", "←", "{"):
        high = {"‾": rule, "{": 0.22 * size}.get(node.mark, 0.2 * size)
        gap = 0.1 * size

        def paint(painter: QPainter, x: float, y: float) -> None:
            body.paint(painter, x, y)
            middle = y + body.depth + gap + high / 2 if node.below else y - body.height - gap - high / 2
            _mark(painter, node, QRectF(x, middle - high / 2, max(body.width, 0.3 * size), high), rule)

        extra = high + gap
        up, down = (0.0, extra) if node.below else (extra, 0.0)
        return Box(max(body.width, 0.3 * size), body.height + up, body.depth + down, paint, body.kind)
    mark = _text(node.mark, "roman", size)
    width = max(body.width, mark.width * 0.8)
    lift = body.height - 0.52 * size  # marks are drawn for letters of about this height
    parts = [centred(body, width), centred(moved(mark, max(-0.06 * size, lift)), width)]
    return group(parts, width, body.kind)


def _mark(painter: QPainter, node: Over, where: QRectF, rule: float) -> None:
    """A line, an arrow or a brace as wide as what it belongs to."""
    if node.mark == "‾":
        painter.fillRect(QRectF(where.left(), where.top(), where.width(), max(1.0, rule)), painter.pen().color())
        return
    path = QPainterPath()
    middle, tip = where.center().y(), where.height() / 2
    if node.mark in ("→", "←"):
        ahead = node.mark == "→"
        end, back = (where.right(), -tip) if ahead else (where.left(), tip)
        path.moveTo(where.left(), middle)
        path.lineTo(where.right(), middle)
        path.moveTo(end + back, middle - tip * 0.8)
        path.lineTo(end, middle)
        path.lineTo(end + back, middle + tip * 0.8)
    else:
        outer, inner = (where.top(), where.bottom()) if node.below else (where.bottom(), where.top())
        centre, curve = where.center().x(), min(where.height(), where.width() / 4)
        path.moveTo(where.left(), outer)
        path.quadTo(where.left(), middle, where.left() + curve, middle)
        path.lineTo(centre - curve, middle)
        path.quadTo(centre, middle, centre, inner)
        path.quadTo(centre, middle, centre + curve, middle)
        path.lineTo(where.right() - curve, middle)
        path.quadTo(where.right(), middle, where.right(), outer)
    stroke(painter, path, max(1.0, rule))


def _fence(node: Fence, style: _Style) -> Box:
    body = _set(node.body, style)
    axis = AXIS * style.size
    reach = max(body.height - axis, body.depth + axis, 0.55 * style.size) + 0.06 * style.size
    left, right = (_delimiter(sign, reach, axis, style) for sign in (node.left, node.right))
    parts = [(0.0, left), (left.width, body), (left.width + body.width, right)]
    return group(parts, left.width + body.width + right.width)


def _delimiter(sign: str, reach: float, axis: float, style: _Style) -> Box:
    """A sign that reaches so far up and down from the axis."""
    if not sign:
        return blank(0.12 * style.size)
    used = _font("roman", style.size)
    path = QPainterPath()
    path.addText(0, 0, used, sign)
    ink = path.boundingRect()
    if ink.height() <= 0:
        return _text(sign, "roman", style.size)
    factor = max(1.0, 2 * reach / ink.height())
    broad = 1.0 + 0.06 * min(6.0, factor - 1.0)  # a very high one would look thin
    shaped = QTransform().scale(broad, factor).map(path)
    ink = shaped.boundingRect()
    side = 0.07 * style.size
    shaped.translate(side - ink.left(), -axis - ink.center().y())

    def paint(painter: QPainter, x: float, y: float) -> None:
        painter.fillPath(shaped.translated(x, y), painter.pen().color())

    half = ink.height() / 2
    return Box(ink.width() + 2 * side, half + axis, half - axis, paint)


def _grid(node: Grid, style: _Style) -> Box:
    inner = style.inline() if node.small else style
    size = style.size
    rows = [[_set(cell, inner) for cell in row] for row in node.rows]
    columns = max(len(row) for row in rows)
    widths = [max((row[c].width for row in rows if c < len(row)), default=0.0) for c in range(columns)]
    align = (node.align * columns)[:columns]
    gaps = [0.25 * size if align[c] == "r" and align[c + 1] == "l" else 0.9 * size for c in range(columns - 1)]
    between = 0.35 * size
    placed: list[tuple[float, Box]] = []
    y = 0.0
    for row in rows:
        height = max(0.7 * size, *(box.height for box in row))
        depth = max(0.2 * size, *(box.depth for box in row))
        y += height
        x = 0.0
        for c, box in enumerate(row):
            free = widths[c] - box.width
            left = x + {"l": 0.0, "c": free / 2, "r": free}[align[c]]
            placed.append((left, moved(box, -y)))
            x += widths[c] + (gaps[c] if c < len(gaps) else 0.0)
        y += depth + between
    total = y - between
    whole = group(placed, sum(widths) + sum(gaps))
    whole = replace(whole, height=0.0, depth=total)
    return moved(whole, total / 2 + AXIS * size)


def _boxed(body: Box, style: _Style) -> Box:
    pad = 0.22 * style.size

    def paint(painter: QPainter, x: float, y: float) -> None:
        path = QPainterPath()
        path.addRect(QRectF(x, y - body.height - pad, body.width + 2 * pad, body.height + body.depth + 2 * pad))
        stroke(painter, path, max(1.0, RULE * style.size))
        body.paint(painter, x + pad, y)

    return Box(body.width + 2 * pad, body.height + pad, body.depth + pad, paint)
