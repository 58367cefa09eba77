"""Safetensors headers: where every tensor's bytes are, without reading a tensor.

Source: the safetensors format, https://github.com/huggingface/safetensors#format - 8 bytes little endian header length
N, N bytes of JSON, then the data that ``data_offsets`` counts from.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

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
        return _listed_files(folder, index)
    single = folder / "model.safetensors"
    if single.is_file():
        return [single]
    others = sorted(folder.glob("*.safetensors"))
    broken = [file.name for file in others if not file.is_file()]  # a hub snapshot's link to what never came
    if broken:
        raise _missing(broken, len(others))
    if others:
        first = others[0].name
        raise ModelError(
            f"The folder has {first} but no {INDEX_NAME}, so nobody can say whether all parts are there. "
            "Download the model again."
        )
    return []


def _listed_files(folder: Path, index: Path) -> list[Path]:
    try:
        names = sorted({str(name) for name in json.loads(index.read_text("utf-8"))["weight_map"].values()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{INDEX_NAME} in {folder} is damaged ({error}); download it again.") from error
    if not names:
        raise ModelError(f"{INDEX_NAME} in {folder} lists no files; download it again.")
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise _missing(missing, len(names))
    return [folder / name for name in names]


def _missing(names: list[str], of: int) -> ModelError:
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return ModelError(
        f"{len(names)} of {of} weight files are missing: {shown}. "
        "The download seems incomplete; download the model again."
    )


def _read_header(file: Path) -> list[TensorRef]:
    size = file.stat().st_size
    with file.open("rb") as stream:
        prefix = stream.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else size
        if length > min(_LONGEST_HEADER, size - 8):
            raise ModelError(f"{file.name} is cut short or is no safetensors file; download it again.")
        text = stream.read(length)
    try:
        entries = json.loads(text)
        if not isinstance(entries, dict):
            raise ValueError("it is no table of tensors")
        entries.pop("__metadata__", None)
        refs = [_tensor_ref(name, file, 8 + length, entry) for name, entry in entries.items()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"The header of {file.name} is damaged ({error}); download the file again.") from error
    end = max((ref.offset + ref.nbytes for ref in refs), default=0)
    if end > size:
        raise ModelError(
            f"{file.name} is cut short: it should have at least {end:,} bytes and has {size:,}. "
            "The download seems incomplete; download the file again."
        )
    return refs


def _tensor_ref(name: str, file: Path, start: int, entry: dict[str, Any]) -> TensorRef:
    """One entry of a header. Raises ValueError when its parts contradict each other."""
    begin, end = entry["data_offsets"]
    dtype, shape = str(entry["dtype"]), tuple(int(size) for size in entry["shape"])
    nbytes = prod(shape) * DTYPE_BYTES.get(dtype, 0)
    if not 0 <= begin <= end or (nbytes and nbytes != end - begin):
        raise ValueError(f"{name} of shape {list(shape)} cannot be {end - begin} bytes of {dtype}")
    return TensorRef(name, file, start + begin, end - begin, dtype, shape)
