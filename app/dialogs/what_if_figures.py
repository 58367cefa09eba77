"""What a replay says about memory: which sizes to try, and what more would buy, in figures and in words.

Plain arithmetic and reading of logs, without a widget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PySide6.QtCore import QCoreApplication

from app.panels import format
from engine.errors import SessionError
from engine.messages import CacheSnapshot, ModelLoaded, WhatIfLine, WhatIfPoint, WhatIfResult
from engine.sessions.reader import read_records

BELADY = "belady"
SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0)
GIGABYTES = (1, 2, 4)  # more, to ask about
PARTS = (1 / 8, 1 / 4, 1 / 2)  # of what is missing, where a gigabyte is more than that


def tr(text: str) -> str:
    return QCoreApplication.translate("WhatIf", text)


@dataclass(frozen=True, slots=True)
class Setting:
    """How a model answers, or answered: what a replay is compared with."""

    signature: str
    name: str
    total: int  # experts of all layers
    slot_bytes: int
    slots: int
    policy: str
    predictor: str

    @classmethod
    def of(cls, model: ModelLoaded) -> Setting:
        return cls(
            model.signature, model.name, model.total_experts, model.slot_bytes, model.slots, model.policy,
            model.predictor,
        )  # fmt: skip

    @property
    def missing(self) -> int:
        """Bytes of the experts that have no slot."""
        return max(0, self.total - self.slots) * self.slot_bytes


def setting_in(path: Path) -> Setting | None:
    """How the last answers in this log ran; None when it has none, or says too little. Raises SessionError."""
    last = _models(path)[-1:]
    return _setting(last[0]) if last else None


def _models(path: Path) -> list[dict[str, Any]]:
    return [record for record in read_records(path, passes=False) if record["type"] == "model"]


def _setting(last: dict[str, Any]) -> Setting | None:
    try:
        return Setting(
            str(last.get("signature", "")),
            str(last.get("name", "")),
            int(last["layers"]) * int(last["experts"]),
            int(last.get("slot_bytes", 0)),
            int(last["slots"]),
            str(last["policy"]),
            str(last.get("predictor", "")),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def logs_of(folder: Path, signature: str, stopped: Callable[[], bool]) -> list[Path]:
    """Logs in ``folder`` with answers of that model alone, oldest first; those that cannot be read are passed over."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        if stopped():
            break
        try:
            models = _models(path)
        except SessionError:
            continue
        if models and all(record.get("signature") == signature for record in models) and _setting(models[-1]):
            found.append(path)
    return found


def additions(present: Setting) -> dict[int, int]:
    """Amounts of memory worth asking about, bytes more than now -> slots then; {} when every expert has one."""
    if not present.missing or not present.slot_bytes:
        return {}
    more = [gigabytes * 10**9 for gigabytes in GIGABYTES if gigabytes * 10**9 < present.missing]
    if not more:
        more = [round(part * present.missing) for part in PARTS]
    slots = {amount: present.slots + amount // present.slot_bytes for amount in more}
    return {amount: count for amount, count in slots.items() if present.slots < count <= present.total}


def budgets(present: Setting) -> tuple[str, ...]:
    """Sizes to replay, ascending: shares of the model, the present one, and what more would be."""
    shares = {max(1, round(share * present.total)) for share in SHARES}
    return tuple(f"{slots} slots" for slots in sorted(shares | {present.slots, *additions(present).values()}))


def point_at(line: WhatIfLine, slots: int) -> WhatIfPoint | None:
    return next((point for point in line.points if point.slots == slots), None)


def line_of(lines: Sequence[WhatIfLine], policy: str) -> WhatIfLine | None:
    return next((line for line in lines if line.policy == policy), None)


def arrival_rate(snapshot: CacheSnapshot | None) -> float | None:
    """Bytes of experts that came per second of waiting, as measured since the model was loaded; None before that.

    Only what was waited for counts: fetched ahead and used in time costs nothing.
    """
    if snapshot is None:
        return None
    counters = snapshot.counters
    waited_for = counters.fetched_bytes - counters.prefetch_bytes
    return waited_for / counters.stall_seconds if counters.stall_seconds > 0 and waited_for > 0 else None


def sentences(result: WhatIfResult, present: Setting, rate: float | None) -> list[str]:
    """What the replay says, for the reader: what more memory would buy, and whether another policy would do better."""
    line = line_of(result.lines, present.policy)
    now = point_at(line, present.slots) if line else None
    if line is None or now is None or now.hit_rate is None:
        return []
    return [_more_memory(line, now, present, rate), _another_policy(result.lines, now, present)]


def _more_memory(line: WhatIfLine, now: WhatIfPoint, present: Setting, rate: float | None) -> str:
    told = [
        tr("{more} more: {gain}").format(more=format.size(amount), gain=_gain(now, then, rate))
        for amount, slots in additions(present).items()
        if (then := point_at(line, slots)) is not None and then.hit_rate is not None
    ]
    if not told:
        return tr("Every expert has a slot already: more memory would buy nothing.")
    first = tr("Now: {rate} hits, {bytes} to fetch per token.").format(
        rate=format.percent(now.hit_rate), bytes=format.size(now.bytes_per_token)
    )
    return "\n".join([first, *told])


def _gain(now: WhatIfPoint, then: WhatIfPoint, rate: float | None) -> str:
    """ "74% hits, 21 MB less per token: about 18 ms"."""
    hits = tr("{rate} hits").format(rate=format.percent(then.hit_rate))
    saved = (now.bytes_per_token or 0) - (then.bytes_per_token or 0)
    if abs(saved) < 1:
        return tr("{hits}, as much to fetch.").format(hits=hits)
    if saved < 0:
        return tr("{hits}, {bytes} more per token.").format(hits=hits, bytes=format.size(-saved))
    if rate and saved / rate >= 5e-5:
        return tr("{hits}, {bytes} less per token: {time} sooner.").format(
            hits=hits, bytes=format.size(saved), time=format.milliseconds(saved / rate)
        )
    return tr("{hits}, {bytes} less per token.").format(hits=hits, bytes=format.size(saved))


def _another_policy(lines: Sequence[WhatIfLine], now: WhatIfPoint, present: Setting) -> str:
    points = {line.policy: point_at(line, present.slots) for line in lines}
    rates = {name: point.hit_rate for name, point in points.items() if point and point.hit_rate is not None}
    online = {name: rate for name, rate in rates.items() if name != BELADY}
    best = max(online, key=lambda name: online[name])
    assert now.hit_rate is not None
    bound = tr("Nobody could hit more than {rate} here.").format(rate=format.percent(rates.get(BELADY)))
    if online[best] - now.hit_rate < 0.005:
        return tr("No other policy beats {policy} at the present size.").format(policy=present.policy) + " " + bound
    return (
        tr("At the present size {policy} would have hit {rate}, {points} points more.").format(
            policy=best, rate=format.percent(online[best]), points=f"{100 * (online[best] - now.hit_rate):.1f}"
        )
        + " "
        + bound
    )
