"""What an answer cost: one quiet line below it, and a table with everything for those who point at the line."""

from __future__ import annotations

from html import escape

from PySide6.QtCore import QCoreApplication

from engine.messages import CacheCounters, FinishReason, Timings


def _tr(text: str, *values: object) -> str:
    text = QCoreApplication.translate("Figures", text)
    for number, value in enumerate(values, 1):
        text = text.replace(f"%{number}", str(value))
    return text


def in_a_line(reason: FinishReason | None, timings: Timings | None, cache: CacheCounters | None) -> str:
    """ "168 tokens   14.2 tok/s   prefill 240 tok/s   first token 1.9 s   hits 83%   stopped"."""
    facts: list[str] = []
    if timings is not None and timings.answer_tokens:
        count = timings.answer_tokens
        facts.append(_tr("%1 tokens", f"{count:,}") if count != 1 else _tr("1 token"))
        if timings.decode_rate is not None:
            facts.append(_tr("%1 tok/s", _rate(timings.decode_rate)))
        if timings.prefill_rate is not None:
            facts.append(_tr("prefill %1 tok/s", _rate(timings.prefill_rate)))
        if timings.first_token_seconds is not None:
            facts.append(_tr("first token %1 s", f"{timings.first_token_seconds:.1f}"))
    if cache is not None and cache.decode_hit_rate is not None:
        facts.append(_tr("hits %1%", f"{100 * cache.decode_hit_rate:.0f}"))
    ends = {
        "length": _tr("ended at the length limit"),
        "stopped": _tr("stopped"),
        "error": _tr("ended by an error"),
    }
    if reason in ends:
        facts.append(ends[reason])
    # a fact stays on one line, a line may end between two
    return "     ".join(fact.replace(" ", "\u00a0") for fact in facts)


def in_full(reason: FinishReason | None, timings: Timings | None, cache: CacheCounters | None) -> str:
    """Everything that is known, as the rich text of a tooltip; "" when nothing is."""
    rows: list[tuple[str, str]] = []
    if timings is not None:
        rows += _times(timings)
    if cache is not None:
        rows += _cache(cache, timings)
    reasons: dict[str | None, str] = {
        "end": _tr("the model had said all"),
        "length": _tr("the length limit was reached; the side sheet has a longer one"),
        "stopped": _tr("you stopped it"),
        "error": _tr("something broke"),
    }
    if reason in reasons:
        rows.append((_tr("Ended"), reasons[reason]))
    cells = "".join(
        f"<tr><td style='padding-right:12px'>{escape(name)}</td><td>{escape(words)}</td></tr>" for name, words in rows
    )
    return f"<table>{cells}</table>" if rows else ""


def _times(timings: Timings) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if timings.answer_tokens:
        words = _tr("%1 tokens in %2", f"{timings.answer_tokens:,}", _seconds(timings.decode_seconds))
        if timings.decode_rate is not None:
            words += _tr(", %1 tokens a second", _rate(timings.decode_rate))
        rows.append((_tr("Answer (decode)"), words))
    if timings.prompt_tokens:
        words = _tr("%1 tokens", f"{timings.prompt_tokens:,}")
        if timings.reused_tokens:
            words += _tr(", %1 of them were still in the KV cache", f"{timings.reused_tokens:,}")
        rows.append((_tr("Prompt"), words))
        if timings.prefill_rate is not None:
            new = timings.prompt_tokens - timings.reused_tokens
            words = _tr("%1 tokens in %2", f"{new:,}", _seconds(timings.prefill_seconds))
            words += _tr(", %1 tokens a second", _rate(timings.prefill_rate))
            rows.append((_tr("Prompt read (prefill)"), words))
    if timings.first_token_seconds is not None:
        rows.append((_tr("First token"), _tr("after %1", _seconds(timings.first_token_seconds))))
    return rows


def _cache(cache: CacheCounters, timings: Timings | None) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, hits, misses in (
        (_tr("Experts, decode"), cache.decode_hits, cache.decode_misses),
        (_tr("Experts, prefill"), cache.prefill_hits, cache.prefill_misses),
    ):
        if hits + misses:
            share = f"{100 * hits / (hits + misses):.1f}"
            rows.append((name, _tr("%1 hits, %2 misses: %3%", f"{hits:,}", f"{misses:,}", share)))
    if cache.fetched_bytes:
        words = _tr("%1, %2 evictions", _size(cache.fetched_bytes), f"{cache.evictions:,}")
        if timings is not None and timings.answer_tokens and cache.stall_seconds:
            words += _tr("; waited %1 for experts", _seconds(cache.stall_seconds))
        rows.append((_tr("Fetched"), words))
    ahead = cache.prefetch_used + cache.prefetch_late + cache.prefetch_wasted
    if ahead:
        words = _tr(
            "%1 used in time, %2 late, %3 wasted",
            f"{cache.prefetch_used:,}",
            f"{cache.prefetch_late:,}",
            f"{cache.prefetch_wasted:,}",
        )
        if cache.prefetch_bytes:
            words += _tr("; %1, of it %2 wasted", _size(cache.prefetch_bytes), _size(cache.prefetch_wasted_bytes))
        rows.append((_tr("Fetched ahead"), words))
    return rows


def _rate(rate: float) -> str:
    return f"{rate:.1f}" if rate < 100 else f"{rate:,.0f}"


def _seconds(seconds: float) -> str:
    if seconds < 1:
        return _tr("%1 ms", f"{1000 * seconds:.0f}")
    return _tr("%1 s", f"{seconds:.1f}" if seconds < 100 else f"{seconds:,.0f}")


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
