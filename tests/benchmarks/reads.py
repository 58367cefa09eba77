"""What reading experts costs: ``python tests/benchmarks/reads.py [demo | synthetic] [--json]``.

``demo``: one miss of a model in microseconds (the demo unless ``--model``), alone and beside a thread that multiplies;
below it, the same bytes by one bare ``preadv``, and that with torch's conversion into the slot.

``synthetic``: writes a checkpoint of OLMoE's shapes (64 experts of 12.6 MB a layer, bf16, 6 layers: 4.8 GB) into
``--folder``, reads random experts into slots for 25% of them, and lets a plain O_DIRECT reader of the same block size
read others in turn; GB/s, their ratio, and the processor seconds that a GB costs. Deleted afterwards.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import shutil
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from transformers import AutoModelForCausalLM, OlmoeConfig

from engine.experts.layout import ExpertLayout, expert_layout
from engine.experts.store import DiskStore
from engine.hardware.disk import BLOCK, PAGE
from engine.loading import inspect
from engine.messages import ReadMode

LAYERS, EXPERTS, WIDTH, NEURONS = 6, 64, 2048, 1024
BATCH = 12  # experts read at a time


class Opened:
    """A model's store and slots for a share of its experts."""

    def __init__(self, source: str, share: float, dtype: torch.dtype, reads: ReadMode) -> None:
        self.found = inspect(source)
        self.layouts: list[ExpertLayout] = [expert_layout(m.parameters, dtype) for m in self.found.index.modules]
        began = perf_counter()
        self.store = DiskStore(self.found.index, self.layouts, self.found.model, reads)
        self.opening = perf_counter() - began
        slots = int(self.found.layers * self.found.experts * share)
        self.slots = torch.zeros(slots, max(layout.nbytes for layout in self.layouts), dtype=torch.uint8)
        self.keys = [(layer, e) for layer in range(self.found.layers) for e in range(self.found.experts)]

    def read(self, turn: int, key: tuple[int, int]) -> int:
        return self.store.read(*key, self.slots[turn % len(self.slots)][: self.layouts[key[0]].nbytes])


# ------------------------------------------------------------------------------------------------- one miss


def one_miss(model: str, repeats: int, reads: ReadMode) -> dict[str, float]:
    """Microseconds, medians and means over ``repeats`` reads of each kind, interleaved, in one reader thread."""
    opened = Opened(model, 0.5, torch.float32, reads)
    pieces = [p for source in opened.found.index.sources[0][0] for p in source.pieces]
    nbytes = sum(piece.nbytes for piece in pieces)
    descriptor = os.open(pieces[0].file, os.O_RDONLY)
    staging = torch.zeros(nbytes, dtype=torch.uint8)
    memory, numbers = memoryview(staging.numpy()), staging.view(pieces[0].dtype)
    first = min(piece.offset for piece in pieces)

    def bare(turn: int) -> None:
        os.preadv(descriptor, [memory], first + turn % 64 * nbytes)

    def bare_and_converted(turn: int) -> None:
        bare(turn)
        opened.slots[turn % len(opened.slots)].view(torch.float32).copy_(numbers)

    order = random.Random(0).choices(opened.keys, k=repeats)
    kinds: dict[str, Callable[[int], object]] = {
        "store": lambda turn: opened.read(turn, order[turn]),
        "preadv": bare,
        "preadv and conversion": bare_and_converted,
    }
    figures: dict[str, float] = {"opening, ms": opened.opening * 1e3}
    for surroundings in ("alone", "beside compute"):
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        with computing() if surroundings == "beside compute" else ThreadPoolExecutor(1):
            for turn in range(repeats):
                for kind, work in kinds.items():
                    began = perf_counter()
                    work(turn)
                    times[kind].append((perf_counter() - began) * 1e6)
        for kind, values in times.items():
            figures[f"{kind}, {surroundings}, median us"] = median(values)
            figures[f"{kind}, {surroundings}, mean us"] = sum(values) / len(values)
    os.close(descriptor)
    opened.store.close()
    return figures


@contextmanager
def computing() -> Iterator[None]:
    """A thread that multiplies matrices of the demo's size by a vector, as decoding does."""
    over = threading.Event()

    def work() -> None:
        torch.set_num_threads(1)
        weights, state = torch.randn(64, 576), torch.randn(1, 576)
        while not over.is_set():
            torch.nn.functional.linear(state, weights)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


# --------------------------------------------------------------------------------- a model larger than memory


def write_synthetic(folder: Path) -> Path:
    """A checkpoint of OLMoE's expert shapes with random numbers, one file for each layer."""
    config = OlmoeConfig(
        hidden_size=WIDTH,
        intermediate_size=NEURONS,
        num_experts=EXPERTS,
        num_hidden_layers=LAYERS,
        vocab_size=512,
        num_attention_heads=16,
        num_key_value_heads=16,
        pad_token_id=None,
        dtype="bfloat16",
    )
    folder.mkdir(parents=True)
    config.save_pretrained(folder)
    with torch.device("meta"):
        dense = {
            name: tuple(tensor.shape)
            for name, tensor in AutoModelForCausalLM.from_config(config).state_dict().items()
            if ".experts." not in name
        }
    weight_map: dict[str, str] = {}
    for layer in range(LAYERS):
        block = f"model.layers.{layer}."
        shapes = {name: shape for name, shape in dense.items() if name.startswith(block)}
        if layer == 0:
            shapes |= {name: shape for name, shape in dense.items() if not name.startswith("model.layers.")}
        for expert in range(EXPERTS):
            for name, shape in (("down", (WIDTH, NEURONS)), ("gate", (NEURONS, WIDTH)), ("up", (NEURONS, WIDTH))):
                shapes[f"{block}mlp.experts.{expert}.{name}_proj.weight"] = shape
        file = f"model-{layer + 1:05d}-of-{LAYERS:05d}.safetensors"
        _write_random(folder / file, shapes)
        weight_map |= dict.fromkeys(shapes, file)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    return folder


