"""Reading a conversation back: tolerant of torn and damaged lines, plain about what it cannot read.

``read_conversation`` is what the window opens; it never looks into pass records. ``recount`` and the replay do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from engine.errors import SessionError
from engine.messages import CacheCounters, Timings
from engine.sessions import appendfile, packing
from engine.sessions.conversation import Conversation, Message, title_of
from engine.sessions.records import PASS_PREFIX, Header, lines_of, parse_record, read_header

_T = TypeVar("_T")
_REASONS = ("end", "length", "stopped", "error")
_MOST_EXPERTS = 1 << 22  # of a model, all layers together; a record that says more is damaged
_LARGEST_FIGURE = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """One forward pass, decoded. ``routed`` is None where several tokens were computed together."""

    answer: str
    phase: str  # "prefill" or "decode"
    tokens: int
    routed: np.ndarray | None  # [layers, top_k] uint16, packing.NO_EXPERT where nobody was chosen
    counts: np.ndarray  # [layers, experts] uint32, tokens that chose the expert
    missed: np.ndarray  # [layers, experts] bool, wanted and not resident
    fetched_bytes: int
    stall: float  # seconds
    seconds: float
    late: np.ndarray | None = None  # [layers, experts] bool, fetched ahead and still on the way
    ahead: np.ndarray | None = None  # [n, 4] int32: layer, deed, key, leaving (see FORMAT.md)
    on_host: np.ndarray | None = None  # [layers, experts] bool, missed and computed by the processor where it waited

    @property
    def misses(self) -> int:
        return int(np.count_nonzero(self.missed))

    @property
    def hits(self) -> int:
        return int(np.count_nonzero(self.counts)) - self.misses


@dataclass(frozen=True, slots=True)
class Counts:
    """Expert uses found in the pass records, to be compared with what the program showed."""

    prefill_hits: int = 0
    prefill_misses: int = 0
    decode_hits: int = 0
    decode_misses: int = 0
    passes: int = 0
    fetched_bytes: int = 0
    computed_on_host: int = 0  # of the misses
    damaged: int = 0  # lines that could not be read


class Records:
    """Iterates over a log's records after the header. ``damaged``: lines so far that could not be read; it and ``torn``
    are final when the end is reached."""

    def __init__(self, path: Path, passes: bool) -> None:
        self.path = path
        self.damaged = 0
        self.torn = False
        self.header: Header | None = None  # None until read, and when it is damaged
        self._passes = passes

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.damaged, self.torn = 0, False
        try:
            with self.path.open("rb") as file:
                self.header = read_header(file, self.path.name)
                self.damaged += self.header is None
                for line in lines_of(file):
                    if not self._passes and line.startswith(PASS_PREFIX):
                        continue
                    record = parse_record(line)
                    if record is not None:
                        yield record
                    elif not line.endswith(b"\n"):
                        self.torn = True
                    elif line.strip():
                        self.damaged += 1
        except OSError as error:
            raise appendfile.failure(self.path, error) from error


def read_records(path: Path, passes: bool = True) -> Records:
    """Every record after the header that can be read, in order; ``passes=False`` skips pass records unparsed.

    SessionError while iterating when the file is no log, a newer program's, or cannot be read.
    """
    return Records(path, passes)


def read_conversation(path: Path) -> Conversation:
    """The messages of a log. An answer that was never finished is what streamed of it, with reason "stopped"."""
    appendfile.flush_pending(path)
    records = read_records(path, passes=False)
    conversation = Conversation(id=path.stem)
    drafts: dict[str, list[str]] = {}
    models: list[str] = []
    for record in records:
        kind = record["type"]
        if kind == "message":
            message = _message(record)
            if message is None:
                conversation.damaged += 1
            else:
                conversation.add(message)
                drafts.pop(message.id, None)
        elif kind in ("start", "delta"):
            _draft(record, conversation, drafts)
        elif kind == "choice":
            if (chosen := str(record.get("message", ""))) in conversation.messages:
                conversation.choose(chosen)
        elif kind == "title":
            conversation.name = title_of(str(record.get("title", "")), "")
        elif kind == "model" and (name := str(record.get("name", ""))) not in models:
            models.append(name)
    for answer, pieces in drafts.items():
        unfinished = conversation.messages[answer]
        if pieces:
            conversation.add(dataclasses.replace(unfinished, text="".join(pieces)))
        elif not conversation.children(answer):
            conversation.remove(answer)  # killed before its first word: nothing was said
    if records.header is not None:
        conversation.id = records.header.conversation or path.stem
        conversation.created = records.header.created
    conversation.models = tuple(models)
    conversation.damaged += records.damaged
    conversation.torn = records.torn
    return conversation


def decode_pass(record: Mapping[str, Any], layers: int, experts: int, top_k: int) -> Pass:
    """A pass record with its arrays. SessionError when they do not fit the model or are damaged."""
    try:
        routed = None
        if "routed" in record:
            routed = packing.unpack_routed(record["routed"], layers, top_k)
            counts = _counted(routed, experts)
        else:
            counts = packing.unpack_counts(record["counts"], layers, experts)
        return Pass(
            answer=str(record["answer"]),
            phase=str(record["phase"]),
            tokens=int(record["tokens"]),
            routed=routed,
            counts=counts,
            missed=packing.unpack_missed(record["missed"], layers, experts),
            fetched_bytes=int(record.get("bytes", 0)),
            stall=float(record.get("stall", 0.0)),
            seconds=float(record.get("seconds", 0.0)),
            late=packing.unpack_missed(record["late"], layers, experts) if "late" in record else None,
            ahead=packing.unpack_ahead(record["ahead"], 4 * layers * experts) if "ahead" in record else None,
            on_host=packing.unpack_missed(record["on_host"], layers, experts) if "on_host" in record else None,
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise SessionError("A record of the conversation's log is damaged: a pass lacks what it needs.") from error


def decode_settled(record: Mapping[str, Any], layers: int, experts: int) -> tuple[int, np.ndarray]:
    """A settled record of a model of that shape: bytes read since the last pass, and int32 ``[n, 4]``, what was done
    with who was still being fetched (see FORMAT.md). SessionError when the record is damaged."""
    try:
        return int(record["bytes"]), packing.unpack_ahead(record["ahead"], layers * experts)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise SessionError("A record of the conversation's log is damaged: it lacks what it needs.") from error


def decode_resident(record: Mapping[str, Any]) -> np.ndarray:
    """uint32 keys ``layer * experts + expert`` of a model record, from least to most recently used."""
    return packing.unpack_resident(str(record.get("resident", "")))


def recount(path: Path, answer: str | None = None) -> Counts:
    """Hits and misses as the pass records tell them, of all answers or of one."""
    appendfile.flush_pending(path)
    sums = {"prefill_hits": 0, "prefill_misses": 0, "decode_hits": 0, "decode_misses": 0}
    passes = fetched = on_host = damaged = 0
    shape: tuple[int, int, int] | None = None
    records = read_records(path)
    for record in records:
        if record["type"] == "model":
            shape = model_shape(record)
        elif record["type"] in ("pass", "settled") and (answer is None or record.get("answer") == answer):
            try:
                if shape is None:
                    raise SessionError("A pass comes before the model that made it.")
                if record["type"] == "settled":
                    fetched += decode_settled(record, *shape[:2])[0]
                    continue
                one = decode_pass(record, *shape)
            except SessionError:
                damaged += 1
                continue
            phase = "decode" if one.phase == "decode" else "prefill"
            sums[f"{phase}_hits"] += one.hits
            sums[f"{phase}_misses"] += one.misses
            passes += 1
            fetched += one.fetched_bytes
            on_host += 0 if one.on_host is None else int(np.count_nonzero(one.on_host))
    return Counts(
        **sums,
        passes=passes,
        fetched_bytes=fetched,
        computed_on_host=on_host,
        damaged=damaged + records.damaged,
    )


def _message(record: Mapping[str, Any]) -> Message | None:
    id, parent, role, text = (record.get(key) for key in ("id", "parent", "role", "text"))
    if not isinstance(id, str) or not isinstance(text, str) or role not in ("system", "user", "assistant"):
        return None
    reason = record.get("reason")
    seed = record.get("seed")
    return Message(
        id=id,
        parent=parent if isinstance(parent, str) else None,
        role=role,
        text=text,
        time=str(record.get("time", "")),
        reason=reason if reason in _REASONS else None,
        timings=_figures(Timings, record.get("timings")),
        cache=_figures(CacheCounters, record.get("cache")),
        seed=seed if isinstance(seed, int) else None,
        error=str(record.get("error") or ""),
    )


def _draft(record: Mapping[str, Any], conversation: Conversation, drafts: dict[str, list[str]]) -> None:
    """Keep place and text of an answer under way."""
    answer = record.get("answer")
    if not isinstance(answer, str):
        conversation.damaged += 1
        return
    if record["type"] == "start" or answer not in conversation.messages:
        # without its start record, the answer belongs under the newest message
        newest = next(reversed(conversation.messages), None)
        parent = record.get("parent", newest)
        parent = parent if isinstance(parent, str) else None
        drafts[answer] = []  # a second start begins the answer anew
        conversation.add(Message(answer, parent, "assistant", "", str(record.get("time", "")), reason="stopped"))
    if record["type"] == "delta" and answer in drafts:
        drafts[answer].append(str(record.get("text", "")))


def model_shape(record: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """Layers, experts in each, and experts to a token of a model record; None where they are those of no model."""
    layers, experts, top_k = (record.get(key) for key in ("layers", "experts", "top_k"))
    if not isinstance(layers, int) or not isinstance(experts, int) or not isinstance(top_k, int):
        return None
    # a damaged number must not become gigabytes of tables
    possible = layers > 0 and 0 < top_k <= experts and layers * experts <= _MOST_EXPERTS
    return (layers, experts, top_k) if possible else None


def _counted(routed: np.ndarray, experts: int) -> np.ndarray:
    """``[layers, top_k]`` ids as ``[layers, experts]`` counts."""
    layers = routed.shape[0]
    layer, place = np.nonzero(routed != packing.NO_EXPERT)
    ids = routed[layer, place].astype(np.int64)
    if ids.size and ids.max() >= experts:
        raise SessionError("A record of the conversation's log is damaged: it names an expert the model lacks.")
    return np.bincount(layer * experts + ids, minlength=layers * experts).reshape(layers, experts).astype(np.uint32)


def _figures(kind: type[_T], values: object) -> _T | None:
    """The dataclass with what is known of ``values``; unknown keys are for newer programs, and what is no figure is
    damage."""
    if not isinstance(values, dict):
        return None
    names = {item.name for item in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: values[name] for name in names & values.keys() if _is_figure(values[name])})


def _is_figure(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST_FIGURE
