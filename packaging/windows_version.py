"""What Windows shows about a program under Properties > Details, as a file that PyInstaller reads."""

from __future__ import annotations

from pathlib import Path

_TEMPLATE = """VSVersionInfo(
  ffi=FixedFileInfo(filevers={numbers}, prodvers={numbers}, mask=0x3f, flags=0x0, OS=0x40004, fileType=0x1),
  kids=[
    StringFileInfo([StringTable('040904B0', [
      StringStruct('ProductName', 'Greenroom'),
      StringStruct('FileDescription', 'Greenroom'),
      StringStruct('FileVersion', '{version}'),
      StringStruct('ProductVersion', '{version}'),
      StringStruct('OriginalFilename', '{name}.exe'),
      StringStruct('LegalCopyright', 'Apache License 2.0'),
    ])]),
    VarFileInfo([VarStruct('Translation', [1033, 1200])]),
  ],
)
"""


def write(folder: Path, name: str, version: str) -> str:
    """The file for the program ``name``, in ``folder``; its path. The version's first three numbers are given."""
    numbers = tuple(int(part) for part in version.split(".")[:3])
    file = folder / f"{name}-version.txt"
    text = _TEMPLATE.format(numbers=(*numbers, *(0,) * (4 - len(numbers))), version=version, name=name)
    file.write_text(text, encoding="utf-8")
    return str(file)
