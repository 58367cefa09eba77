"""What the reader promises: every readable line counts, however damaged its neighbours, and large files are quick."""

import json
import time
import tracemalloc
from contextlib import contextmanager

import numpy as np
import pytest

from engine.errors import SessionError
from engine.messages import CacheCounters, Timings
from engine.sessions import appendfile, export, packing, records
from engine.sessions.conversation import turns
from engine.sessions.copying import import_log
from engine.sessions.log import SessionLog
from engine.sessions.reader import decode_pass, decode_settled, read_conversation, read_records, recount
from engine.sessions.records import encode_record, parse_record

HEADER = '{"type":"header","version":1,"program":"test","conversation":"c","created":"2026-01-01T00:00:00+00:00"}\n'


def message(id, parent, role, text, **extra):
    return json.dumps({"type": "message", "id": id, "parent": parent, "role": role, "text": text, **extra}) + "\n"


def line(**record):
    return json.dumps(record) + "\n"


@pytest.fixture
def file(tmp_path):
    def write(*lines):
        path = tmp_path / "talk.jsonl"
        path.write_text("".join(lines), encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    "text",
    [
        "Grüße, 世界, مرحبا, 👩‍👩‍👧‍👦 and \U0001f3ad",
        "line\u2028separator, paragraph\u2029separator, next\x85line",
        'newline\nreturn\rboth\r\ntab\t null\0 quote" back\\slash',
        "half an emoji \ud83d and \udc00 the wrong way round",
        "",
        "x" * 300_000,
    ],
)
def test_any_text_comes_back_as_it_was(tmp_path, text):
    with SessionLog.create(tmp_path, "test") as log:
        log.append_message("u1", None, "user", text)
        log.append_delta("a1", text)
    assert log.path.read_bytes().count(b"\n") == (3 if text else 2)
    conversation = read_conversation(log.path)
    assert conversation.messages["u1"].text == text
    if text:
        assert conversation.messages["a1"].text == text


def test_an_answer_cut_short_by_a_kill_is_what_streamed_of_it(file):
    path = file(
        HEADER,
        message("u1", None, "user", "Tell me"),
        line(type="start", answer="a1", parent="u1"),
        line(type="delta", answer="a1", text="Once upon"),
        line(type="delta", answer="a1", text=" a time"),
    )
    [_, answer] = read_conversation(path).path_to("a1")
    assert (answer.text, answer.reason, answer.role, answer.parent) == (
        "Once upon a time",
        "stopped",
        "assistant",
        "u1",
    )


def test_a_finished_message_wins_over_its_deltas_and_keeps_its_place(file):
    path = file(
        HEADER,
        message("u1", None, "user", "Hi"),
        line(type="start", answer="a1", parent="u1"),
        line(type="delta", answer="a1", text="Helo"),
        message("u2", None, "user", "elsewhere"),
        message("a1", "u1", "assistant", "Hello", reason="length"),
    )
    conversation = read_conversation(path)
    assert list(conversation.messages) == ["u1", "a1", "u2"]
    assert (conversation.messages["a1"].text, conversation.messages["a1"].reason) == ("Hello", "length")


def test_an_answer_killed_before_its_first_word_is_not_there(file):
    path = file(HEADER, message("u1", None, "user", "Hi"), line(type="start", answer="a1", parent="u1"))
    conversation = read_conversation(path)
    assert conversation.chosen_leaf().id == "u1"


def test_deltas_whose_start_is_lost_belong_to_the_newest_message(file):
    path = file(HEADER, message("u1", None, "user", "Hi"), line(type="delta", answer="a1", text="Hello"))
    assert [m.text for m in read_conversation(path).path_to("a1")] == ["Hi", "Hello"]


def test_damaged_lines_in_the_middle_are_skipped_and_counted(tmp_path):
    path = tmp_path / "talk.jsonl"
    path.write_bytes(
        HEADER.encode()
        + message("u1", None, "user", "kept").encode()
        + b'{"type":"message","id":"u2","parent":\n'
        + b"\x00\xff\xfe binary \n"
        + b'["a list"]\n'
        + b"[" * 100_000
        + b"\n"
        + message(7, None, "user", "no proper id").encode()
        + message("u9", None, "wizard", "no such role").encode()
        + message("a1", "u1", "assistant", "also kept").encode()
        + b'{"type":"torn'
    )
    conversation = read_conversation(path)
    assert [m.text for m in conversation.messages.values()] == ["kept", "also kept"]
    assert conversation.damaged == 6
    assert conversation.torn


