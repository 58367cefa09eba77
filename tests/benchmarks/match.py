"""How long one layer of the activation-matrix match takes: ``python tests/benchmarks/match.py [--json]``.

Shape 26 x 64, 6 experts a token, one thread. A layer's match is: add the chosen experts' columns, cosines of all past
requests, the most similar one. Each figure is the median over the layers of many tokens; of many short repeats the best
is printed beside the median one, because a busy machine only ever adds time. The running cosines are compared with
naive ones, computed afresh from all layers seen, before anything is said.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter_ns

import numpy as np

from engine.prediction.collection import Collection, Match
from engine.prediction.predictors.eam import Eam
from engine.prediction.shape import Shape

ROOT = str(Path(__file__).resolve().parents[2])
if __name__ == "__main__" and os.environ.get("OPENBLAS_NUM_THREADS") != "1":  # read when numpy is first imported
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": ROOT}
    sys.exit(subprocess.run([sys.executable, *sys.argv], env=one_thread).returncode)

LAYERS, EXPERTS, TOP_K = 26, 64, 6
TOKENS = 10  # a repeat
STEPS = ("columns added", "+ cosines, best one", "+ best eight", "+ their chances, one layer ahead")


def collection_of(entries: int) -> Collection:
    """Requests of 200 tokens with skewed preferences."""
    rng = np.random.default_rng(0)
    collection = Collection(LAYERS, EXPERTS, entries)
    weights = np.exp(-np.arange(EXPERTS) / 12)
    weights /= weights.sum()
    for _ in range(entries):
        counts = rng.multinomial(200 * TOP_K, weights, size=LAYERS)
        collection.add(rng.permuted(counts, axis=1).astype(np.uint32))
    return collection


def measure(entries: int, repeats: int) -> dict[str, tuple[float, float]]:
    """Step -> (best, median) of the repeats' medians, microseconds per layer."""
    collection = collection_of(entries)
    match = Match(collection)
    eam = Eam(Shape(LAYERS, EXPERTS, TOP_K), capacity=1)
    eam.collections["decode"] = collection
    eam._match["decode"] = match
    rng = np.random.default_rng(1)
    routes = [rng.permutation(EXPERTS)[:TOP_K].tolist() for _ in range(TOKENS * LAYERS)]

    def columns(layer: int, ids: list[int]) -> None:
        match.seen(layer, ids)

    def one(layer: int, ids: list[int]) -> None:
        match.seen(layer, ids)
        match.best_one()

    def eight(layer: int, ids: list[int]) -> None:
        match.seen(layer, ids)
        match.best(8)

    def chances(layer: int, ids: list[int]) -> None:
        eam.routed(layer, ids)
        eam.predict(layer, 1)

    medians: dict[str, list[float]] = {step: [] for step in STEPS}
    for _ in range(repeats):
        for step, work in zip(STEPS, (columns, one, eight, chances), strict=True):
            times = []
            for token in range(TOKENS):
                eam.begin_pass("decode", 1)
                for layer in range(LAYERS):
                    ids = routes[token * LAYERS + layer]
                    began = perf_counter_ns()
                    work(layer, ids)
                    times.append(perf_counter_ns() - began)
            medians[step].append(float(np.median(times)) / 1e3)
    return {step: (min(values), float(np.median(values))) for step, values in medians.items()}


def worst_difference(entries: int) -> float:
    """Largest difference of the running cosines from naive ones, over the layers of one token."""
    collection = collection_of(entries)
    match = Match(collection)
    rng = np.random.default_rng(2)
    iteration = np.zeros((LAYERS, EXPERTS), np.float64)
    worst = 0.0
    match.begin()
    for layer in range(LAYERS):
        ids = rng.permutation(EXPERTS)[:TOP_K].tolist()
        iteration[layer, ids] = 1.0
        match.seen(layer, ids)
        past = collection.counts[:, : layer + 1].reshape(entries, -1).astype(np.float64)
        naive = past @ iteration[: layer + 1].reshape(-1)
        naive /= np.linalg.norm(past, axis=1) * np.linalg.norm(iteration)
        worst = max(worst, float(np.abs(match.cosines() - naive).max()))
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, nargs="+", default=[120, 1000, 10_000], metavar="N")
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    options = parser.parse_args()
    figures = {entries: measure(entries, options.repeats) for entries in options.entries}
    worst = max(worst_difference(min(entries, 1000)) for entries in options.entries)
    if worst > 1e-5:
        sys.exit(f"The running cosines differ from naive ones by {worst:.1e}.")
    if options.json:
        print(json.dumps({str(entries): figure for entries, figure in figures.items()}, indent=2))
        return
    print(f"running cosines equal naive ones to {worst:.0e}")
    load = f", load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores" if hasattr(os, "getloadavg") else ""
    print(f"{LAYERS} x {EXPERTS}, {TOP_K} a token, one thread{load}; us per layer, best (median) of the repeats")
    for entries, figure in figures.items():
        for step, (best, median) in figure.items():
            print(f"{entries:>7,}  {step:<34}{best:8.2f} ({median:.2f})")


if __name__ == "__main__":
    main()
