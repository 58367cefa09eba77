"""A model folder and a plan -> a loaded model: dense weights on the device, experts waiting, slots ready."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Literal

import torch
from threadpoolctl import threadpool_limits
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from engine.declared import declare, read_declared
from engine.dense import load_dense, load_tokenizer, unique_tensors
from engine.errors import Cancelled, OptionError
from engine.experts.device import LANDINGS, CudaDevice, Device, make_devices
from engine.experts.forward import attach, compute_on_host
from engine.experts.host_tier import HostTier
from engine.experts.layout import ExpertLayout, Parameters, expert_layout
from engine.experts.runtime import ExpertRuntime
from engine.experts.store import DiskStore, Store
from engine.experts.transfer import READERS
from engine.hardware.limits import ram
from engine.hardware.plan import (
    DEFAULT_CONTEXT,
    Demand,
    MemoryPlan,
    checkpoint_bytes,
    disk_for_pasts,
    kept_bytes,
    kv_bytes_per_token,
    plan_memory,
    scores_bytes_per_token,
    workspace_bytes,
)
from engine.hardware.probes import computing_threads
from engine.kv.kind import PastKind
from engine.kv.state import needs_checkpoints
from engine.messages import (
    COMPUTE_ON_MISS,
    POLICIES,
    PREDICTORS,
    PREFETCH,
    READ_MODES,
    LoadModel,
    ModelLoaded,
)
from engine.models.folder import ModelFolder, open_folder, resolve
from engine.models.index import TORCH_DTYPE, ExpertIndex, build_index
from engine.models.skeleton import Skeleton, layer_configs, load_config, make_skeleton

log = logging.getLogger("greenroom.loading")

Report = Callable[[str, float | None], None]

MOST_THREADS = 4096
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass
class LoadedModel:
    """Everything one conversation needs. ``close`` gives the memory back."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None
    runtime: ExpertRuntime
    device: torch.device
    info: ModelLoaded
    expert_modules: list[str]  # names of the experts modules, by layer
    past_kind: PastKind
    checkpoint_bytes: int  # that checkpoints of the past may take
    kept_bytes: int  # of RAM, that pasts of other chats may take

    def close(self) -> None:
        """End the I/O threads; the weights go when the last reference does."""
        self.runtime.close()


@dataclass(frozen=True)
class Inspection:
    """What a folder holds, from config and headers alone."""

    folder: ModelFolder
    skeleton: Skeleton
    model: PreTrainedModel  # on the meta device, without experts
    index: ExpertIndex

    @property
    def layers(self) -> int:
        return len(self.index.modules)

    @property
    def experts(self) -> int:
        return max(module.num_experts for module in self.index.modules)

    @property
    def total_experts(self) -> int:
        return sum(module.num_experts for module in self.index.modules)

    @property
    def dense_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())


def inspect(source: str) -> Inspection:
    """Open a model without reading a weight. Raises ModelError when it cannot be used."""
    folder = open_folder(resolve(source))
    skeleton = make_skeleton(load_config(folder))
    model = skeleton.meta_model()
    return Inspection(folder, skeleton, model, build_index(folder, skeleton, model))


