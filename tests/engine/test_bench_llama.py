"""llama.cpp as a peer: what is missing is said; the process, the protocol and the cap, with a stand-in library."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import textwrap
from pathlib import Path

import pytest

from engine.bench import llama
from engine.bench.contender import PathInfo, Unavailable
from engine.bench.llama import Llama, MemoryCap, check_llama
from engine.cli import main
from engine.errors import ModelError, OptionError

PATH = PathInfo("llama.cpp 25%", "llama.cpp", "")

# The part of llama-cpp-python's Llama that the benchmark uses; the next token is one more than the last.
STAND_IN = """
class Llama:
    def __init__(self, model_path, n_ctx, n_threads, n_threads_batch, n_gpu_layers, use_mmap, use_mlock, verbose):
        print("a line that is no answer")
        if n_ctx > 1000:
            raise ValueError(f"Failed to create context of {n_ctx}")
        assert use_mmap and not use_mlock and n_gpu_layers == 0 and not verbose and n_threads == n_threads_batch
    def reset(self):
        self.seen = []
    def eval(self, tokens):
        self.seen += tokens
    def sample(self, temp):
        assert temp == 0.0
        if self.seen[-1] == 66:
            import os; os._exit(9)
        return self.seen[-1] + 1
"""


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF" + bytes(100))
    return file


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "library"
    folder.mkdir()
    (folder / "llama_cpp.py").write_text(textwrap.dedent(STAND_IN))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.syspath_prepend(str(folder))


@pytest.mark.skipif(importlib.util.find_spec("llama_cpp") is not None, reason="llama-cpp-python is installed")
def test_without_the_library_the_error_says_what_to_install(
    tiny_chat_model: Path, gguf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", str(tiny_chat_model), "--peer", "llama.cpp", "--gguf", str(gguf)]) == 1
    assert "pip install llama-cpp-python" in capsys.readouterr().err


def test_without_a_gguf_the_error_names_the_option(stand_in: None, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="--gguf FILE"):
        check_llama(None)
    with pytest.raises(ModelError, match="cannot be read"):
        check_llama(tmp_path / "nowhere.gguf")
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(ModelError, match="no GGUF file"):
        check_llama(tmp_path / "text.gguf")


def test_it_answers_from_a_process_of_its_own(stand_in: None, gguf: Path) -> None:
    peer = Llama(check_llama(gguf), 2_000_000_000, 64, 1, PATH, lambda text: None)
    peer.open()
    try:
        for start in (5, 20):
            sample = peer.run(PATH, [1, 2, start], 4)
            assert sample.tokens == (start + 1, start + 2, start + 3, start + 4)
            assert sample.seconds > 0
            assert sample.prompt_tokens == 3
    finally:
        process = peer._process
        peer.close()
    assert process is not None and process.poll() == 0
    assert "2.0 GB" in peer.note or "cap" in peer.note


def test_what_the_library_refuses_is_the_reason_to_leave_it_out(stand_in: None, gguf: Path) -> None:
    peer = Llama(gguf, 2_000_000_000, 5000, 1, PATH, lambda text: None)
    try:
        with pytest.raises(Unavailable, match="Failed to create context of 5000"):
            peer.open()
    finally:
        peer.close()


def test_a_process_that_ends_is_told_from_an_answer(stand_in: None, gguf: Path) -> None:
    peer = Llama(gguf, 2_000_000_000, 64, 1, PATH, lambda text: None)
    try:
        peer.open()
        with pytest.raises(Unavailable, match="ended with 9"):
            peer.run(PATH, [66], 1)
    finally:
        peer.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_DATA is Linux's")
def test_without_a_cgroup_the_process_may_not_allocate_more_than_the_budget(
    stand_in: None, gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama, "_parent_cgroup", lambda root, own: None)
    library = tmp_path / "library" / "llama_cpp.py"
    library.write_text(
        library.read_text() + "\nLlama.eval = lambda self, tokens: self.seen.append(len(bytearray(10**9)))\n"
    )
    peer = Llama(gguf, 400_000_000, 64, 1, PATH, lambda text: None)
    try:
        peer.open()
        assert "no cgroup" in peer.note
        with pytest.raises(Unavailable, match="MemoryError"):
            peer.run(PATH, [1], 1)
    finally:
        peer.close()


def test_where_the_system_hands_out_cgroups_the_cap_is_one(tmp_path: Path) -> None:
    """With plain folders for the kernel's: what is written where."""
    own, root = tmp_path / "own", tmp_path / "cgroups"
    slice_ = root / "user.slice"
    (slice_ / "terminal.scope").mkdir(parents=True)
    (slice_ / "cgroup.subtree_control").write_text("cpu memory pids\n")
    own.write_text("1:name=systemd:/x\n0::/user.slice/terminal.scope\n")
    cap = MemoryCap(5_000, root, own)
    assert cap.counts_pages
    (group,) = slice_.glob("greenroom-bench-*")
    assert (group / "memory.max").read_text() == "5000"
    cap.hold(os.getpid())
    assert (group / "cgroup.procs").read_text() == str(os.getpid())

    (slice_ / "cgroup.subtree_control").write_text("cpu\n")
    without = MemoryCap(5_000, root, own)
    assert not without.counts_pages
    assert "no cgroup" in without.note
