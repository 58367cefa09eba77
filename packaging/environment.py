"""The environment in .venv: either finished and stamped, or made again.

The stamp (stamp.py) is written last and removed before anything changes; while it fits, a start touches no network and
runs nothing but the window.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch_choice
from alone import alone
from installed import damaged, import_error, interpreter, libraries, require_system_libraries
from pip_runner import PipFailed, run_pip
from progress import Progress
from stamp import Stamp, put_back, read_stamp, requirements, set_aside, write_stamp
from start_error import StartError, disk_full, from_os, not_writable, require_room

ROOT = Path(__file__).resolve().parent.parent
_UNFINISHED = "greenroom-unfinished"
_GB = 1_000_000_000
# What is certainly needed; what torch comes with changes from build to build.
_ROOM = {"cpu": 2 * _GB, "cuda": 7 * _GB, "rocm": 14 * _GB}


def ready(root: Path, dev: bool, progress: Progress, environ: Mapping[str, str] = os.environ) -> Path:
    """The interpreter of a finished environment, made or brought up to date when needed. StartError if impossible."""
    needed = requirements(root)
    with alone(root / "pyproject.toml", progress.say):
        try:
            return _ready(root, needed, dev, progress, environ)
        except OSError as error:
            raise from_os(error, root, "Setting up") from error


def _ready(root: Path, needed: str, dev: bool, progress: Progress, environ: Mapping[str, str]) -> Path:
    folder = root / ".venv"
    stamp = read_stamp(folder)
    kept = stamp.extras if stamp else ()
    trouble = _trouble(folder, stamp)
    if not trouble and stamp is not None and not stamp.checked:
        trouble = "has libraries that do not load" if import_error(folder) else ""
        stamp = replace(stamp, checked=True)
        if not trouble:
            write_stamp(folder, stamp)
    extras = {"dev"} if dev else set()
    wanted = environ.get("GREENROOM_TORCH", "").strip().lower()
    fits = stamp is not None and stamp.requirements == needed and wanted in ("", stamp.torch)
    if stamp is None or not fits:
        require_system_libraries()
    if trouble:
        stamp = None
        if folder.exists() or folder.is_symlink():
            progress.say(f"The environment in {folder} {trouble}; it is made again.")
            _remove(folder)
        _create(folder, progress)
    if stamp is None or not fits or not extras <= set(stamp.extras):
        stamp = _install(root, folder, sorted({*extras, *kept}), progress, environ)
    if not stamp.checked:
        reason = import_error(folder)
        if reason:
            raise StartError(f"a library was installed but does not load: {reason}")
        write_stamp(folder, replace(stamp, checked=True))
    return interpreter(folder)


def _trouble(folder: Path, stamp: Stamp | None) -> str:
    """Why the environment must be made (again); empty when it can be used or brought up to date."""
    if not folder.exists():
        return "is missing"
    if not folder.is_dir():
        raise StartError(f"{folder} is in the way and is no Python environment; move it elsewhere.")
    if not (folder / "pyvenv.cfg").exists() and not (folder / _UNFINISHED).exists():
        if any(folder.iterdir()):
            raise StartError(f"{folder} is in the way and is no Python environment; move it elsewhere.")
        return "is empty"
    if (folder / _UNFINISHED).exists():
        return "was never finished"
    version = _version_of(folder)
    if version is None:
        return "has lost its Python"
    if stamp is not None and stamp.python != version:
        return f"was made with Python {stamp.python}, which is now {version}"
    if tuple(map(int, version.split("."))) < (3, 11):
        return f"has Python {version}, which is too old"
    lost = damaged(folder) if stamp is not None else ""
    return f"has lost a part of {lost}" if lost else ""


def _version_of(folder: Path) -> str | None:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    command = [str(interpreter(folder)), "-I", "-S", "-c", code]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    version = answer.stdout.strip()
    if answer.returncode != 0 or not version:
        return None
    # -S and -I start even a Python whose libraries are gone, so look for them too
    place = libraries(folder)
    return version if place is not None and (os.name == "nt" or f"python{version}" in place.parts) else None


def _remove(folder: Path) -> None:
    try:
        if folder.is_symlink():
            folder.unlink()
        else:
            shutil.rmtree(folder)
    except OSError as error:
        raise StartError(
            f"{folder} could not be removed: {error.strerror}. Close what uses it or remove it by hand, then start "
            "again."
        ) from error


def _create(folder: Path, progress: Progress) -> None:
    """A bare environment, marked unfinished from its first moment."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    try:
        import ensurepip
        import venv
    except ImportError as error:
        raise StartError(
            "this Python lacks what makes environments. Install that, then start again. On Debian and Ubuntu: sudo apt "
            f"install python{version}-venv"
        ) from error
    del ensurepip
    progress.step("environment", f"Making an environment for Python {version} in {folder}")
    try:
        folder.mkdir()
        (folder / _UNFINISHED).touch()
        venv.create(folder, with_pip=True, symlinks=os.name != "nt")
    except PermissionError as error:
        raise StartError(not_writable(folder.parent)) from error
    except OSError as error:
        raise from_os(error, folder.parent, "Making the environment") from error
    except subprocess.CalledProcessError as error:
        said = (error.output or b"").decode(errors="replace").strip().splitlines()
        if any("No space left" in line or "Errno 28" in line for line in said):
            raise StartError(disk_full(folder)) from error
        raise StartError(f"the environment could not be made: {said[-1] if said else error}") from error


