"""The work behind start.py: an environment in .venv that is either finished and stamped, or made again.

``.venv/greenroom.json`` is the stamp. It is written last and removed before anything changes, and says what was
installed; while it fits, a start touches no network and runs nothing but the window.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch_choice
from alone import alone
from pip_runner import PipFailed, run_pip

ROOT = Path(__file__).resolve().parent.parent
STEPS = 1  # raise it when an existing environment must be installed again though pyproject.toml is the same
_STAMP = "greenroom.json"
_UNFINISHED = "greenroom-unfinished"
_DEBIAN = (
    "libegl1 libgl1 libglib2.0-0 libfontconfig1 libdbus-1-3 libx11-xcb1 libxkbcommon-x11-0 libxcb-cursor0 "
    "libxcb-icccm4 libxcb-image0 libxcb-keysyms1 libxcb-randr0 libxcb-render-util0 libxcb-shape0 libxcb-sync1 "
    "libxcb-xfixes0 libxcb-xkb1 libwayland-cursor0"
)
_FEDORA = (
    "mesa-libEGL mesa-libGL glib2 fontconfig dbus-libs libxkbcommon-x11 xcb-util-cursor xcb-util-wm xcb-util-keysyms "
    "xcb-util-renderutil xcb-util-image libwayland-cursor"
)


class StartError(Exception):
    """Why it cannot go on, in a sentence or two for the user."""


@dataclass(frozen=True)
class Stamp:
    """What a finished environment holds."""

    requirements: str  # hash of what pyproject.toml asks for
    python: str  # "3.11" of the environment
    torch: str  # kind of build
    extras: tuple[str, ...] = ()
    checked: bool = False  # the libraries were imported once, the system's own among them
    demo: str = ""  # folder of the demo model, once it was built
    demo_for: str = ""  # GREENROOM_DATA and the recipe it was built with


def main(arguments: Sequence[str]) -> int:
    """Carry out one of start.py's commands; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a folder's name must not end the program on an old console
    command, rest = (arguments[0], list(arguments[1:])) if arguments else ("open", [])
    if command in ("-h", "--help", "help"):
        print((ROOT / "packaging" / "start.py").read_text(encoding="utf-8").split('"""')[1])
        return 0
    try:
        if command == "test":
            python = ready(ROOT, dev=True)
            return _run(python, "-m", "pytest", *rest, QT_QPA_PLATFORM="offscreen") if rest else _test(python)
        if command == "setup" and rest in ([], ["dev"]):
            ready(ROOT, dev=bool(rest))
            say(f"Ready. Open the window with: {'py' if os.name == 'nt' else 'python3'} packaging/start.py")
            return 0
        if command == "open":
            python = ready(ROOT, dev=False)
            _make_demo(python)
            return _run(python, "-m", "app")
    except StartError as error:
        print(f"\nGreenroom cannot start: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Start again to go on.", file=sys.stderr)
        return 130
    print(
        f"start.py knows “setup”, “test” and no word at all, not “{' '.join(arguments)}”; --help says more.",
        file=sys.stderr,
    )
    return 2


def say(text: str) -> None:
    """Tell the user, at once also where output goes to a file."""
    print(text, flush=True)


def ready(root: Path, dev: bool, environ: Mapping[str, str] = os.environ) -> Path:
    """The interpreter of a finished environment, made or brought up to date when needed. StartError if impossible."""
    needed = requirements(root)
    with alone(root / "pyproject.toml", say):
        return _ready(root, needed, dev, environ)


def _ready(root: Path, needed: str, dev: bool, environ: Mapping[str, str]) -> Path:
    folder = root / ".venv"
    stamp = read_stamp(folder)
    extras = ("dev",) if dev else ()
    trouble = _trouble(folder, stamp)
    if trouble:
        stamp = None
        if folder.exists() or folder.is_symlink():
            say(f"The environment in {folder} {trouble}; it is made again.")
            _remove(folder)
        _create(folder)
    wanted = environ.get("GREENROOM_TORCH", "").strip().lower()
    fits = stamp is not None and stamp.requirements == needed and wanted in ("", stamp.torch)
    if stamp is None or not fits or not set(extras) <= set(stamp.extras):
        kept = stamp.extras if stamp else ()
        stamp = _install(root, folder, sorted({*extras, *kept}), environ)
    if not stamp.checked:
        _check_imports(folder)
        write_stamp(folder, replace(stamp, checked=True))
    return interpreter(folder)


def interpreter(folder: Path) -> Path:
    """Where the environment's Python is."""
    return folder / "Scripts" / "python.exe" if os.name == "nt" else folder / "bin" / "python"


