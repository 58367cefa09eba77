"""Each size and format of the icon holds the picture it names."""

import struct

import icons
from PySide6.QtGui import QColor, QImage, QImageReader


def is_the_icon(image, size):
    """The called expert is lit at the lower right, corners are empty."""
    lit = image.pixelColor(round(size * 0.75), round(size * 0.75))
    assert lit.blue() < 200 < min(lit.red(), lit.green()), f"{size} px: {lit.name()}"
    assert image.pixelColor(0, 0).alpha() < 128
    assert image.pixelColor(size // 2, 0).alpha() > 200


def test_a_theme_folder_has_all_sizes_and_the_drawing(tmp_path, qapp):
    icons.write_hicolor(tmp_path)
    for size in icons.SIZES:
        image = QImage(str(tmp_path / f"{size}x{size}" / "apps" / "greenroom.png"))
        assert (image.width(), image.height()) == (size, size)
        is_the_icon(image, size)
    drawing = tmp_path / "scalable" / "apps" / "greenroom.svg"
    assert drawing.read_bytes() == (icons.ICONS / "greenroom.svg").read_bytes()


def test_small_drawings_have_edges_between_pixels(qapp):
    """Across the lit expert of a small icon there are at most the two colours and one step at each rounded corner."""
    for size in icons._SMALL:
        image = QImage.fromData(icons.png(size))
        middle = round(size * 0.75)
        row = {QColor(image.pixelColor(x, middle)).name() for x in range(size // 2, size)}
        assert row <= {"#14181a", "#fdd577", "#2b5045"}, f"{size} px: {row}"


def test_windows_finds_every_size_in_one_file(tmp_path, qapp):
    file = tmp_path / "greenroom.ico"
    icons.write_ico(file)
    reader = QImageReader(str(file))
    sizes = []
    for number in range(reader.imageCount()):
        reader.jumpToImage(number)
        image = reader.read()
        is_the_icon(image, image.width())
        sizes.append(image.width())
    assert sizes == list(icons._ICO_SIZES)


def test_macos_finds_every_size_in_one_file(tmp_path, qapp):
    file = tmp_path / "greenroom.icns"
    icons.write_icns(file)
    content = file.read_bytes()
    name, length = struct.unpack(">4sI", content[:8])
    assert (name, length) == (b"icns", len(content))
    place, found = 8, {}
    while place < length:
        name, part = struct.unpack(">4sI", content[place : place + 8])
        image = QImage.fromData(content[place + 8 : place + part])
        found[name.decode()] = image.width()
        assert image.pixelColor(image.width() // 2, 0).alpha() == 0  # a distance from the neighbours
        place += part
    assert found == icons._ICNS
