"""What the log promises its writers: durable messages, cheap passes, no damage from kills, full disks or neighbours."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from engine.errors import SessionError
from engine.messages import CacheCounters, Sampling, Timings
from engine.sessions import appendfile
from engine.sessions.log import SessionLog
from engine.sessions.reader import decode_resident, read_conversation, read_records, recount

LAYERS, EXPERTS, TOP_K = 3, 8, 2
ROUTED = np.array([[0, 7], [3, -1], [1, 2]])
MISSED = np.zeros((LAYERS, EXPERTS), dtype=bool)
posix_only = pytest.mark.skipif(os.name != "posix", reason="uses POSIX signals and limits")


@pytest.fixture
def log(tmp_path):
    with SessionLog.create(tmp_path, "greenroom 0.1.0") as log:
        yield log


def add_model(log: SessionLog, resident=()) -> None:
    log.append_model(
        name="Tiny",
        source="demo",
        family="qwen2_moe",
        signature="abc",
        layers=LAYERS,
        experts=EXPERTS,
        top_k=TOP_K,
        slots=4,
        slot_bytes=100,
        policy="lru",
        device="cpu",
        dtype="float32",
        program="greenroom 0.1.0",
        hardware="CPU, 2 cores",
        resident=resident,
    )


def add_pass(log: SessionLog, answer: str = "a1", **changes) -> None:
    fields = {"phase": "decode", "tokens": 1, "routed": ROUTED, "missed": MISSED}
    fields |= {"fetched_bytes": 300, "stall": 0.01, "seconds": 0.2} | changes
    log.append_pass(answer=answer, **fields)


def run_child(code: str, *args: object, wait: bool = True) -> subprocess.Popen:
    child = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    if wait:
        child.wait(60)
    return child


def test_a_whole_exchange_reads_back_as_it_was_written(log):
    log.append_message("u1", None, "user", "Hello?")
    add_model(log, resident=[5, 23, 0])
    log.append_start(answer="a1", parent="u1", prompt_tokens=9, reused_tokens=2, sampling=Sampling(seed=4))
    for piece in ("Good", " day", "!"):
        log.append_delta("a1", piece)
        add_pass(log)
    timings = Timings(prompt_tokens=9, reused_tokens=2, answer_tokens=3, decode_seconds=0.5)
    cache = CacheCounters(decode_hits=15, fetched_bytes=900)
    log.append_message("a1", "u1", "assistant", "Good day!", reason="end", timings=timings, cache=cache, seed=4)

    conversation = read_conversation(log.path)
    assert [m.text for m in conversation.path_to("a1")] == ["Hello?", "Good day!"]
    answer = conversation.messages["a1"]
    assert (answer.reason, answer.timings, answer.cache, answer.seed) == ("end", timings, cache, 4)
    assert (conversation.damaged, conversation.torn, conversation.models) == (0, False, ("Tiny",))
    [model] = [r for r in read_records(log.path) if r["type"] == "model"]
    assert decode_resident(model).tolist() == [5, 23, 0]
    assert recount(log.path).decode_hits == 15


def test_a_message_is_on_disk_when_the_call_returns(log):
    log.append_message("u1", None, "user", "first")
    assert "first" in log.path.read_text(encoding="utf-8")


def test_passes_and_deltas_wait_in_memory_and_go_out_together(log, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(appendfile.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(appendfile, "FLUSH_SECONDS", 60.0)
    add_pass(log)  # the first goes out at once
    size = log.path.stat().st_size
    add_pass(log)
    log.append_delta("a1", "some")
    log.append_delta("a1", "thing")
    assert log.path.stat().st_size == size
    clock[0] += 60
    add_pass(log)
    records = list(read_records(log.path))
    assert [r["type"] for r in records] == ["pass", "pass", "pass", "delta"]
    assert records[-1]["text"] == "something"


def test_a_piece_reaches_the_file_even_when_the_next_is_far_away(log):
    add_pass(log)
    log.append_delta("a1", "slow")
    deadline = time.monotonic() + 30
    while b"slow" not in log.path.read_bytes():
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)


def test_a_timer_that_outlives_the_file_writes_nowhere(log):
    add_pass(log)
    add_pass(log)
    shared = log._shared
    log.close()
    shared._flush_late()
    assert len(list(read_records(log.path))) == 2


def test_what_is_kept_in_memory_comes_before_a_message_and_survives_close(tmp_path):
    log = SessionLog.create(tmp_path, "test")
    add_pass(log)
    add_pass(log)
    log.append_message("u1", None, "user", "hi")
    log.append_delta("a1", "tail")
    log.close()
    log.close()
    assert [r["type"] for r in read_records(log.path)] == ["pass", "pass", "message", "delta"]
    with pytest.raises(SessionError, match="closed"):
        log.append_delta("a1", "late")


def test_recording_a_decoded_token_costs_microseconds(log):
    routed = np.random.default_rng(0).integers(0, 128, (48, 8))
    missed = np.zeros((48, 128), dtype=bool)
    best = 1.0
    for _ in range(20):
        begin = time.perf_counter()
        for _ in range(20):
            add_pass(log, routed=routed, missed=missed)
        best = min(best, (time.perf_counter() - begin) / 20)
    assert best < 200e-6  # about 20 on a quiet core


def test_two_threads_on_one_path_keep_every_line_whole(log):
    add_model(log)

    def engine_side():
        with SessionLog.open(log.path) as mine:
            for number in range(500):
                add_pass(mine)
                mine.append_delta("a1", f"{number} ")

    engine = threading.Thread(target=engine_side)
    engine.start()
    for number in range(50):
        log.append_message(f"u{number}", None, "user", "x" * 5000)
    engine.join()
    conversation = read_conversation(log.path)
    assert conversation.damaged == 0
    assert len(conversation.messages) == 51
    assert conversation.messages["a1"].text == "".join(f"{n} " for n in range(500))
    assert recount(log.path).passes == 500


WRITER = """
import sys, pathlib, numpy as np
from engine.sessions.log import SessionLog
log = SessionLog.open(pathlib.Path(sys.argv[1]))
routed, missed = np.zeros((3, 2), int), np.zeros((3, 8), bool)
for number in range(10**9):
    log.append_message(f"m{number}", f"m{number - 1}" if number else None, "user", "word " * 2000)
    print(number, flush=True)
    for _ in range(20):
        log.append_delta(f"a{number}", "piece ")
        log.append_pass(answer=f"a{number}", phase="decode", tokens=1, routed=routed, missed=missed,
                        fetched_bytes=0, stall=0.0, seconds=0.0)
