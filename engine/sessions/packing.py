"""Arrays as short text inside the log's JSON lines, both ways (see FORMAT.md, "Routed experts of a pass").

Shapes: ``routed`` is ``[layers, top_k]``, ``counts`` and ``missed`` are ``[layers, experts]``, ``resident`` is a
plain list of keys ``layer * experts + expert``. Unpacking checks the length and raises SessionError when it is off.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Sequence

import numpy as np

from engine.errors import SessionError

NO_EXPERT = 65535  # in `routed`: this place of the top k chose nobody


def pack_routed(routed: np.ndarray) -> str:
    """Expert ids of one token, ``[layers, top_k]``; negative ids mean no expert."""
    ids = np.asarray(routed)
    if ids.dtype.kind == "i" and (ids < 0).any():
        ids = np.where(ids < 0, NO_EXPERT, ids)
    return _text(ids.astype("<u2").tobytes())


def unpack_routed(text: str, layers: int, top_k: int) -> np.ndarray:
    """``[layers, top_k]`` uint16, NO_EXPERT where nobody was chosen."""
    return _array(_bytes(text), "<u2", layers, top_k)


def pack_counts(counts: np.ndarray) -> str:
    """How many tokens chose each expert, ``[layers, experts]``."""
    return _text(zlib.compress(np.asarray(counts).astype("<u4").tobytes(), 1))


def unpack_counts(text: str, layers: int, experts: int) -> np.ndarray:
    """``[layers, experts]`` uint32."""
    return _inflated(text, "<u4", layers, experts)


def pack_missed(missed: np.ndarray) -> str:
    """Bit field of ``[layers, experts]``."""
    return _text(np.packbits(np.asarray(missed, dtype=bool)).tobytes())


def unpack_missed(text: str, layers: int, experts: int) -> np.ndarray:
    """``[layers, experts]`` bool."""
    data = np.frombuffer(_bytes(text), dtype=np.uint8)
    if data.size != (layers * experts + 7) // 8:
        raise SessionError("A record of the conversation's log is damaged: its misses do not fit the model.")
    return np.unpackbits(data, count=layers * experts).astype(bool).reshape(layers, experts)


def pack_resident(keys: Sequence[int] | np.ndarray) -> str:
    """Keys of the experts in the slots, from least to most recently used."""
    return _text(np.asarray(keys, dtype="<u4").tobytes())


def unpack_resident(text: str) -> np.ndarray:
    """uint32 keys, from least to most recently used."""
    data = _bytes(text)
    return _array(data, "<u4", 1, len(data) // 4)[0]


def pack_ahead(notes: Sequence[tuple[int, int, int, int]]) -> str:
    """What was done ahead of demand: (layer, deed, key, leaving) in order; -1 is allowed for layer and leaving."""
    return _text(zlib.compress((np.asarray(notes, dtype=np.int64).reshape(-1, 4)).astype("<i4").tobytes(), 1))


def unpack_ahead(text: str, most: int) -> np.ndarray:
    """int32 ``[n, 4]``; a record with more than ``most`` rows is damaged."""
    size = most * 16
    try:
        data = zlib.decompressobj().decompress(_bytes(text), size + 1)
    except zlib.error as error:
        raise SessionError("A record of the conversation's log is damaged: it cannot be unpacked.") from error
    if len(data) > size:
        raise SessionError("A record of the conversation's log is damaged: it is larger than any pass.")
    return _array(data, "<i4", len(data) // 16, 4)


def pack_state(state: np.ndarray) -> str:
    """What a policy remembers, float64 ``[n]``."""
    return _text(zlib.compress(np.asarray(state).astype("<f8").tobytes(), 1))


def unpack_state(text: str, length: int) -> np.ndarray:
    """float64 ``[length]``."""
    return _inflated(text, "<f8", 1, length)[0]


def _text(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise SessionError("A record of the conversation's log is damaged: it is not base64.") from error


def _inflated(text: str, dtype: str, rows: int, columns: int) -> np.ndarray:
    size = rows * columns * np.dtype(dtype).itemsize
    try:
        inflater = zlib.decompressobj()
        data = inflater.decompress(_bytes(text), size + 1)  # a damaged record must not inflate to gigabytes
    except zlib.error as error:
        raise SessionError("A record of the conversation's log is damaged: it cannot be unpacked.") from error
    return _array(data, dtype, rows, columns)


def _array(data: bytes, dtype: str, rows: int, columns: int) -> np.ndarray:
    if len(data) != rows * columns * np.dtype(dtype).itemsize:
        raise SessionError("A record of the conversation's log is damaged: an array does not fit the model.")
    return np.frombuffer(data, dtype=dtype).reshape(rows, columns)