def requirements(root: Path) -> str:
    """A hash of everything that decides what gets installed; wording and tool settings do not count."""
    try:
        with (root / "pyproject.toml").open("rb") as file:
            project = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise StartError(f"{root / 'pyproject.toml'} cannot be read ({error}); this copy is not complete.") from error
    decisive = [STEPS, torch_choice.VERSION, project.get("build-system"), project.get("project")]
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def read_stamp(folder: Path) -> Stamp | None:
    """The stamp of a finished environment, None when there is none that can be read."""
    try:
        values = json.loads((folder / _STAMP).read_text(encoding="utf-8"))
        values["extras"] = tuple(values["extras"])
        return Stamp(**values)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write_stamp(folder: Path, stamp: Stamp) -> None:
    """Replace the stamp in one go."""
    draft = folder / f"{_STAMP}.part"
    draft.write_text(json.dumps(asdict(stamp)), encoding="utf-8")
    draft.replace(folder / _STAMP)


def _trouble(folder: Path, stamp: Stamp | None) -> str:
    """Why the environment must be made (again); empty when it can be used or brought up to date."""
    if not folder.exists():
        return "is missing"
    if not (folder / "pyvenv.cfg").exists() and not (folder / _UNFINISHED).exists():
        if any(folder.iterdir()):
            raise StartError(f"{folder} is in the way and is no Python environment; move it elsewhere.")
        return "is empty"
    if (folder / _UNFINISHED).exists():
        return "was never finished"
    version = _version_of(interpreter(folder))
    if version is None:
        return "has lost its Python"
    if stamp is not None and stamp.python != version:
        return f"was made with Python {stamp.python}, which is now {version}"
    if tuple(map(int, version.split("."))) < (3, 11):
        return f"has Python {version}, which is too old"
    return ""


