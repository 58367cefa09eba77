"""The licences that a build ships are those of what is in it, as the parts say themselves."""

import json
import sys
from importlib import metadata
from pathlib import Path

import pytest
import third_party
from third_party import LicenceMissing, Part, distribution_part, parts_of, write

ROOT = Path(__file__).parents[2]
RESOURCES = ROOT / "resources"


def file_of(name, ending):
    files = metadata.distribution(name).files or []
    return Path(str(next(file.locate() for file in files if str(file).endswith(ending))))


def made(folder, name, about, files):
    """A distribution of our own, installed into ``folder``."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{about}", encoding="utf-8")
    for inside, text in files.items():
        (folder / inside).parent.mkdir(parents=True, exist_ok=True)
        (folder / inside).write_text(text, encoding="utf-8")
    record = [f"{inside},," for inside in (*files, f"{info.name}/METADATA", f"{info.name}/RECORD")]
    (info / "RECORD").write_text("\n".join(record) + "\n", encoding="utf-8")
    return metadata.Distribution.at(info)


def test_only_what_was_collected_is_listed_each_with_version_and_licence():
    collected = [
        file_of("numpy", "numpy/__init__.py"),
        file_of("markdown-it-py", "markdown_it/main.py"),
        sys.executable,
    ]
    parts = {part.name: part for part in parts_of(collected, RESOURCES)}
    assert {"numpy", "markdown-it-py", "Python"} <= set(parts)
    assert "torch" not in parts
    assert parts["numpy"].version == metadata.version("numpy")
    assert "BSD-3-Clause" in parts["numpy"].licence
    assert any("NumPy Developers" in text for text in parts["numpy"].texts)
    assert any("PYTHON SOFTWARE FOUNDATION LICENSE" in text for text in parts["Python"].texts)


def test_metadata_without_its_library_is_nobodys_work():
    about = file_of("markdown-it-py", ".dist-info/METADATA")
    assert "markdown-it-py" not in {part.name for part in parts_of([about], RESOURCES)}


def test_fonts_and_the_demo_are_listed_by_the_licence_beside_them():
    parts = {part.name: part for part in parts_of([], RESOURCES)}
    assert parts["Inter, a typeface"].licence == "OFL-1.1"
    demo = next(part for name, part in parts.items() if "SmolLM2-135M-Instruct" in name)
    assert demo.licence == "apache-2.0"
    assert "Apache License" in demo.texts[0]


def test_a_licence_that_is_only_named_comes_with_its_text():
    qt = distribution_part(metadata.distribution("PySide6-Essentials"))
    assert "LGPL-3.0-only" in qt.licence
    assert any("GNU LESSER GENERAL PUBLIC LICENSE" in text for text in qt.texts)
    assert any("GNU GENERAL PUBLIC LICENSE" in text for text in qt.texts), "the LGPL refers to it"


def test_a_licence_that_stands_in_the_code_alone_is_found_there(tmp_path):
    code = "#####\n# Copyright (c) 1999, Somebody. Redistribution is permitted.\n#####\nimport os\n"
    part = distribution_part(made(tmp_path, "lonely", "License: BSD\n", {"lonely.py": code}))
    assert part.licence == "BSD"
    assert "1999, Somebody" in part.texts[0]
    assert "import os" not in part.texts[0]


def test_what_names_no_licence_stops_the_build(tmp_path, monkeypatch):
    made(tmp_path, "nameless", "", {"nameless.py": "x = 1\n"})
    monkeypatch.syspath_prepend(tmp_path)
    third_party._owners.cache_clear()
    try:
        with pytest.raises(LicenceMissing, match="nameless"):
            parts_of([tmp_path / "nameless.py"], RESOURCES)
    finally:
        third_party._owners.cache_clear()


def test_the_files_name_everybody_and_print_a_shared_text_once(tmp_path):
    shared = "The Licence\nMay be used for anything.\n"
    parts = [
        Part("a", "1", "Free", "https://a.example", (shared, "Notice of a")),
        Part("b", "2", "Free", "", (shared,)),
        Part("c", "", "Own", "", ()),  # a typeface: the about sheet has it elsewhere
    ]
    short, full = write(parts, tmp_path)
    assert [part["name"] for part in json.loads(short.read_text("utf-8"))] == ["a", "b"]
    text = full.read_text("utf-8")
    assert text.count("May be used for anything.") == 1
    assert "The Licence ...: the text stands under a." in text
    assert "Notice of a" in text
    for line in ("a 1: Free", "b 2: Free", "c: Own", "ships no text"):
        assert line in text