"""


@posix_only
@pytest.mark.parametrize("after", [1, 7, 30])
def test_kill_9_loses_nothing_acknowledged(tmp_path, after):
    with SessionLog.create(tmp_path, "test") as log:
        path = log.path
    child = run_child(WRITER, path, wait=False)
    assert child.stdout is not None
    acknowledged = [int(child.stdout.readline()) for _ in range(after)]
    child.send_signal(signal.SIGKILL)
    acknowledged += [int(line) for line in child.communicate()[0].split()]
    conversation = read_conversation(path)
    assert conversation.damaged == 0
    for number in acknowledged:
        assert conversation.messages[f"m{number}"].text == "word " * 2000
    with SessionLog.open(path) as log:  # and the lock died with the child
        log.append_message("after", None, "user", "goes on")
    assert read_conversation(path).messages["after"].text == "goes on"


def test_a_torn_last_line_is_cut_off_before_the_next_append(tmp_path):
    with SessionLog.create(tmp_path, "test") as log:
        log.append_message("u1", None, "user", "kept")
    with log.path.open("ab") as file:
        file.write(b'{"type":"message","id":"u2","par' + b"x" * 200_000)
    assert read_conversation(log.path).torn
    with SessionLog.open(log.path) as again:
        again.append_message("u3", "u1", "user", "next")
    conversation = read_conversation(log.path)
    assert list(conversation.messages) == ["u1", "u3"]
    assert (conversation.torn, conversation.damaged) == (False, 0)


def test_a_complete_last_line_without_its_newline_is_kept(tmp_path):
    with SessionLog.create(tmp_path, "test") as log:
        log.append_message("u1", None, "user", "kept")
    log.path.write_bytes(log.path.read_bytes().rstrip(b"\n"))
    with SessionLog.open(log.path) as again:
        again.append_message("u2", "u1", "user", "next")
    assert list(read_conversation(log.path).messages) == ["u1", "u2"]


def test_a_second_process_is_kept_out_while_the_first_has_the_file(log):
    code = """