GARBAGE = b"x" * (6 << 20)


@pytest.fixture
def short_lines(monkeypatch):
    for module in (records, appendfile, export):
        monkeypatch.setattr(module, "LONGEST_LINE", 1 << 20)


@contextmanager
def little_memory():
    """No more than a few lines of the longest kind are held at a time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_line_of_any_length_costs_itself_and_little_memory(file, short_lines, tmp_path):
    path = file(HEADER, message("u1", None, "user", "before"))
    with path.open("ab") as out:
        out.write(GARBAGE + b"\n" + b'{"type":"pass",' + GARBAGE + b"\n")
        out.write(message("a1", "u1", "assistant", "after", reason="end").encode())
    with little_memory():
        conversation = read_conversation(path)
        assert list(conversation.messages) == ["u1", "a1"]
        assert (conversation.damaged, conversation.torn) == (1, False)
        assert recount(path).damaged == 2
        copied = import_log(path, tmp_path / "conversations")
    assert copied.read_bytes() == path.read_bytes()  # nothing is lost


def test_an_endless_first_or_last_line_is_told_and_costs_little_memory(file, short_lines, tmp_path):
    endless = tmp_path / "zeros.jsonl"
    endless.write_bytes(GARBAGE)
    path = file(HEADER, message("u1", None, "user", "before"))
    whole = path.read_bytes()
    with path.open("ab") as out:
        out.write(GARBAGE)
    with little_memory():
        for refused in (read_conversation, SessionLog.open, lambda log: import_log(log, tmp_path)):
            with pytest.raises(SessionError, match="not a Greenroom conversation"):
                refused(endless)
        assert read_conversation(path).torn
        assert import_log(path, tmp_path / "conversations").read_bytes() == whole
    assert endless.read_bytes() == GARBAGE


def test_nothing_is_written_that_could_not_be_read_back(short_lines, tmp_path):
    with SessionLog.create(tmp_path, "test") as log:
        with pytest.raises(SessionError, match="A message of 2 MB is too long to be saved; 1 MB can be"):
            log.append_message("u1", None, "user", "y" * (2 << 20))
        log.append_message("u2", None, "user", "shorter")
    assert list(read_conversation(log.path).messages) == ["u2"]


def test_unknown_types_and_keys_are_for_newer_programs(file):
    path = file(
        HEADER,
        line(type="mood", text="fine"),
        message("a1", None, "assistant", "x", timings={"answer_tokens": 3, "new": 1}, cache={}, flavour="mint"),
    )
    conversation = read_conversation(path)
    assert conversation.damaged == 0
    assert conversation.messages["a1"].timings.answer_tokens == 3


def test_a_damaged_first_line_does_not_cost_the_conversation(file):
    path = file("{{{{\n", message("u1", None, "user", "still here"))
    conversation = read_conversation(path)
    assert conversation.title == "still here"
    assert conversation.damaged == 1
    with SessionLog.open(path) as log:  # and it can go on
        log.append_message("u2", "u1", "user", "and more")
    assert path.read_bytes().startswith(b"{{{{\n")
    assert list(read_conversation(path).messages) == ["u1", "u2"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"type":"header","version":99}\n', "newer Greenroom"),
        ('{"type":"header"}\n', "not a Greenroom"),
        ("hello\n", "not a Greenroom"),
    ],
)
def test_what_is_no_log_is_refused_in_a_sentence(file, content, says):
    with pytest.raises(SessionError, match=says):
        read_conversation(file(content))


def test_a_missing_file_is_said_in_a_sentence(tmp_path):
    with pytest.raises(SessionError, match=r"There is no file “.*” in .*: it was moved or deleted"):
        read_conversation(tmp_path / "gone.jsonl")


def test_packed_arrays_come_back_exactly(tmp_path):
    rng = np.random.default_rng(3)
    layers, experts, top_k = 5, 11, 3
    routed = np.array([rng.permutation(experts)[:top_k] for _ in range(layers)])
    routed[2, 1] = -1
    counts = rng.integers(0, 70_000, (layers, experts)) * rng.integers(0, 2, (layers, experts))
    missed_one = np.zeros((layers, experts), dtype=bool)
    missed_one[0, routed[0, 0]] = True
    missed_many = (counts > 0) & (rng.random((layers, experts)) < 0.5)
    with SessionLog.create(tmp_path, "test") as log:
        common = {"answer": "é", "fetched_bytes": 12, "stall": 0.25, "seconds": 1.5}
        log.append_pass(phase="prefill", tokens=500, counts=counts, missed=missed_many, **common)
        log.append_pass(phase="decode", tokens=1, routed=routed.astype(np.int32), missed=missed_one, **common)
    many, one = (decode_pass(record, layers, experts, top_k) for record in read_records(log.path))
    assert (many.answer, many.phase, many.tokens, many.fetched_bytes) == ("é", "prefill", 500, 12)
    assert (many.stall, many.seconds) == (0.25, 1.5)
    assert many.routed is None
    assert (many.counts == counts).all()
    assert (many.missed == missed_many).all()
    assert one.routed[2, 1] == packing.NO_EXPERT
    assert (np.delete(one.routed.ravel(), 7) == np.delete(routed.ravel(), 7)).all()
    assert one.counts.sum() == layers * top_k - 1
    assert (one.hits, one.misses) == (layers * top_k - 2, 1)
    with pytest.raises(SessionError, match="does not fit"):
        decode_pass(next(iter(read_records(log.path))), layers + 1, experts, top_k)


@pytest.mark.parametrize(
    "change",
    [
        {"missed": "???"},
        {"counts": "AAAA"},
        {"counts": 5},
        {"tokens": "many"},
        {"tokens": float("inf")},
        {"bytes": float("nan")},
    ],
)
def test_a_damaged_pass_is_a_session_error(change):
    counts = np.ones((2, 4), dtype=np.uint32)
    record = {"type": "pass", "answer": "a", "phase": "decode", "tokens": 2, "counts": packing.pack_counts(counts)}
    record["missed"] = packing.pack_missed(counts > 1)
    assert decode_pass(record, 2, 4, 1).hits == 8
    with pytest.raises(SessionError, match="damaged"):
        decode_pass(record | change, 2, 4, 1)


@pytest.mark.parametrize("parent", [["u1"], {"a": 1}, 5, None])
def test_an_answer_under_something_that_is_no_message_is_read_all_the_same(file, parent):
    path = file(
        HEADER,
        message("u1", None, "user", "Hi"),
        line(type="start", answer="a1", parent=parent),
        line(type="delta", answer="a1", text="Hello"),
    )
    assert [m.text for m in read_conversation(path).messages.values()] == ["Hi", "Hello"]


def test_figures_that_are_none_are_left_out_and_the_others_stay(file):
    wrong = {"prompt_tokens": "12", "decode_seconds": [1.0], "answer_tokens": 3, "prefill_seconds": float("nan")}
    cache = {"decode_hits": 6, "decode_misses": None, "evictions": True, "fetched_bytes": 10**400}
    path = file(HEADER, message("a1", None, "assistant", "Hi", timings=wrong, cache=cache))
    (turn,) = turns(read_conversation(path).messages.values())
    assert turn.timings == Timings(answer_tokens=3)
    assert turn.cache == CacheCounters(decode_hits=6)


@pytest.mark.parametrize(
    "change",
    [{"layers": 10**30}, {"layers": 1 << 20, "experts": 1 << 20}, {"experts": -4}, {"layers": 0}, {"top_k": 99}],
)
def test_a_pass_of_a_model_that_cannot_be_is_damage(file, change):
    counts = np.ones((2, 4), dtype=np.uint32)
    made = {"type": "pass", "answer": "a", "phase": "decode", "tokens": 1, "counts": packing.pack_counts(counts)}
    made["missed"] = packing.pack_missed(counts > 1)
    model = {"type": "model", "layers": 2, "experts": 4, "top_k": 2}
    path = file(HEADER, line(**model), line(**made), line(**(model | change)), line(**made))
    assert (recount(path).passes, recount(path).damaged) == (1, 1)


def test_the_recount_tells_prefill_from_decode_and_one_answer_from_another(tmp_path):
    counts = np.array([[3, 0, 1, 0]])
    with SessionLog.create(tmp_path, "test") as log:
        model = dict.fromkeys(("name", "source", "family", "signature", "policy", "device", "dtype"), "")
        model |= {"program": "", "hardware": "", "resident": []}
        log.append_model(layers=1, experts=4, top_k=2, slots=2, slot_bytes=1, **model)
        for answer in ("a1", "a2"):
            common = {"answer": answer, "fetched_bytes": 5, "stall": 0.0, "seconds": 0.0}
            log.append_pass(phase="prefill", tokens=3, counts=counts, missed=counts > 2, **common)
            log.append_pass(phase="decode", tokens=1, routed=np.array([[1, 2]]), missed=counts > 9, **common)
        one, both = recount(log.path, answer="a2"), recount(log.path)
    assert (one.prefill_hits, one.prefill_misses, one.decode_hits, one.decode_misses) == (1, 1, 2, 0)
    assert (both.prefill_hits, both.prefill_misses, both.decode_hits, both.decode_misses) == (2, 2, 4, 0)
    assert (both.passes, both.fetched_bytes, both.damaged) == (4, 20, 0)


def test_what_was_read_after_the_last_pass_counts_too(tmp_path):
    with SessionLog.create(tmp_path, "test") as log:
        model = dict.fromkeys(("name", "source", "family", "signature", "policy", "device", "dtype"), "")
        model |= {"program": "", "hardware": "", "resident": []}
        log.append_settled("a0", 5, [])  # before any model: nobody knows whose
        log.append_model(layers=1, experts=4, top_k=2, slots=2, slot_bytes=1, **model)
        log.append_settled("a1", 7, [(-1, 2, 3, -1), (-1, 4, 1, 2)])
        log.append_settled("a2", 11, [])
    assert (recount(log.path).fetched_bytes, recount(log.path).damaged) == (18, 1)
    assert (recount(log.path, "a1").fetched_bytes, recount(log.path, "a1").passes) == (7, 0)
    told = [record for record in read_records(log.path) if record["type"] == "settled"][1]
    nbytes, ahead = decode_settled(told, 1, 4)
    assert (nbytes, ahead.tolist()) == (7, [[-1, 2, 3, -1], [-1, 4, 1, 2]])
    for damage in ({"bytes": "x"}, {"ahead": "!"}, {"ahead": packing.pack_ahead([(0, 0, 0, 0)] * 5)}):
        with pytest.raises(SessionError, match="damaged"):
            decode_settled(told | damage, 1, 4)


def test_what_is_still_in_memory_is_read_too(tmp_path):
    with SessionLog.create(tmp_path, "test") as log:
        log.append_delta("a1", "one")
        log.append_delta("a1", " two")
        assert read_conversation(log.path).messages["a1"].text == "one two"


def test_two_thousand_messages_among_fifty_thousand_passes_open_quickly(tmp_path):
    routed = packing.pack_routed(np.arange(30 * 12).reshape(30, 12) % 32)
    missed = packing.pack_missed(np.zeros((30, 32), dtype=bool))
    one_pass = f'{{"type":"pass","answer":"a1","phase":"decode","tokens":1,"routed":"{routed}","missed":"{missed}"}}\n'
    path = tmp_path / "long.jsonl"
    with path.open("w") as file:
        file.write(HEADER)
        for number in range(2000):
            parent = f"m{number - 1}" if number else None
            file.write(message(f"m{number}", parent, "assistant" if number % 2 else "user", "some words " * 40))
            file.write(one_pass * 25)
    begin = time.perf_counter()
    conversation = read_conversation(path)
    seconds = time.perf_counter() - begin
    assert len(conversation.path_to(conversation.chosen_leaf().id)) == 2000
    assert seconds < 3  # 0.1 on a quiet machine


def test_records_hold_numpy_numbers_and_nothing_stranger():
    assert parse_record(encode_record({"type": "x", "seed": np.int64(7)}))["seed"] == 7
    with pytest.raises(TypeError, match="object"):
        encode_record({"type": "x", "seed": object()})
