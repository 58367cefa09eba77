"""Where experts wait: on disk, in the model's own safetensors files.

Reads are positional and go straight into the slot; no page of the file is ever mapped. Where the checkpoint's numbers
are not the arena's (other format, other layout), the expert is read beside and converted, by transformers' own
operations where it takes more than another number format.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from transformers import PreTrainedModel

from engine.errors import MemoryPlanError, ModelError, memory_ran_out
from engine.experts.layout import ExpertLayout
from engine.experts.read_plan import Run, Staging, plan_runs, read_runs
from engine.experts.reading import CheckpointFile, checkpoint_file
from engine.hardware import disk
from engine.messages import ReadMode
from engine.models.conversion import OneExpertModel
from engine.models.index import ExpertIndex, ParameterSource, Piece
from engine.models.skeleton import in_short

SMALL = 1 << 20  # bytes: experts of less are read through the file cache, where a read costs a third of a direct one
MEASURED_SECONDS, MEASURED_BYTES = 0.25, 192 << 20  # at most, while loading
HELPERS = 8  # at most: two for each reader thread
ALIGNMENT = 64  # bytes; of the pieces that a conversion is given

log = logging.getLogger("greenroom.store")


class Store(Protocol):
    """Fetches one expert into host memory. Called from several threads at once."""

    def read(self, layer: int, expert: int, blob: torch.Tensor) -> int:
        """Fill ``blob`` (uint8, one expert's layout). Returns the bytes fetched. Raises ModelError, or MemoryPlanError
        where a conversion found no RAM; then nobody may use what is in ``blob``."""

    @property
    def quick(self) -> bool:
        """Whether a read mostly takes less time than handing it to another thread."""

    def describe(self) -> str:
        """How it reads, in words for the user."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Conversion:
    """A parameter that only transformers' own operations make out of what is stored."""

    source: ParameterSource
    runs: tuple[Run, ...]  # into memory beside
    beside: int  # bytes
    starts: tuple[int, ...]  # of each piece there


@dataclass(frozen=True, slots=True)
class _ExpertPlan:
    runs: tuple[Run, ...]  # into the slot
    conversions: tuple[_Conversion, ...]
    nbytes: int  # in the files


class DiskStore:
    """Experts in safetensors files.

    way: how they are read. rate: bytes/s of such reads when the store was made, two at a time; 0.0 when the files gave
    nothing.
    """

    def __init__(
        self,
        index: ExpertIndex,
        layouts: Sequence[ExpertLayout],
        model: PreTrainedModel,
        reads: ReadMode = "auto",
    ) -> None:
        """layouts: one for each layer of the index. model: what transformers' operations may ask for config.

        Reads a little of the files, for a quarter of a second at most, to see how fast they come and, for "auto", which
        way is faster.
        """
        self._layouts = layouts
        self._model: OneExpertModel | None = OneExpertModel(model, index.modules)
        self._converting = threading.Lock()  # a converter collects its tensors in itself: one user at a time
        self._local = threading.local()
        self._helper = ThreadPoolExecutor(HELPERS, thread_name_prefix="greenroom-block")  # none runs until it is needed
        spans = list(_spans(index))
        self._small = index.stored_bytes() < SMALL * max(1, sum(map(len, index.sources)))
        wants_direct = reads == "direct" or (reads == "auto" and not self._small)
        files = sorted({span.file for span in spans})
        self._refused = wants_direct and disk.refuses_direct(files)
        self._lands = disk.lands_anywhere(files) if wants_direct and not self._refused else 0
        self.way, self.rate = _choose(reads, self._small, self._refused, self._lands, spans)
        self._files: dict[Path, CheckpointFile] = {}
        self._plans = [
            [self._plan(sources, layout) for sources in experts]
            for experts, layout in zip(index.sources, layouts, strict=True)
        ]
        log.info("experts are read %s", self.describe())

    def read(self, layer: int, expert: int, blob: torch.Tensor) -> int:
        plan = self._plans[layer][expert]
        try:
            staging: tuple[Staging, Staging] = self._local.staging
        except AttributeError:
            staging = self._local.staging = (Staging(), Staging())
        read_runs(plan.runs, blob, staging, self._helper)
        for conversion in plan.conversions:
            self._convert(conversion, self._layouts[layer], blob, staging)
        return plan.nbytes

    @property
    def quick(self) -> bool:
        return self._small and self.way == "buffered"

    def describe(self) -> str:
        """How experts are read, for the user: ``"direct, past the file cache, 1.4 GB/s"``."""
        words = {
            "direct": f"direct, past the file cache{' and straight into place' if self._lands else ''}",
            "dropping": "buffered, dropped from the file cache after each read",
            "buffered": "buffered: the system's file cache may keep copies in free memory",
        }[self.way]
        if self._refused:
            words += "; direct reads are not to be had here"
        return f"{words}, {self.rate / 1e9:.1f} GB/s" if self.rate and not self._small else words

    def close(self) -> None:
        self._helper.shutdown()
        for file in self._files.values():
            file.close()
        self._local = threading.local()
        self._model = None  # the model holds us too: without this, neither would go

    def _file(self, path: Path) -> CheckpointFile:
        if path not in self._files:
            self._files[path] = checkpoint_file(path, self.way, self._lands)
        return self._files[path]

    def _plan(self, sources: Sequence[ParameterSource], layout: ExpertLayout) -> _ExpertPlan:
        places = {parameter.name: parameter.offset for parameter in layout.parameters}
        pieces: list[tuple[Piece, int, torch.dtype]] = []
        conversions = []
        for source in sources:
            if source.converter is not None:
                conversions.append(self._plan_conversion(source))
                continue
            offset = places[_leaf(source.target)]
            for piece in source.pieces:
                pieces.append((piece, offset, layout.dtype))
                offset += piece.nbytes // piece.dtype.itemsize * layout.dtype.itemsize
        nbytes = sum(piece.nbytes for source in sources for piece in source.pieces)
        return _ExpertPlan(plan_runs(pieces, self._file), tuple(conversions), nbytes)

    def _plan_conversion(self, source: ParameterSource) -> _Conversion:
        starts = []
        beside = 0
        for piece in source.pieces:
            starts.append(beside)
            beside += -(-piece.nbytes // ALIGNMENT) * ALIGNMENT
        placed = [(piece, start, piece.dtype) for piece, start in zip(source.pieces, starts, strict=True)]
        return _Conversion(source, plan_runs(placed, self._file), beside, tuple(starts))

    def _convert(
        self, conversion: _Conversion, layout: ExpertLayout, blob: torch.Tensor, staging: tuple[Staging, Staging]
    ) -> None:
        """Nothing is written before all of it is made, and a converter that broke off forgets what it was given."""
        beside = torch.empty(conversion.beside, dtype=torch.uint8)
        read_runs(conversion.runs, beside, staging, self._helper)
        views = layout.views(blob)
        made: list[tuple[torch.Tensor, torch.Tensor]] = []
        for name, value in self._converted(conversion, layout.dtype, beside).items():
            tensor, view = value[0] if isinstance(value, list) else value, views.get(_leaf(name))
            if view is None or tensor.numel() != view.numel() or tensor.shape[-view.dim() :] != view.shape:
                wanted = "nothing of that name" if view is None else str(list(view.shape))
                raise ModelError(
                    f"{name}: one expert came out as {list(tensor.shape)} where {wanted} is wanted; "
                    "Greenroom cannot cut this checkpoint into experts."
                )
            made.append((view, tensor))
        for view, tensor in made:
            view.copy_(tensor.reshape(view.shape))

    def _converted(self, conversion: _Conversion, dtype: torch.dtype, beside: torch.Tensor) -> dict[str, Any]:
        """What transformers' operations make of the pieces in ``beside``, by parameter name. Raises ModelError,
        MemoryPlanError."""
        source, model = conversion.source, self._model
        assert source.converter is not None and model is not None
        with self._converting:
            try:
                for piece, start in zip(source.pieces, conversion.starts, strict=True):
                    tensor = beside[start : start + piece.nbytes].view(piece.dtype).view(piece.shape).to(dtype)
                    source.converter.add_tensor(source.target, source.target, piece.source_pattern, _ready(tensor))
                made: dict[str, Any] = source.converter.convert(source.target, model=model, config=model.config)
            except Exception as error:  # any operation, any complaint
                if memory_ran_out(error):
                    raise MemoryPlanError(
                        "RAM ran out while an expert was converted. Give experts less memory, or close other programs."
                    ) from error
                raise ModelError(
                    f"An expert of {source.target} could not be converted: {in_short(error)}. Download the model "
                    "again, or choose another version of it."
                ) from error
            finally:
                source.converter.collected_tensors.clear()  # else the next expert would be made of these as well
        return made


def _choose(
    reads: ReadMode, small: bool, refused: bool, lands: int, spans: Sequence[disk.Span]
) -> tuple[disk.Way, float]:
    """The way to read and its measured rate, bytes/s."""
    past_the_cache: disk.Way = "dropping" if disk.CAN_DROP else "buffered"
    ways: tuple[disk.Way, ...]
    if reads == "buffered" or (reads == "auto" and small):
        ways = ("buffered",)
    elif refused:
        ways = (past_the_cache,)
    else:
        ways = ("direct",) if reads == "direct" or not disk.CAN_DROP else ("direct", "dropping")
    try:
        seconds = MEASURED_SECONDS if len(ways) > 1 else MEASURED_SECONDS / 4
        rates = disk.measure(list(disk.spread(spans, 128)), ways, seconds, MEASURED_BYTES, copies=not lands)
    except OSError as error:  # whoever reads an expert is told
        log.warning("the experts' files could not be measured: %s", error)
        return ways[0], 0.0
    fastest = max(ways, key=lambda way: rates[way])
    return fastest, rates[fastest]


def _spans(index: ExpertIndex) -> Iterator[disk.Span]:
    """Where the experts lie; of one expert, what lies side by side is one span."""
    for experts in index.sources:
        for sources in experts:
            pieces = sorted(
                disk.Span(piece.file, piece.offset, piece.nbytes) for source in sources for piece in source.pieces
            )
            last = pieces[0]
            for span in pieces[1:]:
                if span.file == last.file and span.offset == last.offset + last.nbytes:
                    last = last._replace(nbytes=last.nbytes + span.nbytes)
                else:
                    yield last
                    last = span
            yield last


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]


def _ready(tensor: torch.Tensor) -> Any:
    """What a converter collects: something to call when the tensor is needed."""
    return lambda: tensor