import sys, pathlib
from engine.errors import SessionError
from engine.sessions.log import SessionLog
try:
    SessionLog.open(pathlib.Path(sys.argv[1])).append_message("x", None, "user", "intruder")
except SessionError as error:
    sys.exit(str(error))
"""
    child = run_child(code, log.path)
    assert child.stderr is not None
    assert "open in another window" in child.stderr.read()
    log.append_message("u1", None, "user", "mine")
    log.close()
    assert run_child(code, log.path).returncode == 0
    assert list(read_conversation(log.path).messages) == ["u1", "x"]


def test_the_file_stays_ours_until_the_last_holder_lets_go(tmp_path):
    first = SessionLog.create(tmp_path, "test")
    second = SessionLog.open(first.path)
    first.close()
    second.append_message("u1", None, "user", "still writing")
    second.close()
    assert appendfile._open_files == {}


FULL_DISK = """
import resource, sys, pathlib, numpy as np
from engine.errors import SessionError
from engine.sessions.log import SessionLog
log = SessionLog.open(pathlib.Path(sys.argv[1]))
soft = log.path.stat().st_size + 700
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))
log._shared._flushed_at = -1e9
told = 0
for number in range(40):
    log._shared._flushed_at = -1e9
    try:
        log.append_pass(answer="a1", phase="decode", tokens=1, routed=np.zeros((3, 2), int),
                        missed=np.zeros((3, 8), bool), fetched_bytes=0, stall=0.0, seconds=0.0)
    except SessionError as error:
        told += 1
        print(error)
for number in range(2):
    try:
        log.append_message("lost", None, "user", "x" * 2000)
    except SessionError as error:
        print("message:", error)
print("told", told)
if sys.argv[2] == "freed":
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    log.append_message("saved", None, "user", "room again")
    log.close()
"""


@posix_only
@pytest.mark.parametrize("ending", ["freed", "never freed"])
def test_a_full_disk_is_told_once_and_leaves_whole_lines(tmp_path, ending):
    with SessionLog.create(tmp_path, "test") as log:
        log.append_message("u1", None, "user", "before")
        add_model(log)
    child = run_child(FULL_DISK, log.path, ending)
    output, errors = child.communicate()
    assert "told 1" in output, errors
    assert output.count("message: The disk is full") == 2  # a message never passes for saved
    conversation = read_conversation(log.path)
    assert (conversation.damaged, conversation.torn) == (0, False)
    assert conversation.messages["u1"].text == "before"
    assert "lost" not in conversation.messages
    if ending == "freed":
        assert conversation.messages["saved"].text == "room again"
        assert recount(log.path).passes == 40  # what waited in memory came after all


def test_a_file_deleted_underneath_is_told(log):
    log.path.unlink()
    with pytest.raises(SessionError, match="deleted"):
        log.append_message("u1", None, "user", "hello")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"type":"header","version":2}\n', "newer Greenroom"),
        ("# notes\n", "not a Greenroom conversation"),
        ('{"some":"json"}\n', "not a Greenroom conversation"),
        ("", "not a Greenroom conversation"),
        ('{"type":"header","ver', "not a Greenroom conversation"),
    ],
)
def test_a_file_that_is_no_log_of_ours_is_refused_and_left_alone(tmp_path, content, message):
    path = tmp_path / "other.jsonl"
    path.write_text(content)
    with pytest.raises(SessionError, match=message):
        SessionLog.open(path)
    assert path.read_text() == content
    assert appendfile._open_files == {}


def test_what_cannot_be_opened_is_said_in_a_sentence(tmp_path):
    with pytest.raises(SessionError, match=r"There is no file “.*” in .*: it was moved or deleted"):
        SessionLog.open(tmp_path / "gone.jsonl")
    with pytest.raises(SessionError, match="is a folder"):
        SessionLog.open(tmp_path)
    taken = tmp_path / "taken.jsonl"
    taken.write_text("mine")
    with pytest.raises(SessionError, match="exists already"):
        SessionLog.create_at(taken, "test")
    with pytest.raises(SessionError, match="could not be read or written"):
        SessionLog.create(taken, "test")
    assert taken.read_text() == "mine"


def test_a_pass_needs_exactly_one_kind_of_routing(log):
    with pytest.raises(ValueError, match="either"):
        add_pass(log, counts=np.zeros((LAYERS, EXPERTS), dtype=np.uint32))
    with pytest.raises(ValueError, match="either"):
        add_pass(log, routed=None)