def _version_of(python: Path) -> str | None:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        answer = subprocess.run([str(python), "-I", "-S", "-c", code], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    version = answer.stdout.strip()
    # -S and -I start even a Python whose libraries are gone, so look for them too
    libraries = list(python.parent.parent.glob(f"lib/python{version}/site-packages")) or os.name == "nt"
    return version if answer.returncode == 0 and version and libraries else None


def _remove(folder: Path) -> None:
    try:
        if folder.is_symlink():
            folder.unlink()
        else:
            shutil.rmtree(folder)
    except OSError as error:
        raise StartError(
            f"{folder} could not be removed: {error.strerror}. Remove it by hand, then start again."
        ) from error


def _create(folder: Path) -> None:
    """A bare environment, marked unfinished from its first moment."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    try:
        import ensurepip
        import venv
    except ImportError as error:
        raise StartError(
            f"this Python lacks what makes environments. On Debian and Ubuntu: sudo apt install python{version}-venv"
        ) from error
    del ensurepip
    say(f"Making an environment for Python {version} in {folder}")
    try:
        folder.mkdir()
        (folder / _UNFINISHED).touch()
        venv.create(folder, with_pip=True, symlinks=os.name != "nt")
    except PermissionError as error:
        raise StartError(f"{folder.parent} may not be written to. Put Greenroom into a folder of your own.") from error
    except OSError as error:
        raise StartError(f"the environment could not be made in {folder}: {error.strerror}.") from error
    except subprocess.CalledProcessError as error:
        said = (error.output or b"").decode(errors="replace").strip().splitlines()
        raise StartError(f"the environment could not be made: {said[-1] if said else error}") from error


def _install(root: Path, folder: Path, extras: Sequence[str], environ: Mapping[str, str]) -> Stamp:
    """Install torch, then everything else. What fails or is stopped leaves a finished environment as it was."""
    marker = folder / _UNFINISHED
    fresh, before = marker.exists(), read_stamp(folder)
    marker.touch()
    (folder / _STAMP).unlink(missing_ok=True)
    try:
        kind = _install_everything(root, folder, extras, environ)
    except BaseException:
        if not fresh:  # pip replaces packages only once it has all of them
            if before is not None:
                write_stamp(folder, before)
            marker.unlink()
        raise
    stamp = Stamp(requirements(root), _version_of(interpreter(folder)) or "", kind, tuple(extras))
    write_stamp(folder, stamp)
    marker.unlink()
    return stamp


def _install_everything(root: Path, folder: Path, extras: Sequence[str], environ: Mapping[str, str]) -> str:
    python, log = interpreter(folder), folder / "install.log"
    try:
        kind, reason = torch_choice.wanted_kind(environ, sys.platform)
    except torch_choice.ChoiceError as error:
        raise StartError(str(error)) from error
    say(torch_choice.describe(kind, reason))
    local = kind == "cpu" and torch_choice.has_local_wheel(python)
    _install_torch(torch_choice.attempts(kind, sys.platform, local), kind, python, log)
    say("Installing the window and everything else")
    target = f"{root}[{','.join(extras)}]" if extras else str(root)
    try:
        run_pip(python, ["--editable", target], log, say)
    except PipFailed as error:
        raise StartError(str(error)) from error
    return kind


def _install_torch(attempts: Sequence[torch_choice.Attempt], kind: str, python: Path, log: Path) -> None:
    for number, attempt in enumerate(attempts, 1):
        try:
            run_pip(python, attempt.arguments, log, say)
            return
        except PipFailed as error:
            if number < len(attempts):
                say(f"  {attempt.name} is not to be had, trying the next")
                continue
            hint = ""
            if kind == "cpu" and sys.platform.startswith("linux"):
                hint = (
                    "\nThis build comes from download.pytorch.org. Where only PyPI can be reached, start with "
                    "GREENROOM_TORCH=cuda: that build is larger, and runs on CPUs too."
                )
            raise StartError(f"{attempt.name} could not be installed. {error}{hint}") from error


def _check_imports(folder: Path) -> None:
    """Import once what is most likely to lack something of the system's."""
    code = "import torch, PySide6.QtGui, PySide6.QtWidgets"
    answer = subprocess.run([str(interpreter(folder)), "-c", code], capture_output=True, text=True, cwd=folder)
    if answer.returncode == 0:
        return
    last = (answer.stderr.strip().splitlines() or ["no reason given"])[-1]
    if sys.platform.startswith("linux") and "cannot open shared object file" in last:
        library = last.split("Error: ", 1)[-1].split(":")[0]
        raise StartError(
            f"the system lacks {library}, which the window needs. Install these, then start again.\n"
            f"  Debian, Ubuntu:  sudo apt install {_DEBIAN}\n  Fedora:          sudo dnf install {_FEDORA}"
        )
    raise StartError(f"a library was installed but does not load: {last}")


def _make_demo(python: Path) -> None:
    """Fetch and build the demo model unless that was done; without it the window opens all the same."""
    folder = ROOT / ".venv"
    stamp = read_stamp(folder)
    built_for = _demo_key(ROOT, os.environ)
    if stamp is None or (stamp.demo and stamp.demo_for == built_for and Path(stamp.demo).is_dir()):
        return
    say("Preparing the demo model (once)")
    answer = subprocess.run(
        [str(python), "-m", "engine", "demo"], cwd=ROOT, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    path = (answer.stdout.strip().splitlines() or [""])[-1]
    if answer.returncode == 0 and Path(path).is_dir():
        write_stamp(folder, replace(stamp, demo=path, demo_for=built_for))
    else:
        say("The window opens without the demo model; any other model works.")


def _demo_key(root: Path, environ: Mapping[str, str]) -> str:
    recipe = sorted((root / "resources" / "demo").glob("recipe.*"))
    sizes = [f"{path.name}:{path.stat().st_size}" for path in recipe if path.is_file()]
    return "|".join([environ.get("GREENROOM_DATA", ""), *sizes])


def _test(python: Path) -> int:
    """Every test: the window's beside all others, in two processes, for half the wait. The exit code of the first that
    failed."""
    environ = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    environ.setdefault("OMP_NUM_THREADS", "1")  # two processes that both want all cores wait for each other
    command = [str(python), "-m", "pytest"]
    with tempfile.TemporaryFile() as shown:
        window = subprocess.Popen([*command, "tests/app"], cwd=ROOT, env=environ, stdout=shown, stderr=shown)
        try:
            code = subprocess.call([*command, "tests", "--ignore=tests/app"], cwd=ROOT, env=environ)
            window_code = window.wait()
        finally:
            window.kill()
        shown.seek(0)
        say("\nThe window's tests:")
        shutil.copyfileobj(shown, sys.stdout.buffer)
    sys.stdout.flush()
    return code or window_code


def _run(python: Path, *arguments: str, **environ: str) -> int:
    """Hand over to the program; its exit code is ours."""
    command, everything = [str(python), *arguments], {**os.environ, **environ}
    if os.name == "posix":
        os.chdir(ROOT)
        sys.stdout.flush()
        os.execve(python, command, everything)  # the same process, so that every signal reaches the program
    program = subprocess.Popen(command, cwd=ROOT, env=everything)
    while True:
        try:
            return program.wait()
        except KeyboardInterrupt:
            continue  # it has heard the same key and ends by itself
