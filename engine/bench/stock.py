"""The peers that transformers carries: its own expert paths, everything in memory, and accelerate's disk offload."""

from __future__ import annotations

import gc
import importlib.util
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from engine.bench.contender import Pages, PathInfo, Peer, Sample, Stopwatch, Unavailable
from engine.bench.disk import whole_files
from engine.kv.past import Past
from engine.loading import Inspection
from engine.models.partial import own_partial, remove_leftovers
from engine.paths import models_dir

IMPLEMENTATIONS = ("eager", "grouped_mm", "batched_mm")
SPARE_ROOM = 500_000_000  # bytes to leave on the disk


class Stock(Peer):
    """transformers with the whole model in memory; one copy of it serves all implementations."""

    def __init__(
        self, found: Inspection, dtype: torch.dtype, device: torch.device, need: int, report: Callable[[str], None]
    ) -> None:
        self.name = "transformers"
        self.need = need
        self.paths: Sequence[PathInfo] = [
            PathInfo(f"transformers {name}", "transformers", f"transformers, everything in memory, {name} experts")
            for name in IMPLEMENTATIONS
        ]
        self._found, self._dtype, self._device = found, dtype, device
        self._report = report
        self._model: PreTrainedModel | None = None

    def open(self) -> None:
        self._report(f"{self.name}: loading")
        self._model = _load(self._found, self._dtype, IMPLEMENTATIONS[0])
        self._model.to(self._device)  # type: ignore[arg-type]

    def close(self) -> None:
        self._model = None
        _collect(self._device)

    def run(self, path: PathInfo, prompt: list[int], steps: int) -> Sample:
        assert self._model is not None
        implementation = path.key.removeprefix("transformers ")
        # batched_mm copies the chosen experts once for each token of a pass: gigabytes for a prompt, so eager reads it
        _choose(self._model, "eager" if implementation == "batched_mm" else implementation)
        return _decode(self._model, self._device, prompt, steps, Pages((), False), lambda: self._choose(implementation))

    def _choose(self, implementation: str) -> None:
        assert self._model is not None
        _choose(self._model, implementation)


class Accelerate(Peer):
    """accelerate's disk offload: dense weights and the first layers' experts in memory, as far as the budget goes, the
    other layers' experts on disk. It moves a layer's experts as a whole, so layers are what it can be given."""

    def __init__(
        self,
        found: Inspection,
        dtype: torch.dtype,
        device: torch.device,
        share: float,
        paths: Sequence[PathInfo],
        need: int,
        report: Callable[[str], None],
    ) -> None:
        """share: of the experts that may stay in memory, 0..1."""
        self.name = paths[0].key
        self.need = need
        self.paths = paths
        self._found, self._dtype, self._device = found, dtype, device
        modules = found.index.modules
        self.kept = int(len(modules) * share)  # layers
        self._offloaded = [module.path for module in modules[self.kept :]]
        self._report = report
        self._model: PreTrainedModel | None = None
        self._folder: Path | None = None

    def open(self) -> None:
        if importlib.util.find_spec("accelerate") is None:
            raise Unavailable("accelerate is not installed (pip install 'greenroom[bench]')")
        self._report(f"{self.name}: loading, and writing the experts that it offloads")
        remove_leftovers(models_dir())
        needed = self._offloaded_bytes() + SPARE_ROOM
        if shutil.disk_usage(models_dir()).free < needed:
            raise Unavailable(f"it writes its own copy of the experts, and the disk lacks the {needed / 1e9:.1f} GB")
        self._folder = own_partial(models_dir() / "accelerate-offload")
        try:
            model = _load(
                self._found,
                self._dtype,
                "grouped_mm",
                device_map=_device_map(self._found.model, set(self._offloaded), self._device),
                offload_folder=str(self._folder),
            )
        except BaseException:
            self.close()
            raise
        self._model = model

    def close(self) -> None:
        self._model = None
        _collect(self._device)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def run(self, path: PathInfo, prompt: list[int], steps: int) -> Sample:
        assert self._model is not None and self._folder is not None
        pages = Pages(whole_files(self._folder.iterdir()), path.held)
        return _decode(self._model, self._device, prompt, steps, pages)

    def _offloaded_bytes(self) -> int:
        offloaded = [module for module in self._found.index.modules if module.path in self._offloaded]
        numbers = sum(
            module.num_experts * sum(torch.Size(shape).numel() for shape in module.parameters.values())
            for module in offloaded
        )
        return numbers * self._dtype.itemsize


def _load(found: Inspection, dtype: torch.dtype, implementation: str, **placement: Any) -> PreTrainedModel:
    """transformers' own loader, quiet: its progress bars are not this program's."""
    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    offloading = logging.getLogger("accelerate.big_modeling")  # tells that something is offloaded, as it was asked to
    offloading.setLevel(logging.ERROR)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        model: PreTrainedModel = found.skeleton.whole_class.from_pretrained(
            found.folder.path,
            config=found.skeleton.config,
            dtype=dtype,
            experts_implementation=implementation,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            **placement,
        )
    finally:
        offloading.setLevel(logging.NOTSET)
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()
    model.requires_grad_(False)
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.device.type == "cpu":
            # safetensors hands over views of a mapped file, and while one lives no page of the file can be dropped:
            # nobody would read from disk any more
            tensor.data = tensor.data.clone()
    return model.eval()


def _choose(model: PreTrainedModel, implementation: str) -> None:
    """Which of its functions computes the experts; it is looked up in the config at every layer.

    ``set_experts_implementation`` of a model does nothing where Python sources are missing (a frozen program).
    """
    for config in {id(c): c for c in (model.config, model.config.get_text_config())}.values():
        config._experts_implementation = implementation


def _decode(
    model: PreTrainedModel,
    device: torch.device,
    prompt: list[int],
    steps: int,
    pages: Pages,
    after_prefill: Callable[[], None] = lambda: None,
) -> Sample:
    """The leanest greedy loop there is, without ``generate``'s own costs."""
    past = Past(model)
    pages.before_answer()
    watch, tokens = Stopwatch(), []
    with torch.inference_mode():
        began = time.perf_counter()
        token = int(past.run(prompt, device).argmax())
        prefill = time.perf_counter() - began
        after_prefill()
        for step in range(steps):
            pages.before_token()
            if step == steps // 2:
                pages.look()
            tokens.append(token)
            with watch:
                token = int(past.run([token], device).argmax())
    return Sample(len(prompt), prefill, tuple(tokens), watch.seconds, watch.cpu_seconds, cached_share=pages.share)


def _device_map(model: nn.Module, offloaded: set[str], device: torch.device) -> dict[str, int | str]:
    """Module path -> where it lives, as accelerate wants it: the largest modules that are not split."""
    home: int | str = "cpu" if device.type == "cpu" else device.index or 0

    def places(path: str, module: nn.Module) -> Iterator[tuple[str, int | str]]:
        if path in offloaded:
            yield path, "disk"
        elif path and not any(other.startswith(f"{path}.") for other in offloaded):
            yield path, home
        else:
            for name, child in module.named_children():
                yield from places(f"{path}.{name}" if path else name, child)

    return dict(places("", model))


def _collect(device: torch.device) -> None:
    """Hooks and modules refer to each other: without a collection the memory would come back some time."""
    gc.collect()
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.empty_cache()
