"""From samples to figures: what each path did, how they compare, and what the link allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from engine.bench.contender import PathInfo, Sample
from engine.bench.machine import DiskFigures
from engine.messages import CacheCounters

# ratio -> (what it is, for a reader)
RATIOS: dict[str, str] = {
    "resident_vs_best_stock": "ours with all experts in memory, against the fastest of transformers' own paths",
    "half_vs_resident": "ours with half of the experts in memory, against all of them",
    "quarter_vs_resident": "ours with a quarter of the experts in memory, against all of them",
    "quarter_vs_accelerate": "ours with a quarter, against accelerate's disk offload in the same memory; what is on "
    "disk is in no memory",
    "quarter_vs_accelerate_cached": "the same two while the file cache may hold the whole model",
    "disk_rate_vs_direct": "bytes per second of our expert store, against a plain reader past the file cache",
    "quarter_vs_llama": "ours with a quarter, against llama.cpp in the same budget",  # only when it was asked for
}
BUSY = 0.85  # of a processor: less, where nobody waits for a disk, and something else had it


def describe_path(path: PathInfo, need: int, samples: Sequence[Sample]) -> dict[str, Any]:
    """One row of the report. Rates in tokens per second; per-token figures are over all rounds."""
    rates = [sample.rate for sample in samples]
    prefill = [sample.prompt_tokens / sample.prefill_seconds for sample in samples]
    cpu = [sample.cpu_seconds for sample in samples if sample.cpu_seconds is not None]
    shares = [sample.cached_share for sample in samples if sample.cached_share is not None]
    return {
        "path": path.key,
        "kind": path.kind,
        "what": path.what,
        "experts": path.experts,
        "held": path.held,
        "ahead": path.ahead,
        "memory_bytes": need,
        "tokens_per_second": {"median": median(rates), "min": min(rates), "max": max(rates), "rounds": rates},
        "seconds_per_token": median(sample.seconds / sample.steps for sample in samples),
        "prefill_tokens_per_second": median(prefill),
        "cpu_share": sum(cpu) / sum(sample.seconds for sample in samples) if cpu else None,
        "cached_share": max(shares) if shares else None,
        **_cost(samples),
        "answers": [list(sample.tokens) for sample in samples],
    }


def _cost(samples: Sequence[Sample]) -> dict[str, Any]:
    """What the experts cost per decoded token; nulls for peers, which do not count."""
    costs = [sample.decode for sample in samples if sample.decode is not None]
    if not costs:
        return dict.fromkeys(("hit_rate", "bytes_per_token", "stall_per_token", "prefetch"))
    total = CacheCounters(*(sum(values) for values in zip(*(asdict(cost).values() for cost in costs), strict=True)))
    steps = sum(sample.steps for sample in samples)
    return {
        "hit_rate": total.decode_hit_rate,
        "bytes_per_token": total.fetched_bytes / steps,
        "stall_per_token": total.stall_seconds / steps,
        "prefetch": {
            "used": total.prefetch_used,
            "late": total.prefetch_late,
            "wasted": total.prefetch_wasted,
            "bytes": total.prefetch_bytes,
            "wasted_bytes": total.prefetch_wasted_bytes,
            "wasted_share": total.prefetch_wasted_bytes / total.prefetch_bytes if total.prefetch_bytes else None,
        },
    }


def find_ratios(
    paths: Sequence[dict[str, Any]], disk: DiskFigures, llama: bool
) -> tuple[dict[str, float | None], list[str]]:
    """Every one of RATIOS; None where a side was not measured, with a sentence that says which.

    A round's ratio compares neighbours in time, and the median is of those: a slow minute is in both of its sides.
    """
    rounds = {path["path"]: path["tokens_per_second"]["rounds"] for path in paths}
    rate = {path["path"]: path["tokens_per_second"]["median"] for path in paths}
    best = max((path for path in paths if path["kind"] == "transformers"), key=lambda p: rate[p["path"]], default=None)
    stock = best["path"] if best else "transformers"
    held = "{} 25%, rest on disk only"

    def offloaded(amount: str) -> str:
        """A cold run has only the path that reads from disk."""
        on_disk = f"ours {amount}, rest on disk only"
        return on_disk if f"ours {amount}" not in rate and on_disk in rate else f"ours {amount}"

    pairs = {
        "resident_vs_best_stock": ("ours 100%", stock),
        "half_vs_resident": (offloaded("50%"), "ours 100%"),
        "quarter_vs_resident": (offloaded("25%"), "ours 100%"),
        "quarter_vs_accelerate": (held.format("ours"), held.format("accelerate")),
        "quarter_vs_accelerate_cached": ("ours 25%", "accelerate 25%"),
    }
    if llama:
        pairs["quarter_vs_llama"] = ("ours 25%", "llama.cpp 25%")
    ratios: dict[str, float | None] = {}
    notes = []
    for name, (ours, other) in pairs.items():
        missing = [key for key in (ours, other) if key not in rate]
        ratios[name] = None if missing else median(a / b for a, b in zip(rounds[ours], rounds[other], strict=True))
        if missing:
            verb = "were" if len(missing) > 1 else "was"
            notes.append(f"{name} is unknown: {' and '.join(missing)} {verb} not measured.")
    ratios["disk_rate_vs_direct"] = disk.store / disk.yardstick
    if not disk.direct:
        notes.append("disk_rate_vs_direct compares with a reader through the file cache, not past it.")
    return ratios, notes


def find_disturbance(paths: Sequence[dict[str, Any]]) -> list[str]:
    """A sentence when something else had the processor meanwhile. Only paths that wait for no disk can tell."""
    shares = [path["cpu_share"] for path in paths if path["path"] == "ours 100%" or path["kind"] == "transformers"]
    least = min(shares, default=1.0)
    if least >= BUSY:
        return []
    return [
        f"The machine was busy with something else: one path got {least:.0%} of a processor while it ran. The figures, "
        "and ratios between them, are worth little; close other programs and measure again."
    ]


def describe_link(paths: Sequence[dict[str, Any]], samples: Mapping[str, Sequence[Sample]]) -> dict[str, Any] | None:
    """How near decode comes to what the disk allows; None when no path of ours read from disk only.

    Without prefetch a token cannot be faster than bytes / rate + compute, one after the other; with a perfect one, not
    than the larger of the two. rate: the plain reader's, right before and after each answer. compute: our time per
    token with every expert in memory, or, where that was not measured, what was left of it after waiting.

    All figures are medians over the rounds, those of the ratios over each round's own.
    """
    offloaded = [path for path in paths if path["kind"] == "ours" and path["held"]]
    if not offloaded:
        return None
    whole = samples.get("ours 100%")
    return {
        "rate_bytes_per_second": median(_disk_rate(sample) for path in offloaded for sample in samples[path["path"]]),
        "compute_from": "all experts in memory" if whole else "time per token less waiting",
        "rows": [_link_row(path, samples[path["path"]], whole) for path in offloaded],
    }


def _link_row(path: dict[str, Any], samples: Sequence[Sample], whole: Sequence[Sample] | None) -> dict[str, Any]:
    rounds = [_link_round(sample, whole[number] if whole else None) for number, sample in enumerate(samples)]
    figures = {name: median(one[name] for one in rounds) for name in rounds[0]}
    bound = "max" if path["ahead"] else "sum"
    return {
        "path": path["path"],
        **figures,
        "bound": bound,
        "measured_vs_bound": figures[f"measured_vs_{bound}"],
        "wasted_share": path["prefetch"]["wasted_share"],
    }


def _link_round(sample: Sample, whole: Sample | None) -> dict[str, float]:
    """One answer's figures, per token."""
    assert sample.decode is not None and sample.link_seconds is not None
    measured = sample.seconds / sample.steps
    nbytes = sample.decode.fetched_bytes / sample.steps
    rate = _disk_rate(sample)
    fetch = nbytes / rate
    waited = sample.decode.stall_seconds / sample.steps
    compute = whole.seconds / whole.steps if whole else max(0.0, measured - waited)
    return {
        "bytes_per_token": nbytes,
        "rate_bytes_per_second": rate,
        "fetch_seconds": fetch,
        "compute_seconds": compute,
        "sum_seconds": compute + fetch,
        "max_seconds": max(compute, fetch),
        "measured_seconds": measured,
        "link_busy_share": min(1.0, sample.link_seconds / sample.seconds),
        "measured_vs_sum": measured / (compute + fetch),
        "measured_vs_max": measured / max(compute, fetch),
    }


def _disk_rate(sample: Sample) -> float:
    assert sample.disk_rate is not None  # asked for every answer that reads from disk only
    return sample.disk_rate
