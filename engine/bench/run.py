"""The whole benchmark: who takes part, on what prompts, in which memory; a report as plain data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from engine.bench.contender import Contender, PathInfo
from engine.bench.figures import describe_link, describe_path, find_disturbance, find_ratios
from engine.bench.llama import Llama, check_llama
from engine.bench.machine import PlainReader, disk_figures, expert_spans, link_rate, memory_rate
from engine.bench.ours import Lessons, Ours, without_prefetch
from engine.bench.prompts import choose_prompts
from engine.bench.rounds import Outcome, Work, run_rounds
from engine.bench.stock import Accelerate, Stock
from engine.errors import OptionError
from engine.experts.device import make_devices
from engine.experts.layout import expert_layout
from engine.hardware.disk import CAN_DROP
from engine.hardware.limits import cores
from engine.hardware.plan import parse_experts
from engine.hardware.probes import computing_threads, processor_name
from engine.loading import Inspection, check_options, choose_dtype, inspect, kv_per_token, most_workspace
from engine.messages import LoadModel
from engine.models import demo

Report = Callable[[str], None]

MEMORY_SHARE = 0.85  # of the free memory that all contenders together may hold


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """model: how ours is loaded; its ``experts`` and ``context`` are set here. experts: the amounts to try.

    tokens: decode steps of each answer. repeats: rounds. warm_up: decode tokens before anything counts. prompt: ""
    takes one of the program's own for each round. peers: of "transformers", "accelerate", "llama.cpp". cold: nothing
    that the budget leaves out may be in the file cache, and the link is reported.
    """

    model: LoadModel
    experts: tuple[str, ...] = ("100%", "75%", "50%", "25%")
    tokens: int = 32
    repeats: int = 3
    warm_up: int = 16
    prompt: str = ""
    peers: tuple[str, ...] = ("transformers", "accelerate")
    gguf: Path | None = None
    cold: bool = False


def bench(options: BenchOptions, report: Report = lambda text: None) -> dict[str, Any]:
    """Measure, and say what was found: ``machine``, ``settings``, ``paths``, ``ratios``, ``link``, ``notes``.

    Raises OptionError and ModelError for what cannot be measured at all; a contender that cannot take part is a note.
    """
    if min(options.tokens, options.repeats) < 1 or options.warm_up < 0:
        raise OptionError("There is nothing to measure: tokens and repeats are 1 or more, the warm-up 0 or more.")
    if not options.experts:
        raise OptionError('Name amounts of memory for experts to try, such as "50%,25%".')
    if options.gguf is not None and "llama.cpp" not in options.peers:
        raise OptionError("A GGUF file is for llama.cpp; ask for it with --peer llama.cpp as well.")
    gguf = check_llama(options.gguf) if "llama.cpp" in options.peers else None
    check_options(options.model)
    threads = options.model.threads or computing_threads()
    options = replace(options, model=replace(options.model, threads=threads))
    if options.model.source == "demo" and not demo.is_built():
        demo.build_demo(progress=lambda text, done: report(text))
    report("reading headers")
    found = inspect(options.model.source)
    if found.skeleton.config.is_encoder_decoder:
        raise OptionError("bench measures models that chat; this one takes one text and gives one.")
    device = make_devices(options.model.device)[0]
    dtype = choose_dtype(options.model.dtype, found, device)
    torch.set_num_threads(threads)
    prompts = choose_prompts(found, options.prompt, options.repeats, options.tokens, options.warm_up)
    room = _Room(found, dtype, prompts.context, "RAM" if device.torch_device.type == "cpu" else "VRAM")

    for amount in options.experts:
        room.slots(amount)  # a wrong one is told before anything is measured

    report("measuring memory and disk")
    memory, link = memory_rate(), link_rate(device.torch_device)
    disk = disk_figures(found, dtype, options.model.reads)

    contenders, notes = _contenders(options, room, device.torch_device, gguf, report)
    work = Work(options.tokens, prompts.rounds, options.warm_up, prompts.warm_up, prompts.context)
    free = device.free()
    plain = PlainReader(found).rate if options.cold else None
    outcome = run_rounds(contenders, work, int(free * MEMORY_SHARE), report, plain)
    notes += _notes(options, outcome, disk.note, contenders, prompts.note)

    described = [
        describe_path(path, one.need, outcome.samples[path.key])
        for one in contenders
        for path in one.paths
        if path.key in outcome.samples
    ]
    ratios, missing = find_ratios(described, disk, gguf is not None)
    link_report = describe_link(described, outcome.samples) if options.cold else None
    return {
        "model": {
            "name": found.folder.name,
            "source": options.model.source,
            "family": found.folder.family,
            "signature": found.folder.signature,
            "layers": found.layers,
            "experts": found.experts,
            "top_k": found.skeleton.top_k,
            "expert_bytes": room.slot_bytes,
            "dense_bytes": room.dense,
            "total_experts": found.total_experts,
        },
        "machine": {
            "processor": processor_name(),
            "device": "CPU" if device.torch_device.type == "cpu" else torch.cuda.get_device_name(device.torch_device),
            "cores": cores(),
            "threads": threads,
            "free_memory": free,
            "memory_bytes_per_second": memory,
            "link_bytes_per_second": link,
            "disk_bytes_per_second": disk.plain,
            "disk_in_flight_bytes_per_second": disk.in_flight,
            "disk_is_direct": disk.direct,
            "disk_block_bytes": disk.block_bytes,
            "store_bytes_per_second": disk.store,
            "store_reads": disk.way,
        },
        "settings": {
            "dtype": str(dtype).removeprefix("torch."),
            "threads": threads,
            "tokens": options.tokens,
            "repeats": options.repeats,
            "warm_up": options.warm_up,
            "prompt_tokens": [len(prompt) for prompt in prompts.rounds],
            "policy": options.model.policy,
            "predictor": options.model.predictor,
            "prefetch": options.model.prefetch,
            "reads": options.model.reads,
            "cold": options.cold,
            "together": not outcome.reloaded,
        },
        "paths": described,
        "ratios": ratios,
        "link": link_report,
        "notes": [*find_disturbance(described), *notes, *missing],
    }


class _Room:
    """What contenders need of one memory, in bytes."""

    def __init__(self, found: Inspection, dtype: torch.dtype, tokens: int, memory: Literal["RAM", "VRAM"]) -> None:
        self.found = found
        self.dtype = dtype
        self.tokens = tokens
        layouts = [expert_layout(module.parameters, dtype) for module in found.index.modules]
        counts = [module.num_experts for module in found.index.modules]
        self.experts = sum(layout.nbytes * count for layout, count in zip(layouts, counts, strict=True))
        self.slot_bytes = -(-self.experts // found.total_experts)
        self.layer_bytes = max(layout.nbytes * count for layout, count in zip(layouts, counts, strict=True))
        self.dense = found.dense_parameters * dtype.itemsize
        self.kv = tokens * kv_per_token(found, dtype.itemsize)
        self.workspace = most_workspace(found, dtype.itemsize, memory)

    def need(self, slots: int) -> int:
        return self.dense + slots * self.slot_bytes + self.kv + self.workspace

    def slots(self, amount: str) -> int:
        """How many experts ``amount`` holds. Raises OptionError."""
        slots = parse_experts(amount, self.found.total_experts, self.slot_bytes)
        if slots is None:
            raise OptionError(
                'A benchmark needs amounts that stay the same: not "auto", but "25%", "2GB" or "64 slots".'
            )
        return slots


def _contenders(
    options: BenchOptions, room: _Room, device: torch.device, gguf: Path | None, report: Report
) -> tuple[list[Contender], list[str]]:
    """Who takes part, ours first, and notes on who does not."""
    found, total = room.found, room.found.total_experts
    spans = expert_spans(found)
    lessons = Lessons()
    contenders: list[Contender] = []
    for amount in dict.fromkeys(options.experts):
        slots = room.slots(amount)
        command = replace(options.model, experts=amount, context=room.tokens)
        whole = slots == total
        ahead = not whole and options.model.prefetch != "off" and options.model.predictor != "none"
        key = f"ours {amount}"
        held = PathInfo(f"{key}, rest on disk only", "ours", _WHAT_HELD, True, amount, ahead)
        warm = PathInfo(key, "ours", _WHAT_WHOLE if whole else _WHAT_PART, False, amount, ahead)
        paths = [warm] if whole else [held] if options.cold else [warm]
        smallest = not whole and slots == min(room.slots(other) for other in options.experts)
        if smallest and not options.cold and CAN_DROP and "accelerate" in options.peers:
            paths.append(held)
        contenders.append(Ours(command, paths, spans, room.need(slots), lessons, report))
        if smallest and options.cold and ahead:
            plain = PathInfo(f"{key}, nobody fetched ahead", "ours", _WHAT_PLAIN, True, amount)
            contenders.append(Ours(without_prefetch(command), [plain], spans, room.need(slots), lessons, report))
    notes = []
    if "transformers" in options.peers:
        contenders.append(Stock(found, room.dtype, device, room.need(total), report))
    budget = min(room.slots(amount) for amount in options.experts)
    label = next(amount for amount in options.experts if room.slots(amount) == budget)
    if "accelerate" in options.peers and budget < total:
        held = PathInfo(f"accelerate {label}, rest on disk only", "accelerate", _WHAT_ACCELERATE_HELD, True, label)
        warm = PathInfo(f"accelerate {label}", "accelerate", _WHAT_ACCELERATE, False, label)
        paths = ([held] if options.cold else [warm, held]) if CAN_DROP else [warm]
        need = room.need(budget) + room.layer_bytes
        accelerate = Accelerate(found, room.dtype, device, budget / total, paths, need, report)
        contenders.append(accelerate)
        notes.append(
            "accelerate moves a layer's experts as a whole: in the same budget it keeps those of "
            f"{accelerate.kept} of {found.layers} layers in memory."
        )
    elif "accelerate" in options.peers:
        notes.append("accelerate was left out: with room for all experts it has nothing to offload.")
    if gguf is not None:
        path = PathInfo(f"llama.cpp {label}", "llama.cpp", _WHAT_LLAMA, False, label)
        contenders.append(Llama(gguf, room.need(budget), room.tokens, options.model.threads, path, report))
    return contenders, notes


_WHAT_WHOLE = "Greenroom, all experts in memory"
_WHAT_PART = "Greenroom, so many experts in memory; the others in the file cache where they fit"
_WHAT_HELD = "Greenroom, so many experts in memory; the others on disk and nowhere else"
_WHAT_PLAIN = "the same, and experts are fetched when they are called, none before"
_WHAT_ACCELERATE = "transformers with accelerate's disk offload; what is on disk in the file cache where it fits"
_WHAT_ACCELERATE_HELD = "transformers with accelerate's disk offload; what is on disk is nowhere else"
_WHAT_LLAMA = "llama.cpp with the GGUF file mapped, in the same budget"


def _notes(
    options: BenchOptions, outcome: Outcome, disk_note: str, contenders: Sequence[Contender], prompt_note: str
) -> list[str]:
    notes = [disk_note, prompt_note]
    notes += [f"{key} was left out: {reason.rstrip('.')}." for key, reason in outcome.left_out.items()]
    if outcome.reloaded:
        notes.append(
            f"Not everybody fits into memory together: {', '.join(outcome.reloaded)} loaded anew for every round, and "
            "warmed up again."
        )
    notes += [one.note for one in contenders if isinstance(one, Llama)]
    if options.cold and not CAN_DROP:
        notes.append("Pages in the file cache cannot be dropped on this system: --cold changed nothing.")
    return [note for note in notes if note]
