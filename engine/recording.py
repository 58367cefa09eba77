"""Writes an answer into its conversation's session log while it happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from engine.errors import SessionError
from engine.experts.records import Note, PassRecord, Settled
from engine.loading import LoadedModel
from engine.messages import Finished, Generate, PrefetchState
from engine.sessions.log import SessionLog


def rows(notes: Sequence[Note]) -> list[tuple[int, int, int, int]]:
    """As ``SessionLog.append_pass`` takes them: layer, deed, key, leaving."""
    return [(note.layer, note.deed, note.key, note.leaving) for note in notes]


class Recorder:
    """The log of one answer; does nothing when the command names no log.

    A disk that takes nothing more is told once through ``complain``, and the answer goes on.
    """

    def __init__(self, command: Generate, complain: Callable[[str], None]) -> None:
        """Raises SessionError when the log cannot be opened: an answer must not run unsaved."""
        self._command = command
        self._complain = complain
        self._log = SessionLog.open(Path(command.log)) if command.log else None
        self._lengths: list[int] = []  # characters of each token's text

    def model(self, loaded: LoadedModel, program: str, hardware: str) -> None:
        """Say which model answers, and who sits in its slots now."""
        info = loaded.info
        self._try(
            lambda log: log.append_model(
                name=info.name,
                source=info.source,
                family=info.family,
                signature=info.signature,
                layers=info.layers,
                experts=info.experts,
                top_k=info.top_k,
                slots=info.slots,
                slot_bytes=info.slot_bytes,
                policy=info.policy,
                predictor=info.predictor,
                prefetch=info.prefetch,
                device=info.device,
                dtype=info.dtype,
                program=program,
                hardware=hardware,
                resident=loaded.runtime.by_eviction_order(),
                arenas=loaded.runtime.arenas(),
                state=loaded.runtime.policy_state(),
                encoder_layers=info.encoder_layers,
            )
        )

    def start(self, prompt_tokens: int, reused_tokens: int) -> None:
        self._try(
            lambda log: log.append_start(
                answer=self._command.answer_id,
                parent=self._command.parent_id or None,
                prompt_tokens=prompt_tokens,
                reused_tokens=reused_tokens,
                sampling=self._command.sampling,
                languages=(self._command.source_language, self._command.target_language),
            )
        )

    def text(self, text: str) -> None:
        self._lengths.append(len(text))
        self._try(lambda log: log.append_delta(self._command.answer_id, text))

    def forward_pass(self, record: PassRecord) -> None:
        self._try(
            lambda log: log.append_pass(
                answer=self._command.answer_id,
                phase=record.phase,
                tokens=record.tokens,
                missed=record.missed,
                fetched_bytes=record.fetched_bytes,
                stall=record.stall_seconds,
                seconds=record.seconds,
                routed=record.routed,
                counts=record.counts if record.routed is None else None,
                late=record.late,
                on_host=record.on_host,
                ahead=rows(record.notes),
            )
        )

    def settled(self, settled: Settled | None) -> None:
        """What became of fetches that were still out when the answer ended, if any were."""
        if settled is not None:
            self._try(
                lambda log: log.append_settled(self._command.answer_id, settled.fetched_bytes, rows(settled.notes))
            )

    def verdict(self, state: PrefetchState) -> None:
        """Whether fetching ahead pays was found out anew."""
        self._try(lambda log: log.append_verdict(self._command.answer_id, asdict(state)))

    def finish(self, finished: Finished, predictor: str, accuracy: tuple[float | None, ...]) -> None:
        """The final message, durable. accuracy: share of the experts that ``predictor`` foresaw, by distance."""
        self._try(
            lambda log: log.append_message(
                self._command.answer_id,
                self._command.parent_id or None,
                "assistant",
                finished.text,
                reason=finished.reason,
                timings=asdict(finished.timings),
                cache=asdict(finished.cache),
                seed=finished.seed,
                error=finished.error,
                predictor=predictor,
                accuracy=list(accuracy),
                token_lengths=self._token_lengths(finished.timings.answer_tokens),
            )
        )

    def _token_lengths(self, tokens: int) -> list[int]:
        """Characters of each token; what a split character left over at the end belongs to the last."""
        lengths = self._lengths
        if 0 < tokens < len(lengths):
            return [*lengths[: tokens - 1], sum(lengths[tokens - 1 :])]
        return list(lengths)

    def close(self) -> None:
        """Let the log go; what was appended is written."""
        self._try(lambda log: log.close())

    def _try(self, write: Callable[[SessionLog], None]) -> None:
        if self._log is None:
            return
        try:
            write(self._log)
        except SessionError as error:
            self._complain(str(error))
