"""The user's own Applications folder on macOS: a small .app that opens the program where it lies.

python3 packaging/menu_macos.py TARGET.app      the bare .app, without an icon
"""

from __future__ import annotations

import plistlib
import runpy
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from menu_parts import draw, remove, remove_empty

IDENTIFIER = "local.greenroom.greenroom"  # as in the AppStream metainfo


def install(root: Path, python: Path, home: Path) -> Path:
    """Make the .app, or make it anew; its path."""
    app = _app(home)
    remove(app)
    make_app(app, root)
    draw(python, root, "icns", app / "Contents" / "Resources" / "greenroom.icns")
    app.touch()  # the Finder reads the icon of what changed
    return app


def uninstall(root: Path, home: Path) -> bool:
    """Remove the .app; False when there was none."""
    there = remove(_app(home))
    remove_empty(_app(home).parent, home)
    return there


def make_app(app: Path, root: Path) -> None:
    """Write an .app that starts the program in ``root`` through start.py."""
    contents = app / "Contents"
    for name in ("MacOS", "Resources"):
        (contents / name).mkdir(parents=True, exist_ok=True)
    with (contents / "Info.plist").open("wb") as file:
        plistlib.dump(_info(root), file)
    program = contents / "MacOS" / "greenroom"
    launcher = shlex.quote(str(root / "packaging" / "greenroom.sh"))
    gone = shlex.quote(f"Greenroom is no longer in {root}. Put it back there, or throw this entry away.")
    program.write_text(
        "#!/bin/sh\n"
        f"[ -x {launcher} ] && exec {launcher} --window\n"
        f"exec osascript -e 'on run words' -e 'display alert (item 1 of words)' -e 'end run' {gone}\n",
        encoding="utf-8",
    )
    program.chmod(0o755)


def _info(root: Path) -> dict[str, object]:
    version = runpy.run_path(str(root / "engine" / "version.py"))["__version__"]
    return {
        "CFBundleDevelopmentRegion": "en",
        "CFBundleDisplayName": "Greenroom",
        "CFBundleExecutable": "greenroom",
        "CFBundleIconFile": "greenroom",
        "CFBundleIdentifier": IDENTIFIER,
        "CFBundleInfoDictionaryVersion": "6.0",
        "CFBundleName": "Greenroom",
        "CFBundlePackageType": "APPL",
        "CFBundleShortVersionString": version,
        "CFBundleVersion": version,
        "LSApplicationCategoryType": "public.app-category.utilities",
        "LSMinimumSystemVersion": "12.0",
        "NSHighResolutionCapable": True,
        "NSSupportsAutomaticGraphicsSwitching": True,
    }


def _app(home: Path) -> Path:
    return home / "Applications" / "Greenroom.app"


def main(arguments: Sequence[str]) -> int:
    """Make the .app that is named; returns the exit code."""
    if len(arguments) != 1 or not arguments[0].endswith(".app"):
        print("Say where the .app shall be: NAME.app", file=sys.stderr)
        return 2
    make_app(Path(arguments[0]), Path(__file__).resolve().parent.parent)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
