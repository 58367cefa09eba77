"""An answer read back token by token says what its passes say, however it is walked through."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from app.panels import moments
from app.panels.moments import read_moment, read_recording
from engine.errors import SessionError
from engine.messages import Cell, Sampling
from engine.sessions.log import SessionLog

LAYERS, EXPERTS, TOP_K = 4, 8, 2
WORDS = ["The", " green", "", "é", " room\n"]


def write_model(log: SessionLog) -> None:
    log.append_model(
        name="m",
        source="m",
        family="f",
        signature="s",
        layers=LAYERS,
        experts=EXPERTS,
        top_k=TOP_K,
        slots=8,
        slot_bytes=1,
        policy="lru",
        device="CPU",
        dtype="float32",
        program="p",
        hardware="h",
        resident=[],
    )


def write_answer(log: SessionLog, answer: str, words: list[str], seed: int = 0, passes: int | None = None) -> list:
    """One prompt pass and then decode passes; returns routed ids and misses of the decode passes."""
    rng = np.random.default_rng(seed)
    log.append_start(answer=answer, parent=None, prompt_tokens=3, reused_tokens=0, sampling=Sampling())
    counts = rng.integers(0, 3, (LAYERS, EXPERTS)).astype(np.uint32)
    common = {"answer": answer, "fetched_bytes": 0, "stall": 0.0, "seconds": 0.1}
    log.append_pass(phase="prefill", tokens=3, counts=counts, missed=np.zeros(counts.shape, bool), **common)
    told = [(counts, np.zeros(counts.shape, bool))]
    for _ in range(len(words) - 1 if passes is None else passes):
        routed = np.stack([rng.choice(EXPERTS, TOP_K, replace=False) for _ in range(LAYERS)])
        counts = np.zeros((LAYERS, EXPERTS), np.uint32)
        counts[np.arange(LAYERS)[:, None], routed] = 1
        missed = (counts > 0) & (rng.random(counts.shape) < 0.4)
        log.append_pass(phase="decode", tokens=1, routed=routed, missed=missed, **common)
        told.append((counts, missed))
    log.append_message(
        answer, None, "assistant", "".join(words), reason="end", token_lengths=[len(word) for word in words]
    )
    return told


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chat.jsonl"


def test_every_moment_is_its_pass_and_the_uses_so_far(path: Path) -> None:
    with SessionLog.create_at(path, "test") as log:
        write_model(log)
        write_answer(log, "a0", WORDS, seed=1)
        told = write_answer(log, "a1", WORDS, seed=2)
    recording = read_recording(path, "a1")
    assert recording.moments == len(WORDS)
    order = list(range(1, recording.moments + 1))
    random.Random(0).shuffle(order)
    for moment in order:
        shown = read_moment(recording, moment)
        counts, missed = told[moment - 1]
        assert np.array_equal(shown.cells & Cell.ROUTED > 0, counts > 0)
        assert np.array_equal(shown.cells & Cell.MISS > 0, missed)
        assert np.array_equal(shown.cells & Cell.HIT > 0, (counts > 0) & ~missed)
        assert np.array_equal(shown.answer, sum(counts for counts, _ in told[:moment]))
        assert shown.token == moment


def test_the_words_around_each_token(path: Path) -> None:
    with SessionLog.create_at(path, "test") as log:
        write_model(log)
        write_answer(log, "a", WORDS, passes=len(WORDS))  # one more pass chose the end
    recording = read_recording(path, "a")
    assert recording.moments == len(WORDS) + 1
    assert [recording.words(n)[1] for n in range(1, len(WORDS) + 1)] == WORDS
    assert recording.words(2) == ("The", " green", "é room\n")
    assert recording.words(len(WORDS) + 1) == ("The greené room\n", "", ""), "the end of the answer"
    text = "".join(WORDS)
    assert [recording.token_at(n) for n in range(len(text))] == [1] * 3 + [2] * 6 + [4] + [5] * 6
    assert recording.token_at(len(text)) == 0


def test_an_answer_without_token_lengths_can_be_walked_but_not_pointed_at(path: Path) -> None:
    with SessionLog.create_at(path, "test") as log:
        write_model(log)
        write_answer(log, "a", WORDS)
        log.append_message("a", None, "assistant", "".join(WORDS), reason="end", token_lengths=[1, "x"])
    recording = read_recording(path, "a")
    assert (recording.moments, recording.lengths, recording.token_at(0)) == (len(WORDS), (), 0)
    assert recording.words(2) == ("", "", "")


def test_long_answers_keep_a_bounded_number_of_counts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "MOST_MARKS", 4)
    words = [f" {n}" for n in range(400)]
    with SessionLog.create_at(path, "test") as log:
        write_model(log)
        told = write_answer(log, "a", words)
    recording = read_recording(path, "a")
    assert 1 < len(recording.marks) <= 4
    for moment in (1, 17, 128, 129, 255, 400):
        assert np.array_equal(read_moment(recording, moment).answer, sum(counts for counts, _ in told[:moment]))


def test_what_was_fetched_ahead_is_in_time_late_or_in_vain(path: Path) -> None:
    routed = np.array([[0, 1]] * LAYERS)
    counts = np.zeros((LAYERS, EXPERTS), np.uint32)
    counts[:, :2] = 1
    none, late = np.zeros(counts.shape, bool), np.zeros(counts.shape, bool)
    late[2, 1] = True
    key = EXPERTS  # first expert of layer 1
    common = {"answer": "a", "fetched_bytes": 0, "stall": 0.0, "seconds": 0.1, "missed": none}
    with SessionLog.create_at(path, "test") as log:
        write_model(log)
        log.append_start(answer="a", parent=None, prompt_tokens=3, reused_tokens=0, sampling=Sampling())
        log.append_pass(phase="prefill", tokens=3, counts=counts, **common)
        brought = [(0, 0, key, -1), (0, 0, key + 5, -1), (0, 0, key + 6, 3), (1, 0, 2 * key + 1, -1)]
        brought += [(2, 2, key + 5, -1), (2, 4, key + 6, 3), (3, 0, 1, -1)]
        log.append_pass(phase="decode", tokens=1, routed=routed, late=late, ahead=brought, **common)
        log.append_pass(phase="decode", tokens=1, routed=routed, **common)
        again = routed.copy()
        again[1] = 0, 5
        log.append_pass(phase="decode", tokens=1, routed=again, **common)
        log.append_pass(phase="decode", tokens=1, routed=again, **common)
        log.append_message("a", None, "assistant", "abcde", reason="end", token_lengths=[1] * 5)
    recording = read_recording(path, "a")
    prompt, first, second, third, fourth = (read_moment(recording, moment).cells for moment in range(1, 6))

    def marked(cells: np.ndarray, bit: Cell) -> list[tuple[int, ...]]:
        return [tuple(place) for place in np.argwhere(cells & bit).tolist()]

    assert not (prompt & (Cell.PREFETCHED | Cell.LATE | Cell.WASTED)).any()
    assert marked(first, Cell.PREFETCHED) == [(1, 0)]
    assert marked(first, Cell.LATE) == [(2, 1)]
    assert marked(first, Cell.WASTED) == [(1, 5)], "of those taken back nothing was read"
    assert marked(second, Cell.PREFETCHED) == [(0, 1)], "brought at the end of the token before"
    assert marked(third, Cell.PREFETCHED) == [(1, 5)], "let go, and of use to a later token"
    assert marked(fourth, Cell.PREFETCHED) == []


def test_an_answer_nobody_wrote_down_is_refused_in_words(path: Path) -> None:
    with SessionLog.create_at(path, "test") as log:
        write_model(log)
        log.append_message("a", None, "assistant", "imported", reason="end")
    with pytest.raises(SessionError, match="no record of the experts"):
        read_recording(path, "a")
