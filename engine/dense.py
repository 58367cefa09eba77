"""A model but for its routed experts: dense weights in memory of our own, and the tokenizer."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from transformers import AutoTokenizer, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from engine.errors import MemoryPlanError, ModelError, memory_ran_out
from engine.experts.forward import IMPLEMENTATION
from engine.experts.layout import ALIGNMENT
from engine.experts.memory import host_memory
from engine.kv.check import check_past
from engine.kv.kind import PastKind
from engine.models.folder import PROCESSORS_TEMPLATE, ModelFolder
from engine.models.skeleton import Skeleton, in_short

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "spiece.model")


def load_dense(
    folder: ModelFolder,
    skeleton: Skeleton,
    experts: frozenset[str],
    dtype: torch.dtype,
    device: torch.device,
    generation: GenerationConfig | None = None,
) -> tuple[PreTrainedModel, PastKind]:
    """Everything but the routed experts, by transformers' own loader, on ``device``, and how it goes on from a past.

    experts: names of the checkpoint's tensors that belong to experts. transformers is handed the others one by one,
    from where the folder says they are, so that both halves of a model come from the same files. generation: the
    model's generation_config; None: what config.json says of it. Raises ModelError for weights it did not find,
    MemoryPlanError when there is no RAM for them.
    """
    with ExitStack() as files:
        files.enter_context(_quiet_transformers())
        try:
            loaded: Any = skeleton.model_class.from_pretrained(
                None,
                config=skeleton.config,
                generation_config=generation or _from_config(folder, skeleton),
                state_dict=_slices(folder, experts, files),
                dtype=dtype,
                experts_implementation=IMPLEMENTATION,
                output_loading_info=True,
            )
            model: PreTrainedModel = loaded[0]
            report: dict[str, Any] = loaded[1]
        except Exception as error:  # whatever an architecture or a damaged file leads to
            if memory_ran_out(error):
                raise
            raise ModelError(f"transformers could not load {folder.name}: {in_short(error)}") from error
        absent = sorted(report["missing_keys"]) or sorted(str(key) for key in report["mismatched_keys"])
        if absent:
            raise ModelError(
                f"The checkpoint has no usable weights for {', '.join(absent[:3])}"
                f"{f' and {len(absent) - 3} more' if len(absent) > 3 else ''}. It is incomplete, or made for another "
                "model."
            )
        model.requires_grad_(False)
        model.eval()
        if device.type == "cpu":
            _own_memory(model)
        else:
            torch.nn.Module.to(model, device)
    return model, check_past(model, device)


def _slices(folder: ModelFolder, experts: frozenset[str], files: ExitStack) -> dict[str, Any]:
    """What is read of each tensor when it is needed, by name, as transformers' own loader makes them; ``files`` keeps
    them open. In the files' order, which decides where one parameter has two names."""
    backend = "pread" if sys.platform == "win32" else "mmap"  # a map would be counted against all of Windows' memory
    opened: dict[Path, Any] = {}
    slices = {}
    for name, ref in folder.tensors.items():
        if name in experts:
            continue
        if ref.file not in opened:
            opened[ref.file] = files.enter_context(safe_open(ref.file, framework="pt", backend=backend))
        slices[name] = opened[ref.file].get_slice(name)
    return slices


def _from_config(folder: ModelFolder, skeleton: Skeleton) -> GenerationConfig:
    """What older checkpoints declare about answers in config.json itself, as transformers finds it there."""
    try:
        return GenerationConfig.from_pretrained(
            folder.path, config_file_name="config.json", local_files_only=True, _from_model_config=True
        )
    except Exception:  # values that mean nothing
        return GenerationConfig.from_model_config(skeleton.config)


def _own_memory(model: PreTrainedModel) -> None:
    """Copy every weight out of the mapped file that safetensors hands over: mapped weights would be paged in and out
    behind the plan's back, and a file that changes on the disk would end the program (SIGBUS)."""
    tensors = unique_tensors(model)
    starts = np.cumsum([0, *(-(-tensor.nbytes // ALIGNMENT) * ALIGNMENT for tensor in tensors)]).tolist()
    try:
        memory = host_memory(starts[-1])
    except OSError as error:
        raise MemoryPlanError(
            f"RAM ran out: {starts[-1] / 1e9:.1f} GB for dense weights could not be had. Close other programs, or "
            "choose a smaller model."
        ) from error
    for tensor, start in zip(tensors, starts, strict=False):
        own = memory[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        tensor.data = own.copy_(tensor.data)


def load_tokenizer(folder: ModelFolder) -> PreTrainedTokenizerBase | None:
    """None where the folder has none. Raises ModelError for one that cannot be read."""
    if not any((folder.path / name).is_file() for name in TOKENIZER_FILES):
        return None
    with _quiet_transformers():
        try:
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
                folder.path, local_files_only=True, trust_remote_code=False
            )
            beside = folder.path / PROCESSORS_TEMPLATE
            if not tokenizer.chat_template and beside.is_file():
                tokenizer.chat_template = json.loads(beside.read_text("utf-8"))["chat_template"]
        except Exception as error:  # any of a dozen kinds, from as many tokenizer classes
            raise ModelError(f"The tokenizer of {folder.name} cannot be read: {in_short(error)}") from error
    return tokenizer


def unique_tensors(model: PreTrainedModel) -> list[torch.Tensor]:
    """Parameters and buffers, tied ones once."""
    return list({id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}.values())


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Its progress bars and "some weights were not used" are about experts we leave out on purpose."""
    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()
