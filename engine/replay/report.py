"""A replay in words, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.replay.compare import Outcome, compare, parse_budgets, parse_policies
from engine.replay.foreseen import foresee, parse_predictors
from engine.replay.live import LiveReplay, replay_live
from engine.replay.trace import Loaded, Request, read_trace

Report = dict[str, Any]


def replay(logs: Sequence[Path], policies: str, budgets: str, predictors: str) -> Report:
    """Everything ``python -m engine replay --json`` prints. Raises SessionError, OptionError."""
    names, foreseers = parse_policies(policies), parse_predictors(predictors)
    trace = read_trace(logs)
    live = replay_live(trace)
    outcomes = compare(trace, names, parse_budgets(budgets, trace.model))
    return {
        "logs": list(trace.names),
        "model": _model(trace.model),
        "answers": sum(isinstance(one, Request) for one in trace.happenings),
        "prefill_tokens": trace.tokens("prefill"),
        "decode_tokens": trace.tokens("decode"),
        "live": _live(live),
        "results": [_result(outcome, outcomes) for outcome in outcomes],
        "predictors": [asdict(one) for one in foresee(trace, foreseers)],
    }


def report_lines(report: Report) -> list[str]:
    """The report as a terminal shows it."""
    model, live = report["model"], report["live"]
    shape = f"{model['layers']} layers of {model['experts']} experts, {model['top_k']} to a token"
    length = f"{report['decode_tokens']:,} tokens decoded after {report['prefill_tokens']:,} of prompts"
    rate = _percent(live["decode_hit_rate"])
    lines = [
        f"{model['name']}: {shape}; {report['answers']} answers, {length}",
        f"As it ran ({'; '.join(live['settings'])}): {rate} hits in decode, {_verdict(live)}",
    ]
    for title, key, show in (
        ("hits in decode, %", "decode_hit_rate", _percent_digits),
        ("MB fetched per token", "bytes_per_token", _megabytes),
    ):
        lines += ["", *_table(title, report["results"], key, show)]
    return lines + _best(report["results"]) + _foreseen(report["predictors"])


def _model(model: Loaded) -> Report:
    return {
        "name": model.name,
        "signature": model.signature,
        "layers": model.layers,
        "experts": model.experts,
        "top_k": model.top_k,
        "slot_bytes": model.slot_bytes,
    }


def _live(live: LiveReplay) -> Report:
    return {
        "settings": live.settings,
        "decode_hit_rate": live.decode_hit_rate,
        "exact": live.exact,
        "passes": live.passes,
        "equal": live.equal,
        "differing": live.differing,
        "unknown": live.unknown,
        "reason": live.reason,
    }


def _result(outcome: Outcome, outcomes: Sequence[Outcome]) -> Report:
    return {
        "policy": outcome.policy,
        "experts": outcome.budget.text,
        "slots": outcome.budget.slots,
        "decode_hit_rate": outcome.decode_hit_rate,
        "bytes_per_token": outcome.bytes_per_token,
        "decode_hits": outcome.decode_hits,
        "decode_misses": outcome.decode_misses,
        "prefill_hits": outcome.prefill_hits,
        "prefill_misses": outcome.prefill_misses,
        "closed": _closed(outcome, outcomes),
    }


def _closed(outcome: Outcome, outcomes: Sequence[Outcome]) -> float | None:
    """Share of the way from lru to Belady's bound; None where there is no way to go, or lru was not asked for."""
    hits = {other.policy: other.decode_hits for other in outcomes if other.budget == outcome.budget}
    if "lru" not in hits or hits["belady"] == hits["lru"]:
        return None
    return (outcome.decode_hits - hits["lru"]) / (hits["belady"] - hits["lru"])


def _verdict(live: Report) -> str:
    if live["exact"]:
        return f"and every hit of {live['passes']} passes was met again"
    return f"but {live['equal']} of {live['passes']} passes were met again: {live['reason']}"


def _table(title: str, results: Sequence[Report], key: str, show: Any) -> list[str]:
    budgets = list(dict.fromkeys(result["experts"] for result in results))
    policies = list(dict.fromkeys(result["policy"] for result in results))
    width = max(8, *(len(budget) + 2 for budget in budgets))
    lines = [f"{title:<22}" + "".join(f"{budget:>{width}}" for budget in budgets)]
    for policy in policies:
        cells = "".join(f"{show(result[key]):>{width}}" for result in results if result["policy"] == policy)
        lines.append(f"{'belady (the bound)' if policy == 'belady' else policy:<22}{cells}")
    return lines


def _best(results: Sequence[Report]) -> list[str]:
    lines = []
    for budget in dict.fromkeys(result["experts"] for result in results):
        online = [r for r in results if r["experts"] == budget and r["policy"] not in ("belady", "lru")]
        online = [result for result in online if (result["closed"] or 0) > 0]
        if online:
            best = max(online, key=lambda result: float(result["closed"]))
            lines.append(f"{budget}: {best['policy']} goes {best['closed']:.0%} of the way from lru to the bound")
    return ["", *lines] if lines else []


def _foreseen(rows: Sequence[Report]) -> list[str]:
    """Precision and recall by distance; a predictor that the log cannot say anything about is named at the end."""
    distances = list(dict.fromkeys(row["distance"] for row in rows))
    lines, unknown = ["", f"{'precision / recall, %':<22}" + "".join(f"{f'{d} ahead':>16}" for d in distances)], []
    for name in dict.fromkeys(row["predictor"] for row in rows):
        own = [row for row in rows if row["predictor"] == name]
        if all(row["source"] == "not in the log" for row in own):
            unknown.append(name)
            continue
        cells = (f"{_percent_digits(row['precision'])} / {_percent_digits(row['recall'])}" for row in own)
        note = "" if own[0]["source"] == "replayed" else "  as it ran"
        lines.append(f"{name:<22}" + "".join(f"{cell:>16}" for cell in cells) + note)
    if unknown:
        lines.append(f"Hidden states, which no log holds, are what {', '.join(unknown)} would need.")
    return lines


def _percent(share: float | None) -> str:
    return "no" if share is None else f"{share:.1%}"


def _percent_digits(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.1f}"


def _megabytes(count: float | None) -> str:
    return "-" if count is None else f"{count / 1e6:.2f}"
