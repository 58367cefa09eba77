"""Where experts wait: on disk, in the model's own safetensors files.

Reads are positional and go straight into the slot (``os.preadv``); no page of the file is ever mapped. Where the
checkpoint's numbers are not the arena's (other format, other layout), the expert is read beside and converted by
transformers' own operations, for this expert alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import torch
from transformers import PreTrainedModel

from engine.errors import ModelError
from engine.experts.layout import ExpertLayout
from engine.models.index import ExpertIndex, ParameterSource, Piece


class Store(Protocol):
    """Fetches one expert into host memory. Called from several threads at once."""

    def read(self, layer: int, expert: int, blob: torch.Tensor) -> int:
        """Fill ``blob`` (uint8, one expert's layout). Returns the bytes fetched. Raises ModelError."""

    def close(self) -> None: ...


class DiskStore:
    """Experts in safetensors files."""

    def __init__(self, index: ExpertIndex, layouts: Sequence[ExpertLayout], model: PreTrainedModel) -> None:
        """layouts: one for each layer of the index. model: what transformers' operations may ask for config."""
        self._index = index
        self._layouts = layouts
        self._model: PreTrainedModel | None = model
        self._files = _FileReader()
        self._converting = threading.Lock()  # a converter collects its tensors in itself: one user at a time

    def read(self, layer: int, expert: int, blob: torch.Tensor) -> int:
        layout = self._layouts[layer]
        fetched = 0
        for source in self._index.sources[layer][expert]:
            if source.converter is None:
                fetched += self._read_plain(source, layout, blob)
            else:
                fetched += self._read_converted(source, layout, blob)
        return fetched

    def close(self) -> None:
        self._files.close()
        self._model = None  # the model holds us too: without this, neither would go

    def _read_plain(self, source: ParameterSource, layout: ExpertLayout, blob: torch.Tensor) -> int:
        leaf = source.target.rpartition(".")[2]
        place = next(p for p in layout.parameters if p.name == leaf)
        offset, fetched = place.offset, 0
        for piece in source.pieces:
            count = piece.nbytes // piece.dtype.itemsize
            target = blob[offset : offset + count * layout.dtype.itemsize]
            if piece.dtype == layout.dtype:
                self._files.read(piece, target)
            else:
                beside = torch.empty(piece.nbytes, dtype=torch.uint8)
                self._files.read(piece, beside)
                target.view(layout.dtype).copy_(beside.view(piece.dtype))
            offset += target.nbytes
            fetched += piece.nbytes
        return fetched

    def _read_converted(self, source: ParameterSource, layout: ExpertLayout, blob: torch.Tensor) -> int:
        views = layout.views(blob)
        tensors = []
        for piece in source.pieces:
            raw = torch.empty(piece.nbytes, dtype=torch.uint8)
            self._files.read(piece, raw)
            tensors.append(raw.view(piece.dtype).view(piece.shape).to(layout.dtype))
        assert source.converter is not None and self._model is not None
        with self._converting:
            for piece, tensor in zip(source.pieces, tensors, strict=True):
                source.converter.add_tensor(source.target, source.target, piece.source_pattern, _ready(tensor))
            realized = source.converter.convert(source.target, model=self._model, config=self._model.config)
        for name, value in realized.items():
            tensor = value[0] if isinstance(value, list) else value
            view = views[name.rpartition(".")[2]]
            if tensor.numel() != view.numel() or tuple(tensor.shape[-view.dim() :]) != tuple(view.shape):
                raise ModelError(
                    f"{name}: one expert came out as {list(tensor.shape)} where {list(view.shape)} is wanted; "
                    "Greenroom cannot cut this checkpoint into experts."
                )
            view.copy_(tensor.reshape(view.shape))
        return sum(piece.nbytes for piece in source.pieces)


def _ready(tensor: torch.Tensor) -> Any:
    """What a converter collects: something to call when the tensor is needed."""
    return lambda: tensor


class _FileReader:
    """Positional reads from many threads: ``preadv`` on one handle, or (Windows) one handle for each thread."""

    def __init__(self) -> None:
        self._positional = hasattr(os, "preadv")
        self._handles: dict[tuple[Path, int], BinaryIO] = {}
        self._retired: list[BinaryIO] = []  # of files that failed; another thread may still be reading there
        self._opening = threading.Lock()

    def read(self, piece: Piece, target: torch.Tensor) -> None:
        """Fill ``target`` (uint8) with the piece's bytes. Raises ModelError when the file will not give them.

        After that the file is opened anew: a repaired or replaced one serves the next read.
        """
        try:
            self._fill(self._handle(piece.file), piece, target)
        except OSError as error:
            self._retire(piece.file)
            raise ModelError(f"{piece.file} cannot be read any more: {error.strerror or error}.") from error

    def close(self) -> None:
        with self._opening:
            for handle in (*self._handles.values(), *self._retired):
                handle.close()
            self._handles.clear()
            self._retired.clear()

    def _fill(self, handle: BinaryIO, piece: Piece, target: torch.Tensor) -> None:
        view = memoryview(cast(Any, target.numpy()))
        done = 0
        while done < piece.nbytes:
            if self._positional:
                got = os.preadv(handle.fileno(), [view[done:]], piece.offset + done)
            else:
                handle.seek(piece.offset + done)
                got = handle.readinto(view[done:])  # type: ignore[attr-defined]
            if got <= 0:
                raise OSError(None, f"it became shorter by {piece.nbytes - done:,} bytes or more while it was in use")
            done += got

    def _handle(self, file: Path) -> BinaryIO:
        key = (file, 0 if self._positional else threading.get_ident())
        with self._opening:
            if key not in self._handles:
                self._handles[key] = file.open("rb", buffering=0)
            return self._handles[key]

    def _retire(self, file: Path) -> None:
        with self._opening:
            for key in [key for key in self._handles if key[0] == file]:
                self._retired.append(self._handles.pop(key))
