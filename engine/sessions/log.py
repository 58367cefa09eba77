"""Writing a conversation: one append-only file, safe against kills, full disks and second windows.

Messages are on the disk before the call returns. Passes and deltas are kept in memory for at most half a second, so
that a call on the engine thread costs microseconds. FORMAT.md says what the lines hold.

Threads: window and engine may each hold a SessionLog on the same path.

    right   window: log.append_message(...) -> then send Generate(log=str(log.path))
    wrong   window: send Generate(...) -> then log.append_message(...)      (the answer would come before the question)
"""

from __future__ import annotations

import dataclasses
import json
import secrets
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from engine.errors import SessionError
from engine.messages import Sampling
from engine.sessions import appendfile, packing
from engine.sessions.records import VERSION, encode_record, now


class SessionLog:
    """A hold on one conversation's file. Every method may be called from any thread."""

    def __init__(self, shared: appendfile.AppendFile) -> None:
        self._shared: appendfile.AppendFile | None = shared
        self._closing = threading.Lock()
        self._quoted = ("", '""')  # the last answer id and its JSON
        self.path = shared.path

    @classmethod
    def create(cls, folder: Path, program: str) -> SessionLog:
        """Begin a conversation: a file of a new name, its header already on the disk."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise appendfile.failure(folder, error) from error
        return cls.create_at(new_path(folder), program)

    @classmethod
    def create_at(cls, path: Path, program: str) -> SessionLog:
        """Begin a conversation in a file of the caller's choice; SessionError when it exists."""
        if path.exists():
            raise SessionError(f"“{path.name}” exists already; choose another name, or remove it first.")
        header = {
            "type": "header",
            "version": VERSION,
            "program": program,
            "conversation": path.stem,
            "created": now(),
        }
        return cls(appendfile.acquire(path, encode_record(header)))

    @classmethod
    def open(cls, path: Path) -> SessionLog:
        """Go on with a conversation. Cuts off a torn last line.

        SessionError when it is open in another process, no log, a newer program's, or may not be written.
        """
        return cls(appendfile.acquire(path))

    def append_message(self, id: str, parent: str | None, role: str, text: str, **extra: Any) -> None:
        """Add a finished message; it is on the disk when this returns, else SessionError says why not.

        extra: for an assistant's message ``reason``, ``timings``, ``cache``, ``seed``, ``error``; dataclasses are
        written as objects.
        """
        record = {"type": "message", "id": id, "parent": parent, "role": role, "text": text, "time": now()}
        record.update({key: _plain(value) for key, value in extra.items()})
        self._file.write(encode_record(record))

    def append_choice(self, message: str) -> None:
        """Say that the branch with this message is the one shown from here on."""
        shared = self._file
        shared.buffer(encode_record({"type": "choice", "message": message, "time": now()}))
        shared.flush()

    def append_title(self, title: str) -> None:
        """Give the conversation a title, "" for the one it makes itself; on the disk when this returns."""
        self._file.write(encode_record({"type": "title", "title": title, "time": now()}))

    def append_verdict(self, answer: str, verdict: dict[str, Any]) -> None:
        """Say what was found out about fetching ahead, while ``answer`` is under way."""
        self._file.buffer(encode_record({"type": "verdict", "answer": answer, "time": now(), **verdict}))

    def append_settled(self, answer: str, fetched_bytes: int, ahead: Sequence[tuple[int, int, int, int]]) -> None:
        """Say what became of the fetches that were still out when ``answer`` ended. fetched_bytes: read for them since
        the last pass; ahead: as in ``append_pass``."""
        record = {"type": "settled", "answer": answer, "bytes": fetched_bytes, "ahead": packing.pack_ahead(ahead)}
        self._file.buffer(encode_record(record))

    def append_model(
        self,
        *,
        name: str,
        source: str,
        family: str,
        signature: str,
        layers: int,
        experts: int,
        top_k: int,
        slots: int,
        slot_bytes: int,
        policy: str,
        device: str,
        dtype: str,
        program: str,
        hardware: str,
        resident: Sequence[int] | np.ndarray,
        arenas: Sequence[tuple[int, Sequence[int]]] = (),
        predictor: str = "none",
        prefetch: str = "off",
        state: np.ndarray | None = None,
        encoder_layers: int = 0,
    ) -> None:
        """Say which model answers from here on, and what its cache holds now.

        resident: ``layer * experts + expert`` of every expert in a slot, next to leave first. arenas: slots and layers
        of each. state: float64 ``[n]``, what the policy remembers. encoder_layers: so many of the first
        ``layers`` are an encoder's.
        """
        record = {
            "type": "model",
            "name": name,
            "source": source,
            "family": family,
            "signature": signature,
            "layers": layers,
            "experts": experts,
            "top_k": top_k,
            "slots": slots,
            "slot_bytes": slot_bytes,
            "policy": policy,
            "predictor": predictor,
            "prefetch": prefetch,
            "device": device,
            "dtype": dtype,
            "program": program,
            "hardware": hardware,
            **({"encoder_layers": encoder_layers} if encoder_layers else {}),
            "resident": packing.pack_resident(resident),
            "arenas": [{"slots": count, "layers": list(served)} for count, served in arenas],
        }
        if state is not None:
            record["state"] = packing.pack_state(state)
        shared = self._file
        shared.buffer(encode_record(record))
        shared.flush()

    def append_start(
        self,
        *,
        answer: str,
        parent: str | None,
        prompt_tokens: int,
        reused_tokens: int,
        sampling: Sampling | dict[str, Any],
        languages: Sequence[str] = (),
    ) -> None:
        """Say that an answer begins. languages: of the text and of its translation."""
        record = {
            "type": "start",
            "answer": answer,
            "parent": parent,
            "time": now(),
            "prompt_tokens": prompt_tokens,
            "reused_tokens": reused_tokens,
            "sampling": _plain(sampling),
            **({"languages": list(languages)} if any(languages) else {}),
        }
        shared = self._file
        shared.buffer(encode_record(record))
        shared.flush()

    def append_delta(self, answer: str, text: str) -> None:
        """Add a piece of a running answer, once per token if you like: pieces are joined for half a second.

        SessionError is raised once when the disk takes nothing; later calls go on trying in silence.
        """
        if text:
            self._file.buffer_delta(answer, text)

    def append_pass(
        self,
        *,
        answer: str,
        phase: str,
        tokens: int,
        missed: np.ndarray,
        fetched_bytes: int,
        stall: float,
        seconds: float,
        routed: np.ndarray | None = None,
        counts: np.ndarray | None = None,
        late: np.ndarray | None = None,
        on_host: np.ndarray | None = None,
        ahead: Sequence[tuple[int, int, int, int]] = (),
    ) -> None:
        """Add what one forward pass did; give exactly one of ``routed`` and ``counts``.

        phase: "prefill" or "decode". routed: ``[layers, top_k]`` ids of a single token (below zero: none).
        counts: ``[layers, experts]``, tokens that chose the expert. missed: ``[layers, experts]`` bool, wanted and
        not resident. stall, seconds: seconds. Bool, the same shape: late (fetched ahead and still on the way), on_host
        (missed, and computed by the processor where it waited). ahead: what was done ahead of demand, rows of (layer,
        deed, key, leaving), see FORMAT.md. Raises like ``append_delta``.
        """
        if (routed is None) == (counts is None):
            raise ValueError("a pass has either routed ids or counts")
        if routed is not None:
            choice = f'"routed":"{packing.pack_routed(routed)}"'
        else:
            assert counts is not None
            choice = f'"counts":"{packing.pack_counts(counts)}"'
        extra = ""
        if late is not None and late.any():
            extra += f',"late":"{packing.pack_missed(late)}"'
        if on_host is not None and on_host.any():
            extra += f',"on_host":"{packing.pack_missed(on_host)}"'
        if ahead:
            extra += f',"ahead":"{packing.pack_ahead(ahead)}"'
        # By hand: json.dumps would take as long as all the rest, and the reader skips lines by how they start.
        line = (
            f'{{"type":"pass","answer":{self._quote(answer)},"phase":"{phase}","tokens":{int(tokens)},{choice},'
            f'"missed":"{packing.pack_missed(missed)}","bytes":{int(fetched_bytes)},"stall":{float(stall):.6f},'
            f'"seconds":{float(seconds):.6f}{extra}}}\n'
        )
        self._file.buffer(line.encode())

    def flush(self) -> None:
        """Make everything appended so far readable in the file."""
        self._file.flush()

    def close(self) -> None:
        """Write what is kept and let go. May be called twice. SessionError when the rest could not be written."""
        with self._closing:
            shared, self._shared = self._shared, None
        if shared is not None:
            appendfile.release(shared)

    def __enter__(self) -> SessionLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _file(self) -> appendfile.AppendFile:
        if self._shared is None:
            raise SessionError(f"“{self.path.name}” is closed already; open it again to add to it.")
        return self._shared

    def _quote(self, answer: str) -> str:
        if self._quoted[0] != answer:
            self._quoted = (answer, json.dumps(answer))
        return self._quoted[1]


def new_path(folder: Path) -> Path:
    """A file name in ``folder`` that no conversation has; by name they are in the order in which they began."""
    return folder / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}-{secrets.token_hex(3)}.jsonl"


def _plain(value: Any) -> Any:
    """A value as JSON knows it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value
