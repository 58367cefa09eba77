"""Safetensors headers: where every tensor's bytes are, without reading a tensor.

Source: the safetensors format, https://github.com/huggingface/safetensors#format - 8 bytes little endian header length
N, N bytes of JSON, then the data that ``data_offsets`` counts from.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from engine.errors import ModelError

SINGLE_NAME = "model.safetensors"
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


def read_headers(files: Sequence[Path]) -> dict[str, TensorRef]:
    """Every tensor in ``files``, by its name in the checkpoint; of one that several files hold, the last file's, as
    transformers takes it.

    Raises ModelError when a file is cut short or is damaged.
    """
    tensors: dict[str, TensorRef] = {}
    for file in files:
        for ref in _read_header(file):
            tensors[ref.name] = ref
    return tensors


def choose_weights(present: Collection[str], config: Mapping[str, Any]) -> str | None:
    """Which of a folder's files says where the weights are: a safetensors file, or an index of several.

    In transformers' own order (``_get_resolved_checkpoint_files``): what the config names in ``transformers_weights``,
    the single file, the index. None where there is neither. Raises ModelError for a name that leads out of the folder.
    """
    named = config.get("transformers_weights")
    if named is not None:
        if not isinstance(named, str) or not _is_ours(named.removesuffix(".index.json")):
            raise ModelError(
                f"config.json names {str(named)[:100]!r} as its weights (transformers_weights), and that is no "
                "safetensors file inside the folder. Download the model again from a source that you trust."
            )
        return named
    return next((name for name in (SINGLE_NAME, INDEX_NAME) if name in present), None)


@dataclass(frozen=True, slots=True)
class WeightFiles:
    """files: the checkpoint, in the order in which they are read. left_aside: names of other safetensors files in the
    folder; they are another checkpoint, or parts of one."""

    files: tuple[Path, ...]
    left_aside: tuple[str, ...] = ()


def weight_files(folder: Path, config: Mapping[str, Any]) -> WeightFiles:
    """The safetensors files of the model in ``folder``; checked to be there, not read.

    Raises ModelError when files that the index lists are missing, and where none is said to be the checkpoint.
    """
    # a Mac leaves "._model.safetensors" beside files that it wrote to a foreign disk
    others = [file for file in sorted(folder.glob("*.safetensors")) if not file.name.startswith("._")]
    chosen = choose_weights({name for name in (SINGLE_NAME, INDEX_NAME) if (folder / name).is_file()}, config)
    if chosen is None:
        _refuse_unlisted(others)
        return WeightFiles(())
    path = folder / chosen
    if not path.is_file():
        raise ModelError(f"config.json names {chosen} as its weights, and the folder has no such file.")
    files = _listed_files(folder, path) if chosen.endswith(".json") else [path]
    left_aside = tuple(other.name for other in others if other not in files)
    if chosen == SINGLE_NAME and (folder / INDEX_NAME).is_file():
        left_aside = (*left_aside, INDEX_NAME)
    return WeightFiles(tuple(files), left_aside)


def _refuse_unlisted(others: Sequence[Path]) -> None:
    """Weights that no file says to be the whole checkpoint."""
    broken = [file.name for file in others if not file.is_file()]  # a hub snapshot's link to what never came
    if broken:
        raise _missing(broken, len(others))
    if others:
        raise ModelError(
            f"The folder has {others[0].name} but neither {SINGLE_NAME} nor {INDEX_NAME}, so it is unknown whether all "
            "parts are there. Download the model again."
        )


def _listed_files(folder: Path, index: Path) -> list[Path]:
    """The files that an index lists, in its order of names."""
    try:
        names = sorted({str(name) for name in json.loads(index.read_text("utf-8"))["weight_map"].values()})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{index.name} in {folder} is damaged ({error}); download it again.") from error
    if not names:
        raise ModelError(f"{index.name} in {folder} lists no files; download it again.")
    foreign = next((name for name in names if not _is_ours(name)), None)
    if foreign is not None:
        raise ModelError(
            f"{index.name} in {folder} lists {foreign[:100]!r}, which is no safetensors file inside the folder. It is "
            "damaged, or up to no good; download it again from a source that you trust."
        )
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise _missing(missing, len(names))
    return [folder / name for name in names]


def _is_ours(name: str) -> bool:
    """Whether a name in an index stays inside the folder on every system, and is a safetensors file's."""
    ways = (PurePosixPath(name), PureWindowsPath(name))
    return name.endswith(".safetensors") and not any(way.anchor or ".." in way.parts for way in ways)


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
        remarks = entries.pop("__metadata__", {})
        if not isinstance(remarks, dict) or not all(isinstance(remark, str) for remark in remarks.values()):
            raise ValueError("its __metadata__ is no table of texts")
        refs = [_tensor_ref(name, file, 8 + length, entry) for name, entry in entries.items()]
        _check_order(refs, 8 + length)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"The header of {file.name} is damaged ({error}); download the file again.") from error
    end = max((ref.offset + ref.nbytes for ref in refs), default=0)
    if end > size:
        raise ModelError(
            f"{file.name} is cut short: it should have at least {end:,} bytes and has {size:,}. "
            "The download seems incomplete; download the file again."
        )
    if end < size and refs:
        raise ModelError(f"{file.name} has {size - end:,} bytes that belong to no tensor; download the file again.")
    return refs


def _check_order(refs: list[TensorRef], start: int) -> None:
    """Tensors follow each other without gap and overlap, as the format demands; ValueError when they do not."""
    due = start
    for ref in sorted(refs, key=lambda ref: (ref.offset, ref.nbytes)):
        if ref.offset != due:
            raise ValueError(f"{ref.name} begins at byte {ref.offset:,} and the tensor before it ends at {due:,}")
        due += ref.nbytes


def _tensor_ref(name: str, file: Path, start: int, entry: dict[str, Any]) -> TensorRef:
    """One entry of a header. Raises ValueError when its parts contradict each other."""
    begin, end = entry["data_offsets"]
    dtype, shape = str(entry["dtype"]), tuple(entry["shape"])
    if not all(type(number) is int and number >= 0 for number in (begin, end, *shape)):
        raise ValueError(f"{name} has sizes that are no whole numbers")
    name.encode("utf-8")  # half a character, which JSON can write, is no name
    nbytes = prod(shape) * DTYPE_BYTES.get(dtype, 0)
    if begin > end or (dtype in DTYPE_BYTES and nbytes != end - begin):
        raise ValueError(f"{name} of shape {list(shape)} cannot be {end - begin} bytes of {dtype}")
    return TensorRef(name, file, start + begin, end - begin, dtype, shape)
