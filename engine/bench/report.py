"""The report as a page of text: a table of paths, and every ratio with the sentence that says what it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.bench.figures import RATIOS


def report_lines(report: dict[str, Any]) -> list[str]:
    """For a reader who has not seen one before."""
    lines = [*_head(report), "", *_machine(report), "", *_paths(report), "", *_ratios(report)]
    if report["link"]:
        lines += ["", *_link(report["link"])]
    if report["notes"]:
        lines += ["", "notes", *(f"  {note}" for note in report["notes"])]
    return lines


def _head(report: dict[str, Any]) -> list[str]:
    model, settings = report["model"], report["settings"]
    rounds = settings["repeats"]
    return [
        f"{model['name']}: {model['layers']} layers x {model['experts']} experts, {model['top_k']} per token, "
        f"{model['expert_bytes'] / 1e6:.1f} MB each in {settings['dtype']}",
        f"{settings['tokens']} tokens decoded after a prompt of {max(settings['prompt_tokens'])}, "
        f"{settings['threads']} thread{'s' if settings['threads'] != 1 else ''} for everybody, "
        f"median of {rounds} round{'s' if rounds != 1 else ''}, all paths in turn",
        f"policy {settings['policy']}, predictor {settings['predictor']}, prefetch {settings['prefetch']}, "
        f"reads {settings['reads']}{', cold' if settings['cold'] else ''}",
    ]


def _machine(report: dict[str, Any]) -> list[str]:
    machine = report["machine"]
    past = "past the file cache" if machine["disk_is_direct"] else "through the file cache"
    rows = [
        ("processor", machine["processor"]),
        ("memory", f"{_rate(machine['memory_bytes_per_second'])} copied by one thread"),
        (
            "disk",
            f"{_rate(machine['disk_bytes_per_second'])} to a plain reader {past}, one block of "
            f"{machine['disk_block_bytes'] / 1e6:.1f} MB at a time; "
            f"{_rate(machine['disk_in_flight_bytes_per_second'])} with several in flight",
        ),
        (
            "expert store",
            f"{_rate(machine['store_bytes_per_second'])} from the same disk, cold ({machine['store_reads']})",
        ),
    ]
    if machine["link_bytes_per_second"]:
        rows.append(("link", f"{_rate(machine['link_bytes_per_second'])} from pinned memory to the card"))
    return ["machine", *_columns([(f"  {name}", text) for name, text in rows])]


def _paths(report: dict[str, Any]) -> list[str]:
    head = ("path", "tokens/s", "lowest..highest", "hits", "read/token", "waited/token", "memory")
    rows = [head]
    for path in report["paths"]:
        rate = path["tokens_per_second"]
        hits = "" if path["hit_rate"] is None else f"{path['hit_rate']:.1%}"
        read = "" if path["bytes_per_token"] is None else f"{path['bytes_per_token'] / 1e6:.1f} MB"
        waited = "" if path["stall_per_token"] is None else f"{path['stall_per_token'] * 1e3:.1f} ms"
        spread = f"{rate['min']:.2f}..{rate['max']:.2f}"
        memory = f"{path['memory_bytes'] / 1e9:.2f} GB"
        rows.append((path["path"], f"{rate['median']:.2f}", spread, hits, read, waited, memory))
    explained = [
        "tokens/s: how fast the answer grows. hits: experts that were in memory when called. read/token, waited/token:",
        "what a token had to fetch, and how long compute stood still for it.",
    ]
    return [*_columns(rows), *explained]


def _ratios(report: dict[str, Any]) -> list[str]:
    """Those that are known; the notes say why others are not."""
    known = {name: value for name, value in report["ratios"].items() if value is not None}
    rows = [(f"  {value:.2f}", f"{name}: {RATIOS[name]}") for name, value in known.items()]
    return ["ratios, above 1 is in our favour", *_columns(rows)]


def _link(link: dict[str, Any]) -> list[str]:
    lines = [
        f"link: {_rate(link['rate_bytes_per_second'])} to a plain reader, right before and after each answer; "
        f"compute per token from {link['compute_from']}",
    ]
    for row in link["rows"]:
        wasted = "" if row["wasted_share"] is None else f", {row['wasted_share']:.0%} of what was fetched ahead wasted"
        lines.append(
            f"  {row['path']}: {_rate(row['rate_bytes_per_second'])}, bytes / rate {_ms(row['fetch_seconds'])}, "
            f"compute {_ms(row['compute_seconds'])}, sum {_ms(row['sum_seconds'])}, max {_ms(row['max_seconds'])}; "
            f"measured {_ms(row['measured_seconds'])}, the link busy in {row['link_busy_share']:.0%} of it{wasted}"
        )
        what = "max(compute, bytes / rate)" if row["bound"] == "max" else "bytes / rate + compute"
        lines.append(f"    decode is within {row['measured_vs_bound']:.2f}x of {what}")
    return lines


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    numeric = range(1, len(widths)) if len(widths) > 2 else range(0)
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in numeric else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _rate(value: float) -> str:
    return f"{value / 1e9:.2f} GB/s"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