def _write_random(file: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    header: dict[str, object] = {}
    end = 0
    for name, shape in sorted(shapes.items()):
        start, end = end, end + 2 * torch.Size(shape).numel()
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    noise = torch.randn(16 << 20).bfloat16().view(torch.uint8).numpy()
    with file.open("wb") as out:
        out.write(struct.pack("<Q", len(raw)) + raw)
        for start in range(0, end, noise.nbytes):
            out.write(memoryview(noise)[: min(noise.nbytes, end - start)])
        out.flush()
        os.fsync(out.fileno())


def plain_direct(spans: Sequence[tuple[Path, int, int]], threads: int) -> None:
    """The same places of the same files by O_DIRECT, BLOCK at a time, into memory that is never looked at."""
    files = {file: os.open(file, os.O_RDONLY | os.O_DIRECT) for file, _, _ in spans}
    buffers = threading.local()

    def read(span: tuple[Path, int, int]) -> None:
        file, offset, nbytes = span
        if not hasattr(buffers, "memory"):
            buffers.memory = memoryview(mmap.mmap(-1, BLOCK))
        start = offset // PAGE * PAGE
        for block in range(start, start + nbytes, BLOCK):
            os.preadv(files[file], [buffers.memory[: min(BLOCK, -(-(start + nbytes - block) // PAGE) * PAGE)]], block)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(read, spans))
    for descriptor in files.values():
        os.close(descriptor)


def against_plain(folder: Path, repeats: int, readers: Sequence[int], modes: Sequence[ReadMode]) -> dict[str, object]:
    """GB/s of each reader, and ratios to the plain one with as many reads in flight: medians, and the best, because a
    busy machine only ever adds time."""
    stores = {mode: Opened(str(folder), 0.25, torch.bfloat16, mode) for mode in modes}
    for one in stores.values():
        one.slots.fill_(1)  # memory is had at the first touch
    opened = stores[modes[0]]
    where = {}
    for layer, expert in opened.keys:
        pieces = [piece for source in opened.found.index.sources[layer][expert] for piece in source.pieces]
        where[layer, expert] = (pieces[0].file, min(p.offset for p in pieces), sum(p.nbytes for p in pieces))
    rates: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {}
    source = random.Random(0)

    def timed(name: str, keys: Sequence[tuple[int, int]], work: Callable[[], object]) -> None:
        began, spent = perf_counter(), process_time()
        work()
        taken, spent = perf_counter() - began, process_time() - spent
        read = sum(where[key][2] for key in keys) / 1e9
        rates.setdefault(name, []).append(read / taken)
        costs.setdefault(name, []).append(spent / read)

    for _ in range(repeats):
        for count in readers:
            keys = source.sample(opened.keys, BATCH)
            timed(f"plain, {count} in flight", keys, lambda: plain_direct([where[key] for key in keys], count))  # noqa: B023
            for mode, one in stores.items():
                keys = source.sample(opened.keys, BATCH)
                with ThreadPoolExecutor(count) as pool:
                    timed(f"{mode}, {count} in flight", keys, lambda: list(pool.map(one.read, range(BATCH), keys)))  # noqa: B023
    figures: dict[str, object] = {f"GB/s: {name}": median(values) for name, values in rates.items()}
    figures |= {f"GB/s, best: {name}": max(values) for name, values in rates.items()}
    figures |= {f"processor s/GB: {name}": median(values) for name, values in costs.items()}
    for name, values in rates.items():
        if not name.startswith("plain"):
            count = name.split(", ")[1]
            like = rates[f"plain, {count}"]
            figures[f"ratio: {name} / plain"] = median(a / b for a, b in zip(values, like, strict=True))
            figures[f"ratio of the best: {name} / plain"] = max(values) / max(like)
    figures |= {f"{mode} says": one.store.describe() for mode, one in stores.items()}
    figures |= {f"{mode} opening, s": one.opening for mode, one in stores.items()}
    for one in stores.values():
        one.store.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["demo", "synthetic"], nargs="?", default="demo")
    parser.add_argument("--model", default="demo", help="of the first: a folder or hub name")
    parser.add_argument("--folder", type=Path, default=Path("greenroom-synthetic"), help="of the second; must be new")
    parser.add_argument("--keep", action="store_true", help="leave it there, and use it where it is")
    parser.add_argument("--readers", type=int, nargs="+", default=[1, 2, 3], metavar="N")
    parser.add_argument("--modes", nargs="+", default=["direct"], choices=["auto", "direct", "buffered"])
    parser.add_argument("--repeats", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures: dict[str, object]
    if options.what == "demo":
        figures = dict(one_miss(options.model, options.repeats or 2000, options.modes[0]))
    else:
        there = options.keep and options.folder.is_dir()
        folder = options.folder if there else write_synthetic(options.folder)
        try:
            figures = against_plain(folder, options.repeats or 40, options.readers, options.modes)
        finally:
            if not options.keep:
                shutil.rmtree(folder)
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        print(f"{name:<55}{value:.2f}" if isinstance(value, float) else f"{name:<55}{value}")


if __name__ == "__main__":
    main()
