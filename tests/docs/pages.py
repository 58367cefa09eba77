"""The pages that a reader is given, taken apart: code blocks, commands, links, quoted messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "resources" / "demo" / "README.md")

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^|\n\n)((?: {4}\S.*\n)+)")
_STARTS = ("python3 ", "python ", ".venv/bin/python ", "bash ", "pip ", "sudo ")


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of code. before: the text of the page up to it."""

    page: Path
    language: str
    text: str
    before: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = [Block(page, m[1], m[2], text[: m.start()]) for m in _FENCED.finditer(text)]
    plain = _FENCED.sub("", text)
    found += [Block(page, "sh", re.sub(r"^ {4}", "", m[1], flags=re.MULTILINE), "") for m in _INDENTED.finditer(plain)]
    return found


def commands(page: Path) -> Iterator[str]:
    """Every command of a page, in order: the lines of its shell blocks, and what its prose names between backticks."""
    for block in blocks(page):
        if block.language == "sh":
            for line in block.text.splitlines():
                command = line.split(" #")[0].strip()
                if command and not command.startswith("#"):
                    yield command
    for code in inline(page):
        if code.startswith(_STARTS):
            yield code


def inline(page: Path) -> list[str]:
    """What stands between backticks in the prose."""
    return re.findall(r"`([^`\n]+)`", _FENCED.sub("", page.read_text(encoding="utf-8")))
