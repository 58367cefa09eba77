"""The walls of the house: no Qt in the engine, no torch in the window, and no import that runs upwards."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = {"torch", "transformers", "safetensors", "accelerate"}
QT = {"PySide6", "shiboken6", "PyQt6", "PyQt5"}
OPEN_TO_THE_WINDOW = {"messages", "sessions", "service", "paths", "errors", "version"}

# From the ground up. A room uses itself and floors below; rooms side by side do not know each other.
FLOORS: tuple[set[str], ...] = (
    {"errors", "durable"},
    {"paths", "messages", "kinds", "version"},
    {"models", "prediction", "sessions", "hardware", "kv"},
    {"experts"},
    {"dense", "replay"},
    {"loading"},
    {"generation"},
    {"telemetry", "recording", "inspection", "experience", "whatif"},
    {"verify", "planning"},
    {"session"},
    {"service", "bench"},
    {"terminal", "profile_verb"},
    {"cli"},
    {"__main__"},
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}

WINDOW, ENGINE = (sorted((ROOT / top).rglob("*.py")) for top in ("app", "engine"))
MODULES = [*WINDOW, *ENGINE]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(node: ast.AST) -> Iterator[tuple[str, int]]:
    """(dotted name, line) of every import below ``node``, those inside functions and type checks too."""
    for child in ast.walk(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name, child.lineno) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"line {child.lineno}: imports here are absolute, so that walls can be seen"
            assert child.module
            yield from ((f"{child.module}.{alias.name}", child.lineno) for alias in child.names)


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def room_of(path: Path) -> str:
    name = path.relative_to(ROOT / "engine").parts[0].removesuffix(".py")
    return "terminal" if name.endswith("_verb") else name  # what stands behind one verb of the terminal


def breaches(path: Path, forbidden: set[str], node: ast.AST | None = None) -> list[str]:
    found = imports(node or tree_of(path))
    return [f"{name_of(path)}:{line} imports {name}" for name, line in found if name.split(".")[0] in forbidden]


def engine_rooms(path: Path) -> list[tuple[str, str]]:
    """(room, where) of every import from the engine."""
    found = [(name.split("."), line) for name, line in imports(tree_of(path))]
    found = [(parts, line) for parts, line in found if parts[0] == "engine"]
    return [(room_of(ROOT / "engine" / parts[1]), f"{name_of(path)}:{line}") for parts, line in found]


def test_the_engine_knows_no_window():
    assert [breach for path in ENGINE for breach in breaches(path, QT | {"app"})] == []


def test_the_window_knows_no_torch():
    found = []
    for path in WINDOW:
        tree = tree_of(path)
        found += breaches(path, HEAVY, without_windows_only(tree) if name_of(path) == "app/__main__.py" else tree)
    assert found == []


def test_of_the_engine_the_window_reads_only_what_is_open_to_it():
    used = [(room, where) for path in WINDOW for room, where in engine_rooms(path)]
    assert [(room, where) for room, where in used if room not in OPEN_TO_THE_WINDOW] == []
    starters = {where.split(":")[0] for room, where in used if room == "service"}
    assert starters <= {"app/engine_client.py"}, "only the client starts the engine"


def test_no_import_runs_upwards():
    upward = []
    for path in ENGINE:
        room = room_of(path)
        if room == "__init__":
            assert list(imports(tree_of(path))) == []
            continue
        assert room in FLOOR, f"give {room} a floor in {Path(__file__).name}, and say in the commit what it promises"
        for used, where in engine_rooms(path):
            if used != room and FLOOR.get(used, 99) >= FLOOR[room]:
                upward.append(f"{where} reaches up to {used}")
    assert upward == []


def test_nothing_goes_in_circles():
    """Not even for the sake of a type: what two files both need lies below both."""
    files = {name_of(path).removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in MODULES}
    uses: dict[str, set[str]] = {}
    for name, path in files.items():
        found = {dotted if dotted in files else dotted.rpartition(".")[0] for dotted, _ in imports(tree_of(path))}
        uses[name] = (found & set(files)) - {name}
    for name, path in files.items():
        defined = any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree_of(path).body)
        if path.name == "__init__.py" and not defined:  # a room's face, that hands names on
            for user in uses.values():
                user.discard(name)
    TopologicalSorter(uses).prepare()  # raises CycleError, which names the circle


def test_plain_rooms_hold_no_tensors():
    plain = [path for path in ENGINE if room_of(path) in FLOORS[0] | {"sessions", "hardware"}]
    plain += [path for path in ENGINE if name_of(path).startswith(("engine/experts/cache", "engine/experts/policies/"))]
    assert [breach for path in plain for breach in breaches(path, HEAVY)] == []


def without_windows_only(tree: ast.Module) -> ast.Module:
    """The tree without the bodies of ``if sys.platform == "win32"``: torch must come before Qt there."""

    class Remover(ast.NodeTransformer):
        def visit_If(self, node: ast.If) -> ast.AST | None:
            if ast.unparse(node.test) == "sys.platform == 'win32'" and not node.orelse:
                return None
            return self.generic_visit(node)

    return Remover().visit(tree)


@pytest.mark.parametrize(
    ("modules", "unwanted"),
    [
        ("app.main_window, app.program", HEAVY),
        ("engine.service, engine.cli", HEAVY | QT),
        ("engine.whatif, engine.replay.compare, engine.replay.foreseen, engine.replay.trace", HEAVY | QT),
        ("engine.sessions.log, engine.sessions.export, engine.hardware.plan, engine.hardware.probes", HEAVY | QT),
    ],
    ids=["window", "engine's faces", "a replay for the window", "plain rooms"],
)
def test_importing_it_loads_nothing_heavy(modules, unwanted):
    code = f"import sys, {modules}; print(*set({sorted(unwanted)!r}).intersection(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (answer.stdout.strip(), answer.returncode) == ("", 0), answer.stderr


def test_the_walls_can_be_seen_through_every_kind_of_import():
    code = "import torch.nn as nn\ndef f():\n    from transformers import x\nif TYPE_CHECKING:\n    import PySide6\n"
    assert [name for name, _ in imports(ast.parse(code))] == ["torch.nn", "transformers.x", "PySide6"]
