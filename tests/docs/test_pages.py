"""What the pages quote is there: messages, menus, names, figures of models, links, pictures."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from engine.bench.synthetic import SHAPES, Shape
from engine.messages import POLICIES, PREDICTORS
from tests.docs.pages import PAGES, ROOT
from tests.families import ALL_FAMILIES, PAIRS

DOCS = ROOT / "docs"


def texts(folder: Path) -> Iterator[str]:
    """Every string of the code; … stands for what is filled in."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)  # type: ignore[misc]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield re.sub(r"%\d|\{\w+\}", "…", node.value)


def words(text: str) -> str:
    """Without what a line break or a filled-in piece does to it."""
    return re.sub(r"\s+", " ", re.sub(r"…+", "…", text)).strip()


def quoted(page: Path) -> list[str]:
    """Messages in the first column of its tables."""
    return re.findall(r'^\| "(.+?)" \|', page.read_text(encoding="utf-8"), re.MULTILINE)


def pieces_of(message: str) -> list[str]:
    """What stands between the filled-in pieces, where it is more than a word."""
    return [piece.strip() for piece in words(message).split("…") if len(piece.strip()) > 3]


def is_said(message: str, said: str) -> bool:
    """Whether the program says this: the quoted pieces stand in one of its texts, in order."""
    place = 0
    for piece in pieces_of(message):
        place = said.find(piece, place) + 1
        if not place:
            return False
    return True


def test_every_message_of_the_troubleshooting_page_is_in_the_code() -> None:
    messages = quoted(DOCS / "troubleshooting.md")
    assert len(messages) > 30
    known = [words(text) for top in ("engine", "app", "packaging") for text in texts(ROOT / top) if " " in text]
    assert [message for message in messages if not any(is_said(message, said) for said in known)] == []


def test_a_message_that_nobody_says_would_be_noticed() -> None:
    assert not is_said("The … has … and is gone for ever.", "The model has 3 tokens and is here.")
    assert is_said("“…” was written by … (log version …)", "“…” was written by a newer Greenroom (log version …; …)")


def test_menus_are_called_what_the_pages_call_them() -> None:
    code = " ".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "app").glob("*.py") if "addMenu" in path.read_text("utf-8")
    )
    labels = tuple(name.replace("&", "").removesuffix("…") for name in re.findall(r'tr\("([^"]+)"\)', code))
    named = [
        (menu, " ".join(entry.split()))
        for page in PAGES
        for menu, entry in re.findall(r"\b(File|Session|View|Help) >\s+(\w[\w ]*)", page.read_text(encoding="utf-8"))
    ]
    assert len(named) > 10
    assert [(menu, entry) for menu, entry in named if menu not in labels or not entry.startswith(labels)] == []


def test_every_policy_and_predictor_has_a_row() -> None:
    page = (DOCS / "terminal.md").read_text(encoding="utf-8")
    rows = " ".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    named = set(re.findall(r"`([\w-]+)`", rows))
    assert set(POLICIES) | set(PREDICTORS) == named


def row_of(name: str, shape: Shape) -> str:
    """As the page has it: bfloat16, decimal units."""
    values = shape.values
    experts = next(values[key] for key in ("num_experts", "n_routed_experts", "num_local_experts") if key in values)
    width = values.get("moe_intermediate_size", values["intermediate_size"])
    top_k, each = values["num_experts_per_tok"], 3 * values["hidden_size"] * width * 2
    everyone, wanted = shape.layers * experts * each / 1e9, shape.layers * top_k * each / 1e9
    return (
        f"| {shape.title} (`{name}`) | {shape.layers} layers × {experts}, {top_k} a token "  # noqa: RUF001
        f"| {each / 1e6:.1f} MB | {everyone:.1f} GB | {wanted:.1f} GB |"
    )


@pytest.mark.parametrize("name", SHAPES)
def test_the_figures_of_a_model_are_those_of_its_shape(name: str) -> None:
    assert row_of(name, SHAPES[name]) in (DOCS / "choosing-a-model.md").read_text(encoding="utf-8")


def test_the_readme_counts_the_families_that_are_tested() -> None:
    count = len({*ALL_FAMILIES, *PAIRS})
    assert f"**{count}** model families" in (ROOT / "README.md").read_text("utf-8")


def anchors(page: Path) -> set[str]:
    """As the forges make them of headings."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [*re.findall(r"\]\(([^)\s]+)\)", text), *re.findall(r'(?:src|srcset)="([^"]+)"', text)]
    for link in links:
        if re.match(r"https?:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target), link


def test_the_picture_is_legible_in_light_and_in_dark() -> None:
    picture = (DOCS / "how-it-works.svg").read_text(encoding="utf-8")
    used = {name for names in re.findall(r'class="([^"]+)"', picture) for name in names.split()}
    light, dark = picture.split("@media (prefers-color-scheme: dark)")
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    coloured = set(re.findall(r"\.(\w+)\s*\{[^}]*(?:fill|stroke):", light))
    assert used <= coloured | {"s", "h"}  # sizes and weights have no colour
    assert used - {"s", "h"} <= set(re.findall(r"\.(\w+)\s*\{", dark.split("</style>")[0])) | {"h"}


def test_pictures_are_small_and_every_page_is_linked() -> None:
    assert all(picture.stat().st_size < 300_000 for picture in DOCS.glob("*.png"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in DOCS.glob("*.md") if f"docs/{page.name}" not in readme] == []