def load(
    command: LoadModel, report: Report = lambda detail, fraction: None, cancelled: Callable[[], bool] = lambda: False
) -> LoadedModel:
    """Load what ``command`` asks for.

    report: told what is being done and how far (0..1) it is. cancelled: asked between steps.
    Raises ModelError, OptionError, MemoryPlanError; Cancelled when ``cancelled`` said so.
    """
    began = time.perf_counter()

    def step(detail: str, fraction: float | None) -> None:
        if cancelled():
            raise Cancelled("Loading was stopped.")
        report(detail, fraction)

    check_options(command)
    torch.set_num_threads(command.threads or computing_threads())
    threadpool_limits(1, user_api="blas")  # numpy's own threads would fight torch's for the cores
    step("reading headers", 0.0)
    found = inspect(command.source)
    devices = make_devices(command.device)
    device = devices[0]
    dtype = choose_dtype(command.dtype, found, device)
    layouts = [expert_layout(module.parameters, dtype) for module in found.index.modules]
    for each in devices:
        each.release_unused()  # what is kept from a model before this one is free
    plan = make_plan(command, found, layouts, dtype, devices)
    step("reading dense weights", 0.1)
    vocabulary = int(found.skeleton.config.get_text_config().vocab_size)
    declared = read_declared(found.folder, vocabulary)
    generation = declared.config if declared is not None else None
    model, past_kind = load_dense(
        found.folder, found.skeleton, found.index.names, dtype, device.torch_device, generation
    )
    if declared is None:  # older checkpoints declare it in config.json, where transformers has looked by now
        declared = declare(model.generation_config.to_dict(), vocabulary)
        model.generation_config = declared.config
    step("making room for experts", 0.8)
    runtime = _make_runtime(command, found, model, layouts, plan, devices)
    with ExitStack() as unwinding:
        unwinding.callback(runtime.close)
        step("reading the tokenizer", 0.95)
        tokenizer = load_tokenizer(found.folder)
        told = []
        if past_kind.whole and not found.skeleton.config.is_encoder_decoder:
            told.append(
                "What this model makes of a word depends on the whole prompt, so each turn is read from the start."
            )
        notes = [*told, *found.folder.notes, *found.skeleton.notes, *plan.notes, *declared.notes, *runtime.news.fresh()]
        if tokenizer is None:
            notes.append("The folder has no tokenizer, so this model cannot chat; `verify` and `bench` work.")
        elif found.skeleton.config.is_encoder_decoder:
            notes.append("The model takes one text and gives one: earlier messages are not sent.")
        elif not tokenizer.chat_template:
            notes.append("The model has no chat template: it continues your text as plain text, turn by turn.")
        info = ModelLoaded(
            source=command.source,
            name=found.folder.name,
            family=found.folder.family,
            signature=found.folder.signature,
            layers=found.layers,
            experts=found.experts,
            top_k=runtime.observer.top_k,
            device=_device_name(device),
            dtype=str(dtype).removeprefix("torch."),
            policy=command.policy,
            predictor=command.predictor,
            prefetch=command.prefetch,
            reads=runtime.reads,
            slots=runtime.slots,
            total_experts=found.total_experts,
            slot_bytes=max(layout.nbytes for layout in layouts),
            dense_bytes=sum(tensor.nbytes for tensor in unique_tensors(model)),
            context=plan.context,
            has_template=bool(tokenizer and tokenizer.chat_template),
            notes=tuple(notes),
            seconds=time.perf_counter() - began,
            sampling=declared.sampling,
            declared=declared.fields,
            rules=declared.rules,
            one_text=bool(found.skeleton.config.is_encoder_decoder),
            encoder_layers=found.skeleton.encoder_layers,
        )
        unwinding.pop_all()
    paths = [module.path for module in found.index.modules]
    return LoadedModel(
        model,
        tokenizer,
        runtime,
        device.torch_device,
        info,
        paths,
        past_kind,
        plan.demand.checkpoint_bytes,
        plan.demand.kept_bytes,
    )


def check_options(command: LoadModel) -> None:
    """Raise OptionError for a choice that nobody knows, or a number that means nothing."""
    if not 0 <= command.threads <= MOST_THREADS:
        raise OptionError(
            f"{command.threads} is no number of threads; write 1 to {MOST_THREADS:,}, or 0 for all but one."
        )
    disk_for_pasts(command.keep_past, 0)
    for what, name, known in (
        ("policy", command.policy, POLICIES),
        ("predictor", command.predictor, PREDICTORS),
        ("way to decide about fetching ahead", command.prefetch, PREFETCH),
        ("way to read experts", command.reads, READ_MODES),
        ("way to compute on a miss", command.compute_on_miss, COMPUTE_ON_MISS),
    ):
        if name not in known:
            raise OptionError(f"There is no {what} {name!r}; choose one of {', '.join(known)}.")


