"""``python -m engine bench MODEL`` and ``bench --synthetic NAME``: how fast, against whom, and what holds it back."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from engine.errors import OptionError
from engine.messages import (
    DEFAULT_POLICY,
    DEFAULT_PREDICTOR,
    POLICIES,
    PREDICTORS,
    PREFETCH,
    READ_MODES,
    LoadModel,
)

PEERS = ("transformers", "accelerate", "llama.cpp")
USUAL_PEERS = ("transformers", "accelerate")


def add_bench_verb(subparsers: Any, model_help: str = "") -> None:
    """Add the verb to ``argparse``'s subparsers. model_help: what a model may be called."""
    bench = subparsers.add_parser(
        "bench",
        help="how fast a model decodes here, against transformers, accelerate and llama.cpp",
        description="Measure decoding with all, and with fewer, experts in memory, and the peers in the same run.",
    )
    bench.add_argument("model", nargs="?", help=model_help)
    bench.add_argument(
        "--synthetic",
        metavar="NAME",
        help="instead of MODEL: random weights of a real model's shapes (olmoe, qwen3-30b, deepseek-v2-lite, mixtral), "
        "written once into the data folder (gigabytes: the size is said first) and kept there for the next time",
    )
    bench.add_argument(
        "--layers", type=int, metavar="N", help="of the synthetic model (default: about 4 GB of experts)"
    )
    bench.add_argument("--delete", action="store_true", help="delete the synthetic model when done")
    bench.add_argument(
        "--experts",
        default="100%,75%,50%,25%",
        metavar="AMOUNTS",
        help="memory for experts to try: shares, sizes or slots, with commas (default: 100%%,75%%,50%%,25%%)",
    )
    for name, default, choices, what in (
        ("policy", DEFAULT_POLICY, POLICIES, "who leaves a full cache"),
        ("predictor", DEFAULT_PREDICTOR, PREDICTORS, "who is expected next"),
        ("prefetch", "auto", PREFETCH, "fetch ahead"),
        ("reads", "auto", READ_MODES, "how experts are read"),
    ):
        bench.add_argument(
            f"--{name}",
            default=default,
            choices=tuple(choices),
            metavar=name.upper(),
            help=f"{what}: {', '.join(choices)} (default: %(default)s)",
        )
    bench.add_argument("--dtype", default="auto", help="auto, float32, bfloat16 or float16 (default: auto)")
    bench.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")
    bench.add_argument("--threads", type=int, default=0, metavar="N", help="for everybody (default: all cores but one)")
    bench.add_argument("--tokens", type=int, default=32, metavar="N", help="decoded per answer (default: %(default)s)")
    bench.add_argument("--repeats", type=int, default=3, metavar="N", help="rounds, all paths in turn (default: 3)")
    bench.add_argument(
        "--warm-up",
        type=int,
        default=16,
        metavar="N",
        help="tokens before anything counts; learnt predictors want some thousand (default: %(default)s)",
    )
    bench.add_argument("--prompt", default="", help="for every round (default: another one for each)")
    bench.add_argument(
        "--peer",
        action="append",
        choices=(*PEERS, "none"),
        help="whom to compare with; may be given several times (default: transformers and accelerate)",
    )
    bench.add_argument("--gguf", type=Path, metavar="FILE", help="for llama.cpp: the same weights in its format")
    bench.add_argument(
        "--cold",
        action="store_true",
        help="drop the model's pages from the file cache before every token, and report what the disk allows",
    )
    bench.add_argument("--json", action="store_true", help="print a JSON object: machine, paths, ratios, link, notes")
    bench.set_defaults(verb=_bench)


def _bench(options: argparse.Namespace) -> int:
    if (options.model is None) == (options.synthetic is None):
        raise OptionError("Name a model, or a shape with --synthetic; one of the two.")
    if options.synthetic is None and (options.layers is not None or options.delete):
        raise OptionError("--layers and --delete are about a synthetic model; name one with --synthetic.")
    from engine.bench.report import report_lines
    from engine.bench.run import BenchOptions, bench

    progress = _Progress()
    written, source = None, options.model
    if options.synthetic is not None:
        from engine.bench.synthetic import plan_synthetic, write_synthetic

        written = plan_synthetic(options.synthetic, options.layers)
        source = str(write_synthetic(written, progress))
    try:
        report = bench(
            BenchOptions(
                model=LoadModel(
                    source,
                    policy=options.policy,
                    device=options.device,
                    dtype=options.dtype,
                    threads=options.threads,
                    predictor=options.predictor,
                    prefetch=options.prefetch,
                    reads=options.reads,
                ),
                experts=tuple(amount.strip() for amount in options.experts.split(",") if amount.strip()),
                tokens=options.tokens,
                repeats=options.repeats,
                warm_up=options.warm_up,
                prompt=options.prompt,
                peers=_peers(options.peer),
                gguf=options.gguf,
                cold=options.cold,
            ),
            progress,
        )
    finally:
        if written is not None and options.delete:
            shutil.rmtree(written.folder, ignore_errors=True)
    if written is not None:
        report["model"]["name"] = written.title
        report["notes"].append(
            "The synthetic model was deleted."
            if options.delete
            else f"The synthetic model stays for the next time: {written.nbytes / 1e9:.1f} GB in {written.folder}. Run "
            "with --delete, or delete the folder, when it is not wanted any more."
        )
    if options.json:
        print(json.dumps(report, ensure_ascii=False, indent=2))
    else:
        print("\n".join(report_lines(report)))
    return 0


def _peers(named: list[str] | None) -> tuple[str, ...]:
    """llama.cpp is asked for beside the usual two; anybody else named is named alone."""
    if named is None:
        return USUAL_PEERS
    if set(named) == {"llama.cpp"}:
        return (*USUAL_PEERS, "llama.cpp")
    return tuple(name for name in PEERS if name in named)


class _Progress:
    """A line on stderr for each step, once."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, text: str) -> None:
        if text != self._last:
            print(text, file=sys.stderr, flush=True)
        self._last = text
