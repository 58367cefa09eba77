"""Session logs as a replay needs them: what was loaded, when answers began, and who was wanted by each pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from engine.errors import SessionError
from engine.experts.records import Phase
from engine.sessions.reader import Pass, decode_pass, decode_resident, decode_settled, model_shape, read_records


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A model record: from here on this model answers, with these settings, from this cache."""

    name: str
    signature: str
    layers: int
    experts: int
    top_k: int
    slots: int
    slot_bytes: int
    policy: str
    arenas: tuple[tuple[int, tuple[int, ...]], ...]  # slots, and the layers they serve
    resident: np.ndarray  # keys
    state: str | None  # packed; None in a log that does not carry it
    predictor: str = ""  # at work; "" in a log that does not say


@dataclass(frozen=True, slots=True)
class Request:
    """An answer begins."""

    answer: str


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One forward pass. wanted: layer, experts (int64, ascending), tokens that chose each; layers in turn."""

    phase: Phase
    tokens: int
    wanted: tuple[tuple[int, np.ndarray, np.ndarray], ...]
    missed: np.ndarray  # bool [layers, experts], as it happened
    # int32 [n, 4], what was done ahead of demand: layer, deed, key, leaving
    ahead: np.ndarray = field(default_factory=lambda: np.zeros((0, 4), np.int32))
    on_host: np.ndarray | None = None  # bool [layers, experts], of the missed: computed where they waited; None: nobody


@dataclass(frozen=True, slots=True, eq=False)
class Rest:
    """An answer's end, while something was still being fetched. ahead: as in ``Step``."""

    ahead: np.ndarray


@dataclass(frozen=True, slots=True)
class Measured:
    """An answer's end, and how well its predictor did: share of slots foreseen, one layer ahead and more."""

    predictor: str  # "": the model record's
    shares: tuple[float | None, ...]  # 0..1


@dataclass(frozen=True, slots=True)
class Gap:
    """A line that cannot be read, or says what cannot be: it may have been a pass."""


Happening: TypeAlias = Loaded | Request | Step | Rest | Measured | Gap


@dataclass(frozen=True, slots=True)
class Trace:
    """Logs of one model, one after the other."""

    names: tuple[str, ...]
    model: Loaded  # the first one
    happenings: tuple[Happening, ...]

    @property
    def steps(self) -> list[Step]:
        return [one for one in self.happenings if isinstance(one, Step)]

    @property
    def last_model(self) -> Loaded:
        """How the last answers ran."""
        return [one for one in self.happenings if isinstance(one, Loaded)][-1]

    def tokens(self, phase: Phase) -> int:
        """Tokens computed in that phase."""
        return sum(step.tokens for step in self.steps if step.phase == phase)


def read_trace(paths: Sequence[Path]) -> Trace:
    """SessionError when a log cannot be read, has no passes, or was made with another model than the others."""
    happenings: list[Happening] = []
    models: dict[str, Loaded] = {}
    for path in paths:
        found = _read(path)
        if not any(isinstance(one, Step) for one in found):
            raise SessionError(f"“{path.name}” holds no forward passes: nothing was answered while it was written.")
        happenings += found
        for one in found:
            if isinstance(one, Loaded):
                models.setdefault(f"{one.signature} {one.layers}x{one.experts}", one)
                if len(models) > 1:
                    first, other = models.values()
                    raise SessionError(
                        f"“{path.name}” holds answers of {other.name}, and before it came {first.name}: the experts of "
                        "two models cannot be compared. Replay the logs of one model at a time."
                    )
    return Trace(tuple(path.name for path in paths), next(iter(models.values())), tuple(happenings))


def _read(path: Path) -> list[Happening]:
    found: list[Happening] = []
    loaded: Loaded | None = None
    records, damaged = read_records(path), 0
    for record in records:
        if records.damaged > damaged:
            damaged = records.damaged
            found.append(Gap())
        if record["type"] == "model":
            loaded = _loaded(record, path.name)
            found.append(loaded)
        elif record["type"] == "start":
            found.append(Request(str(record.get("answer", ""))))
        elif record["type"] in ("pass", "settled"):
            try:
                if loaded is None:
                    raise SessionError("A pass comes before the model that made it.")
                if record["type"] == "settled":
                    found.append(Rest(decode_settled(record, loaded.layers, loaded.experts)[1]))
                else:
                    found.append(_step(decode_pass(record, loaded.layers, loaded.experts, loaded.top_k)))
            except SessionError:
                found.append(Gap())
        elif record["type"] == "message" and isinstance(record.get("accuracy"), list):
            found.append(_measured(record))
    return found


def _loaded(record: Mapping[str, Any], log: str) -> Loaded:
    try:
        shape = model_shape(record)
        if shape is None:
            raise ValueError("the shape is that of no model")
        layers, experts, top_k = shape
        slots = int(record["slots"])
        arenas = tuple(
            (int(arena["slots"]), tuple(int(layer) for layer in arena["layers"])) for arena in record.get("arenas", ())
        )
        if not all(0 <= count <= layers * experts for count in (slots, *(count for count, _ in arenas))):
            raise ValueError("more slots than experts")
        state = record.get("state")
        return Loaded(
            name=str(record.get("name", "")),
            signature=str(record.get("signature", "")),
            layers=layers,
            experts=experts,
            top_k=top_k,
            slots=slots,
            slot_bytes=int(record.get("slot_bytes", 0)),
            policy=str(record["policy"]),
            arenas=arenas or ((slots, tuple(range(layers))),),
            resident=decode_resident(record),
            state=state if isinstance(state, str) else None,
            predictor=str(record.get("predictor", "")),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise SessionError(f"“{log}” is damaged: it does not say which model answered.") from error


def _measured(record: Mapping[str, Any]) -> Measured:
    told = record["accuracy"]
    shares = tuple(float(share) if isinstance(share, int | float) and 0 <= share <= 1 else None for share in told)
    return Measured(str(record.get("predictor", "")), shares)


def _step(done: Pass) -> Step:
    layer_of, experts = np.nonzero(done.counts)
    counts = done.counts[layer_of, experts]
    ends = np.searchsorted(layer_of, np.arange(done.counts.shape[0] + 1))
    wanted = tuple(
        (layer, experts[start:end], counts[start:end])
        for layer, (start, end) in enumerate(zip(ends.tolist(), ends[1:].tolist(), strict=False))
        if end > start
    )
    ahead = done.ahead if done.ahead is not None else np.zeros((0, 4), np.int32)
    phase: Phase = "decode" if done.phase == "decode" else "prefill"
    return Step(phase, done.tokens, wanted, done.missed, ahead, done.on_host)
