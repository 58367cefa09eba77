"""Every command that README and docs name is run, on a tiny model; those that cannot be are listed with the reason.

About 15 seconds of one core together.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.__main__ import arguments as window_arguments
from engine.cli import main
from tests.docs.pages import PAGES, ROOT, commands, inline

PYTHON = (".venv/bin/python", "python", "python3")
ELSEWHERE = ROOT / "docs" / "extending.md"  # its commands are run in a copy that has its examples: test_extending.py


def _start_py(command: str) -> None:
    shown = subprocess.run([sys.executable, "packaging/start.py", "--help"], cwd=ROOT, capture_output=True, text=True)
    assert shown.returncode == 0
    assert command.removeprefix("python3 packaging/") in shown.stdout.replace('"setup dev"', "start.py setup dev")


def _window(command: str) -> None:
    words = shlex.split(command)
    parsed = window_arguments(words[words.index("app") + 1 :])
    assert isinstance(parsed, argparse.Namespace)


def _file_with_its_flags(command: str) -> None:
    words = shlex.split(command)
    script = ROOT / next(word for word in words if word.endswith((".py", ".sh", "/run")))
    text = script.read_text(encoding="utf-8")
    assert all(word in text for word in words if word.startswith("--")), f"{script.name} lacks an option of {command}"


def _a_package_of_the_ci(command: str) -> None:
    known = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert shlex.split(command)[-1] in known


def _an_extra(command: str) -> None:
    found = re.search(r"greenroom\[(\w+)\]", command)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert found
    assert found[1] in project["optional-dependencies"]


def _a_check_of_the_ci(command: str) -> None:
    assert command.removeprefix(".venv/bin/python -m ") in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def _a_test(command: str) -> None:
    assert (ROOT / shlex.split(command)[-1]).is_file()


def _bench_options(command: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as shown, pytest.raises(SystemExit):
        main(["bench", "--help"])
    assert all(word in shown.getvalue() for word in shlex.split(command) if word.startswith("--"))


def _chat_options(command: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as shown, pytest.raises(SystemExit):
        main(["chat", "--help"])
    assert all(word in shown.getvalue() for word in shlex.split(command) if word.startswith("--"))


@dataclass(frozen=True)
class Apart:
    """Commands (a pattern) that are not run here: why, and what is checked instead."""

    pattern: str
    reason: str
    check: Callable[[str], None]


APART = (
    Apart(r"python3 packaging/start\.py.*", "installs gigabytes, opens the window, or runs this very test", _start_py),
    Apart(r"\.venv/bin/python -m app\b.*", "opens the window; tests/app opens it in every way", _window),
    Apart(r"bash \.ci/run", "installs system packages and runs this very test", _file_with_its_flags),
    Apart(r"bash tests/gpu/check\.sh", "run by tests/gpu/test_check.py", _file_with_its_flags),
    Apart(r"python packaging/(build|check_frozen)\.py .*", "takes minutes, and PyInstaller", _file_with_its_flags),
    Apart(r"bash packaging/check_deb\.sh .*", "makes a Debian, as root", _file_with_its_flags),
    Apart(r"sudo apt install .*", "changes the system", _a_package_of_the_ci),
    Apart(r"pip install .*", "needs a package index", _an_extra),
    Apart(r"\.venv/bin/python -m (ruff|mypy).*", "checks the whole project; the CI's own steps", _a_check_of_the_ci),
    Apart(r"\.venv/bin/python -m pytest .*", "a test that runs by itself", _a_test),
    Apart(r".*python tests/benchmarks/\w+\.py.*", "measures for minutes", _file_with_its_flags),
    Apart(r"python resources/demo/train\.py.*", "trains for an hour", _file_with_its_flags),
    Apart(r".* -m engine bench .*(--synthetic|--gguf) .*", "writes gigabytes, or needs llama.cpp", _bench_options),
    Apart(r".* --device cuda.*", "needs a graphics card; tests/engine/test_on_a_card.py", _chat_options),
    Apart(r".* -m engine demo --from FILE", "tests/engine/models/test_demo.py builds it", lambda command: None),
)

# What makes a benchmark of minutes one of seconds, and a chat one that says something (a model of random weights may
# begin with the end of its answer); everything else is as the page says.
SHORTER: dict[str, dict[str, str]] = {
    "bench": {"--tokens": "2", "--repeats": "1", "--warm-up": "0", "--peer": "none", "--experts": "50%"},
    "chat": {"--max-tokens": "4", "--seed": "1"},
    "verify": {"--max-tokens": "4"},
}

COMMANDS = list(dict.fromkeys(command for page in PAGES if page != ELSEWHERE for command in commands(page)))


def apart(command: str) -> Apart | None:
    return next((one for one in APART if re.fullmatch(one.pattern, command)), None)


@pytest.fixture(scope="module")
def places(
    tiny_chat_model: Path, demo_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, str], Path]:
    """What MODEL, LOG and FOLDER stand for, and the data folder in which the demo is built already."""
    folder = tmp_path_factory.mktemp("placeholders")
    log = folder / "logs" / "one.jsonl"
    log.parent.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GREENROOM_DATA", str(folder / "data"))
        command = ["chat", str(tiny_chat_model), "--prompt", "Hello", "--max-tokens", "6", "--seed", "1"]
        assert main([*command, "--experts", "50%", "--log", str(log)]) == 0
    demo_data = demo_folder.parents[1]
    return {
        "MODEL": str(tiny_chat_model),
        "LOG": str(log),
        "FOLDER": str(log.parent),
    }, demo_data


def in_place(word: str, places: dict[str, str]) -> list[str]:
    for name, place in places.items():
        word = re.sub(rf"\b{name}\b", lambda _, place=place: place, word)  # type: ignore[misc]
    if "*" in word:
        return sorted(str(path) for path in Path(word).parent.glob(Path(word).name))
    return [word]


def test_there_are_commands_of_every_kind() -> None:
    """Else the pages are read wrongly, and nothing below tests anything."""
    assert "python3 packaging/start.py test" in COMMANDS
    verbs = {command.split()[3] for command in COMMANDS if " -m engine " in command}
    assert verbs == {"demo", "inspect", "chat", "verify", "replay", "profile", "bench"}
    unused = [one.pattern for one in APART if not any(apart(command) is one for command in COMMANDS)]
    assert unused == [], "the list of what is not run has grown old"


@pytest.mark.parametrize("command", [command for command in COMMANDS if apart(command) is None])
def test_it_runs(
    command: str,
    places: tuple[dict[str, str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = shlex.split(command)
    assert words[0] in PYTHON, f"{command}: run it, or say why not in APART"
    names, demo_data = places[0] | {"FILE": str(tmp_path / "file")}, places[1]
    arguments = [place for word in words[1:] for place in in_place(word, names)]
    if arguments[0].endswith(".py"):
        environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
        subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, check=True, timeout=60)
        return
    assert arguments[:2] == ["-m", "engine"], f"{command}: run it, or say why not in APART"
    arguments = arguments[2:]
    if "demo" in arguments:
        monkeypatch.setenv("GREENROOM_DATA", str(demo_data))
    if words[3:] == ["bench", "demo"]:
        arguments[1] = names["MODEL"]  # the same verb, in seconds
    if words[3:4] == ["profile"]:
        main(["chat", names["MODEL"], "--prompt", "Hello", "--max-tokens", "4"])
        if "import" in words:
            main(["profile", names["MODEL"], "export", names["FILE"]])
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello\n"))
    capsys.readouterr()
    for option, value in SHORTER.get(arguments[0], {}).items():
        if option not in arguments:
            arguments += [option, value]
    assert main(arguments) == 0
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("command", [command for command in COMMANDS if apart(command) is not None])
def test_what_is_not_run_is_there(command: str) -> None:
    one = apart(command)
    assert one is not None
    assert one.reason
    one.check(command)


def test_the_module_starts_as_the_pages_say(tiny_chat_model: Path) -> None:
    """The others call ``main`` with the page's words; this one is a process of its own."""
    ran = subprocess.run([sys.executable, "-m", "engine", "--help"], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0
    assert all(verb in ran.stdout for verb in ("demo", "inspect", "chat", "verify", "replay", "profile", "bench"))


def test_every_option_that_is_named_exists() -> None:
    shown = (ROOT / "packaging" / "start.py").read_text(encoding="utf-8")
    for verb in (["demo"], ["inspect"], ["chat"], ["verify"], ["replay"], ["bench"], ["profile", "demo", "show"]):
        with contextlib.redirect_stdout(io.StringIO()) as told, pytest.raises(SystemExit):
            main([*verb, "--help"])
        shown += told.getvalue()
    with contextlib.redirect_stdout(io.StringIO()) as told, pytest.raises(SystemExit):
        window_arguments(["--help"])
    shown += told.getvalue()
    named = {
        (page.name, word)
        for page in PAGES
        if page.parent.name != "demo"
        for code in inline(page)
        for word in re.findall(r"(?<!\S)--[a-z][a-z-]+", code)
    }
    assert len(named) > 10
    assert [(page, word) for page, word in sorted(named) if f"{word}" not in shown and word != "--help"] == []


def test_bash_finds_no_fault_in_the_scripts() -> None:
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    for script in (".ci/run", "tests/gpu/check.sh"):
        subprocess.run(["bash", "-n", script], cwd=ROOT, check=True)