def choose_dtype(name: str, found: Inspection, device: Device) -> torch.dtype:
    """The computing precision. "auto": as stored; float32 on a CPU when that is small change (faster there, measured
    25 against 18 tokens/s on a model of 0.2 GB; above an eighth of RAM the bytes would cost more than they bring)."""
    if name != "auto":
        if name not in DTYPES:
            raise OptionError(f"There is no precision {name!r}; choose auto, {', '.join(DTYPES)}.")
        return DTYPES[name]
    stored = [TORCH_DTYPE.get(ref.dtype, torch.uint8) for ref in found.index.tensors]
    floats = [dtype for dtype in stored if dtype in DTYPES.values()]
    common = max(set(floats), key=floats.count) if floats else torch.float32
    if not device.on_card:
        sizes = [ref.nbytes // dtype.itemsize for ref, dtype in zip(found.index.tensors, stored, strict=True)]
        if sum(sizes) * 4 <= ram().total / 8:
            return torch.float32
    return common


def make_plan(
    command: LoadModel,
    found: Inspection,
    layouts: Sequence[ExpertLayout],
    dtype: torch.dtype,
    devices: Sequence[Device],
) -> MemoryPlan:
    """Share out the device's memory, and RAM where that is beside it. Raises MemoryPlanError when it does not fit.

    devices: those the command names; the ones after the first hold experts alone.
    """
    demand = _demand(found, layouts, dtype, devices)
    if not disk_for_pasts(command.keep_past, 0) and command.keep_past.strip().lower() != "auto":
        demand = replace(demand, kept_bytes=0)
    return plan_memory(demand, command.experts, command.context)


def _demand(
    found: Inspection,
    layouts: Sequence[ExpertLayout],
    dtype: torch.dtype,
    devices: Sequence[Device],
) -> Demand:
    """From the headers, and what the probes say now."""
    device = devices[0]
    config, layers = found.skeleton.config.get_text_config(), layer_configs(found.skeleton.config)
    host = ram()
    longest = int(getattr(config, "max_position_embeddings", 0) or 1 << 20)
    chat = min(longest, DEFAULT_CONTEXT) * kv_per_token(found, dtype.itemsize)
    landings = len(devices) * READERS * LANDINGS * max(layout.nbytes for layout in layouts)
    on_cpu = not device.on_card
    slot_bytes = sum(
        layout.nbytes * module.num_experts for layout, module in zip(layouts, found.index.modules, strict=True)
    )
    eager = getattr(found.model.config, "_attn_implementation", None) == "eager"
    return Demand(
        memory="RAM" if on_cpu else "VRAM",
        free=device.free(),
        dense_bytes=found.dense_parameters * dtype.itemsize,
        slot_bytes=-(-slot_bytes // found.total_experts),
        total_experts=found.total_experts,
        kv_bytes_per_token=kv_per_token(found, dtype.itemsize),
        longest_context=longest,
        workspace_bytes=most_workspace(found, dtype.itemsize, "RAM" if on_cpu else "VRAM"),
        scores_bytes_per_token=max(scores_bytes_per_token(layer, dtype.itemsize) for layer in layers) if eager else 0,
        least_slots=len(set(layouts)),
        checkpoint_bytes=checkpoint_bytes(device.free()) if needs_checkpoints(found.model.config) else 0,
        kept_bytes=0 if config.is_encoder_decoder else kept_bytes(device.free() if on_cpu else host.available, chat),
        host_free=0 if on_cpu else max(0, host.available - landings),
        ram_limit=host.note,
        others_free=tuple(other.free() for other in devices[1:]) if device.on_card else (),
    )


def kv_per_token(found: Inspection, itemsize: int) -> int:
    """Bytes of keys and values that one token adds, where layers may differ."""
    layers = layer_configs(found.skeleton.config)
    return sum(kv_bytes_per_token(layer, itemsize) for layer in layers) // len(layers)  # each counts as all of them


def most_workspace(found: Inspection, itemsize: int, memory: Literal["RAM", "VRAM"]) -> int:
    """Bytes of the workspace of the layer that takes most."""
    layers = layer_configs(found.skeleton.config)
    return max(workspace_bytes(layer, itemsize, found.skeleton.top_k, memory) for layer in layers)


def _make_runtime(
    command: LoadModel,
    found: Inspection,
    model: PreTrainedModel,
    layouts: Sequence[ExpertLayout],
    plan: MemoryPlan,
    devices: Sequence[Device],
) -> ExpertRuntime:
    share = plan.slots / found.total_experts
    count: Counter[ExpertLayout] = Counter()
    for layout, module in zip(layouts, found.index.modules, strict=True):
        count[layout] += module.num_experts
    slots = {layout: max(1, int(experts * share + 0.5)) for layout, experts in count.items()}
    top_k = found.skeleton.top_k or found.experts
    with ExitStack() as unwinding:
        stages: list[tuple[Device, Store]] = []
        told: list[str] = []

        def tell(sentence: str) -> None:
            log.warning(sentence)  # pinning goes on after the load, and may say so then: see ``ExpertRuntime.news``
            told.append(sentence)

        for device in devices:
            store: Store = DiskStore(found.index, layouts, model, command.reads)
            if isinstance(device, CudaDevice) and plan.host_slots:
                # one for each card, over the experts that are its own: near that card, and no lock between two
                nbytes = plan.host_slots * plan.demand.slot_bytes // len(devices)
                store = HostTier(store, layouts, nbytes, device.pinner, cpus=device.cpus, tell=tell)
            unwinding.callback(store.close)
            stages.append((device, store))
        runtime = ExpertRuntime(layouts, slots, found.experts, top_k, command.policy, stages)
        unwinding.pop_all()
        unwinding.callback(runtime.close)  # and the stores with it
        runtime.news.hear(told)
        runtime.share_with_kv(plan.slots_at)
        for layer, module in enumerate(found.index.modules):
            attach(model.get_submodule(module.path), layer, runtime)
        if command.compute_on_miss != "off":
            runtime.notes += _let_processor_help(found, model, runtime)
        unwinding.pop_all()  # whoever loads closes it
    return runtime


def _let_processor_help(found: Inspection, model: PreTrainedModel, runtime: ExpertRuntime) -> list[str]:
    modules = [model.get_submodule(module.path) for module in found.index.modules]

    def compute(layer: int, parameters: Parameters, rows: torch.Tensor) -> torch.Tensor:
        return compute_on_host(modules[layer], parameters, rows)

    return runtime.compute_on_miss(compute, int(found.skeleton.config.get_text_config().hidden_size))


def _device_name(device: Device) -> str:
    return torch.cuda.get_device_name(device.torch_device) if device.torch_device.type != "cpu" else "CPU"
