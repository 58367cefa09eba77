"""The program's icon in every size and format that the three systems want, drawn from its SVG:

    .venv/bin/python packaging/icons.py hicolor FOLDER   for Linux, in FOLDER/SIZExSIZE/apps and FOLDER/scalable/apps
    .venv/bin/python packaging/icons.py ico FILE         for Windows
    .venv/bin/python packaging/icons.py icns FILE        for macOS

Needs PySide6, so it runs in the finished environment. Nothing it draws is kept in the repository.
"""

from __future__ import annotations

import os
import shutil
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QBuffer, QIODevice, QRectF
from PySide6.QtGui import QGuiApplication, QImage, QPainter
from PySide6.QtSvg import QSvgRenderer

ICONS = Path(__file__).resolve().parent.parent / "resources" / "icons"
SIZES = (16, 22, 24, 32, 48, 64, 96, 128, 256, 512)  # px, of the hicolor theme
_SMALL = {16: "greenroom-16.svg", 22: "greenroom-22.svg", 24: "greenroom-24.svg", 32: "greenroom-32.svg"}
_ICO_SIZES = (16, 24, 32, 48, 64, 128, 256)
# What macOS calls each size; those of HiDPI screens have names of their own.
_ICNS = {
    "icp4": 16,
    "ic11": 32,
    "icp5": 32,
    "ic12": 64,
    "ic07": 128,
    "ic13": 256,
    "ic08": 256,
    "ic14": 512,
    "ic09": 512,
}
_ICNS_MARGIN = 0.1  # of the width on each side: icons there keep a distance from their neighbours


def main(arguments: Sequence[str]) -> int:
    """Carry out one of the commands above; returns the exit code."""
    kinds: dict[str, Callable[[Path], None]] = {"hicolor": write_hicolor, "ico": write_ico, "icns": write_icns}
    if len(arguments) != 2 or arguments[0] not in kinds:
        print("Say hicolor, ico or icns, and where to.", file=sys.stderr)
        return 2
    kinds[arguments[0]](Path(arguments[1]))
    return 0


def write_hicolor(folder: Path) -> None:
    """Fill a theme folder such as ``share/icons/hicolor``: a PNG for each size, and the SVG."""
    for size in SIZES:
        file = folder / f"{size}x{size}" / "apps" / "greenroom.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png(size))
    file = folder / "scalable" / "apps" / "greenroom.svg"
    file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ICONS / "greenroom.svg", file)


def write_ico(file: Path) -> None:
    """An icon file of Windows that holds all its sizes, each as PNG."""
    pictures = [png(size) for size in _ICO_SIZES]
    offset = 6 + 16 * len(pictures)
    directory = struct.pack("<HHH", 0, 1, len(pictures))
    for size, picture in zip(_ICO_SIZES, pictures, strict=True):
        side = size % 256  # 0 stands for 256
        directory += struct.pack("<BBBBHHII", side, side, 0, 0, 1, 32, len(picture), offset)
        offset += len(picture)
    file.write_bytes(directory + b"".join(pictures))


def write_icns(file: Path) -> None:
    """An icon file of macOS that holds all its sizes, each as PNG."""
    parts = b"".join(_chunk(name.encode(), png(size, _ICNS_MARGIN)) for name, size in _ICNS.items())
    file.write_bytes(_chunk(b"icns", parts))


def png(size: int, margin: float = 0.0) -> bytes:
    """The icon as a PNG of ``size`` x ``size`` px; ``margin`` is what stays empty on each side, as part of the width.

    Small sizes without a margin have drawings of their own, whose edges fall between the pixels.
    """
    drawing = ICONS / ("greenroom.svg" if margin else _SMALL.get(size, "greenroom.svg"))
    renderer = QSvgRenderer(str(drawing))
    if not renderer.isValid():
        raise OSError(f"{drawing} is no picture that can be drawn")
    image = QImage(size, size, QImage.Format.Format_ARGB32_Premultiplied)
    image.fill(0)
    painter = QPainter(image)
    inset = round(size * margin)
    renderer.render(painter, QRectF(inset, inset, size - 2 * inset, size - 2 * inset))
    painter.end()
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")  # type: ignore[call-overload]  # the stubs forget that a device will do
    return bytes(buffer.data().data())


def _chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack(">I", 8 + len(content)) + content


if __name__ == "__main__":
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    _application = QGuiApplication(sys.argv[:1])
    sys.exit(main(sys.argv[1:]))
