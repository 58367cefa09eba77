"""Text files that go with a message: read, checked, and quoted in it by name."""

from __future__ import annotations

import hashlib
import mimetypes
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from PySide6.QtCore import QCoreApplication

MAX_BYTES = 256 * 1024  # of one file: some 70,000 tokens
MAX_FILES = 10
_HEAD = 1024  # bytes that tell a picture or sound from text
_FENCES = re.compile(r"^ {0,3}(`{3,})", re.MULTILINE)
_BOMS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file as it was when it was dropped."""

    name: str
    text: str
    path: Path = field(default=Path(), compare=False)  # where it was read; the same file twice is one

    @property
    def digest(self) -> str:
        """The same for the same text."""
        return hashlib.sha256(self.text.encode("utf-8")).hexdigest()


class NotText(Exception):
    """The file cannot go with a message; the text says why, in a sentence."""


def read_attachment(path: Path) -> Attachment:
    """Read a text file: UTF-8, or UTF-16 with its mark. Raises NotText."""
    name = path.name
    try:
        if path.is_dir():
            raise NotText(_tr("“%1” is a folder; drop the files themselves.", name))
        if not path.is_file():
            raise NotText(_tr("“%1” is not a file that can be read.", name))
        size = path.stat().st_size
        with path.open("rb") as file:
            _refuse_pictures_and_sound(name, file.read(_HEAD))
        if size > MAX_BYTES:
            most = f"{MAX_BYTES // 1024} KB"
            raise NotText(_tr("“%1” is too long: %2, and at most %3 can go along.", name, size_in_words(size), most))
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise NotText(_tr("“%1” cannot be read: %2.", name, error.strerror or str(error))) from error
    encoding = next((encoding for mark, encoding in _BOMS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise NotText(_tr("“%1” is not a text file in UTF-8, so the model could not read it.", name)) from error
    if "\0" in text:
        raise NotText(_tr("“%1” is a binary file; only text can go along.", name))
    if not text.strip():
        raise NotText(_tr("“%1” is empty.", name))
    return Attachment(name, text.replace("\r\n", "\n").replace("\r", "\n"), path.absolute())


def _refuse_pictures_and_sound(name: str, head: bytes) -> None:
    """By name and first bytes: an .svg is a picture's text, a .ts may be a program or a video. Raises NotText."""
    if b"\0" not in head or head.startswith(tuple(mark for mark, _ in _BOMS)):
        return
    kind = (mimetypes.guess_type(name)[0] or "").partition("/")[0]
    if kind == "image":
        raise NotText(_tr("“%1” is a picture. Greenroom gives models text only, also those that can see.", name))
    if kind == "video":
        raise NotText(_tr("“%1” is a video. Greenroom gives models text only, also those that can see.", name))
    if kind == "audio":
        raise NotText(_tr("“%1” is sound. Greenroom gives models text only, also those that can hear.", name))


def read_again(path: Path, digest: str) -> Attachment:
    """A file that was attached before the program was quit. Raises NotText when it is gone, or has another digest."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotText(_tr("“%1” was attached here and is not there any more.", path.name)) from error
    except OSError:
        pass  # what is wrong is known when it is read
    attachment = read_attachment(path)
    if attachment.digest != digest:
        raise NotText(
            _tr("“%1” has changed since you attached it; attach it again to send it as it is now.", path.name)
        )
    return attachment


def quoted(attachments: Sequence[Attachment], text: str) -> str:
    """The message: each file under its name in a fence that nothing in it can close, then what was typed."""
    parts = []
    for attachment in attachments:
        longest = max((len(fence) for fence in _FENCES.findall(attachment.text)), default=2)
        fence = "`" * (longest + 1)
        suffix = Path(attachment.name).suffix.removeprefix(".")
        language = suffix if suffix.isalnum() else ""
        body = attachment.text.rstrip("\n")
        parts.append(f"{attachment.name}:\n{fence}{language}\n{body}\n{fence}")
    return "\n\n".join([*parts, text] if text.strip() else parts)


def size_in_words(size: int) -> str:
    """ "1 byte", "812 bytes", "12 KB", "3.4 MB"."""
    if size < 1024:
        return _tr("1 byte") if size == 1 else _tr("%1 bytes", str(size))
    return f"{size / 1024:.0f} KB" if size < 1024 * 1024 else f"{size / 1024 / 1024:.1f} MB"


def _tr(text: str, *values: str) -> str:
    text = QCoreApplication.translate("Attachments", text)
    return re.sub(r"%([1-9])", lambda place: values[int(place[1]) - 1], text)  # a file may be called "%2"
