"""Safetensors headers: where every tensor's bytes are, without reading a tensor.

Source: the safetensors format, https://github.com/huggingface/safetensors#format - 8 bytes little endian header length
N, N bytes of JSON, then the data that ``data_offsets`` counts from.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ModelError

INDEX_NAME = "model.safetensors.index.json"
_LONGEST_HEADER = 100_000_000  # the format's own limit, in bytes

# bytes per element of the plain number formats; what is missing here (4- and 6-bit kinds) is packed
DTYPE_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1,
    "U16": 2, "U32": 4, "U64": 8, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorRef:
    """One tensor in a file: ``nbytes`` at ``offset`` from the start of ``file``."""

    name: str
    file: Path
    offset: int
    nbytes: int
    dtype: str  # the header's word: "F32", "BF16", ...
    shape: tuple[int, ...]


def read_headers(folder: Path) -> dict[str, TensorRef]:
    """Every tensor of the model in ``folder`` (one file or many), by its name in the checkpoint.

    Raises ModelError when files that the index lists are missing, or a file is cut short or is damaged.
    """
    tensors: dict[str, TensorRef] = {}
    for file in weight_files(folder):
        for ref in _read_header(file):
            tensors[ref.name] = ref
    return tensors


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model; checked to be there, not read."""
    index = folder / INDEX_NAME
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"{INDEX_NAME} in {folder} is damaged ({error}); download it again.") from error
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            shown = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
            raise ModelError(
                f"{len(missing)} of {len(names)} weight files are missing: {shown}. "
                "The download seems incomplete; download the model again."
            )
        return [folder / name for name in names]
    single = folder / "model.safetensors"
    if single.is_file():
        return [single]
    others = sorted(folder.glob("*.safetensors"))
    if others:
        first = others[0].name
        raise ModelError(
            f"The folder has {first} but no {INDEX_NAME}, so nobody can say whether all parts are there. "
            "Download the model again."
        )
    return []


def _read_header(file: Path) -> list[TensorRef]:
    size = file.stat().st_size
    try:
        with file.open("rb") as stream:
            prefix = stream.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else size
            if length > min(_LONGEST_HEADER, size - 8):
                raise ModelError(f"{file.name} is cut short or is no safetensors file; download it again.")
            entries = json.loads(stream.read(length))
    except ValueError as error:
        raise ModelError(f"The header of {file.name} is damaged ({error}); download the file again.") from error
    start = 8 + length
    refs = []
    for name, entry in entries.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        if start + end > size:
            raise ModelError(
                f"{file.name} is cut short: it should have at least {start + end:,} bytes and has {size:,}. "
                "The download seems incomplete; download the file again."
            )
        refs.append(TensorRef(name, file, start + begin, end - begin, entry["dtype"], tuple(entry["shape"])))
    return refs
