"""Freeze Greenroom into a folder that runs where there is no Python, and pack it for this system:

    python3 packaging/build.py --prepare [--out dist] [--wheel FILE] [--folder-only]

``--prepare`` makes an environment in build/venv with what goes into the build and nothing else, and builds there;
without it, the environment of the Python that runs this is taken as it is: what it holds may get in.

In ``--out``: the folder ``greenroom`` (``Greenroom.app`` on macOS); on Linux a .tar.gz and, where dpkg-deb is, a .deb;
elsewhere a .zip; the bill of materials; SHA256SUMS. It needs a network for the libraries, and once for the demo's
source; ``--wheel`` says where that is at hand.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "packaging")]

from build_environment import NotPrepared, prepare  # noqa: E402

from engine.version import __version__  # noqa: E402

MB = 1_000_000
WINDOW = "greenroom.exe" if sys.platform == "win32" else "greenroom"


class BuildError(Exception):
    """Why nothing can be built, and what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Build everything for this system; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the results go (default: dist)")
    parser.add_argument("--work", type=Path, default=ROOT / "build", help="for what is needed on the way")
    parser.add_argument("--wheel", type=Path, help="the demo's source, when it is already at hand")
    parser.add_argument("--prepare", action="store_true", help="make the environment for the build, and build there")
    parser.add_argument("--folder-only", action="store_true", help="do not pack the folder")
    options = parser.parse_args(arguments)
    out, work = options.out.resolve(), options.work.resolve()
    try:
        if options.prepare:
            return build_in(prepare(work / "venv"), arguments)
        check_tools()
        demo = build_demo(work / "data", options.wheel)
        folder = freeze(demo, out, work)
        results = [] if options.folder_only else pack(folder, out, work)
    except (BuildError, NotPrepared) as error:
        print(f"build.py: {error}", file=sys.stderr)
        return 1
    say(f"{folder}: {size(folder) / MB:,.0f} MB, of it the demo {size(demo) / MB:,.0f} MB")
    for file in results:
        say(f"{file}: {file.stat().st_size / MB:,.1f} MB")
    return 0


def say(text: str) -> None:
    """At once, also where output goes to a file."""
    print(text, flush=True)


def build_in(python: Path, arguments: Sequence[str] | None) -> int:
    """The same once more, with the Python of the build's own environment."""
    words = [word for word in (sys.argv[1:] if arguments is None else arguments) if word != "--prepare"]
    return subprocess.run([str(python), str(Path(__file__).resolve()), *words], check=False).returncode


def check_tools() -> None:
    """Raise BuildError unless everything is installed that the build takes."""
    missing = [name for name in ("PyInstaller", "torch", "transformers", "PySide6") if not _installed(name)]
    if missing:
        raise BuildError(f"{sys.executable} lacks {', '.join(missing)}; start with --prepare.")
    if sys.platform.startswith("linux") and not shutil.which("objdump"):
        raise BuildError("What libraries need is read with objdump, and the system lacks it: sudo apt install binutils")


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def build_demo(data: Path, wheel: Path | None) -> Path:
    """The demo as it goes into the build.

    The finished model, not its source: the source would make the download 110 MB smaller, but every first start would
    take the time of a build, need a place to write 270 MB to, and leave both on the disk.
    """
    from engine.errors import GreenroomError
    from engine.models import demo

    os.environ["GREENROOM_DATA"] = str(data)
    try:
        return demo.build_demo(wheel, lambda text, done: say(f"{text} {done:.0%}"))
    except GreenroomError as error:
        raise BuildError(str(error)) from error


def freeze(demo: Path, out: Path, work: Path) -> Path:
    """Run PyInstaller; the folder it made."""
    command = [sys.executable, "-m", "PyInstaller", "--noconfirm", "--log-level=WARN"]
    command += ["--distpath", str(out), "--workpath", str(work), str(ROOT / "packaging" / "greenroom.spec")]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "GREENROOM_BUILT_DEMO": str(demo)}, check=False)
    if done.returncode:
        raise BuildError("PyInstaller failed; what it said stands above.")
    if sys.platform == "darwin":
        shutil.rmtree(out / "greenroom")  # the app holds the same
        return out / "Greenroom.app"
    folder = out / "greenroom"
    if sys.platform.startswith("linux"):
        (folder / "greenroom-engine").symlink_to("greenroom")  # half the packed modules that two programs would have
    set_rights(folder)
    return folder


def set_rights(folder: Path) -> None:
    """Everybody may read everything; safetensors writes files that only their owner may."""
    for path in folder.rglob("*"):
        if not path.is_symlink():
            runs = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if runs else 0o644)


def pack(folder: Path, out: Path, work: Path) -> list[Path]:
    """The archives of this system, the bill of materials and the checksums."""
    label = f"greenroom-{__version__}-{sys.platform}-{platform.machine().lower()}"
    results = []
    if sys.platform.startswith("linux"):
        say("Packing the tarball")
        results.append(tarball(folder, out / f"{label}.tar.gz", f"greenroom-{__version__}"))
        if shutil.which("dpkg-deb"):
            from debian import make_deb

            say("Packing the .deb")
            results.append(make_deb(folder, out, __version__, work))
    elif sys.platform == "darwin":
        # keeps what a zip made elsewhere loses: links, and the rights of programs
        subprocess.run(["ditto", "-c", "-k", "--keepParent", str(folder), str(out / f"{label}.zip")], check=True)
        results.append(out / f"{label}.zip")
    else:
        results.append(Path(shutil.make_archive(str(out / label), "zip", folder.parent, folder.name)))
    from sbom import available, write_sbom

    if available():
        names = [part["name"] for part in json.loads(_listed(folder).read_text("utf-8"))]
        write_sbom(out / f"{label}.cdx.json", names, __version__)
        results.append(out / f"{label}.cdx.json")
    sums = out / "SHA256SUMS"
    sums.write_text("".join(f"{sha256(file)}  {file.name}\n" for file in results), encoding="utf-8")
    return [*results, sums]


def _listed(folder: Path) -> Path:
    from app.licences import LIST

    return next(folder.rglob(f"resources/{LIST}"))


def tarball(folder: Path, file: Path, name: str) -> Path:
    """The folder, called ``name`` inside, owned by root and in one order, so the same folder gives the same file."""
    newest = int(os.environ.get("SOURCE_DATE_EPOCH") or (folder / WINDOW).stat().st_mtime)

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = newest
        return entry

    with (
        file.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=newest) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        archive.add(folder, name, filter=plain)  # sorts what is in a folder
    return file


def size(folder: Path) -> int:
    """Bytes of all files below ``folder``."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def sha256(file: Path) -> str:
    """Its digest in hex."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main())
