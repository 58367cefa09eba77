"""What goes into the frozen folder and what is cut, by name: the spec asks here, and so do the tests.

Names of files are where they lie in the folder, with forward slashes on every system.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

# Libraries of Qt: what the window imports, and what its plugins for the three systems need.
_QT_LIBRARIES = {"Core", "Gui", "Widgets", "Test", "DBus", "Svg", "XcbQpa", "WaylandClient"}
_QT_LIBRARY = re.compile(r"(?:^|/)(?:lib)?Qt6?([A-Z]\w*?)(?:\.framework/|\.abi3\.|\.so\b|\.dll$|\.pyd$|\.dylib$)")
# Plugins of Qt, without "lib" before and the ending behind. gtk3 would bring GTK itself; the portal's plugin opens the
# desktop's own file dialogs without it.
_QT_PLUGINS = (
    "platforms/q@(xcb|wayland*|offscreen|windows|cocoa)",
    "platformthemes/qxdgdesktopportal",
    "platforminputcontexts/*",
    "wayland-shell-integration/xdg-shell",
    "wayland-decoration-client/*",
    "iconengines/qsvgicon",
    "imageformats/q@(svg|ico|icns)",
    "styles/*",
)
# torch's tests, headers and tools, and the sources of its compiler and exporter, which run without; torch looks for
# torch_shm_manager when it starts
_CUT = (
    "torch/bin/*",
    "torch/test/*",
    "torch/include/*",
    "torch/share/*",
    "torch/testing/*",
    "torch/onnx/*.py",
    "torch/_inductor/codegen/*",
    "torch/_inductor/kernel/*",
    "torch/lib/*.a",
    "torch/lib/*.lib",
    "torch/lib/*test.*",
    "torch/lib/*backend_with_compiler.*",
    "torch/lib/*aoti_custom_ops.*",
    "*.pyi",
    "PySide6/Qt/translations/*",
    "PySide6/translations/*",
    "PySide6/Qt/qml/*",
    "PySide6/opengl32sw.dll",
    "*/tests/data/*",
)
_KEPT = ("torch/bin/torch_shm_manager*",)
# Whole packages that the analysis follows because somebody imports them in a function that Greenroom never calls, or if
# they are there, as they are where the tools of the build are
EXCLUDED_MODULES = (
    "IPython",
    "PIL",
    "_pytest",
    "chardet",
    "cyclonedx",
    "huggingface_hub.cli",
    "jsonschema",
    "lark",
    "lxml",
    "matplotlib",
    "numpy.f2py.tests",
    "pandas",
    "pip",
    "pytest",
    "rich",
    "scipy",
    "setuptools",
    "sklearn",
    "tensorboard",
    "tkinter",
    "torch.utils.benchmark",
    "torch.utils.tensorboard",
    "torchvision",
    "transformers.cli",
    "typer",
)
_TRAINING_ONLY = ("*.py", "*.jsonl.gz", "prompts.json", "README.md")  # of resources/demo: how the recipe was made


def wanted(name: str) -> bool:
    """Whether the collected file of this name stays."""
    name = name.replace("\\", "/")
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in _KEPT):
        return True
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in _CUT):
        return False
    found = _QT_LIBRARY.search(name)
    if found and found[1] not in _QT_LIBRARIES:
        return False
    _, is_plugin, plugin = name.partition("/plugins/")
    if name.startswith("PySide6/") and is_plugin:
        return any(_matches(_plain(plugin), pattern) for pattern in _QT_PLUGINS)
    return True


def _plain(plugin: str) -> str:
    """``platforms/libqxcb.so`` and ``platforms/qwindows.dll`` without what the systems add."""
    kind, _, file = plugin.partition("/")
    return f"{kind}/{file.split('.')[0].removeprefix('lib')}"


def _matches(name: str, pattern: str) -> bool:
    """As fnmatch, with ``@(a|b)`` for one of several."""
    before, several, rest = pattern.partition("@(")
    if not several:
        return fnmatch.fnmatchcase(name, pattern)
    choices, _, after = rest.partition(")")
    return any(fnmatch.fnmatchcase(name, before + choice + after) for choice in choices.split("|"))


def wanted_module(name: str) -> bool:
    """Whether this module of transformers is imported ahead: all models, without their makers' tools."""
    last = name.rpartition(".")[2]
    if last.startswith(("modular_", "convert_")) or ".convert_" in name:
        return False  # transformers' own look at its folder skips them too
    return not name.startswith(("transformers.cli", "transformers.testing_utils"))


def resources(folder: Path) -> list[tuple[str, str]]:
    """(file, folder in the build) of the program's own resources, without what only made the demo's recipe."""
    found = []
    for file in sorted(folder.rglob("*")):
        inside = file.relative_to(folder)
        if not file.is_file() or "__pycache__" in inside.parts or file.name == "__init__.py":
            continue
        if inside.parts[0] == "demo" and any(
            file.match(p) and not file.name.startswith("model-") for p in _TRAINING_ONLY
        ):
            continue
        found.append((str(file), str(Path("resources") / inside.parent)))
    return found


def tree(folder: Path, inside: str) -> list[tuple[str, str]]:
    """(file, folder in the build) of everything below ``folder``."""
    files: Iterable[Path] = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return [(str(file), str(Path(inside) / file.relative_to(folder).parent)) for file in files]


def needed(imports: Mapping[str, Iterable[str]]) -> set[str]:
    """The binaries that somebody uses once others were cut. For Linux.

    imports: for each collected binary, by where it lies in the folder, the names of the libraries it is linked with.
    Libraries of the system lie at the top; one that nobody below is linked with any more (GTK's, without its plugin) is
    not needed.
    """
    by_name: dict[str, list[str]] = {}
    for place in imports:
        by_name.setdefault(Path(place).name, []).append(place)
    waiting = [place for place in imports if "/" in place or place.startswith("libpython")]
    found = set(waiting)
    while waiting:
        linked = {Path(library).name for library in imports[waiting.pop()]}
        for place in (place for name in linked for place in by_name.get(name, ())):
            if place not in found:
                found.add(place)
                waiting.append(place)
    return found