def _install(root: Path, folder: Path, extras: Sequence[str], progress: Progress, environ: Mapping[str, str]) -> Stamp:
    """Install torch, then everything else. What fails or is stopped leaves a finished environment as it was."""
    marker = folder / _UNFINISHED
    fresh = marker.exists()
    marker.touch()
    set_aside(folder)
    try:
        kind = _install_everything(root, folder, extras, progress, environ)
    except BaseException:
        if not fresh:  # pip replaces packages only once it has all of them
            put_back(folder)
            marker.unlink()
        raise
    stamp = Stamp(requirements(root), _version_of(folder) or "", kind, tuple(extras))
    write_stamp(folder, stamp)
    marker.unlink()
    return stamp


def _install_everything(
    root: Path, folder: Path, extras: Sequence[str], progress: Progress, environ: Mapping[str, str]
) -> str:
    """The kind of torch that is there now."""
    python, log = interpreter(folder), folder / "install.log"
    try:
        kind, reason = torch_choice.wanted_kind(environ, sys.platform)
    except torch_choice.ChoiceError as error:
        raise StartError(str(error)) from error
    progress.step("torch", torch_choice.describe(kind, reason))
    if not (libraries(folder) or folder).joinpath("torch").exists():
        require_room(folder, _ROOM[kind])
    local = kind == "cpu" and torch_choice.has_local_wheel(python)
    _install_torch(torch_choice.attempts(kind, sys.platform, local), kind, python, log, progress)
    progress.step("libraries", "Installing Qt for the window, transformers for the models, and what they need")
    target = f"{root}[{','.join(extras)}]" if extras else str(root)
    try:
        run_pip(python, ["--editable", target], log, progress)
    except PipFailed as error:
        raise StartError(str(error)) from error
    return kind


def _install_torch(
    attempts: Sequence[torch_choice.Attempt], kind: str, python: Path, log: Path, progress: Progress
) -> None:
    for number, attempt in enumerate(attempts, 1):
        try:
            run_pip(python, attempt.arguments, log, progress)
            return
        except PipFailed as error:
            if number < len(attempts):
                progress.say(f"  {attempt.name} is not to be had, trying the next")
                continue
            hint = ""
            if kind == "cpu" and sys.platform.startswith("linux"):
                hint = (
                    "\nThis build comes from download.pytorch.org. Where only PyPI can be reached, start with "
                    "GREENROOM_TORCH=cuda: that build is larger, and runs on CPUs too."
                )
            elif kind == "rocm":
                hint = "\nWithout the graphics card it works too: start with GREENROOM_TORCH=cpu."
            raise StartError(f"{attempt.name} could not be installed. {error}{hint}") from error
